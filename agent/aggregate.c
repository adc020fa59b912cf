/* The hash aggregation of a thread: see struct np_aggregate_table. Only its thread writes, so there
 * is no lock. The tracer reads at any time, so an entry is complete before `used` passes it and
 * before its index is stored.
 *
 * A handler updates the words that it was given before it asks for others, and no handler runs
 * within another one. So at the start of np_aggregate no handler holds an address in this thread's
 * table. np_aggregate may therefore switch to the other table. */
#include "guard.h"
#include "hash.h"

static NP_COLD struct np_aggregate_entry *add_entry(struct np_aggregate_table *table, u32 *bucket, u32 hash,
                                                    u64 aggregation, const u64 *key, u64 key_words, u64 value_words)
{
	u64 used = table->used, bytes = sizeof(struct np_aggregate_entry) + (key_words + value_words) * 8;
	if (used > table->bytes || value_words > table->bytes / 8 || bytes > table->bytes - used)
		return 0;
	struct np_aggregate_entry *entry = (struct np_aggregate_entry *)((u64)table + used);
	entry->hash = hash;
	entry->aggregation = (u32)aggregation;
	entry->key_bytes = (u32)(key_words * 8);
	entry->value_words = (u32)value_words;
	volatile u64 *to = (volatile u64 *)(entry + 1);
	for (u64 word = 0; word < key_words; word++)
		to[word] = key[word];
	for (u64 word = 0; word < value_words; word++)
		to[key_words + word] = 0;
	np_store(table->used, used + bytes);
	np_store(*bucket, (u32)(used / 8));
	return entry;
}

NP_ENTRY void np_aggregate(struct np_context *context, u64 aggregation, u64 value_words)
{
	u64 wanted = np_load_once(context->aggregates_wanted);
	/* This store comes after all updates of the old table. */
	if (np_unlikely(wanted != context->aggregates))
		np_store(context->aggregates, wanted);
	struct np_aggregate_table *table = (struct np_aggregate_table *)wanted;
	const u64 *key = (const u64 *)context->key;
	u64 key_words = np_minimum(context->key_bytes, context->key_capacity) / 8;
	struct np_aggregate_entry *entry = 0;
	if (np_likely(table != 0)) {
		u32 hash = np_hash_key(aggregation, key, key_words);
		u32 *buckets = (u32 *)(table + 1);
		u64 mask = table->bucket_mask;
		for (u64 probe = 0; probe < NP_AGGREGATE_PROBES && probe <= mask; probe++) {
			u32 *bucket = &buckets[(hash + probe) & mask];
			if (!*bucket) {
				entry = add_entry(table, bucket, hash, aggregation, key, key_words, value_words);
				break;
			}
			struct np_aggregate_entry *candidate = (struct np_aggregate_entry *)((u64)table + *bucket * 8UL);
			/* The program may have written over the index. */
			u64 found;
			if (np_unlikely(!np_guarded_u32((u64)candidate, &found)))
				break;
			if ((u32)found == hash && candidate->aggregation == (u32)aggregation &&
			    candidate->key_bytes == key_words * 8 && candidate->value_words == value_words &&
			    np_same_words((const u64 *)(candidate + 1), key, key_words)) {
				entry = candidate;
				break;
			}
		}
	}
	if (np_unlikely(!entry)) {
		context->aggregate_drops++;
		context->result = 0;
		return;
	}
	context->result = (u64)(entry + 1) + entry->key_bytes;
}
