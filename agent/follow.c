/* A forked child that is followed takes over the thread table, when it first needs the table.
 *
 * The kernel has wiped the table, so no detour finds a context of the parent's there. The child's first hit, or its
 * first call that has a shim (libc makes such a call in each fork), finds no magic number and comes here:
 *
 *     1. claim the table: compare-and-swap of its magic number from 0 to NP_TAKING. Another thread, or a signal
 *        handler, that comes meanwhile works without the table.
 *     2. find out the process's number, and, from the inherited part, which signals the thread that forked believes
 *        to block. A child begins with this thread alone, so the records of the parent's other threads are cleared.
 *        A page that the child touches is a fault, which takes microseconds. So nothing is looked at that is known to
 *        hold nothing, and nothing is written that is there already.
 *     3. publish the magic number. From here on hits claim slots and contexts as in the traced process.
 *
 * The inherited actions and their masks stay: a child inherits its parent's actions. */
#include "syscalls.h"
#include "threads.h"

/* The number of the process; 0: unknown. The thread that has forked is the first of its process, so its own number
 * is the process's, too. */
NP_INLINE u32 own_pid(const struct np_control *control, u64 key)
{
	u64 self, number;
	if (np_may_call())
		return (u32)np_syscall4(NP_SYS_GETPID, 0, 0, 0, 0);
	if (!control->tid_offset || key & NP_KEY_OF_NUMBER || !np_guarded_u64(key, &self) || self != key)
		return 0;
	return np_guarded_u32(key + control->tid_offset, &number) ? (u32)number : 0;
}

/* Yields the signals that the thread that has forked believes to block, and clears the records of all threads. */
NP_INLINE u16 take_blocked(struct np_thread_table *table, u64 key)
{
	u16 blocked = 0;
	/* The pages of these records are touched only where there are any. */
	if (!table->inherited.blocks)
		return 0;
	for (u32 slot = 0; slot < NP_TABLE_SLOTS; slot++) {
		if (!table->blocked[slot])
			continue;
		if (table->keys[slot] == key)
			blocked |= table->blocked[slot];
		*(volatile u16 *)&table->blocked[slot] = 0;
	}
	table->inherited.blocks = 0;
	return blocked;
}

NP_INLINE void add_ancestor(struct np_inherited *inherited, u32 pid)
{
	u32 count = inherited->ancestor_count;
	if (!pid || count >= NP_ANCESTORS || (count && inherited->ancestors[count - 1] == pid))
		return;
	inherited->ancestors[count] = pid;
	inherited->ancestor_count = count + 1;
}

int np_take_table(void)
{
	struct np_control *control = (struct np_control *)np_header.control;
	struct np_thread_table *table = (struct np_thread_table *)np_header.table;
	u64 found = 0;
	if (!__atomic_compare_exchange_n(&table->magic, &found, NP_TAKING, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
		if (found == NP_TAKING && !np_load_once(control->exit_requested))
			__atomic_fetch_add(&control->missed_without_context, 1, __ATOMIC_RELAXED);
		return found == NP_MAGIC;
	}
	u64 key = np_thread_key();
	u32 pid = own_pid(control, key);
	if (!pid || !key) {
		__atomic_fetch_add(&control->missed_unknown_thread, 1, __ATOMIC_RELAXED);
		np_store(table->magic, 0);
		return 0;
	}
	table->pid = pid;
	table->parent = np_may_call() ? (u32)np_syscall4(NP_SYS_GETPPID, 0, 0, 0, 0) : 0;
	/* A parent in another pid namespace has no number in this one: getppid yields 0. */
	if (np_may_call() && !table->parent)
		table->inherited.nested = 1;
	table->began = (__builtin_ia32_rdtsc() & ~NP_NESTED) | (table->inherited.nested ? NP_NESTED : 0);
	table->lent = (u64)&table->lent;
	u16 blocked = take_blocked(table, key);
	if (np_follows() == NP_FOLLOWS_ANCESTORS) {
		if (table->parent != control->target_pid)
			add_ancestor(&table->inherited, table->parent);
		add_ancestor(&table->inherited, pid);
	}
	struct np_thread_slot *slot = blocked ? np_own_slot(table, key) : 0;
	if (slot)
		np_record_blocked(table, &table->blocked[slot - table->slots], blocked);
	np_store(table->magic, NP_MAGIC);
	return 1;
}
