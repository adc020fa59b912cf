/* Held signals: SIGTRAP, SIGILL, SIGSEGV and SIGBUS that were sent while the program blocked them. They would be
 * pending if the kernel blocked them, too.
 *
 * The pool lies in the thread table. That is private memory, which a forked child finds empty, just as it has no
 * pending signals. Any thread may add and take signals, even in a handler that interrupts the same operation. Each
 * entry has a state that compare-and-swap changes and that counts the claims. So the data that were read from an
 * entry are valid if the swap succeeds. No thread waits for another.
 *
 *     FREE -> CLAIMED -> THERE      put: the entry is written in between
 *     THERE -> CLAIMED -> FREE      take: it is read in between
 *
 * Standard signals do not queue: each of the four can be pending once for a thread, and once for
 * the process. When the pool is full, a further signal is lost. There is room for 15 threads with
 * all four, besides those for the process.
 *
 * Each entry is sent on by rt_tgsigqueueinfo with the original siginfo. A thread may send to other threads only
 * siginfos like those of sigqueue. So for another thread, SI_USER (of kill) is replaced by SI_QUEUE, which has the
 * same fields. */
#include "held.h"
#include "threads.h"

#define NP_HELD_STATE 3u

/* The index of the word with si_code in a siginfo, and the si_code of sigqueue. */
enum { CODE_WORD = 1, SI_QUEUE = -1 };

static int claim(struct np_held *held, u32 seen, u32 state)
{
	return __atomic_compare_exchange_n(&held->state, &seen, ((seen | NP_HELD_STATE) + 1) | state, 0, __ATOMIC_SEQ_CST,
	                                   __ATOMIC_SEQ_CST);
}

static void release(struct np_thread_table *table, struct np_held *held)
{
	np_store(held->state, (np_load_once(held->state) & ~NP_HELD_STATE) | NP_HELD_FREE);
	__atomic_fetch_sub(&table->held_count, 1, __ATOMIC_RELAXED);
}

/* The state of an entry that holds this signal; 0: it does not hold it. */
static u32 seen_holding(struct np_held *held, u32 thread, i32 signal)
{
	u32 seen = np_load_once(held->state);
	return (seen & NP_HELD_STATE) == NP_HELD_THERE && held->thread == thread && held->signal == (u32)signal ? seen : 0;
}

/* The first entry that holds this signal; 0: no entry holds it. */
static struct np_held *find(struct np_thread_table *table, u32 thread, i32 signal, u32 *seen)
{
	if (!np_load_once(table->held_count))
		return 0;
	for (struct np_held *held = table->held; held < table->held + NP_HELD; held++) {
		*seen = seen_holding(held, thread, signal);
		if (*seen)
			return held;
	}
	return 0;
}

struct np_held *np_held_put(struct np_thread_table *table, u32 thread, i32 signal, const struct np_siginfo *information,
                            u32 *left)
{
	u32 seen;
	if (find(table, thread, signal, &seen))
		return 0;
	for (struct np_held *held = table->held; held < table->held + NP_HELD; held++) {
		seen = np_load_once(held->state);
		if ((seen & NP_HELD_STATE) != NP_HELD_FREE || !claim(held, seen, NP_HELD_CLAIMED))
			continue;
		held->signal = (u32)signal;
		held->thread = thread;
		for (u32 word = 0; word < NP_SIGINFO_WORDS; word++)
			held->information[word] = ((const u64 *)information)[word];
		__atomic_fetch_add(&table->held_count, 1, __ATOMIC_SEQ_CST);
		*left = __atomic_add_fetch(&held->state, NP_HELD_THERE - NP_HELD_CLAIMED, __ATOMIC_SEQ_CST);
		return held;
	}
	return 0;
}

int np_held_withdraw(struct np_thread_table *table, struct np_held *held, u32 seen)
{
	if ((seen & NP_HELD_STATE) != NP_HELD_THERE || !claim(held, seen, NP_HELD_CLAIMED))
		return 0;
	release(table, held);
	return 1;
}

i32 np_held_take(struct np_thread_table *table, u32 thread, u64 bits, u64 information[NP_SIGINFO_WORDS])
{
	for (u32 turn = 0; turn < 2; turn++) {
		for (i32 signal = NP_SIGILL; signal <= NP_SIGSEGV; signal++) {
			u32 seen;
			struct np_held *held = bits & np_bit((u64)signal) ? find(table, turn ? 0 : thread, signal, &seen) : 0;
			if (!held || !claim(held, seen, NP_HELD_CLAIMED))
				continue;
			for (u32 word = 0; word < NP_SIGINFO_WORDS; word++)
				information[word] = held->information[word];
			release(table, held);
			return signal;
		}
	}
	return 0;
}

u64 np_held_for(struct np_thread_table *table, u32 thread)
{
	u64 bits = 0;
	for (i32 signal = NP_SIGILL; signal <= NP_SIGSEGV && np_load_once(table->held_count); signal++) {
		u32 seen;
		if (find(table, thread, signal, &seen) || find(table, 0, signal, &seen))
			bits |= np_bit((u64)signal);
	}
	return bits;
}

void np_held_drop(struct np_thread_table *table, u64 bits)
{
	for (struct np_held *held = table->held; held < table->held + NP_HELD && np_load_once(table->held_count); held++) {
		u32 seen = np_load_once(held->state);
		if ((seen & NP_HELD_STATE) == NP_HELD_THERE && bits & np_bit(held->signal))
			np_held_withdraw(table, held, seen);
	}
}

void np_held_let_go(struct np_thread_table *table, u32 thread, u64 bits)
{
	u64 information[NP_SIGINFO_WORDS];
	/* This takes at most as many signals as can be held, because the handler of an arriving signal may send it again. */
	for (u32 count = 0; count < NP_HELD; count++) {
		i32 signal = np_held_take(table, thread, bits, information);
		if (!signal)
			return;
		np_send(thread, signal, information);
	}
}

int np_send(u32 thread, i32 signal, u64 information[NP_SIGINFO_WORDS])
{
	u64 process = (u64)np_syscall4(NP_SYS_GETPID, 0, 0, 0, 0);
	i64 result = np_syscall4(NP_SYS_RT_TGSIGQUEUEINFO, process, thread, (u64)signal, (u64)information);
	if (result == -NP_EPERM) {
		*(i32 *)&information[CODE_WORD] = SI_QUEUE;
		result = np_syscall4(NP_SYS_RT_TGSIGQUEUEINFO, process, thread, (u64)signal, (u64)information);
	}
	return result == 0;
}
