/*
 * lockwait - how long threads wait for locks
 *
 * usage: nanoprobe tool lockwait {-p PID | -c COMMAND} [MODULE [TIME [STACKS]]]
 *
 * Times the waits for mutexes, rwlocks, condition variables, semaphores, barriers and spin locks of
 * MODULE (default: libc), and for futexes: Rust's locks, which call syscall() of MODULE, and Go's
 * threads, in runtime.futex. The JVM waits by MODULE's condition variables. Waits of TIME
 * (microseconds, or with a unit: 2ms; default 10) or longer are counted, by lock and by caller, with
 * their average and longest: a free lock takes a fraction of one. A lock in a variable has the
 * variable's name. The STACKS (default 0) with the longest waits in all are shown at the end, with
 * their nanoseconds; --flamegraph FILE.svg draws them.
 *
 * example:
 *
 *   # nanoprobe tool lockwait -p 1234
 *      WAITS  AVERAGE us  LONGEST us  KIND     LOCK, CALLER
 *          3          12          16  mutex    0x55d0c63f40a0, a.out`log_line+0x1f
 *         20       10077       10131  mutex    a.out`queue_lock, a.out`worker+0x2b
 */
#pragma D option quiet
#pragma D option zdefs

self int64_t lock;
self int64_t frame;
self uint64_t caller;
self int64_t start;
self string kind;

/*
 * One of these functions may wait by calling another: only the outermost call counts. The place of its return
 * address identifies a call. So a wait that was left by an exception, or by the end of a cancelled thread, counts
 * as ended when the next wait begins.
 */
pid$target:$1:pthread_mutex_lock:entry,
pid$target:$1:pthread_mutex_timedlock:entry,
pid$target:$1:pthread_mutex_clocklock:entry
/!self->lock || uregs[R_RSP] >= self->frame/
{
	self->kind = "mutex";
	self->lock = arg0;
	self->frame = uregs[R_RSP];
	self->caller = ucaller;
	self->start = timestamp;
}

pid$target:$1:pthread_rwlock_rdlock:entry,
pid$target:$1:pthread_rwlock_timedrdlock:entry,
pid$target:$1:pthread_rwlock_clockrdlock:entry,
pid$target:$1:pthread_rwlock_wrlock:entry,
pid$target:$1:pthread_rwlock_timedwrlock:entry,
pid$target:$1:pthread_rwlock_clockwrlock:entry
/!self->lock || uregs[R_RSP] >= self->frame/
{
	self->kind = "rwlock";
	self->lock = arg0;
	self->frame = uregs[R_RSP];
	self->caller = ucaller;
	self->start = timestamp;
}

pid$target:$1:pthread_cond_wait:entry,
pid$target:$1:pthread_cond_timedwait:entry,
pid$target:$1:pthread_cond_clockwait:entry
/!self->lock || uregs[R_RSP] >= self->frame/
{
	self->kind = "cond";
	self->lock = arg0;
	self->frame = uregs[R_RSP];
	self->caller = ucaller;
	self->start = timestamp;
}

pid$target:$1:sem_wait:entry,
pid$target:$1:sem_timedwait:entry,
pid$target:$1:sem_clockwait:entry
/!self->lock || uregs[R_RSP] >= self->frame/
{
	self->kind = "sem";
	self->lock = arg0;
	self->frame = uregs[R_RSP];
	self->caller = ucaller;
	self->start = timestamp;
}

pid$target:$1:pthread_barrier_wait:entry
/!self->lock || uregs[R_RSP] >= self->frame/
{
	self->kind = "barrier";
	self->lock = arg0;
	self->frame = uregs[R_RSP];
	self->caller = ucaller;
	self->start = timestamp;
}

pid$target:$1:pthread_spin_lock:entry
/!self->lock || uregs[R_RSP] >= self->frame/
{
	self->kind = "spin";
	self->lock = arg0;
	self->frame = uregs[R_RSP];
	self->caller = ucaller;
	self->start = timestamp;
}

/*
 * syscall(SYS_futex, address, operation, ...), and Go's runtime.futex(address, operation, ...), whose
 * arguments are on the stack. These wait: FUTEX_WAIT, LOCK_PI, WAIT_BITSET, WAIT_REQUEUE_PI and LOCK_PI2.
 */
