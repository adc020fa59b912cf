// Exceptions in one thread, while many others are within calls.
//
//     throws [exceptions] [threads]
#include <pthread.h>
#include <time.h>
#include <vector>
#include "check.h"

static pthread_barrier_t all_called, all_thrown;
static long caught;

extern "C" PROBED long waiting(long value)
{
	pthread_barrier_wait(&all_called);
	pthread_barrier_wait(&all_thrown);
	return value + 1;
}

extern "C" PROBED long thrower(long value)
{
	if (value >= 0)
		throw value;
	return value;
}

extern "C" PROBED long catcher(long value)
{
	try {
		value = thrower(value);
	} catch (long thrown) {
		caught++;
		value = thrown + 1;
	}
	return value;
}

static void *run(void *number)
{
	return (void *)waiting((long)number);
}

int main(int argc, char **argv)
{
	take_arguments(&argc, argv);
	long exceptions = number(argc, argv, 1, 1000), threads = number(argc, argv, 2, 200);
	CHECK(pthread_barrier_init(&all_called, NULL, (unsigned)threads + 1) == 0);
	CHECK(pthread_barrier_init(&all_thrown, NULL, (unsigned)threads + 1) == 0);
	wait_for_go();
	std::vector<pthread_t> ids(threads);
	for (long i = 0; i < threads; i++)
		CHECK(pthread_create(&ids[i], NULL, run, (void *)i) == 0);
	pthread_barrier_wait(&all_called);
	struct timespec start, end;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
	for (long i = 0; i < exceptions; i++)
		CHECK(catcher(i) == i + 1);
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
	fprintf(stderr, "%ld ns an exception\n",
	        ((end.tv_sec - start.tv_sec) * 1000000000 + end.tv_nsec - start.tv_nsec) / exceptions);
	pthread_barrier_wait(&all_thrown);
	for (long i = 0; i < threads; i++) {
		void *result;
		CHECK(pthread_join(ids[i], &result) == 0 && (long)result == i + 1);
	}
	CHECK(caught == exceptions);
	printf("caught %ld\nwaited %ld\n", caught, threads);
	return finish(mix(MIX_START, (uint64_t)caught));
}
