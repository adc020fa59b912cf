/* The program may put itself under seccomp while it is traced. From then on a filter may kill it for system calls
 * that it never makes itself, so the agent makes no more system calls (np_may_call). Where a call is needed the
 * clause faults, as for vtimestamp; elsewhere the result is less exact.
 *
 * The agent intercepts the calls that install a filter (shims.c). It notes the call before the filter is
 * installed, and keeps the note whatever the call returns. The note is in a part of the thread table that a forked
 * child inherits, as it inherits the filter. For the traced process the note is also in the arena, for the tracer.
 */
#ifndef NANOPROBE_SANDBOX_H
#define NANOPROBE_SANDBOX_H

#include "syscalls.h"

enum { NP_PR_SET_SECCOMP = 22, NP_SYS_SECCOMP = 317 };

void np_note_sandbox(void);

#endif
