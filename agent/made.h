/* System calls of code that the program has made. See made.c. */
#ifndef NANOPROBE_MADE_H
#define NANOPROBE_MADE_H

#include "chain.h"

/* mprotect and pkey_mprotect: makes the call, and waits where memory becomes executable that may hold calls. Yields
 * whether the call is made. */
u64 np_shim_protect(struct np_registers *registers);

/* A thread has trapped at a patched call, whose detour is at `to`. Yields whether the trap is ours. */
int np_continue_call(u64 at, u64 to, struct np_ucontext *ucontext);

/* A thread has trapped where no patch is known. Yields whether this was a copy of one, which is a `syscall` again. */
int np_mend_copy(u64 at, struct np_ucontext *ucontext);

/* Tells the tracer that the program's code has changed, and waits for its answer (library.c). */
void np_wait_for_tracer(void);

#endif
