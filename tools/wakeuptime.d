/*
 * wakeuptime - how long threads sleep, by the stack that wakes them
 *
 * usage: nanoprobe tool wakeuptime {-p PID | -c COMMAND} [TIME [STACKS]]
 *
 * Sums the nanoseconds from the moment when a thread of the program goes to sleep until it is woken, by
 * the name of the woken thread's process, the name of the waker's process, and the waker's stack. Sleeps
 * of TIME (microseconds, or with a unit: 2ms; default 1) or longer count. The STACKS (20) with the longest
 * times in all are shown, the longest last, and the total. A waker of another process, and an interrupt (a
 * timer, a device), have no stack: their only frame says so. Needs root, because only the kernel knows who
 * wakes a thread. Nothing of the program is patched. --flamegraph FILE.svg draws the times.
 *
 * example: who lets the threads of a server wait?
 *
 *   # nanoprobe tool wakeuptime -p 1234 1 1
 *
 *     server            server
 *                libc.so.6`pthread_cond_signal+0x88
 *                a.out`enqueue+0x3c
 *                a.out`accept_loop+0x71
 *                211034118
 *
 *      211034118 ns asleep, until woken 93 times
 */
#pragma D option quiet

uint64_t asleep_since[int];

sched:::sleep
{
	asleep_since[tid] = timestamp;
}

sched:::wakeup
/asleep_since[args[0]->pr_lwpid] && timestamp - asleep_since[args[0]->pr_lwpid] >= $1 * 1000/
{
	@slept_ns[args[1]->pr_fname, execname, ustack()] = sum(timestamp - asleep_since[args[0]->pr_lwpid]);
	@ns = sum(timestamp - asleep_since[args[0]->pr_lwpid]);
	@wakes = count();
}

sched:::wakeup
{
	asleep_since[args[0]->pr_lwpid] = 0;
}

/* Nobody was seen to wake it: some virtual machines do not show the interrupts of idle processors. */
sched:::on-cpu
{
	asleep_since[tid] = 0;
}

END
{
	trunc(@slept_ns, $2);
	printa("\n  %-16s  %-16s%k%@20d\n", @slept_ns);
	printa("\n%@12d ns asleep, until woken %@d times\n", @ns, @wakes);
}
