/* The seeds' measurements, as programs that run until a signal ends them. Prints like loop.c:
 *
 * seeds batches THREADS 0         `batch <thread> <ns per call>`: bench_gettimeofday(), a system call
 * seeds batches THREADS NS        the same of bench_paced(), which is called after every NS ns of other work
 *
 * The cost of a rare call cannot be seen in the time of all the work around it: that varies by
 * more. So each call of bench_paced() is timed by itself, as it comes, with whatever the work has
 * left in caches and predictors. The figure is the median of a batch, because some calls are
 * interrupted. It includes reading the clock, with a probe and without. */
#define _GNU_SOURCE
#include "batches.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

long bench_gettimeofday(void *time, void *zone);
long bench_paced(const char *text, long value);
__asm__(".text\n.p2align 6\n.globl bench_gettimeofday\n.type bench_gettimeofday, @function\n"
        "bench_gettimeofday:\n	pushq %rbp\n	movq %rsp, %rbp\n	movl $96, %eax\n	syscall\n	popq %rbp\n	ret\n"
        ".size bench_gettimeofday, . - bench_gettimeofday\n"
        ".p2align 6\n.globl bench_paced\n.type bench_paced, @function\n"
        "bench_paced:\n	pushq %rbp\n	movq %rsp, %rbp\n	leaq 1(%rsi), %rax\n	popq %rbp\n	ret\n"
        ".size bench_paced, . - bench_paced\n.p2align 6\n");

static volatile int stop;
static long work_iterations;

/* A chain of multiplications, whose time depends only on the processor's clock. */
static uint64_t work(uint64_t seed, long iterations)
{
	for (long i = 0; i < iterations; i++)
		seed = seed * 6364136223846793005u + 1442695040888963407u;
	return seed;
}

/* Reads the time stamp counter after all earlier instructions and before all later ones. */
static uint64_t ticks(void)
{
	uint32_t low, high;
	__asm__ volatile("lfence; rdtsc; lfence" : "=a"(low), "=d"(high) : : "memory");
	return (uint64_t)high << 32 | low;
}

enum { AT_ONCE = 20, TIMED = 4096 };

static int ascending(const void *a, const void *b)
{
	uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
	return (left > right) - (left < right);
}

/* ns a call: the median. */
static double paced(void)
{
	static __thread uint64_t seed, taken[TIMED];
	uint64_t start = now(), first = ticks(), count = 0, elapsed;
	do {
		for (int i = 0; i < AT_ONCE; i++) {
			seed = work(seed, work_iterations);
			uint64_t before = ticks();
			if (bench_paced("hello DTrace", (long)(seed & 1)) != (long)(seed & 1) + 1)
				abort();
			taken[count++ % TIMED] = ticks() - before;
		}
		elapsed = now() - start;
	} while (elapsed < BATCH_NS);
	double ns = (double)elapsed / (double)(ticks() - first);
	uint64_t kept = count < TIMED ? count : TIMED;
	qsort(taken, kept, sizeof taken[0], ascending);
	return (double)taken[kept / 2] * ns;
}

/* ns a call: the mean, of the thread's time. */
static double called(void)
{
	uint64_t start = now(), used = processor_time(), calls = 0;
	do {
		for (int i = 0; i < AT_ONCE; i++) {
			long time[2];
			if (bench_gettimeofday(time, NULL) != 0)
				abort();
		}
		calls += AT_ONCE;
	} while (now() - start < BATCH_NS);
	return (double)(processor_time() - used) / (double)calls;
}

static void *batches(void *which)
{
	long thread = (long)which;
	pin(thread);
	while (!stop)
		if (!say_batch(thread, work_iterations == 0 ? called() : paced()))
			_exit(1);
	return NULL;
}

int main(int argc, char **argv)
{
	if (argc != 4 || strcmp(argv[1], "batches") != 0)
		return 2;
	long threads = atol(argv[2]), wanted_ns = atol(argv[3]);
	if (threads < 1 || threads > 256)
		return 2;
	if (wanted_ns > 0) {
		/* How many multiplications: the fastest of some tries is the least disturbed. */
		uint64_t best = UINT64_MAX, seed = 1;
		for (int i = 0; i < 20; i++) {
			uint64_t start = now();
			seed = work(seed, 100000);
			uint64_t took = now() - start;
			if (took < best)
				best = took;
		}
		work_iterations = (long)((double)wanted_ns * 100000.0 / (double)best) + 1;
		if (seed == 0)
			return 1;
	}
	pthread_t ids[256];
	for (long i = 0; i < threads; i++)
		if (pthread_create(&ids[i], NULL, batches, (void *)i) != 0)
			return 1;
	char byte;
	while (read(0, &byte, 1) == 1)
		;
	stop = 1;
	for (long i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
	return 0;
}
