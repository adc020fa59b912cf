/* Signals that were sent while the program blocked them: see held.c. `bits` are of NP_SYNCHRONOUS,
 * `thread` is a number. */
#ifndef NANOPROBE_HELD_H
#define NANOPROBE_HELD_H

#include "chain.h"

enum { NP_SIGINFO_WORDS = 16 };

/* Keeps a signal for a thread, or for the process if `thread` is 0. Yields the signal's entry, and in `left` the
 * entry's state; 0: the same signal is already held, or there is no room. */
struct np_held *np_held_put(struct np_thread_table *table, u32 thread, i32 signal, const struct np_siginfo *information,
                            u32 *left);
/* Takes an entry away if it is still in the state in which it was seen. Yields whether this succeeded. */
int np_held_withdraw(struct np_thread_table *table, struct np_held *held, u32 seen);
/* Takes one of these signals for a thread, in the kernel's order: first signals for this thread, then those for the
 * process, each by number. Yields the signal; 0: none of them is held. */
i32 np_held_take(struct np_thread_table *table, u32 thread, u64 bits, u64 information[NP_SIGINFO_WORDS]);
/* The set of these signals that are held for a thread. */
u64 np_held_for(struct np_thread_table *table, u32 thread);
/* Discards all of these signals, as the kernel does when a signal's action becomes `ignore`. */
void np_held_drop(struct np_thread_table *table, u64 bits);
/* Sends the calling thread the signals that it no longer blocks; they arrive before this returns. */
void np_held_let_go(struct np_thread_table *table, u32 thread, u64 bits);
/* Sends a signal to a thread of this process. Yields whether it was sent. */
int np_send(u32 thread, i32 signal, u64 information[NP_SIGINFO_WORDS]);

#endif
