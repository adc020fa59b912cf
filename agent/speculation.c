/* Speculations: numbers that a program takes, and gives back by commit() or discard().
 *
 * A word in the arena for each: 0 when it is free, 1 when it is taken. A thread takes one with a compare-and-exchange; the
 * tracer gives it back when it meets the record of a commit or a discard. What is recorded under a number waits in the
 * tracer (crates/export/src/speculation.rs), so nothing is copied here.
 */
#include "agent.h"

NP_INLINE u64 *word_of(const struct np_context *context, u64 index)
{
	struct np_control *control = np_control_block(context);
	return (u64 *)((u64)control + control->speculations_offset) + index;
}

/* result = the number of a speculation that was free, counted from 1; 0: there is none, and that is counted. */
NP_ENTRY void np_speculation(struct np_context *context)
{
	struct np_control *control = np_control_block(context);
	u64 count = np_minimum(control->speculation_count, NP_SPECULATIONS_MAX);
	context->result = 0;
	for (u64 index = 0; index < count; index++) {
		u64 expected = 0;
		if (__atomic_compare_exchange_n(word_of(context, index), &expected, 1, 0, __ATOMIC_ACQ_REL,
		                                __ATOMIC_RELAXED)) {
			context->result = index + 1;
			return;
		}
	}
	__atomic_fetch_add(&control->speculation_failures, 1, __ATOMIC_RELAXED);
}

/* result = whether this speculation is taken. */
NP_ENTRY void np_speculate(struct np_context *context, u64 id)
{
	u64 count = np_minimum(np_control_block(context)->speculation_count, NP_SPECULATIONS_MAX);
	context->result = id - 1 < count && np_load_once(*word_of(context, id - 1)) == 1;
}
