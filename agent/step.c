/* Single steps: the relocated instruction is executed with the trap flag set, until it is done.
 *
 *     int3 -> SIGTRAP -> np_at_site:      fires; rip = copy, TF = 1, all signals blocked that can be
 *     copy:  the relocated instruction    a trap after each of its instructions  (a call has two), and of each
 *                                         iteration of a string instruction
 *          -> SIGTRAP -> np_end_step:     as soon as rip is elsewhere: TF and mask are as they were
 *
 * kprobes and uprobes once worked like this. This form exists only for comparison: every instruction that can be
 * stepped can be boosted, which takes one signal less. The copy is the same as in the boosted form, so correctness
 * does not depend on the steps. When strace or a debugger swallows such a trap, or a signal is sent meanwhile, the
 * thread still continues and arrives.
 *
 * A thread's step is recorded in the thread table, which is private memory, by its thread pointer. One entry for
 * each thread is enough: signals are blocked, and an instruction that enters the kernel is never stepped. So no
 * other code of the program runs in this thread until the step ends.
 */
#include "emulate.h"
#include "threads.h"

/* SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV: the signals that an instruction raises. */
#define NP_RAISED (NP_SYNCHRONOUS | 1UL << 7)

/* The place of the calling thread's step; 0: there is none. */
static struct np_step *own_step(void)
{
	struct np_thread_table *table = (struct np_thread_table *)np_header.table;
	u64 key = table ? np_context_key(table) : 0;
	struct np_thread_slot *slot = key ? np_own_slot(table, key) : 0;
	return slot ? &table->steps[slot - table->slots] : 0;
}

void np_begin_step(const struct np_emulation *emulation, struct np_ucontext *ucontext)
{
	struct np_step *step = ucontext->flags & NP_FLAG_TRAP ? 0 : own_step();
	if (!step)
		return;
	step->mask = ucontext->mask;
	step->emulation = (u64)emulation;
	ucontext->mask |= ~NP_RAISED;
	ucontext->flags |= NP_FLAG_TRAP;
}

void np_cancel_step(struct np_ucontext *ucontext)
{
	struct np_step *step = ucontext->flags & NP_FLAG_TRAP ? own_step() : 0;
	if (!step || !step->emulation)
		return;
	ucontext->flags &= ~NP_FLAG_TRAP;
	ucontext->mask = step->mask;
	step->emulation = 0;
}

int np_end_step(struct np_ucontext *ucontext)
{
	struct np_step *step = own_step();
	if (!step || !step->emulation)
		return 0;
	const struct np_emulation *emulation = (const struct np_emulation *)step->emulation;
	u64 copy = np_place(&emulation->copy), end = np_place(&emulation->copy_end);
	if (ucontext->rip - copy < end - copy)
		return 1;
	if (ucontext->rip == end)
		ucontext->rip = emulation->site + emulation->length;
	np_cancel_step(ucontext);
	return 1;
}
