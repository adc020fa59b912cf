/* Calls that execute another program: see exec.c. */
#ifndef NANOPROBE_EXEC_H
#define NANOPROBE_EXEC_H

#include "threads.h"

/* Yields whether the call was made, and has failed: then rax holds its result. */
u64 np_shim_exec(struct np_registers *registers);

#endif
