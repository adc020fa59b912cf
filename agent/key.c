/* Builds keys: elements of whole words, one after the other in the context's key buffer. An element
 * that does not fit is a fault, and the key stays as it was. */
#include "strings.h"
#include "unwind.h"

NP_INLINE u64 key_room(const struct np_context *context)
{
	u64 used = context->key_bytes, capacity = context->key_capacity;
	return used <= capacity ? capacity - used : 0;
}

NP_ENTRY void np_key_integer(struct np_context *context, u64 value)
{
	u64 used = context->key_bytes;
	if (np_unlikely(key_room(context) < 8)) {
		np_fault(context, NP_FAULT_KEY_TOO_LONG, 0);
		return;
	}
	*(volatile u64 *)(context->key + used) = value;
	context->key_bytes = used + 8;
}

NP_ENTRY void np_key_string(struct np_context *context, u64 string)
{
	u64 limit = np_control_block(context)->strsize, room = key_room(context), used = context->key_bytes, done = 0;
	u64 destination = context->key + used;
	while (np_likely(done + 8 <= room)) {
		u64 word = np_string_word(string + done), zero = np_zero_bytes(word);
		if (zero)
			word = np_up_to_zero(word, zero);
		if (np_unlikely(done + 8 >= limit)) {
			/* The last word of the longest possible string, whose NUL is at limit - 1. */
			u64 kept = limit ? limit - 1 - done : 0;
			word &= (1UL << (kept * 8)) - 1;
			zero = 1;
		}
		*(volatile u64 *)(destination + done) = word;
		done += 8;
		if (zero) {
			context->key_bytes = used + done;
			return;
		}
	}
	np_fault(context, NP_FAULT_KEY_TOO_LONG, 0);
}

NP_ENTRY void np_key_stack(struct np_context *context, u64 frames)
{
	u64 room = key_room(context), used = context->key_bytes;
	if (!frames)
		frames = np_control_block(context)->ustackframes;
	if (np_unlikely(room < 16)) {
		np_fault(context, NP_FAULT_KEY_TOO_LONG, 0);
		return;
	}
	u64 count = np_walk(context, (u64 *)(context->key + used + 8), np_minimum(frames, room / 8 - 1));
	*(volatile u64 *)(context->key + used) = count;
	context->key_bytes = used + 8 + count * 8;
}
