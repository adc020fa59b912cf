/* The functions that the subroutines on strings share. The functions are short, so each file has its own copy of
 * them. */
#ifndef NANOPROBE_TEXT_H
#define NANOPROBE_TEXT_H

#include "scratch.h"

/* The bytes before the NUL, at most strsize - 1: as many as a string variable can hold. */
static inline u64 np_text_length(const struct np_context *context, u64 string)
{
	u64 limit = np_control_block(context)->strsize, done = 0;
	while (done + 1 < limit && *(const volatile u8 *)(string + done))
		done++;
	return done;
}

NP_INLINE u8 np_text_byte(u64 string, u64 index)
{
	return *(const volatile u8 *)(string + index);
}

NP_INLINE void np_text_put(u64 string, u64 index, u8 byte)
{
	*(volatile u8 *)(string + index) = byte;
}

/* The result: a copy of `bytes` bytes, none of them NUL, with a NUL after them. */
static inline void np_yield_copy(struct np_context *context, u64 source, u64 bytes)
{
	u64 copy = np_scratch_make(context, bytes + 1);
	if (!copy)
		return;
	for (u64 done = 0; done < bytes; done++)
		np_text_put(copy, done, np_text_byte(source, done));
	np_text_put(copy, bytes, 0);
	context->result = copy;
}

#endif
