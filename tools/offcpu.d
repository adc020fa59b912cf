/*
 * offcpu - how long threads are off their processors, by stack
 *
 * usage: nanoprobe tool offcpu {-p PID | -c COMMAND} [TIME [STACKS]]
 *
 * Sums the nanoseconds that each stack was off its processor: asleep, or ready to run without a
 * processor. Times of TIME (microseconds, or with a unit: 2ms; default 1) or longer count, when the
 * thread is back: one that sleeps until the end is not shown. The STACKS (20) with the longest times
 * in all are shown, the longest last, and the totals of both kinds. Nothing of the program is patched.
 * Without root, stacks of short sleeps are not known. --flamegraph FILE.svg draws the times.
 *
 * example: a server that waits for its clients
 *
 *   # nanoprobe tool offcpu -p 1234 1 1
 *
 *                libc.so.6`epoll_wait+0x56
 *                a.out`serve+0x1c
 *                a.out`main+0x88
 *                libc.so.6`__libc_start_call_main+0x78
 *                1874211034
 *
 *     1874311034 ns asleep, 93 times
 *         402871 ns without a processor, 12 times
 */
#pragma D option quiet

self uint64_t since;
self int64_t is_preempted;

sched:::off-cpu
{
	self->since = timestamp;
	self->is_preempted = arg0;
}

sched:::on-cpu
/self->since && timestamp - self->since >= $1 * 1000/
{
	@off_ns[ustack()] = sum(timestamp - self->since);
}

sched:::on-cpu
/self->since && timestamp - self->since >= $1 * 1000 && !self->is_preempted/
{
	@asleep_ns = sum(timestamp - self->since);
	@asleep = count();
}

sched:::on-cpu
/self->since && timestamp - self->since >= $1 * 1000 && self->is_preempted/
{
	@ready_ns = sum(timestamp - self->since);
	@ready = count();
}

sched:::on-cpu
{
	self->since = 0;
}

END
{
	trunc(@off_ns, $2);
	printa(@off_ns);
	printa("\n%@12d ns asleep, %@d times\n", @asleep_ns, @asleep);
	printa("%@12d ns without a processor, %@d times\n", @ready_ns, @ready);
}
