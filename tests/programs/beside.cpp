/* Threads that throw and catch while others return: each call comes from another place, and all have the same
 * return address slot. argv[1]: threads; argv[2]: rounds of each. Fails if a call returns to the place of another
 * call. */
#include <pthread.h>
#include <stdexcept>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define FUNCTION extern "C" __attribute__((noinline, noclone))

static long rounds;

FUNCTION long third(long value)
{
	__asm__ volatile("" ::: "memory");
	return value * 3 + 1;
}

FUNCTION long fifth(long value)
{
	__asm__ volatile("" ::: "memory");
	return value * 5 + 2;
}

FUNCTION long throws(long value)
{
	__asm__ volatile("" ::: "memory");
	if (value % 3 == 0)
		throw std::runtime_error("thrown");
	return value;
}

FUNCTION long between(long value)
{
	long sum = throws(value);
	__asm__ volatile("" ::: "memory");
	return sum + 1;
}

static void check(bool right, const char *what, long value)
{
	if (right)
		return;
	fprintf(stderr, "%s: %ld\n", what, value);
	abort();
}

static void *run(void *number)
{
	unsigned seed = (unsigned)(size_t)number + 1;
	long caught = 0;
	for (long round = 0; round < rounds; round++) {
		long value = rand_r(&seed) % 1000;
		for (int again = 0; again < 3; again++) {
			long other = third(value);
			check(other == value * 3 + 1, "third", other);
			other = fifth(value);
			check(other == value * 5 + 2, "fifth", other);
		}
		try {
			long other = between(value);
			check(value % 3 != 0 && other == value + 1, "between", other);
		} catch (const std::runtime_error &) {
			check(value % 3 == 0, "caught", value);
			caught++;
		}
		usleep((unsigned)value % 200);
	}
	return (void *)caught;
}

int main(int count, char **arguments)
{
	long threads = count > 1 ? atol(arguments[1]) : 8, caught = 0;
	rounds = count > 2 ? atol(arguments[2]) : 1000;
	pthread_t all[64];
	for (long number = 0; number < threads; number++)
		pthread_create(&all[number], nullptr, run, (void *)number);
	for (long number = 0; number < threads; number++) {
		void *of_thread;
		pthread_join(all[number], &of_thread);
		caught += (long)of_thread;
	}
	printf("calls %ld\nthrown %ld\nOK\n", threads * rounds, caught);
	return 0;
}
