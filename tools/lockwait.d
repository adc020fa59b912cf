/*
 * lockwait - how long threads wait for mutexes
 *
 * usage: nanoprobe tool lockwait {-p PID | -c COMMAND} [MODULE [MICROSECONDS]]
 *
 * Times pthread_mutex_lock of MODULE (libc when not given). Waits of MICROSECONDS (10 when not given) or longer are
 * counted, by mutex and by who called, with their average and longest: a mutex that is free takes a fraction of one.
 *
 * example:
 *
 *   # nanoprobe tool lockwait -p 1234
 *               MUTEX        WAITS    AVERAGE us    LONGEST us  CALLER
 *        55d0c63f40a0            3            12            16  a.out`log_line+0x1f
 *        55d0c63f4060           20         10077         10131  a.out`worker+0x2b
 */
#pragma D option quiet

pid$target:$1:pthread_mutex_lock:entry
{
	self->mutex = arg0;
	self->caller = ucaller;
	self->start = timestamp;
}

pid$target:$1:pthread_mutex_lock:return
/self->mutex && timestamp - self->start >= $2 * 1000/
{
	this->us = (timestamp - self->start) / 1000;
	@waits[self->mutex, uaddr(self->caller)] = count();
	@average[self->mutex, uaddr(self->caller)] = avg(this->us);
	@longest[self->mutex, uaddr(self->caller)] = max(this->us);
}

pid$target:$1:pthread_mutex_lock:return
{
	self->mutex = 0;
}

END
{
	printf("%17s %12s %13s %13s  CALLER\n", "MUTEX", "WAITS", "AVERAGE us", "LONGEST us");
	printa("%17x %@12u %@13u %@13u  %A\n", @waits, @average, @longest);
}
