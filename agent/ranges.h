/* The part of the target's memory that is known to be readable. See memory.c. */
#ifndef NANOPROBE_RANGES_H
#define NANOPROBE_RANGES_H

#include "guard.h"

/* Addresses below the first constant and above the second cannot be user memory, so they are not looked up. */
#define NP_LOWEST_ADDRESS 4096
#define NP_HIGHEST_ADDRESS ((1UL << 56) - 1)

/* The end of the readable range with `address`; 0: no range has it. */
NP_COLD u64 np_find_range(struct np_context *context, u64 publication, u64 address);

NP_INLINE u64 np_readable_end(struct np_context *context, u64 address)
{
	u64 publication = np_load_once(np_control_block(context)->ranges);
	if (np_likely(publication == context->range_publication && address >= context->range_start &&
	              address < context->range_end))
		return context->range_end;
	return np_find_range(context, publication, address);
}

/* Copies `bytes` bytes of the target's memory to ours by any available way; yields whether all could be read.
 * `destination` is aligned to 8. */
NP_COLD int np_fetch(struct np_context *context, u64 destination, u64 address, u64 bytes);

/* Reads a word that is in no range. `np_fetch` would look for a range again, and need more stack. */
int np_fetch_word(struct np_context *context, u64 address, u64 *word);

/* The word at `address` on the calling thread's stack; yields whether it could be read. */
int np_stack_word(struct np_context *context, u64 address, u64 *word);

#endif
