/* The thread table: finds a thread's slot by its key. See enter.c. */
#ifndef NANOPROBE_THREADS_H
#define NANOPROBE_THREADS_H

#include "guard.h"
#include "syscalls.h"

/* The number of slots that are examined before the table counts as full. */
#define NP_TABLE_PROBES 128
/* How often to try to claim a free slot, because other threads may claim the same slot at that moment. */
#define NP_SLOT_ATTEMPTS 64

/* The calling thread's thread pointer; 0: the thread has none, or shares it with other threads. */
NP_INLINE u64 np_thread_pointer(void)
{
	u64 pointer, mode = np_header.thread_key_mode;
	if (mode == NP_KEY_ASKED)
		return 0;
	if (mode == NP_KEY_TLS_SELF)
		return np_guarded_tls_self(&pointer) ? pointer : 0;
	__asm__ volatile("rdfsbase %0" : "=r"(pointer));
	return pointer;
}

/* The key of a thread that is identified by its number; 0: the kernel cannot be asked. */
NP_INLINE u64 np_number_key(void)
{
	return np_may_call() ? NP_KEY_OF_NUMBER | (u64)np_syscall4(NP_SYS_GETTID, 0, 0, 0, 0) : 0;
}

/* A value that no other thread has: the thread pointer, or else the thread's number. 0: the thread
 * cannot be identified. */
NP_INLINE u64 np_thread_key(void)
{
	u64 pointer = np_thread_pointer();
	if (np_likely(pointer > NP_SLOT_ENDED))
		return pointer;
	return np_number_key();
}

/* The slot of the thread with this key; 0: the thread has no slot. `open`: the first slot that the thread could
   claim, or 0. */
NP_INLINE struct np_thread_slot *np_find_slot(struct np_thread_table *table, u64 key, struct np_thread_slot **open)
{
	u32 first = (u32)(key * NP_TABLE_FACTOR >> (64 - NP_TABLE_BITS));
	*open = 0;
	for (u32 probe = 0; probe < NP_TABLE_PROBES; probe++) {
		struct np_thread_slot *slot = &table->slots[(first + probe) & (NP_TABLE_SLOTS - 1)];
		u64 found = np_load_once(slot->key);
		if (found == key)
			return slot;
		if (found <= NP_SLOT_ENDED && !*open)
			*open = slot;
		if (found == 0)
			break;
	}
	return 0;
}

/* Claims the slot of a thread that has none; 0: the table is full.
 *
 * The first slot with the key is the thread's. Between the look and the claim, a signal handler of the same thread
 * may have claimed an earlier slot that the tracer had just freed. So the thread looks again, and gives back a
 * slot that it does not need. */
static NP_COLD __attribute__((unused)) struct np_thread_slot *np_claim_slot(struct np_thread_table *table, u64 key)
{
	for (u32 attempt = 0; attempt < NP_SLOT_ATTEMPTS; attempt++) {
		struct np_thread_slot *open, *next, *slot = np_find_slot(table, key, &open);
		if (slot || !open)
			return slot;
		u64 found = np_load_once(open->key);
		if (found > NP_SLOT_ENDED ||
		    !__atomic_compare_exchange_n(&open->key, &found, key, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			continue;
		/* A child has a copy of the keys, and finds its own there: a write would copy the page. */
		u64 *kept = &table->keys[open - table->slots];
		if (np_load_once(*kept) != key)
			np_store(*kept, key);
		/* The tracer frees slots of the traced process only. */
		if (np_load_once(table->magic) == NP_MAGIC && !table->began)
			__atomic_fetch_add(&((struct np_control *)np_header.control)->slots_claimed, 1, __ATOMIC_RELAXED);
		slot = np_find_slot(table, key, &next);
		if (slot && slot != open)
			np_store(open->key, NP_SLOT_ENDED);
		return slot;
	}
	return 0;
}

/* The key of the slot that has the calling thread's context: np_thread_key, but for a thread pointer that another task
 * has, too, the thread's number. 0: the thread cannot be identified. */
NP_INLINE u64 np_context_key(struct np_thread_table *table)
{
	struct np_thread_slot *open;
	u64 key = np_thread_key();
	if (np_likely(!np_load_once(table->shared_pointers)) || !np_find_slot(table, key | NP_KEY_SHARED, &open))
		return key;
	return np_number_key();
}

/* The slot of the thread with this key. If the thread has no slot, claims one. 0: the table is full. */
NP_INLINE struct np_thread_slot *np_own_slot(struct np_thread_table *table, u64 key)
{
	struct np_thread_slot *open, *slot = np_find_slot(table, key, &open);
	return np_likely(slot != 0) ? slot : np_claim_slot(table, key);
}

/* follow.c: takes the table of a forked child. Yields whether the table is usable. */
__attribute__((visibility("hidden"), no_caller_saved_registers)) int np_take_table(void);

/* enter.c: the calling thread's pointer will be that of another process, too, which runs beside it. */
void np_note_shared_pointer(struct np_thread_table *table);

/* enum np_follows. */
NP_INLINE u64 np_follows(void)
{
	return np_load_once(*(u64 *)&np_header.follows);
}

/* Whether the thread table may be used: not in a forked child, whose table was wiped, unless children are followed. */
NP_INLINE int np_is_usable(struct np_thread_table *table)
{
	return np_likely(np_load_once(table->magic) == NP_MAGIC) || (np_follows() && np_take_table());
}

/* The thread table; 0: it may not be used. */
NP_INLINE struct np_thread_table *np_table_of_process(void)
{
	struct np_thread_table *table = (struct np_thread_table *)np_header.table;
	return np_is_usable(table) ? table : 0;
}

/* The number of the process to which this table belongs, as that process sees it. */
NP_INLINE u32 np_pid_of(const struct np_thread_table *table)
{
	return table->began ? table->pid : ((const struct np_control *)np_header.control)->target_pid;
}

/* Whether this is the process of the table, and not a child that shares its memory. */
NP_INLINE int np_is_traced(const struct np_thread_table *table)
{
	return table && (!np_may_call() || (u32)np_syscall4(NP_SYS_GETPID, 0, 0, 0, 0) == np_pid_of(table));
}

/* The program's own actions for the signals that we handle. They lie in private memory, because np_chain jumps to what
 * they name; control->actions is a copy for the tracer. */
NP_INLINE struct np_sigaction *np_program_actions(void)
{
	return ((struct np_thread_table *)np_header.table)->inherited.actions;
}

/* A new thread gets the thread pointer of one that has ended, and so its context. A handler sees that the number has
 * changed, where the C library's block holds it. Elsewhere it gets an address of what is no thread's number: the new
 * thread finds out its own one (np_thread_changed). */
NP_INLINE void np_forget_thread(struct np_context *context)
{
	if (context && context->tid_address == (u64)&context->tid)
		np_store(context->tid_address, (u64)&np_header.magic);
}

/* Records which signals the thread of a slot believes to block. */
NP_INLINE void np_record_blocked(struct np_thread_table *table, u16 *blocked, u16 signals)
{
	if (signals && !np_load_once(table->inherited.blocks))
		np_store(table->inherited.blocks, 1);
	*(volatile u16 *)blocked = signals;
}

/* The index of the calling thread's slot; NP_TABLE_SLOTS: the thread has no slot. */
NP_INLINE u32 np_own_index(struct np_thread_table *table)
{
	u64 key = table ? np_thread_key() : 0;
	struct np_thread_slot *slot = key ? np_own_slot(table, key) : 0;
	return slot ? (u32)(slot - table->slots) : NP_TABLE_SLOTS;
}

#endif
