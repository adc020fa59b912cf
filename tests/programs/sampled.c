/* Uses processors' time in functions of which it knows how long they took.
 * sampled work MS THREADS    each thread, the main one among them, uses MS of its time, three parts of it in hot()
 * sampled fork MS            a child does
 * sampled exec MS            becomes `sampled work MS 1`
 * sampled sleep MS           uses none */
#include <pthread.h>
#include <sys/wait.h>
#include <time.h>
#include "check.h"

enum { PART_NS = 5000000 };
static long milliseconds;
static long hot_ns, cold_ns;

static long own_ns(void)
{
	struct timespec time;
	CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) == 0);
	return time.tv_sec * 1000000000L + time.tv_nsec;
}

/* Steps are not counted, because processors differ in speed. */
PROBED long hot(uint64_t *sum)
{
	long start = own_ns(), spent;
	do
		for (int step = 0; step < 100000; step++)
			*(volatile uint64_t *)sum += step;
	while ((spent = own_ns() - start) < 3 * PART_NS);
	return spent;
}

PROBED long cold(uint64_t *sum)
{
	long start = own_ns(), spent;
	do
		for (int step = 0; step < 100000; step++)
			*(volatile uint64_t *)sum += step;
	while ((spent = own_ns() - start) < PART_NS);
	return spent;
}

PROBED void work(void)
{
	uint64_t sum = 0;
	while (own_ns() < milliseconds * 1000000) {
		__atomic_fetch_add(&hot_ns, hot(&sum), __ATOMIC_RELAXED);
		__atomic_fetch_add(&cold_ns, cold(&sum), __ATOMIC_RELAXED);
	}
}

static void *in_thread(void *unused)
{
	work();
	return unused;
}

int main(int count, char **words)
{
	begin(&count, words);
	CHECK(count >= 3);
	milliseconds = strtol(words[2], 0, 10);
	const char *what = words[1];
	if (!strcmp(what, "work")) {
		pthread_t threads[64];
		int others = count > 3 ? atoi(words[3]) - 1 : 0;
		CHECK(others >= 0 && others < 64);
		for (int i = 0; i < others; i++)
			CHECK(pthread_create(&threads[i], 0, in_thread, 0) == 0);
		work();
		for (int i = 0; i < others; i++)
			CHECK(pthread_join(threads[i], 0) == 0);
	} else if (!strcmp(what, "fork")) {
		pid_t child = fork();
		CHECK(child >= 0);
		if (!child) {
			work();
			_exit(7);
		}
		int status;
		CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
	} else if (!strcmp(what, "exec")) {
		execl("/proc/self/exe", "again", "work", words[2], (char *)0);
		CHECK(!"executed");
	} else {
		CHECK(!strcmp(what, "sleep"));
		usleep(milliseconds * 1000);
	}
	printf("hot_ms %ld\n", hot_ns / 1000000);
	printf("cold_ms %ld\n", cold_ns / 1000000);
	return finish(MIX_START);
}
