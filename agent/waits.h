/* Waiting for signals, and the treatment of signals that arrive: see waits.c. */
#ifndef NANOPROBE_WAITS_H
#define NANOPROBE_WAITS_H

#include "chain.h"
#include "threads.h"

/* The result of np_shim: that of np_shim_syscall, and the wait that the thread is about to begin, or 0. */
struct np_shimmed {
	u64 made;
	struct np_wait *wait;
};

/* Called before a system call, which may wait for signals, or under a mask of its own. Any other call shows that
 * the thread's last wait is over. */
struct np_shimmed np_shim_wait(struct np_registers *registers, u64 lends, u64 syscall);

/* A signal that was sent has arrived. Yields whether it is kept from the program for now. */
int np_hold(i32 signal, const struct np_siginfo *information, struct np_ucontext *ucontext);

/* Whether the kernel can read the 8 bytes of a mask. This is tested by a call of rt_sigprocmask with an invalid
 * `how`. */
NP_INLINE int np_is_mask(u64 address)
{
	return np_syscall4(NP_SYS_RT_SIGPROCMASK, (u64)-1, address, 0, 8) != -NP_EFAULT;
}

#endif
