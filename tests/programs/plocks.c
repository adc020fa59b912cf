/* Takes locks in every way, each a known number of times; a thread blocks exactly when it is meant to.
 * plocks [rounds]
 * Prints `name number` for each. */
#include <errno.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include "check.h"

enum { ACQUIRED, RELEASED, FAILED, BLOCKED, READS, WRITES, READS_ENDED, WRITES_ENDED, RW_FAILED, RW_BLOCKED, COUNTS };

static long counts[COUNTS];
static struct locks {
	pthread_mutex_t plain, checked, recursive;
	pthread_rwlock_t rw;
} locks;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static volatile int turn;
static volatile pid_t waiter;

/* The locks lie in [from, to). */
PROBED void mark(void *from, void *to)
{
	__asm__ volatile("" : : "r"(from), "r"(to));
}

/* Returns when the other thread sleeps in a futex, on a word of these bytes. */
static void await_sleep(void *from, unsigned long bytes)
{
	char path[64], text[256];
	for (;;) {
		unsigned long number = 0, address = 0;
		snprintf(path, sizeof path, "/proc/self/task/%d/syscall", waiter);
		FILE *file = waiter ? fopen(path, "r") : NULL;
		if (file) {
			if (fgets(text, sizeof text, file) && sscanf(text, "%lu %lx", &number, &address) == 2 &&
			    number == SYS_futex && address - (unsigned long)from < bytes) {
				fclose(file);
				return;
			}
			fclose(file);
		}
		struct timespec moment = { 0, 1000000 };
		nanosleep(&moment, NULL);
	}
}

static void *block_on_mutex(void *unused)
{
	(void)unused;
	waiter = (pid_t)syscall(SYS_gettid);
	CHECK(pthread_mutex_lock(&locks.plain) == 0);
	CHECK(pthread_mutex_unlock(&locks.plain) == 0);
	return NULL;
}

static void *block_on_rw(void *unused)
{
	(void)unused;
	waiter = (pid_t)syscall(SYS_gettid);
	CHECK(pthread_rwlock_rdlock(&locks.rw) == 0);
	CHECK(pthread_rwlock_unlock(&locks.rw) == 0);
	return NULL;
}

static void *wait_for_turn(void *unused)
{
	(void)unused;
	CHECK(pthread_mutex_lock(&locks.plain) == 0);
	waiter = (pid_t)syscall(SYS_gettid);
	while (!turn) {
		counts[ACQUIRED]++; /* and given up before */
		counts[RELEASED]++;
		CHECK(pthread_cond_wait(&changed, &locks.plain) == 0);
	}
	CHECK(pthread_mutex_unlock(&locks.plain) == 0);
	return NULL;
}

static void with_another(void)
{
	pthread_t other;
	waiter = 0;
	CHECK(pthread_mutex_lock(&locks.plain) == 0);
	CHECK(pthread_create(&other, NULL, block_on_mutex, NULL) == 0);
	await_sleep(&locks.plain, sizeof locks.plain);
	CHECK(pthread_mutex_unlock(&locks.plain) == 0);
	pthread_join(other, NULL);
	counts[ACQUIRED] += 2;
	counts[RELEASED] += 2;
	counts[BLOCKED]++;
	waiter = 0;
	CHECK(pthread_rwlock_wrlock(&locks.rw) == 0);
	CHECK(pthread_create(&other, NULL, block_on_rw, NULL) == 0);
	await_sleep(&locks.rw, sizeof locks.rw);
	CHECK(pthread_rwlock_unlock(&locks.rw) == 0);
	pthread_join(other, NULL);
	counts[WRITES]++;
	counts[WRITES_ENDED]++;
	counts[READS]++;
	counts[READS_ENDED]++;
	counts[RW_BLOCKED]++;
	/* The waits on the condition's own words are none on the mutex. */
	turn = 0;
	waiter = 0;
	CHECK(pthread_create(&other, NULL, wait_for_turn, NULL) == 0);
	await_sleep(0, ~0UL);
	CHECK(pthread_mutex_lock(&locks.plain) == 0);
	turn = 1;
	CHECK(pthread_mutex_unlock(&locks.plain) == 0);
	CHECK(pthread_cond_signal(&changed) == 0);
	pthread_join(other, NULL);
	counts[ACQUIRED] += 2;
	counts[RELEASED] += 2;
}

