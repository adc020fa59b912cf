/*
 * The provider plockstat: mutexes and reader-writer locks of the C library, and futexes, by which nearly everything
 * waits in the end: the locks of C, Rust, Go and the JVM.
 *
 * A lock's address is known when its function is entered, and whether it is held when the function returns. What the
 * clauses below keep is kept before the clauses of the program run on the same probe.
 */

/* While the thread is in a function that takes a mutex, or a reader-writer lock. */
self int in_mutex;
self int in_rw;
/* The lock of that function; it stays for the clauses on the function's return. */
self uintptr_t lock;
/* Whether that function is pthread_mutex_timedlock() and was called by the program: musl's pthread_mutex_lock() calls
 * it, too. The same for reader-writer locks. */
self int timed;
/* How often the thread has executed `pause` in that function, and whether mutex-spun has fired for it. */
self int spins;
self int spun;
/* Whether the thread is in pthread_mutex_trylock(), which musl's pthread_mutex_timedlock() has called. */
self int tries;
self uintptr_t freed;
/* What pthread_cond_wait() gives up and takes again. */
self uintptr_t waits;
/* Whether a lock is taken, or is held, as a writer. */
self int writes;
self int holds[uintptr_t];

pid::pthread_mutex_lock:entry
{
	self->lock = arg0;
	self->in_mutex = 1;
	self->timed = 0;
	self->tries = 0;
	self->spins = 0;
	self->spun = 0;
}

pid::pthread_mutex_trylock:entry
{
	self->tries = self->in_mutex && self->lock == arg0;
	self->in_mutex = 1;
	self->lock = arg0;
}

pid::pthread_mutex_trylock:entry
/!self->tries/
{
	self->spins = 0;
	self->spun = 0;
}

pid::pthread_mutex_timedlock:entry, pid::pthread_mutex_clocklock:entry
/!self->in_mutex || self->lock != arg0/
{
	self->lock = arg0;
	self->in_mutex = 1;
	self->timed = 1;
	self->tries = 0;
	self->spins = 0;
	self->spun = 0;
}

/* glibc's pthread_mutex_timedlock() and clocklock() jump to one function of its own, which has no name in a stripped
 * library: its code then counts to the former. */
pid::pthread_mutex_lock:pause, pid::pthread_mutex_timedlock:pause, pid::__pthread_mutex_clocklock_common:pause
/self->in_mutex/
{
	self->spins++;
}

pid::pthread_mutex_lock:return, pid::pthread_mutex_trylock:return, pid::pthread_mutex_timedlock:return,
pid::pthread_mutex_clocklock:return
/!self->tries/
{
	self->in_mutex = 0;
}

pid::pthread_mutex_unlock:entry, pid::pthread_rwlock_unlock:entry
{
	self->freed = arg0;
}

pid:libc.so.6:pthread_cond_wait:entry, pid:libc.so.6:pthread_cond_timedwait:entry
{
	self->waits = arg1;
}

pid::pthread_rwlock_rdlock:entry
{
	self->lock = arg0;
	self->in_rw = 1;
	self->timed = 0;
	self->tries = 0;
	self->writes = 0;
}

pid::pthread_rwlock_tryrdlock:entry
{
	self->tries = self->in_rw && self->lock == arg0;
	self->lock = arg0;
	self->in_rw = 1;
	self->writes = 0;
}

pid::pthread_rwlock_wrlock:entry
{
	self->lock = arg0;
	self->in_rw = 1;
	self->timed = 0;
	self->tries = 0;
	self->writes = 1;
}

pid::pthread_rwlock_trywrlock:entry
{
	self->tries = self->in_rw && self->lock == arg0;
	self->lock = arg0;
	self->in_rw = 1;
	self->writes = 1;
}

pid::pthread_rwlock_timedrdlock:entry, pid::pthread_rwlock_clockrdlock:entry
/!self->in_rw || self->lock != arg0/
{
	self->lock = arg0;
	self->in_rw = 1;
	self->timed = 1;
	self->tries = 0;
	self->writes = 0;
}

