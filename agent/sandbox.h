/* The program may put itself under seccomp while it is traced. From then on a filter may kill it for system calls
 * that it never makes itself, so the agent makes no more system calls (np_may_call). Where a call is needed the
 * clause faults, as for vtimestamp; elsewhere the result is less exact.
 *
 * The agent intercepts the calls that install a filter (shims.c). It notes the call before the filter is
 * installed, and keeps the note whatever the call returns. The note is in a part of the thread table that a forked
 * child inherits, as it inherits the filter. For the traced process the note is also in the arena, for the tracer.
 */
/* Some calls also forbid the thread to read the time stamp counter: seccomp's strict mode, and PR_SET_TSC. Reading it
 * then ends the process. Handlers and the agent read it, so the thread fires nothing more, and its hits are missed.
 */
#ifndef NANOPROBE_SANDBOX_H
#define NANOPROBE_SANDBOX_H

#include "syscalls.h"

enum {
	NP_PR_SET_SECCOMP = 22,
	NP_PR_SET_TSC = 26,
	NP_PR_TSC_SIGSEGV = 2,
	NP_PR_SET_SYSCALL_USER_DISPATCH = 59,
	NP_SECCOMP_MODE_STRICT = 1,
	NP_SECCOMP_SET_MODE_STRICT = 0,
	NP_SYS_SECCOMP = 317,
	NP_SANDBOXED_WITHOUT_CLOCK = 2, /* np_inherited.sandboxed */
};

void np_note_sandbox(void);
void np_note_no_clock(void);

/* The thread is about to turn Syscall User Dispatch on, by this `syscall` (dispatch.c). */
void np_shim_dispatch(const struct np_registers *registers, u64 syscall);

#endif
