/* Waiting for signals, and what becomes of those that arrive: see waits.c. */
#ifndef NANOPROBE_WAITS_H
#define NANOPROBE_WAITS_H

#include "chain.h"
#include "threads.h"

/* What np_shim says: as np_shim_syscall, and the wait that the thread is about to begin, or 0. */
struct np_shimmed {
	u64 made;
	struct np_wait *wait;
};

/* A call that waits for signals or under a mask of its own; any other one says that the thread's last wait is over. */
struct np_shimmed np_shim_wait(struct np_registers *registers, u64 lends, u64 syscall);

/* A signal has arrived that somebody has sent. Yields whether the program is not told of it now. */
int np_hold(i32 signal, const struct np_siginfo *information, struct np_ucontext *ucontext);

/* Whether the kernel can read the 8 bytes of a mask, by a change in a way that does not exist. */
NP_INLINE int np_is_mask(u64 address)
{
	return np_syscall4(NP_SYS_RT_SIGPROCMASK, (u64)-1, address, 0, 8) != -NP_EFAULT;
}

#endif