pid::pthread_rwlock_timedwrlock:entry, pid::pthread_rwlock_clockwrlock:entry
/!self->in_rw || self->lock != arg0/
{
	self->lock = arg0;
	self->in_rw = 1;
	self->timed = 1;
	self->tries = 0;
	self->writes = 1;
}

pid::pthread_rwlock_rdlock:return, pid::pthread_rwlock_tryrdlock:return, pid::pthread_rwlock_timedrdlock:return,
pid::pthread_rwlock_clockrdlock:return, pid::pthread_rwlock_wrlock:return, pid::pthread_rwlock_trywrlock:return,
pid::pthread_rwlock_timedwrlock:return, pid::pthread_rwlock_clockwrlock:return
/!self->tries/
{
	self->in_rw = 0;
}

pid::pthread_rwlock_wrlock:return, pid::pthread_rwlock_trywrlock:return, pid::pthread_rwlock_timedwrlock:return,
pid::pthread_rwlock_clockwrlock:return
/(int)arg1 == 0/
{
	self->holds[self->lock] = 1;
}

/* EOWNERDEAD: the owner has died, and the mutex is held. */
plockstat:::mutex-acquire
/!self->tries && ((int)arg1 == 0 || (int)arg1 == 130)/
{
	this->at = "pid::pthread_mutex_lock:return, pid::pthread_mutex_trylock:return";
	arg0 = self->lock;
	arg2 = self->spins;
}

plockstat:::mutex-acquire
/self->timed && ((int)arg1 == 0 || (int)arg1 == 130)/
{
	this->at = "pid::pthread_mutex_timedlock:return, pid::pthread_mutex_clocklock:return";
	arg0 = self->lock;
	arg2 = self->spins;
}

plockstat:::mutex-acquire
{
	this->at = "pid:libc.so.6:pthread_cond_wait:return, pid:libc.so.6:pthread_cond_timedwait:return";
	arg0 = self->waits;
}

plockstat:::mutex-error
/!self->tries && (int)arg1 != 0 && (int)arg1 != 130/
{
	this->at = "pid::pthread_mutex_lock:return, pid::pthread_mutex_trylock:return";
	arg0 = self->lock;
	arg1 = (int)arg1;
}

plockstat:::mutex-error
/self->timed && (int)arg1 != 0 && (int)arg1 != 130/
{
	this->at = "pid::pthread_mutex_timedlock:return, pid::pthread_mutex_clocklock:return";
	arg0 = self->lock;
	arg1 = (int)arg1;
}

plockstat:::mutex-error
/(int)arg1 != 0/
{
	this->at = "pid::pthread_mutex_unlock:return";
	arg0 = self->freed;
	arg1 = (int)arg1;
}

plockstat:::mutex-release
/(int)arg1 == 0/
{
	this->at = "pid::pthread_mutex_unlock:return";
	arg0 = self->freed;
}

plockstat:::mutex-release
{
	this->at = "pid:libc.so.6:pthread_cond_wait:entry, pid:libc.so.6:pthread_cond_timedwait:entry";
	arg0 = arg1;
}

/* FUTEX_WAIT, FUTEX_WAIT_BITSET, FUTEX_LOCK_PI, FUTEX_LOCK_PI2 */
plockstat:::mutex-block
/self->in_mutex && (0x2241 >> (uregs[R_RSI] & 0x7f) & 1) != 0/
{
	this->at = "syscall::futex:entry";
	arg0 = self->lock;
}

/* No function spins again after it has waited. */
plockstat:::mutex-spin
/self->in_mutex && self->spins == 1/
{
	this->at = "pid::pthread_mutex_lock:pause, pid::pthread_mutex_timedlock:pause";
	this->at = "pid::__pthread_mutex_clocklock_common:pause";
	arg0 = self->lock;
}

plockstat:::mutex-spun
/self->in_mutex && self->spins && !self->spun && (0x2241 >> (uregs[R_RSI] & 0x7f) & 1) != 0/
{
	this->at = "syscall::futex:entry";
	arg0 = self->lock;
	arg1 = 0;
	arg2 = self->spins;
}

plockstat:::mutex-spun
/self->spins && !self->spun/
{
	this->at = "pid::pthread_mutex_lock:return";
	arg0 = self->lock;
	arg1 = (int)arg1 == 0 || (int)arg1 == 130;
	arg2 = self->spins;
}