static void alone(void)
{
	struct timespec soon;
	CHECK(clock_gettime(CLOCK_REALTIME, &soon) == 0);
	soon.tv_sec += 100;
	CHECK(pthread_mutex_trylock(&locks.plain) == 0);
	CHECK(pthread_mutex_trylock(&locks.plain) == EBUSY);
	CHECK(pthread_mutex_unlock(&locks.plain) == 0);
	CHECK(pthread_mutex_timedlock(&locks.plain, &soon) == 0);
	CHECK(pthread_mutex_unlock(&locks.plain) == 0);
	CHECK(pthread_mutex_lock(&locks.checked) == 0);
	CHECK(pthread_mutex_lock(&locks.checked) == EDEADLK);
	CHECK(pthread_mutex_timedlock(&locks.checked, &soon) == EDEADLK);
	CHECK(pthread_mutex_unlock(&locks.checked) == 0);
	CHECK(pthread_mutex_unlock(&locks.checked) == EPERM);
	CHECK(pthread_mutex_lock(&locks.recursive) == 0);
	CHECK(pthread_mutex_lock(&locks.recursive) == 0);
	CHECK(pthread_mutex_unlock(&locks.recursive) == 0);
	CHECK(pthread_mutex_unlock(&locks.recursive) == 0);
	counts[ACQUIRED] += 5;
	counts[RELEASED] += 5;
	counts[FAILED] += 4;
	CHECK(pthread_rwlock_tryrdlock(&locks.rw) == 0);
	CHECK(pthread_rwlock_rdlock(&locks.rw) == 0);
	CHECK(pthread_rwlock_trywrlock(&locks.rw) == EBUSY);
	CHECK(pthread_rwlock_unlock(&locks.rw) == 0);
	CHECK(pthread_rwlock_unlock(&locks.rw) == 0);
	CHECK(pthread_rwlock_timedwrlock(&locks.rw, &soon) == 0);
	CHECK(pthread_rwlock_tryrdlock(&locks.rw) == EBUSY);
	CHECK(pthread_rwlock_unlock(&locks.rw) == 0);
	CHECK(pthread_rwlock_timedrdlock(&locks.rw, &soon) == 0);
	CHECK(pthread_rwlock_unlock(&locks.rw) == 0);
	counts[READS] += 3;
	counts[READS_ENDED] += 3;
	counts[WRITES]++;
	counts[WRITES_ENDED]++;
	counts[RW_FAILED] += 2;
}

int main(int argc, char **argv)
{
	static const char *const names[COUNTS] = { "acquired", "released",    "failed",       "blocked",   "reads",
		                                       "writes",   "reads-ended", "writes-ended", "rw-failed", "rw-blocked" };
	take_arguments(&argc, argv);
	long rounds = argc > 1 ? atol(argv[1]) : 1;
	pthread_mutexattr_t kind;
	CHECK(pthread_mutexattr_init(&kind) == 0);
	CHECK(pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ERRORCHECK) == 0);
	CHECK(pthread_mutex_init(&locks.checked, &kind) == 0);
	CHECK(pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE) == 0);
	CHECK(pthread_mutex_init(&locks.recursive, &kind) == 0);
	CHECK(pthread_mutex_init(&locks.plain, NULL) == 0);
	CHECK(pthread_rwlock_init(&locks.rw, NULL) == 0);
	wait_for_go();
	mark(&locks, &locks + 1);
	for (long round = 0; round < rounds; round++) {
		alone();
		with_another();
	}
	for (int count = 0; count < COUNTS; count++)
		printf("%s %ld\n", names[count], counts[count]);
	printf("OK\n");
	return 0;
}
