/* Calls left() with errno set to the given number, which differs between threads.
 *
 *     errno [threads] [calls of each] */
#include <errno.h>
#include <pthread.h>
#include "check.h"

static long calls_each;
static pthread_barrier_t all_ready;

PROBED int left(int set)
{
	DO_AFTER_CALL(set);
	return set;
}

static void *run(void *argument)
{
	int own = (int)(long)argument;
	pthread_barrier_wait(&all_ready);
	for (long call = 0; call < calls_each; call++) {
		int set = own * 1000 + (int)(call % 100);
		errno = set;
		CHECK(left(set) == set && errno == set);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	begin(&argc, argv);
	long threads = number(argc, argv, 1, 3);
	calls_each = number(argc, argv, 2, 1000);
	CHECK(threads >= 1 && threads <= 64);
	pthread_t ids[64];
	CHECK(pthread_barrier_init(&all_ready, NULL, (unsigned)threads) == 0);
	for (long i = 0; i < threads; i++)
		CHECK(pthread_create(&ids[i], NULL, run, (void *)(i + 1)) == 0);
	for (long i = 0; i < threads; i++)
		CHECK(pthread_join(ids[i], NULL) == 0);
	printf("calls %ld\n", threads * calls_each);
	return finish(MIX_START);
}
