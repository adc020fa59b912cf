/* Functions on the agent's own strings (in the arena, in scratch memory, constants of the handlers). They handle
 * eight bytes at a time. */
#ifndef NANOPROBE_STRINGS_H
#define NANOPROBE_STRINGS_H

#include "agent.h"

/* The top bit of the lowest zero byte. Higher bits of the result may be wrong, lower bits are right. 0: no byte is
 * zero. */
NP_INLINE u64 np_zero_bytes(u64 word)
{
	return (word - 0x0101010101010101UL) & ~word & 0x8080808080808080UL;
}

/* Eight bytes of a NUL-terminated string. The memory after the NUL may be unmapped. So if a load would cross into
 * the next page, the bytes are loaded one by one, up to the NUL. */
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

/* `word`, in which all bytes from the first zero byte on are cleared; `zero` is np_zero_bytes(word), not 0. */
NP_INLINE u64 np_up_to_zero(u64 word, u64 zero)
{
	return word & ((1UL << ((u32)__builtin_ctzl(zero) & ~7u)) - 1);
}

#endif