plockstat:::mutex-spun
/self->timed && self->spins && !self->spun/
{
	this->at = "pid::pthread_mutex_timedlock:return, pid::pthread_mutex_clocklock:return";
	arg0 = self->lock;
	arg1 = (int)arg1 == 0 || (int)arg1 == 130;
	arg2 = self->spins;
}

plockstat:::rw-block
/self->in_rw && (0x2241 >> (uregs[R_RSI] & 0x7f) & 1) != 0/
{
	this->at = "syscall::futex:entry";
	arg0 = self->lock;
	arg1 = self->writes;
}

plockstat:::rw-acquire
/!self->tries && (int)arg1 == 0/
{
	this->at = "pid::pthread_rwlock_rdlock:return, pid::pthread_rwlock_tryrdlock:return";
	this->at = "pid::pthread_rwlock_wrlock:return, pid::pthread_rwlock_trywrlock:return";
	arg0 = self->lock;
	arg1 = self->writes;
}

plockstat:::rw-acquire
/self->timed && (int)arg1 == 0/
{
	this->at = "pid::pthread_rwlock_timedrdlock:return, pid::pthread_rwlock_clockrdlock:return";
	this->at = "pid::pthread_rwlock_timedwrlock:return, pid::pthread_rwlock_clockwrlock:return";
	arg0 = self->lock;
	arg1 = self->writes;
}

plockstat:::rw-error
/!self->tries && (int)arg1 != 0/
{
	this->at = "pid::pthread_rwlock_rdlock:return, pid::pthread_rwlock_tryrdlock:return";
	this->at = "pid::pthread_rwlock_wrlock:return, pid::pthread_rwlock_trywrlock:return";
	arg0 = self->lock;
	arg1 = self->writes;
	arg2 = (int)arg1;
}

plockstat:::rw-error
/self->timed && (int)arg1 != 0/
{
	this->at = "pid::pthread_rwlock_timedrdlock:return, pid::pthread_rwlock_clockrdlock:return";
	this->at = "pid::pthread_rwlock_timedwrlock:return, pid::pthread_rwlock_clockwrlock:return";
	arg0 = self->lock;
	arg1 = self->writes;
	arg2 = (int)arg1;
}

plockstat:::rw-release
/(int)arg1 == 0/
{
	this->at = "pid::pthread_rwlock_unlock:return";
	arg0 = self->freed;
	arg1 = self->holds[self->freed];
}

/* FUTEX_WAIT, WAIT_BITSET, LOCK_PI, LOCK_PI2, WAIT_REQUEUE_PI */
plockstat:::futex-wait
/(0x2a41 >> (uregs[R_RSI] & 0x7f) & 1) != 0/
{
	this->at = "syscall::futex:entry";
	arg0 = uregs[R_RDI];
	arg1 = (int)uregs[R_RDX];
}

plockstat:::futex-waited
/(0x2a41 >> (uregs[R_RSI] & 0x7f) & 1) != 0/
{
	this->at = "syscall::futex:return";
	arg0 = uregs[R_RDI];
	arg1 = errno;
}

/* FUTEX_WAKE, REQUEUE, CMP_REQUEUE, WAKE_OP, UNLOCK_PI, WAKE_BITSET, CMP_REQUEUE_PI: how many were woken or moved. */
plockstat:::futex-wake
/(0x14ba >> (uregs[R_RSI] & 0x7f) & 1) != 0/
{
	this->at = "syscall::futex:return";
	arg0 = uregs[R_RDI];
	arg1 = (int)uregs[R_RAX];
}

syscall::futex:entry
/self->in_mutex && self->spins && (0x2241 >> (uregs[R_RSI] & 0x7f) & 1) != 0/
{
	self->spun = 1;
}

pid::pthread_rwlock_unlock:return
/self->holds[self->freed] && (int)arg1 == 0/
{
	self->holds[self->freed] = 0;
}

pid::pthread_mutex_trylock:return, pid::pthread_rwlock_tryrdlock:return, pid::pthread_rwlock_trywrlock:return
{
	self->tries = 0;
}
