/* The hash of keys, the same as in arena::hash. Each word is xor'ed in, and both halves of one
 * long multiplication are folded together. So every bit of a key reaches the low bits that choose
 * the bucket. */
#ifndef NANOPROBE_HASH_H
#define NANOPROBE_HASH_H

#include "agent.h"

#define NP_HASH_SEED 0x243f6a8885a308d3UL
#define NP_HASH_FACTOR 0x9e3779b97f4a7c15UL

NP_INLINE u64 np_hash_step(u64 hash, u64 word)
{
	unsigned __int128 product = (unsigned __int128)(hash ^ word) * NP_HASH_FACTOR;
	return (u64)product ^ (u64)(product >> 64);
}

/* The hash of the key in the context's buffer, for the variable or aggregation `id`. */
NP_INLINE u32 np_hash_key(u64 id, const u64 *key, u64 words)
{
	u64 hash = np_hash_step(NP_HASH_SEED, id);
	for (u64 word = 0; word < words; word++)
		hash = np_hash_step(hash, key[word]);
	return (u32)hash;
}

NP_INLINE int np_same_words(const u64 *left, const u64 *right, u64 words)
{
	for (u64 word = 0; word < words; word++)
		if (left[word] != right[word])
			return 0;
	return 1;
}

#endif
