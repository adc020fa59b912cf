/* For uftrace, which patches functions that were built for it (-fpatchable-function-entry): a loop like loop.c's.
 * traced batches 1 0 */
#define _GNU_SOURCE
#include "batches.h"

__attribute__((noinline, noipa, patchable_function_entry(5, 0))) long bench_traced(const char *text, long value)
{
	__asm__ volatile("" : : "r"(text));
	return value + 1;
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
		if (!say_batch(0, (double)used / (double)calls))
			return 1;
	}
	return 0;
}
