/*
 * lockwait - how long threads wait for locks
 *
 * usage: nanoprobe tool lockwait {-p PID | -c COMMAND} [MODULE [TIME [STACKS]]]
 *
 * Times pthread_mutex_lock, pthread_rwlock_rdlock and pthread_rwlock_wrlock of MODULE (default:
 * libc). Waits of TIME (microseconds, or with a unit: 2ms; default 10) or longer are counted, by
 * lock and by caller, with their average and longest: a free lock takes a fraction of one. The
 * STACKS (default 0) with the longest waits in all are shown at the end, with their nanoseconds;
 * --flamegraph FILE.svg draws them.
 *
 * example:
 *
 *   # nanoprobe tool lockwait -p 1234
 *                LOCK        WAITS    AVERAGE us    LONGEST us  CALLER
 *        55d0c63f40a0            3            12            16  a.out`log_line+0x1f
 *        55d0c63f4060           20         10077         10131  a.out`worker+0x2b
 */
#pragma D option quiet

pid$target:$1:pthread_mutex_lock:entry,
pid$target:$1:pthread_rwlock_rdlock:entry,
pid$target:$1:pthread_rwlock_wrlock:entry
{
	self->lock = arg0;
	self->caller = ucaller;
	self->start = timestamp;
}

pid$target:$1:pthread_mutex_lock:return,
pid$target:$1:pthread_rwlock_rdlock:return,
pid$target:$1:pthread_rwlock_wrlock:return
/self->lock && timestamp - self->start >= $2 * 1000/
{
	this->ns = timestamp - self->start;
	@waits[self->lock, uaddr(self->caller)] = count();
	@average[self->lock, uaddr(self->caller)] = avg(this->ns / 1000);
	@longest[self->lock, uaddr(self->caller)] = max(this->ns / 1000);
	@stacks[ustack()] = sum(this->ns);
}

pid$target:$1:pthread_mutex_lock:return,
pid$target:$1:pthread_rwlock_rdlock:return,
pid$target:$1:pthread_rwlock_wrlock:return
{
	self->lock = 0;
}

END
{
	printf("%17s %12s %13s %13s  CALLER\n", "LOCK", "WAITS", "AVERAGE us", "LONGEST us");
	printa("%17x %@12u %@13u %@13u  %A\n", @waits, @average, @longest);
	trunc(@stacks, $3);
}
