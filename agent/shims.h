/* What stands before the program's calls that concern its signals. Each function takes the registers that a `syscall`
 * would have, and yields whether it has made the call; then rax is the result. */
#ifndef NANOPROBE_SHIMS_H
#define NANOPROBE_SHIMS_H

#include "agent.h"

u64 np_shim_sigprocmask(struct np_registers *registers);
u64 np_shim_sigaction(struct np_registers *registers);

/* Before an `int $0x80`, with the registers that this has. */
u64 np_shim_interrupt(struct np_registers *registers);

#endif
