/* For static links, fixed and position-independent, glibc and musl: functions of its own and of its
 * libc, threads. staticprog [calls] */
#include <pthread.h>
#include "check.h"

static long calls;

PROBED uint64_t static_work(const char *text, uint64_t value)
{
	return value + strlen(text);
}

static void *run(void *unused)
{
	(void)unused;
	uint64_t value = 0;
	for (long i = 0; i < calls; i++)
		value = static_work("static", value);
	return (void *)value;
}

int main(int argc, char **argv)
{
	begin(&argc, argv);
	calls = number(argc, argv, 1, 1000);
	pthread_t thread;
	void *result;
	CHECK(pthread_create(&thread, NULL, run, NULL) == 0);
	CHECK((uint64_t)run(NULL) == (uint64_t)calls * 6);
	CHECK(pthread_join(thread, &result) == 0);
	CHECK((uint64_t)result == (uint64_t)calls * 6);
	printf("calls %ld\n", calls * 2);
	return finish(mix(MIX_START, (uint64_t)result));
}
