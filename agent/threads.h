/* The thread table: a thread's slot by its thread pointer. See enter.c. */
#ifndef NANOPROBE_THREADS_H
#define NANOPROBE_THREADS_H

#include "guard.h"

/* Slots that are looked at before the table counts as full. */
#define NP_TABLE_PROBES 128

/* The calling thread's thread pointer; 0: it has none. */
NP_INLINE u64 np_thread_key(void)
{
	u64 key;
	if (np_header.thread_key_mode == NP_KEY_FSBASE) {
		__asm__ volatile("rdfsbase %0" : "=r"(key));
		return key;
	}
	return np_guarded_tls_self(&key) ? key : 0;
}

/* The slot of the thread with this thread pointer, claimed when it has none yet; 0: the table is full. */
NP_INLINE struct np_thread_slot *np_own_slot(struct np_thread_table *table, u64 key)
{
	u32 first = (u32)(key * NP_TABLE_FACTOR >> (64 - NP_TABLE_BITS));
	for (u32 probe = 0; probe < NP_TABLE_PROBES; probe++) {
		struct np_thread_slot *slot = &table->slots[(first + probe) & (NP_TABLE_SLOTS - 1)];
		u64 found = np_load_once(slot->key);
		if (found == 0 && __atomic_compare_exchange_n(&slot->key, &found, key, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			return slot;
		if (found == key)
			return slot;
	}
	return 0;
}

#endif
