/* For uftrace, which patches functions that were built for it (-fpatchable-function-entry): a loop like loop.c's.
 * traced batches 1 0 */
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

__attribute__((noinline, noipa, patchable_function_entry(5, 0))) long bench_traced(const char *text, long value)
{
	__asm__ volatile("" : : "r"(text));
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
	for (int batch = 0; batch < 60; batch++) {
		uint64_t start = processor_time(), used;
		long calls = 0, value = 0;
		do {
			for (int i = 0; i < 500; i++)
				value = bench_traced("hello DTrace", value);
			calls += 500;
			used = processor_time() - start;
		} while (used < 2000000);
		if (value != calls)
			return 1;
		char line[64];
		int length = snprintf(line, sizeof line, "batch 0 %.4f\n", (double)used / (double)calls);
		if (write(1, line, (size_t)length) != length)
			return 1;
	}
	return 0;
}
