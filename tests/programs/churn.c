/* Threads that come and go: each calls the counted function a few times and ends in one of three ways.
 *
 *     churn [threads in all] [alive at once] [calls of each] */
#include <pthread.h>
#include "check.h"

static long calls_each;

PROBED uint64_t churned(uint64_t value)
{
	return (value << 7 | value >> 57) ^ 0x9e3779b97f4a7c15UL;
}

/* Called at the end of the thread: the destructors of thread-specific data are the last code of a thread that can be
 * probed. */
PROBED void churned_away(void *value)
{
	__atomic_fetch_add((uint64_t *)value, 1, __ATOMIC_RELAXED);
}

static uint64_t destroyed;
static pthread_key_t key;

static uint64_t work(void)
{
	uint64_t value = 42;
	for (long i = 0; i < calls_each; i++)
		value = churned(value);
	return value;
}

static void *run(void *way)
{
	CHECK(pthread_setspecific(key, &destroyed) == 0);
	uint64_t value = work();
	if ((uint64_t)way % 3 == 1)
		pthread_exit((void *)value);
	return (void *)value;
}

int main(int argc, char **argv)
{
	begin(&argc, argv);
	long total = number(argc, argv, 1, 2000), alive = number(argc, argv, 2, 16);
	calls_each = number(argc, argv, 3, 100);
	CHECK(alive >= 1 && alive <= 256);
	CHECK(pthread_key_create(&key, churned_away) == 0);
	uint64_t right = 42;
	for (long i = 0; i < calls_each; i++)
		right = (right << 7 | right >> 57) ^ 0x9e3779b97f4a7c15UL;

	pthread_t ids[256];
	for (long i = 0; i < total + alive; i++) {
		if (i >= alive) {
			void *result;
			CHECK(pthread_join(ids[i % alive], &result) == 0);
			CHECK((uint64_t)result == right);
		}
		if (i < total)
			CHECK(pthread_create(&ids[i % alive], NULL, run, (void *)i) == 0);
	}
	CHECK(destroyed == (uint64_t)total);
	printf("calls %ld\nthreads %ld\n", total * calls_each, total);
	return finish(mix(MIX_START, right + destroyed));
}
