/* The program puts itself under seccomp while it is traced. From then on a filter may kill it for system calls that it
 * never makes itself, so the agent makes none any more (np_may_call): what cannot be done without is a fault of the
 * clause, as vtimestamp, or is done less exactly.
 *
 * The agent stands in front of the calls by which programs get there (shims.c). It is noted before the filter is there,
 * and for good, whatever the call then yields: in the thread table, which is this process's own, and, if this is the
 * traced process, in the arena, for the children that it forks from then on inherit its filter and find an empty table.
 */
#ifndef NANOPROBE_SANDBOX_H
#define NANOPROBE_SANDBOX_H

#include "syscalls.h"

enum { NP_PR_SET_SECCOMP = 22, NP_SYS_SECCOMP = 317 };

void np_note_sandbox(void);

#endif
