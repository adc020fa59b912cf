/* Spends its time in known system calls, and says how long:
 * in_kernel reads MS         reads from /dev/zero, for MS milliseconds of its time on a processor
 * in_kernel naps TIMES       sleeps
 * in_kernel computes MS      makes no call */
#include <fcntl.h>
#include <time.h>
#include "check.h"

enum { BYTES = 1 << 20, NAP_NS = 10000000 };
static char bytes[BYTES];

/* Reading this clock is a system call, too: it is read seldom. */
static long own_ns(void)
{
	struct timespec time;
	CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) == 0);
	return time.tv_sec * 1000000000L + time.tv_nsec;
}

PROBED void reads(int zero)
{
	for (int i = 0; i < 20; i++)
		CHECK(read(zero, bytes, BYTES) == BYTES);
	__asm__ volatile("");
}

PROBED void naps(void)
{
	struct timespec time = { 0, NAP_NS };
	CHECK(nanosleep(&time, NULL) == 0);
	__asm__ volatile("");
}

PROBED void computes(void)
{
	for (int step = 0; step < 10000000; step++)
		__asm__ volatile("");
}

int main(int count, char **words)
{
	begin(&count, words);
	CHECK(count == 3);
	const char *what = words[1];
	long number = strtol(words[2], 0, 10), start = own_ns();
	if (!strcmp(what, "naps")) {
		for (long i = 0; i < number; i++)
			naps();
	} else {
		int zero = open("/dev/zero", O_RDONLY), is_reading = !strcmp(what, "reads");
		CHECK(zero >= 0 && (is_reading || !strcmp(what, "computes")));
		while (own_ns() - start < number * 1000000)
			if (is_reading)
				reads(zero);
			else
				computes();
	}
	printf("worked_ms %ld\n", (own_ns() - start) / 1000000);
	return finish(MIX_START);
}
