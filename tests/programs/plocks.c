/* Takes locks in every way, each a known number of times; a thread blocks exactly when it is meant to.
 * plocks [rounds]
 * Prints `name number` for each. */
#include <errno.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include "check.h"

enum { ACQUIRED, RELEASED, FAILED, BLOCKED, SPINS, READS, WRITES, READS_ENDED, WRITES_ENDED, RW_FAILED, RW_BLOCKED, COUNTS };

static long counts[COUNTS];
static struct locks {
	pthread_mutex_t plain, checked, recursive, adaptive;
	pthread_rwlock_t rw;
	/* Contended as chance has it; behind the others. */
	pthread_mutex_t busy;
} locks;
/* musl's mutexes all spin, glibc's adaptive ones only. */
#ifdef __GLIBC__
enum { KIND_THAT_SPINS = PTHREAD_MUTEX_ADAPTIVE_NP, PLAIN_SPINS = 0 };
#else
enum { KIND_THAT_SPINS = PTHREAD_MUTEX_NORMAL, PLAIN_SPINS = 1 };
#endif
enum { BUSY_ROUNDS = 200 };
static long busy_rounds;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static volatile int turn;
static volatile pid_t waiter;

/* The locks lie in [from, to), and the busy one at `to`. */
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

/* Spins, and then blocks, since the mutex is held until this thread sleeps. */
static void *block_on_adaptive(void *timed)
{
	struct timespec later;
	waiter = (pid_t)syscall(SYS_gettid);
	CHECK(clock_gettime(CLOCK_REALTIME, &later) == 0);
	later.tv_sec += 1000;
	CHECK((timed ? pthread_mutex_timedlock(&locks.adaptive, &later) : pthread_mutex_lock(&locks.adaptive)) == 0);
	CHECK(pthread_mutex_unlock(&locks.adaptive) == 0);
	return NULL;
}

static void *keep_busy(void *unused)
{
	for (int i = 0; i < BUSY_ROUNDS; i++) {
		CHECK(pthread_mutex_lock(&locks.busy) == 0);
		busy_rounds++;
		CHECK(pthread_mutex_unlock(&locks.busy) == 0);
	}
	return unused;
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
	counts[SPINS] += PLAIN_SPINS;
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

static void spinning(long round)
{
	pthread_t other;
	for (int timed = 0; timed < 2; timed++) {
		waiter = 0;
		CHECK(pthread_mutex_lock(&locks.adaptive) == 0);
		CHECK(pthread_create(&other, NULL, block_on_adaptive, timed ? &locks : NULL) == 0);
		await_sleep(&locks.adaptive, sizeof locks.adaptive);
		CHECK(pthread_mutex_trylock(&locks.adaptive) == EBUSY);
		CHECK(pthread_mutex_unlock(&locks.adaptive) == 0);
		pthread_join(other, NULL);
	}
	counts[ACQUIRED] += 4;
	counts[RELEASED] += 4;
	counts[FAILED] += 2;
	counts[BLOCKED] += 2;
	counts[SPINS] += 2;
	CHECK(pthread_create(&other, NULL, keep_busy, NULL) == 0);
	keep_busy(NULL);
	pthread_join(other, NULL);
	CHECK(busy_rounds == 2 * BUSY_ROUNDS * (round + 1));
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
	/* musl spins before it sees who has the mutex. */
	counts[SPINS] += 2 * PLAIN_SPINS;
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
	static const char *const names[COUNTS] = { "acquired", "released",    "failed",       "blocked",   "spins", "reads",
		                                       "writes",   "reads-ended", "writes-ended", "rw-failed", "rw-blocked" };
	take_arguments(&argc, argv);
	long rounds = argc > 1 ? atol(argv[1]) : 1;
	pthread_mutexattr_t kind;
	CHECK(pthread_mutexattr_init(&kind) == 0);
	CHECK(pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ERRORCHECK) == 0);
	CHECK(pthread_mutex_init(&locks.checked, &kind) == 0);
	CHECK(pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE) == 0);
	CHECK(pthread_mutex_init(&locks.recursive, &kind) == 0);
	CHECK(pthread_mutexattr_settype(&kind, KIND_THAT_SPINS) == 0);
	CHECK(pthread_mutex_init(&locks.adaptive, &kind) == 0);
	CHECK(pthread_mutex_init(&locks.busy, &kind) == 0);
	CHECK(pthread_mutex_init(&locks.plain, NULL) == 0);
	CHECK(pthread_rwlock_init(&locks.rw, NULL) == 0);
	wait_for_go();
	mark(&locks, &locks.busy);
	for (long round = 0; round < rounds; round++) {
		alone();
		with_another();
		spinning(round);
	}
	printf("busy-acquired %ld\n", busy_rounds);
	for (int count = 0; count < COUNTS; count++)
		printf("%s %ld\n", names[count], counts[count]);
	printf("OK\n");
	return 0;
}
