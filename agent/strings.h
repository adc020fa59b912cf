/* Our own strings (arena, scratch, constants of the handlers), eight bytes at a time. */
#ifndef NANOPROBE_STRINGS_H
#define NANOPROBE_STRINGS_H

#include "agent.h"

/* The top bit of the lowest zero byte. Bits above it may be wrong, but none below it. 0: no byte is zero. */
NP_INLINE u64 np_zero_bytes(u64 word)
{
	return (word - 0x0101010101010101UL) & ~word & 0x8080808080808080UL;
}

/* Eight bytes of a NUL-terminated string. The bytes after its NUL may be unmapped. So a load that
 * would cross into the next page goes byte by byte and stops at the NUL. */
NP_INLINE u64 np_string_word(u64 string)
{
	if (np_likely((string & 4095) <= 4096 - 8))
		return *(const volatile u64 *)string;
	u64 word = 0;
	for (u32 shift = 0; shift < 64; shift += 8) {
		u64 byte = *(const volatile u8 *)(string + shift / 8);
		word |= byte << shift;
		if (!byte)
			break;
	}
	return word;
}

/* `word` with everything from its first zero byte on cleared; `zero` is np_zero_bytes(word), not 0. */
NP_INLINE u64 np_up_to_zero(u64 word, u64 zero)
{
	return word & ((1UL << ((u32)__builtin_ctzl(zero) & ~7u)) - 1);
}

#endif
