/* What would be pending, were the four blocked for the kernel, too.
 *
 * The pool lies in the thread table, private memory that a forked child finds empty, as its pending
 * signals are. Any thread takes and gives, also in a handler in the midst of the same: each entry
 * has a state that is changed by compare-and-swap, and counts the claims, so that what was read of
 * it holds if the swap succeeds. Nobody waits for anybody.
 *
 *     FREE -> CLAIMED -> THERE      put: the entry is written in between
 *     THERE -> CLAIMED -> FREE      take: it is read in between
 *
 * Standard signals do not queue: of each of the four one can be pending for a thread, and one for the process. When the
 * pool is full a further one is lost; there is room for 15 threads with all four, besides the process's.
 *
 * Each entry is sent on by rt_tgsigqueueinfo with the siginfo that came. The kernel lets a thread send to others only
 * what looks like sigqueue; so to another thread kill's SI_USER becomes SI_QUEUE, which has the same fields.
 */
#include "held.h"
#include "threads.h"

#define NP_HELD_STATE 3u

/* siginfo.si_code, by 4 bytes; sigqueue's. */
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

/* The state of an entry that holds this; 0: it does not. */
static u32 seen_holding(struct np_held *held, u32 thread, i32 signal)
{
	u32 seen = np_load_once(held->state);
	return (seen & NP_HELD_STATE) == NP_HELD_THERE && held->thread == thread && held->signal == (u32)signal ? seen : 0;
}

/* The first entry that holds this; 0: none. */
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
	/* No more than can be there: what arrives may be sent again by its handler. */
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
