/* The hash of keys, the same in arena::hash: one rotate, one exclusive or and one multiplication a word; the upper half
 * of the last product is the well-mixed one. */
#ifndef NANOPROBE_HASH_H
#define NANOPROBE_HASH_H

#include "agent.h"

NP_INLINE u64 np_hash_step(u64 hash, u64 word)
{
	return (((hash << 5) | (hash >> 59)) ^ word) * 0x9e3779b97f4a7c15UL;
}

/* Of the key in the context's buffer, for the variable or aggregation `id`. */
NP_INLINE u32 np_hash_key(u64 id, const u64 *key, u64 words)
{
	u64 hash = np_hash_step(0, id);
	for (u64 word = 0; word < words; word++)
		hash = np_hash_step(hash, key[word]);
	return (u32)(hash >> 32);
}

NP_INLINE int np_same_words(const u64 *left, const u64 *right, u64 words)
{
	for (u64 word = 0; word < words; word++)
		if (left[word] != right[word])
			return 0;
	return 1;
}

#endif
