/* Threads that work until a line of input comes, while tracers attach and detach.
 *
 *     busy [threads]
 *
 * They work in the program's own functions, in libc's and in the vDSO, sleep in system calls, take signals, and check
 * all results. At the end `calls` is the number of calls of busy_work() since the `go`. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <time.h>
#include "check.h"

static volatile int stop;
static long calls;
/* Each thread has done everything once, so its memory exists, and the map does not change from then on. */
static pthread_barrier_t all_work;

PROBED uint64_t busy_work(uint64_t value, const char *text)
{
	return value * 3 + strlen(text);
}

PROBED uint64_t busy_recursion(uint64_t depth)
{
	if (depth == 0)
		return 1;
	uint64_t below = busy_recursion(depth - 1);
	DO_AFTER_CALL(below);
	return below + depth;
}

PROBED int busy_compare(const void *left, const void *right)
{
	int a = *(const int *)left, b = *(const int *)right;
	return (a > b) - (a < b);
}

static long signals;
PROBED void busy_signal(int signal)
{
	(void)signal;
	__atomic_fetch_add(&signals, 1, __ATOMIC_RELAXED);
}

static void *work(void *which)
{
	static const char *const texts[] = {"", "a", "hello DTrace", "a longer text than the others, for good measure"};
	long done = 0;
	uint64_t seed = (uint64_t)which;
	while (!stop) {
		for (int i = 0; i < 64; i++) {
			const char *text = texts[(seed + (uint64_t)i) & 3];
			CHECK(busy_work((uint64_t)i, text) == (uint64_t)i * 3 + __builtin_strlen(text));
			done++;
		}
		CHECK(busy_recursion(30) == 466);
		int numbers[32];
		for (int i = 0; i < 32; i++)
			numbers[i] = (int)((seed * 2654435761U + (uint64_t)i * 40503) & 1023);
		qsort(numbers, 32, sizeof *numbers, busy_compare);
		for (int i = 1; i < 32; i++)
			CHECK(numbers[i - 1] <= numbers[i]);
		char *memory = malloc(64 + (seed & 255)), text[64];
		CHECK(memory != NULL);
		snprintf(text, sizeof text, "%lu %s", (unsigned long)seed, "formatted");
		strcpy(memory, text);
		CHECK(strtoul(memory, NULL, 10) == seed && strstr(memory, "formatted") != NULL);
		free(memory);
		struct timeval now;
		CHECK(gettimeofday(&now, NULL) == 0 && now.tv_sec > 0);
		if ((seed & 1023) == 0) {
			struct timespec pause = {0, 100000};
			/* The kernel may restart or interrupt the sleep; both are correct. */
			CHECK(nanosleep(&pause, NULL) == 0 || errno == EINTR);
		}
		if (seed++ == (uint64_t)which)
			pthread_barrier_wait(&all_work);
	}
	__atomic_fetch_add(&calls, done, __ATOMIC_RELAXED);
	return NULL;
}

int main(int argc, char **argv)
{
	take_arguments(&argc, argv);
	long threads = number(argc, argv, 1, 4);
	CHECK(threads >= 1 && threads <= 64);
	struct sigaction sa = {.sa_handler = busy_signal, .sa_flags = SA_RESTART};
	CHECK(sigaction(SIGALRM, &sa, NULL) == 0);
	wait_for_go();
	struct itimerval often = {{0, 3000}, {0, 3000}};
	CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
	CHECK(pthread_barrier_init(&all_work, NULL, (unsigned)threads + 1) == 0);
	pthread_t ids[64];
	for (long i = 0; i < threads; i++)
		CHECK(pthread_create(&ids[i], NULL, work, (void *)(i * 1000003)) == 0);
	pthread_barrier_wait(&all_work);
	printf("working\n");
	wait_for_line();
	stop = 1;
	for (long i = 0; i < threads; i++)
		CHECK(pthread_join(ids[i], NULL) == 0);
	CHECK(signals > 0 || calls < 1000000);
	printf("calls %ld\n", calls);
	return finish(MIX_START);
}
