/* Dynamic variables: one table for all threads and the tracer, chained hashing.
 *
 * Every bucket has a lock. Its users only try it, NP_DYNAMIC_SPINS times, because the owner may
 * have been stopped, or may be a tracer that has died. An access that does not get the lock is
 * dropped and counted. A chain's entries are read and written under the lock, and never unlinked.
 * An entry that was assigned zero is dead. The next new key of the same sizes in its bucket takes
 * it over. Strings are copied to scratch memory under the lock, so a value is never seen half
 * written; an integer is one word.
 */
#include "hash.h"
#include "scratch.h"
#include "strings.h"

/* At most this many entries of a bucket are searched. */
#define NP_DYNAMIC_CHAIN 4096

struct lookup {
	struct np_dynamic_table *table;
	struct np_dynamic_bucket *bucket;
	const u64 *key;
	u64 key_words;
	u32 hash;
};

NP_INLINE void dropped(struct np_context *context)
{
	__atomic_fetch_add(&np_control_block(context)->dynamic_drops, 1, __ATOMIC_RELAXED);
}

/* Finds the bucket and takes its lock; yields whether the lock is taken. */
static int open_bucket(struct np_context *context, u64 variable, struct lookup *lookup)
{
	struct np_control *control = np_control_block(context);
	if (!control->dynamic_offset)
		return 0;
	lookup->table = (struct np_dynamic_table *)((u64)control + control->dynamic_offset);
	lookup->key = (const u64 *)context->key;
	lookup->key_words = np_minimum(context->key_bytes, context->key_capacity) / 8;
	lookup->hash = np_hash_key(variable, lookup->key, lookup->key_words);
	lookup->bucket = (struct np_dynamic_bucket *)(lookup->table + 1) + (lookup->hash & lookup->table->bucket_mask);
	for (u32 spin = 0; spin < NP_DYNAMIC_SPINS; spin++) {
		u32 unlocked = 0;
		if (__atomic_compare_exchange_n(&lookup->bucket->lock, &unlocked, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			return 1;
		__builtin_ia32_pause();
	}
	return 0;
}

NP_INLINE void close_bucket(const struct lookup *lookup)
{
	np_store(lookup->bucket->lock, 0);
}

/* The key's entry, live or dead; else 0, with a dead entry of the same sizes in `*spare`, or 0. */
static struct np_dynamic_entry *find_entry(const struct lookup *lookup, u64 variable, u64 value_bytes,
                                           struct np_dynamic_entry **spare)
{
	struct np_dynamic_table *table = lookup->table;
	u64 limit = table->bytes, key_bytes = lookup->key_words * 8;
	u32 next = lookup->bucket->first;
	*spare = 0;
	for (u32 step = 0; next && step < NP_DYNAMIC_CHAIN; step++) {
		u64 offset = next * 8UL;
		if (offset > limit || limit - offset < sizeof(struct np_dynamic_entry) + key_bytes + value_bytes)
			return 0;
		struct np_dynamic_entry *entry = (struct np_dynamic_entry *)((u64)table + offset);
		if (entry->key_bytes == key_bytes && entry->value_bytes == value_bytes) {
			if (entry->hash == lookup->hash && entry->variable == (u32)variable &&
			    np_same_words((const u64 *)(entry + 1), lookup->key, lookup->key_words))
				return entry;
			if (!entry->live)
				*spare = entry;
		}
		next = entry->next;
	}
	return 0;
}

NP_INLINE u64 value_of(const struct np_dynamic_entry *entry)
{
	return (u64)(entry + 1) + entry->key_bytes;
}

static struct np_dynamic_entry *new_entry(struct lookup *lookup, u64 variable, u64 value_bytes,
                                          struct np_dynamic_entry *entry)
{
	struct np_dynamic_table *table = lookup->table;
	u64 bytes = sizeof(struct np_dynamic_entry) + lookup->key_words * 8 + value_bytes;
	if (!entry) {
		/* Other threads may allocate for other buckets at the same time. */
		u64 used = np_load_once(table->used);
		for (u32 spin = 0;; spin++) {
			if (used > table->bytes || bytes > table->bytes - used || spin == NP_DYNAMIC_SPINS)
				return 0;
			if (__atomic_compare_exchange_n(&table->used, &used, used + bytes, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
				break;
		}
		entry = (struct np_dynamic_entry *)((u64)table + used);
		entry->live = 0;
		entry->key_bytes = (u32)(lookup->key_words * 8);
		entry->value_bytes = (u32)value_bytes;
		entry->next = lookup->bucket->first;
		np_store(lookup->bucket->first, (u32)(used / 8));
	}
	entry->hash = lookup->hash;
	entry->variable = (u32)variable;
	volatile u64 *key = (volatile u64 *)(entry + 1);
	for (u64 word = 0; word < lookup->key_words; word++)
		key[word] = lookup->key[word];
	return entry;
}

/* A copy of a string value in scratch memory, which stays unchanged while the clause runs. */
static u64 copy_out(struct np_context *context, u64 value, u64 value_bytes)
{
	u64 room, copy = np_scratch_next(context, &room);
	if (value_bytes > room) {
		np_fault(context, NP_FAULT_SCRATCH, value_bytes);
		return 0;
	}
	for (u64 done = 0; done < value_bytes; done += 8)
		*(volatile u64 *)(copy + done) = *(volatile u64 *)(value + done);
	np_scratch_take(context, value_bytes);
	return copy;
}

NP_ENTRY void np_dynamic_get(struct np_context *context, u64 variable, u64 value_bytes)
{
	struct lookup lookup;
	struct np_dynamic_entry *spare;
	context->result = 0;
	value_bytes = (value_bytes + 7) & ~7UL;
	if (!open_bucket(context, variable, &lookup)) {
		dropped(context);
		return;
	}
	struct np_dynamic_entry *entry = find_entry(&lookup, variable, value_bytes, &spare);
	if (entry && entry->live)
		context->result = value_bytes > 8 ? copy_out(context, value_of(entry), value_bytes) : value_of(entry);
	close_bucket(&lookup);
}

NP_ENTRY void np_dynamic_store(struct np_context *context, u64 variable, u64 value_bytes, u64 value)
{
	struct lookup lookup;
	struct np_dynamic_entry *spare;
	value_bytes = (value_bytes + 7) & ~7UL;
	if (!open_bucket(context, variable, &lookup)) {
		dropped(context);
		return;
	}
	struct np_dynamic_entry *entry = find_entry(&lookup, variable, value_bytes, &spare);
	if (!value) {
		if (entry)
			entry->live = 0;
	} else {
		if (!entry)
			entry = new_entry(&lookup, variable, value_bytes, spare);
		if (!entry)
			dropped(context);
		else if (value_bytes > 8)
			np_strcpy(context, value_of(entry), value,
				  np_minimum(value_bytes, np_control_block(context)->strsize));
		else
			*(volatile u64 *)value_of(entry) = value;
		if (entry)
			entry->live = 1;
	}
	close_bucket(&lookup);
}
