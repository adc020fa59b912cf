/* Speculations: numbers that a program takes, and ends by commit() or discard().
 *
 * Each speculation has a word in the arena (enum np_speculation_word). A thread takes it with a
 * compare-and-exchange, and counts the recorded bytes in the word. The first commit or discard marks the word as
 * ended. The tracer frees the speculation when it reads the record of the commit or discard. Records under a
 * number wait in the tracer (crates/export/src/speculation.rs), so nothing is copied here.
 */
#include "agent.h"

/* Other threads change the word at the same time. After this many failures, the call is treated as one that came
 * too late. */
#define ATTEMPTS_MAX 1000

NP_INLINE u64 *word_of(const struct np_context *context, u64 index)
{
	struct np_control *control = np_control_block(context);
	return (u64 *)((u64)control + control->speculations_offset) + index;
}

NP_INLINE u64 number_of_words(const struct np_context *context)
{
	return np_minimum(np_control_block(context)->speculation_count, NP_SPECULATIONS_MAX);
}

/* Replaces the word by `word` if it is `expected`. Yields whether it was; if not, `expected` gets its value. */
NP_INLINE int exchange(u64 *at, u64 *expected, u64 word)
{
	return __atomic_compare_exchange_n(at, expected, word, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* result = the number, from 1, of a free speculation; 0: there is none, and that is counted. */
NP_ENTRY void np_speculation(struct np_context *context)
{
	struct np_control *control = np_control_block(context);
	u64 count = number_of_words(context);
	context->result = 0;
	for (u64 index = 0; index < count; index++) {
		u64 expected = 0;
		if (exchange(word_of(context, index), &expected, NP_SPECULATION_TAKEN)) {
			context->result = index + 1;
			return;
		}
	}
	__atomic_fetch_add(&control->speculation_failures, 1, __ATOMIC_RELAXED);
}

/* result = whether this speculation is taken and has room for this many bytes. If so, the bytes are counted. A lack
 * of room is counted, too. */
NP_ENTRY void np_speculate(struct np_context *context, u64 id, u64 bytes)
{
	struct np_control *control = np_control_block(context);
	context->result = 0;
	if (id - 1 >= number_of_words(context))
		return;
	u64 *at = word_of(context, id - 1), word = np_load_once(*at);
	for (int attempt = 0; attempt < ATTEMPTS_MAX && word & NP_SPECULATION_TAKEN; attempt++) {
		if ((word >> NP_SPECULATION_SHIFT) + bytes > control->speculation_bytes) {
			__atomic_fetch_add(&control->speculation_drops, 1, __ATOMIC_RELAXED);
			return;
		}
		if (exchange(at, &word, word + (bytes << NP_SPECULATION_SHIFT))) {
			context->result = 1;
			return;
		}
	}
}

/* result = the number, if this speculation was taken and this call has ended it; else 0. */
NP_ENTRY void np_end_speculation(struct np_context *context, u64 id)
{
	context->result = 0;
	if (id - 1 >= number_of_words(context))
		return;
	u64 *at = word_of(context, id - 1), word = np_load_once(*at);
	for (int attempt = 0; attempt < ATTEMPTS_MAX && word & NP_SPECULATION_TAKEN; attempt++) {
		if (exchange(at, &word, NP_SPECULATION_ENDED)) {
			context->result = id;
			return;
		}
	}
}
