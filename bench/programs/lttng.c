/* LTTng-UST's static tracepoint in a loop like loop.c's; prints the same batches. Built where the comparison runs, since it
 * needs LTTng's library. */
#define _GNU_SOURCE
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "lttng_provider.h"
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

__attribute__((noinline)) static long traced(const char *text, long value)
{
	lttng_ust_tracepoint(nanoprobe_bench, call, text, value);
	return value + 1;
}

static uint64_t processor_time(void)
{
	struct timespec time;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

int main(void)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET((size_t)sysconf(_SC_NPROCESSORS_ONLN) - 1, &set);
	sched_setaffinity(0, sizeof set, &set);
	for (;;) {
		uint64_t start = processor_time(), used;
		long calls = 0, value = 0;
		do {
			for (int i = 0; i < 2000; i++)
				value = traced("hello DTrace", value);
			calls += 2000;
			used = processor_time() - start;
		} while (used < 4000000);
		if (value != calls)
			return 1;
		char line[64];
		int length = snprintf(line, sizeof line, "batch 0 %.4f\n", (double)used / (double)calls);
		if (write(1, line, (size_t)length) != length)
			return 1;
	}
}
