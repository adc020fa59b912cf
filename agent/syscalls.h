/* The few system calls that the agent makes. Each returns the kernel's value: a negative errno is an error. */
#ifndef NANOPROBE_SYSCALLS_H
#define NANOPROBE_SYSCALLS_H

#include "agent.h"

enum {
	NP_SYS_CLOSE = 3,
	NP_SYS_MPROTECT = 10,
	NP_SYS_RT_SIGACTION = 13,
	NP_SYS_RT_SIGPROCMASK = 14,
	NP_SYS_PWRITE64 = 18,
	NP_SYS_GETPID = 39,
	NP_SYS_GETSOCKNAME = 51,
	NP_SYS_GETPEERNAME = 52,
	NP_SYS_GETSOCKOPT = 55,
	NP_SYS_CLONE = 56,
	NP_SYS_EXECVE = 59,
	NP_SYS_GETCWD = 79,
	NP_SYS_GETPPID = 110,
	NP_SYS_READLINK = 89,
	NP_SYS_RT_SIGPENDING = 127,
	NP_SYS_RT_SIGTIMEDWAIT = 128,
	NP_SYS_RT_SIGSUSPEND = 130,
	NP_SYS_SIGALTSTACK = 131,
	NP_SYS_PRCTL = 157,
	NP_SYS_GETTID = 186,
	NP_SYS_NANOSLEEP = 35,
	NP_SYS_FUTEX = 202,
	NP_SYS_CLOCK_GETTIME = 228,
	NP_SYS_OPENAT = 257,
	NP_SYS_PSELECT6 = 270,
	NP_SYS_PPOLL = 271,
	NP_SYS_EPOLL_PWAIT = 281,
	NP_SYS_RT_TGSIGQUEUEINFO = 297,
	NP_SYS_PROCESS_VM_READV = 310,
	NP_SYS_PROCESS_VM_WRITEV = 311,
	NP_SYS_EXECVEAT = 322,
	NP_SYS_PKEY_MPROTECT = 329,
	NP_SYS_STATX = 332,
	NP_SYS_IO_PGETEVENTS = 333,
	NP_SYS_CLONE3 = 435,
	NP_SYS_EPOLL_PWAIT2 = 441,
};
enum { NP_EPERM = 1, NP_EINTR = 4, NP_EFAULT = 14, NP_EINVAL = 22, NP_ENOSYS = 38 };

NP_INLINE i64 np_syscall6(i64 number, u64 a, u64 b, u64 c, u64 d, u64 e, u64 f)
{
	i64 result;
	register u64 r10 __asm__("r10") = d;
	register u64 r8 __asm__("r8") = e;
	register u64 r9 __asm__("r9") = f;
	__asm__ volatile("syscall"
		: "=a"(result)
		: "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
		: "rcx", "r11", "memory");
	return result;
}

NP_INLINE i64 np_syscall4(i64 number, u64 a, u64 b, u64 c, u64 d)
{
	i64 result;
	register u64 r10 __asm__("r10") = d;
	__asm__ volatile("syscall"
		: "=a"(result)
		: "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10)
		: "rcx", "r11", "memory");
	return result;
}

/* Whether system calls are allowed, because no seccomp filter is known: see sandbox.c. */
NP_INLINE int np_may_call(void)
{
	const struct np_control *control = (const struct np_control *)np_header.control;
	const struct np_thread_table *table = (const struct np_thread_table *)np_header.table;
	/* The shims that see a filter coming are the host's. */
	const struct np_thread_table *host = (const struct np_thread_table *)np_load_once(*(u64 *)&np_header.host_table);
	return np_load_once(*(u64 *)&np_header.allow_syscalls) != 0 && !(control && np_load_once(control->sandboxed)) &&
	       !(table && np_load_once(table->inherited.sandboxed)) && !(host && np_load_once(host->inherited.sandboxed));
}

#endif