pid$target:$1:syscall:entry
/arg0 == 202 && ((arg2 & 0x7f) == 0 || (arg2 & 0x7f) == 6 || (arg2 & 0x7f) == 9 || (arg2 & 0x7f) == 11 ||
    (arg2 & 0x7f) == 13) && (!self->lock || uregs[R_RSP] >= self->frame)/
{
	self->kind = "futex";
	self->lock = arg1;
	self->frame = uregs[R_RSP];
	self->caller = ucaller;
	self->start = timestamp;
}

pid$target:a.out:runtime.futex:entry,
pid$target:a.out:runtime.futex.abi0:entry
{
	this->operation = *(int *)copyin(uregs[R_RSP] + 16, 4) & 0x7f;
	self->waits = this->operation == 0 || this->operation == 9;
}

pid$target:a.out:runtime.futex:entry,
pid$target:a.out:runtime.futex.abi0:entry
/self->waits/
{
	self->kind = "futex";
	self->lock = *(int64_t *)copyin(uregs[R_RSP] + 8, 8);
	self->frame = uregs[R_RSP];
	self->caller = ucaller;
	self->start = timestamp;
}

pid$target:$1:pthread_mutex_lock:return,
pid$target:$1:pthread_mutex_timedlock:return,
pid$target:$1:pthread_mutex_clocklock:return,
pid$target:$1:pthread_rwlock_rdlock:return,
pid$target:$1:pthread_rwlock_timedrdlock:return,
pid$target:$1:pthread_rwlock_clockrdlock:return,
pid$target:$1:pthread_rwlock_wrlock:return,
pid$target:$1:pthread_rwlock_timedwrlock:return,
pid$target:$1:pthread_rwlock_clockwrlock:return,
pid$target:$1:pthread_cond_wait:return,
pid$target:$1:pthread_cond_timedwait:return,
pid$target:$1:pthread_cond_clockwait:return,
pid$target:$1:sem_wait:return,
pid$target:$1:sem_timedwait:return,
pid$target:$1:sem_clockwait:return,
pid$target:$1:pthread_barrier_wait:return,
pid$target:$1:pthread_spin_lock:return,
pid$target:$1:syscall:return,
pid$target:a.out:runtime.futex:return,
pid$target:a.out:runtime.futex.abi0:return
/self->lock && self->frame == uregs[R_RSP] && timestamp - self->start >= $2 * 1000/
{
	this->ns = timestamp - self->start;
	@waits[self->kind, uaddr(self->lock), uaddr(self->caller)] = count();
	@average_us[self->kind, uaddr(self->lock), uaddr(self->caller)] = avg(this->ns / 1000);
	@longest_us[self->kind, uaddr(self->lock), uaddr(self->caller)] = max(this->ns / 1000);
	@wait_ns[ustack()] = sum(this->ns);
}

pid$target:$1:pthread_mutex_lock:return,
pid$target:$1:pthread_mutex_timedlock:return,
pid$target:$1:pthread_mutex_clocklock:return,
pid$target:$1:pthread_rwlock_rdlock:return,
pid$target:$1:pthread_rwlock_timedrdlock:return,
pid$target:$1:pthread_rwlock_clockrdlock:return,
pid$target:$1:pthread_rwlock_wrlock:return,
pid$target:$1:pthread_rwlock_timedwrlock:return,
pid$target:$1:pthread_rwlock_clockwrlock:return,
pid$target:$1:pthread_cond_wait:return,
pid$target:$1:pthread_cond_timedwait:return,
pid$target:$1:pthread_cond_clockwait:return,
pid$target:$1:sem_wait:return,
pid$target:$1:sem_timedwait:return,
pid$target:$1:sem_clockwait:return,
pid$target:$1:pthread_barrier_wait:return,
pid$target:$1:pthread_spin_lock:return,
pid$target:$1:syscall:return,
pid$target:a.out:runtime.futex:return,
pid$target:a.out:runtime.futex.abi0:return
/self->frame == uregs[R_RSP]/
{
	self->lock = 0;
	self->frame = 0;
}

END
{
	printf("%10s %11s %11s  %-8s LOCK, CALLER\n", "WAITS", "AVERAGE us", "LONGEST us", "KIND");
	printa("%@10u %@11u %@11u  %-8s %A, %A\n", @waits, @average_us, @longest_us);
	trunc(@wait_ns, $3);
}
