/* Threads that call one function, each an exact number of times, while the main thread does the same.
 * threads [threads] [calls of each] [early]
 * early: the threads are there before the program is ready. */
#include <pthread.h>
#include "check.h"

static long calls_each;
static pthread_barrier_t all_ready;

PROBED uint64_t thread_work(uint64_t value)
{
	return value * 6364136223846793005UL + 1442695040888963407UL;
}

static uint64_t expected(void)
{
	uint64_t value = 1;
	for (long i = 0; i < calls_each; i++)
		value = value * 6364136223846793005UL + 1442695040888963407UL;
	return value;
}

static void *run(void *unused)
{
	(void)unused;
	pthread_barrier_wait(&all_ready);
	uint64_t value = 1;
	for (long i = 0; i < calls_each; i++)
		value = thread_work(value);
	return (void *)value;
}

int main(int argc, char **argv)
{
	take_arguments(&argc, argv);
	long threads = number(argc, argv, 1, 8);
	calls_each = number(argc, argv, 2, 100000);
	CHECK(threads >= 1 && threads <= 1024);
	pthread_t ids[1024];
	CHECK(pthread_barrier_init(&all_ready, NULL, (unsigned)threads + 1) == 0);
	int early = argc > 3 && strcmp(argv[3], "early") == 0;
	if (!early)
		wait_for_go();
	for (long i = 0; i < threads; i++)
		CHECK(pthread_create(&ids[i], NULL, run, NULL) == 0);
	if (early)
		wait_for_go();
	uint64_t right = expected();
	CHECK((uint64_t)run(NULL) == right);
	for (long i = 0; i < threads; i++) {
		void *result;
		CHECK(pthread_join(ids[i], &result) == 0);
		CHECK((uint64_t)result == right);
	}
	printf("calls %ld\n", (threads + 1) * calls_each);
	return finish(mix(MIX_START, right));
}
