/* A thread is about to execute another program, and the tracer follows programs.
 *
 * The tracer must hold the thread by ptrace before the call: then the kernel stops the new program before its first
 * instruction. So the thread takes an entry of control->execs, and waits for the answer:
 *
 *     HELD   the tracer has seized the thread. The agent makes the call. If it returns, it has failed: the program
 *            gets the error, and the tracer lets go of the thread.
 *     ALONE  the tracer does not take this program (set-user-ID, of another user, not a file). The program makes the
 *            call itself, untraced.
 *
 * The wait ends without an answer if the tracer's heartbeat is old, or after NP_EXEC_WAIT_NS. The thread then makes its
 * call untraced, and counts that. A tracer that has ended has no heartbeat. For such a tracer it waits five seconds at
 * most. On a busy machine, many programs before this one may take a minute.
 *
 * A child of vfork runs in its parent's memory, with its parent's thread pointer. Nothing here depends on either. */
#include "exec.h"
#include "ring.h"
#include "syscalls.h"

#define NP_EXEC_WAIT_NS 60000000000UL
#define NP_EXEC_NAP_NS 200000UL
#define NP_EXEC_LOOKS 300000u
#define NP_AT_FDCWD (-100)
enum { NP_EXEC_FUTEX_WAIT = 0, NP_EXEC_FUTEX_WAKE = 1 };

static struct np_exec *free_entry(struct np_control *control)
{
	for (u32 index = 0; index < NP_EXECS; index++) {
		struct np_exec *entry = &control->execs[index];
		u32 found = NP_EXEC_FREE;
		if (__atomic_compare_exchange_n(&entry->state, &found, NP_EXEC_BUSY, 0, __ATOMIC_ACQ_REL,
						__ATOMIC_RELAXED))
			return entry;
	}
	return 0;
}

/* Waits for the answer. An entry that is given up becomes free, unless the answer comes at that moment. */
static u32 answer(struct np_control *control, struct np_exec *entry)
{
	u64 start = np_tsc(), nap[2] = { 0, NP_EXEC_NAP_NS };
	for (u32 look = 0; look < NP_EXEC_LOOKS; look++) {
		u32 state = np_load_once(entry->state);
		if (state != NP_EXEC_ASKED)
			return state;
		u64 now = np_tsc(), heartbeat = np_load_once(control->tracer_heartbeat);
		if (!heartbeat || (i64)(now - heartbeat) > (i64)control->heartbeat_limit)
			break;
		if ((u64)((unsigned __int128)(now - start) * control->clock_mult >> 32) > NP_EXEC_WAIT_NS)
			break;
		np_syscall6(NP_SYS_FUTEX, (u64)&entry->state, NP_EXEC_FUTEX_WAIT, NP_EXEC_ASKED, (u64)nap, 0, 0);
	}
	u32 state = NP_EXEC_ASKED;
	if (!__atomic_compare_exchange_n(&entry->state, &state, NP_EXEC_FREE, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return state;
	__atomic_fetch_add(&control->execs_alone, 1, __ATOMIC_RELAXED);
	return NP_EXEC_FREE;
}

u64 np_shim_exec(struct np_registers *registers)
{
	struct np_control *control = (struct np_control *)np_header.control;
	if (!np_load_once(control->follows_programs) || !np_load_once(control->tracer_heartbeat))
		return 0;
	if (!np_may_call()) {
		__atomic_fetch_add(&control->execs_sandboxed, 1, __ATOMIC_RELAXED);
		return 0;
	}
	struct np_exec *entry = free_entry(control);
	if (!entry) {
		__atomic_fetch_add(&control->execs_alone, 1, __ATOMIC_RELAXED);
		return 0;
	}
	int at = (u32)registers->rax == NP_SYS_EXECVEAT;
	entry->tid = (u32)np_syscall4(NP_SYS_GETTID, 0, 0, 0, 0);
	entry->pid = (u32)np_syscall4(NP_SYS_GETPID, 0, 0, 0, 0);
	entry->folder = at ? (i32)registers->rdi : NP_AT_FDCWD;
	entry->path = at ? registers->rsi : registers->rdi;
	entry->flags = at ? (u32)registers->r8 : 0;
	np_store(entry->state, NP_EXEC_ASKED);
	__atomic_fetch_add(&control->exec_requests, 1, __ATOMIC_SEQ_CST);
	np_syscall6(NP_SYS_FUTEX, (u64)&control->exec_requests, NP_EXEC_FUTEX_WAKE, 1, 0, 0, 0);
	u32 answered = answer(control, entry);
	if (answered != NP_EXEC_HELD) {
		if (answered == NP_EXEC_ALONE)
			np_store(entry->state, NP_EXEC_FREE);
		return 0;
	}
	i64 failed = np_syscall6((u32)registers->rax, registers->rdi, registers->rsi, registers->rdx, registers->r10,
				 registers->r8, 0);
	u32 held = NP_EXEC_HELD;
	__atomic_compare_exchange_n(&entry->state, &held, NP_EXEC_FAILED, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
	registers->rax = (u64)failed;
	return 1;
}
