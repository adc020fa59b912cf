/* Threads in functions that begin with a short instruction and a call, as most small functions compiled by gcc do.
 * `evict` is for these. Signals interrupt the threads everywhere, on springboards too.
 *
 *     short [threads] */
#include "alarmed.h"

static long calls, signals;

PROBED int short_inner(int value)
{
	return value + 1;
}

PROBED int short_outer(int value)
{
	return short_inner(value) * 3;
}

PROBED long short_twice(int value)
{
	long sum = short_inner(value);
	sum += short_outer(value);
	return sum;
}

PROBED void short_signal(int signal)
{
	(void)signal;
	__atomic_fetch_add(&signals, short_inner(0), __ATOMIC_RELAXED);
}

static void *work(void *unused)
{
	(void)unused;
	long done = 0;
	while (!stop) {
		for (int i = 0; i < 1000; i++) {
			CHECK(short_outer(i) == 3 * i + 3);
			CHECK(short_twice(i) == 4L * i + 4);
		}
		done += 1000;
	}
	__atomic_fetch_add(&calls, done, __ATOMIC_RELAXED);
	return NULL;
}

int main(int argc, char **argv)
{
	begin(&argc, argv);
	long threads = number(argc, argv, 1, 2);
	if (threads == 0) {
		/* A known number of calls. */
		for (int i = 0; i < 100000; i++)
			CHECK(short_twice(i) == 4L * i + 4);
		return finish(MIX_START);
	}
	work_alarmed(threads, work, short_signal);
	printf("calls %ld\n", calls);
	return finish(MIX_START);
}
