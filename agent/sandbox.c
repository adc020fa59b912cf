/* The program puts itself under seccomp while it is traced. From then on a filter may kill it for system calls that it
 * never makes itself, so the agent makes none any more (np_may_call): what cannot be done without is a fault of the clause,
 * as vtimestamp, or is done less exactly.
 *
 * The tracer has the entries of prctl(3) and syscall(3), by which programs get there, call these two. It is noted before
 * the filter is there, and for good, whatever the call then yields: in the thread table, which is this process's own, and,
 * if this is the traced process, in the arena, for the children that it forks from then on inherit its filter and find an
 * empty table. (Who makes the system call itself, without libc, is not seen.)
 */
#include "syscalls.h"

enum { NP_PR_SET_SECCOMP = 22, NP_SYS_PRCTL = 157, NP_SYS_SECCOMP = 317 };

NP_COLD static void note_sandbox(void)
{
	struct np_thread_table *table = (struct np_thread_table *)np_header.table;
	struct np_control *control = (struct np_control *)np_header.control;
	np_store(table->sandboxed, 1);
	if (np_load_once(table->magic) == NP_MAGIC)
		np_store(control->sandboxed, 1);
}

NP_ENTRY void np_watch_prctl(u64 option)
{
	if (np_unlikely((u32)option == NP_PR_SET_SECCOMP))
		note_sandbox();
}

NP_ENTRY void np_watch_syscall(u64 number, u64 option)
{
	if (np_unlikely(number == NP_SYS_SECCOMP || (number == NP_SYS_PRCTL && (u32)option == NP_PR_SET_SECCOMP)))
		note_sandbox();
}
