/*
 * futexes - which locks threads wait for in the kernel, how long, and who wakes them
 *
 * usage: nanoprobe tool futexes {-p PID | -c COMMAND} [TIME [STACKS]]
 *
 * The locks of C, C++, Rust and Go sleep in futex(2), at a word of memory. Counts the waits of TIME
 * (microseconds, or with a unit: 2ms; default 1) or longer by the word, with all their time and the
 * longest; and the threads that were woken at each word, by the stack that woke them. A call that
 * did not wait, since the word had changed, and one that woke no thread do not count. The STACKS (5)
 * with the longest waits and those that have woken the most threads are shown. A word in a variable
 * has the variable's name. --flamegraph FILE.svg draws the waits.
 *
 * example: the workers of a queue
 *
 *   # nanoprobe tool futexes -p 1234 1 0
 *      WAITS      WAITED us     LONGEST us  WORD
 *         20         201540          10131  a.out`queue_lock
 *
 *      WOKEN  WORD, BY
 *         20  a.out`queue_lock
 */
#pragma D option quiet

self int64_t word;
self uint64_t since;
self int64_t wakes;

/* FUTEX_WAIT, LOCK_PI, WAIT_BITSET, WAIT_REQUEUE_PI and LOCK_PI2. */
syscall::futex:entry
/(arg1 & 0x7f) == 0 || (arg1 & 0x7f) == 6 || (arg1 & 0x7f) == 9 || (arg1 & 0x7f) == 11 || (arg1 & 0x7f) == 13/
{
	self->word = arg0;
	self->since = timestamp;
}

/* 11: the word had changed (EAGAIN). */
syscall::futex:return
/self->since && errno != 11 && timestamp - self->since >= $1 * 1000/
{
	@waits[uaddr(self->word)] = count();
	@waited_us[uaddr(self->word)] = sum((timestamp - self->since) / 1000);
	@longest_us[uaddr(self->word)] = max((timestamp - self->since) / 1000);
	@waited_ns[ustack()] = sum(timestamp - self->since);
}

syscall::futex:return
/self->since/
{
	self->since = 0;
}

/* FUTEX_WAKE, WAKE_OP and WAKE_BITSET: the result is the number of threads. */
syscall::futex:entry
/(arg1 & 0x7f) == 1 || (arg1 & 0x7f) == 5 || (arg1 & 0x7f) == 10/
{
	self->word = arg0;
	self->wakes = 1;
}

syscall::futex:return
/self->wakes && errno == 0 && arg1 > 0/
{
	@woken[uaddr(self->word)] = sum(arg1);
	@wakers[uaddr(self->word), ustack()] = sum(arg1);
}

syscall::futex:return
/self->wakes/
{
	self->wakes = 0;
}

END
{
	printf("%8s %14s %14s  WORD\n", "WAITS", "WAITED us", "LONGEST us");
	printa("%@8u %@14u %@14u  %A\n", @waits, @waited_us, @longest_us);
	printf("\n%8s  WORD, BY\n", "WOKEN");
	trunc(@wakers, $2);
	printa("%@8u  %A\n", @woken);
	printa("\n%@8u  %A%k", @wakers);
	trunc(@waited_ns, $2);
	printa("\n%k%@u ns\n", @waited_ns);
}
