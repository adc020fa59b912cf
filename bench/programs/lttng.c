/* LTTng-UST's static tracepoint in a loop like loop.c's; prints the same batches. Built where the comparison runs,
 * since it needs LTTng's library. */
#define _GNU_SOURCE
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "lttng_provider.h"
#include "batches.h"

__attribute__((noinline)) static long traced(const char *text, long value)
{
	lttng_ust_tracepoint(nanoprobe_bench, call, text, value);
	return value + 1;
}

int main(void)
{
	pin(0);
	for (;;) {
		uint64_t start = processor_time(), used;
		long calls = 0, value = 0;
		do {
			for (int i = 0; i < 2000; i++)
				value = traced("hello DTrace", value);
			calls += 2000;
			used = processor_time() - start;
		} while (used < BATCH_NS);
		if (value != calls)
			return 1;
		if (!say_batch(0, (double)used / (double)calls))
			return 1;
	}
}
