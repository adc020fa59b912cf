/* Scratch memory: the values that a clause makes and keeps until it ends. It is bump-allocated, in words of 8
 * bytes. The memory has 8 bytes more than scratch_bytes. */
#ifndef NANOPROBE_SCRATCH_H
#define NANOPROBE_SCRATCH_H

#include "agent.h"

/* The next free address, aligned, and the number of free bytes from there on. */
NP_INLINE u64 np_scratch_next(const struct np_context *context, u64 *room)
{
	/* The used part may end within a word: see np_scratch_store. */
	u64 used = np_minimum((context->scratch_used + 7) & ~7UL, context->scratch_bytes);
	*room = context->scratch_bytes - used;
	return context->scratch + used;
}

NP_INLINE void np_scratch_take(struct np_context *context, u64 bytes)
{
	context->scratch_used = ((context->scratch_used + 7) & ~7UL) + ((bytes + 7) & ~7UL);
}

/* Takes `bytes` bytes. If not enough are left, sets the fault and yields 0. */
NP_INLINE u64 np_scratch_make(struct np_context *context, u64 bytes)
{
	u64 room, destination = np_scratch_next(context, &room);
	if (np_unlikely(bytes > room)) {
		np_fault(context, NP_FAULT_SCRATCH, bytes);
		context->result = (u64)np_zeros;
		return 0;
	}
	np_scratch_take(context, bytes);
	return destination;
}

/* Whether the running clause has taken all of [address, address + bytes). */
NP_INLINE int np_in_scratch(const struct np_context *context, u64 address, u64 bytes)
{
	u64 used = np_minimum(context->scratch_used, context->scratch_bytes);
	u64 offset = address - context->scratch;
	return offset <= used && bytes <= used - offset;
}

/* The same check for a store. One byte right after the last allocation may be stored, too: scripts put a NUL after
 * the result of copyin() (`s[n] = 0`), and illumos, FreeBSD and macOS allow it. The allocation then ends within a
 * word, and no further byte after it may be stored. */
NP_INLINE int np_scratch_store(struct np_context *context, u64 address, u64 bytes)
{
	u64 room, next = np_scratch_next(context, &room);
	if (bytes == 1 && address == next && room && !(context->scratch_used & 7))
		context->scratch_used += 1;
	return np_in_scratch(context, address, bytes);
}

#endif
