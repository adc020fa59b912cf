/* The program may put itself under seccomp while it is traced. From then on a filter may kill it
 * for system calls that it never makes itself, so the agent makes none any more (np_may_call).
 * Where a call is needed the clause faults, as for vtimestamp; elsewhere the result is less exact.
 *
 * The agent intercepts the calls that install a filter (shims.c). It notes the call before the
 * filter is there, and for good, whatever the call returns. The note is in the thread table, which
 * is this process's own. In the traced process it is also in the arena, for later children: they
 * inherit its filter and find an empty table.
 */
#ifndef NANOPROBE_SANDBOX_H
#define NANOPROBE_SANDBOX_H

#include "syscalls.h"

enum { NP_PR_SET_SECCOMP = 22, NP_SYS_SECCOMP = 317 };

void np_note_sandbox(void);

#endif
