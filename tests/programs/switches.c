/* Threads that leave their processor in known ways: one sleeps, one waits at a semaphore, one reads from a pipe, and
 * two share one processor. At the end all of them wait for ever. Then the program says of each one, in one line,
 *   NAME TID VOLUNTARY NONVOLUNTARY ASKED_NS ELAPSED_NS
 * how often the kernel has switched it by now (/proc/self/task/TID/status), how long its waits had to take at least,
 * and how long it lived before the last wait; and then the time: `end_ns TIME`. */
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/syscall.h>
#include <time.h>
#include "check.h"

enum { TIMES = 10, NAP_NS = 20000000, TWIN_NS = 150000000 };

struct life {
	const char *name;
	void (*live)(struct life *);
	pthread_t thread;
	long tid, voluntary, asked_ns, elapsed_ns;
	int is_done;
};

static sem_t sem, never;
static int pipe_ends[2];

static long clock_ns(clockid_t clock)
{
	struct timespec time;
	CHECK(clock_gettime(clock, &time) == 0);
	return time.tv_sec * 1000000000L + time.tv_nsec;
}

PROBED void naps(void)
{
	struct timespec time = { 0, NAP_NS };
	CHECK(nanosleep(&time, NULL) == 0);
}
PROBED void takes(void)
{
	CHECK(sem_wait(&sem) == 0);
	__asm__ volatile("");
}
PROBED void reads(void)
{
	char byte;
	CHECK(read(pipe_ends[0], &byte, 1) == 1);
}

static void repeat(void (*wait)(void))
{
	for (int i = 0; i < TIMES; i++)
		wait();
}

static void sleeper(struct life *life)
{
	life->asked_ns = (long)TIMES * NAP_NS;
	repeat(naps);
}
static void taker(struct life *life) { (void)life; repeat(takes); }
static void reader(struct life *life) { (void)life; repeat(reads); }
static void twin(struct life *life)
{
	(void)life;
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET(0, &one);
	/* If processor 0 is not ours, the twins do not meet. */
	sched_setaffinity(0, sizeof(one), &one);
	while (clock_ns(CLOCK_THREAD_CPUTIME_ID) < TWIN_NS)
		;
}

static void status_of(long tid, char status[4096])
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/self/task/%ld/status", tid);
	FILE *file = fopen(path, "r");
	CHECK(file);
	status[fread(status, 1, 4095, file)] = 0;
	fclose(file);
}

static long field(const char *status, const char *name)
{
	const char *found = strstr(status, name);
	CHECK(found);
	return strtol(found + strlen(name), NULL, 10);
}

static void *run(void *argument)
{
	struct life *life = argument;
	long start = clock_ns(CLOCK_MONOTONIC);
	char status[4096];
	life->tid = syscall(SYS_gettid);
	life->live(life);
	status_of(life->tid, status);
	life->voluntary = field(status, "\nvoluntary_ctxt_switches:");
	life->elapsed_ns = clock_ns(CLOCK_MONOTONIC) - start;
	__atomic_store_n(&life->is_done, 1, __ATOMIC_RELEASE);
	for (;;)
		sem_wait(&never);
	return NULL;
}

/* Prints what a thread was, once it is in its last wait. */
static void print(struct life *life)
{
	char status[4096];
	while (!__atomic_load_n(&life->is_done, __ATOMIC_ACQUIRE))
		usleep(1000);
	do {
		usleep(1000);
		status_of(life->tid, status);
	} while (!strstr(status, "\nState:\tS") || field(status, "\nvoluntary_ctxt_switches:") == life->voluntary);
	printf("%s %ld %ld %ld %ld %ld\n", life->name, life->tid, field(status, "\nvoluntary_ctxt_switches:"),
		field(status, "nonvoluntary_ctxt_switches:"), life->asked_ns, life->elapsed_ns);
}

int main(int count, char **words)
{
	struct life lives[] = { { .name = "sleeper", .live = sleeper }, { .name = "taker", .live = taker },
		{ .name = "reader", .live = reader }, { .name = "twin", .live = twin }, { .name = "other", .live = twin } };
	enum { LIVES = sizeof(lives) / sizeof(lives[0]) };
	begin(&count, words);
	CHECK(pipe(pipe_ends) == 0 && sem_init(&sem, 0, 0) == 0 && sem_init(&never, 0, 0) == 0);
	for (int i = 0; i < LIVES; i++)
		CHECK(pthread_create(&lives[i].thread, NULL, run, &lives[i]) == 0);
	for (int i = 0; i < TIMES; i++) {
		usleep(15000);
		CHECK(write(pipe_ends[1], "x", 1) == 1 && sem_post(&sem) == 0);
	}
	for (int i = 0; i < LIVES; i++)
		print(&lives[i]);
	printf("end_ns %ld\n", clock_ns(CLOCK_MONOTONIC));
	return finish(MIX_START);
}
