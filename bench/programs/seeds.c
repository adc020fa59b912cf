/* What the seeds measured, as programs that run until they are told to end. Prints like loop.c:
 *
 * seeds batches THREADS 0         `batch <thread> <ns per call>`: bench_gettimeofday(), a system call
 * seeds batches THREADS NS        the same of work that takes about NS ns and ends in a call of bench_paced() */
#define _GNU_SOURCE
#include <sched.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

long bench_gettimeofday(void *time, void *zone);
long bench_paced(const char *text, long value);
__asm__(".text\n.p2align 6\n.globl bench_gettimeofday\n.type bench_gettimeofday, @function\n"
        "bench_gettimeofday:\n	pushq %rbp\n	movq %rsp, %rbp\n	movl $96, %eax\n	syscall\n	popq %rbp\n	ret\n"
        ".size bench_gettimeofday, . - bench_gettimeofday\n"
        ".p2align 6\n.globl bench_paced\n.type bench_paced, @function\n"
        "bench_paced:\n	pushq %rbp\n	movq %rsp, %rbp\n	leaq 1(%rsi), %rax\n	popq %rbp\n	ret\n"
        ".size bench_paced, . - bench_paced\n.p2align 6\n");

enum { BATCH_NS = 4000000 };
static volatile int stop;
static long work_iterations;

static uint64_t now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static uint64_t processor_time(void)
{
	struct timespec time;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* A chain of multiplications: its time depends on nothing but the clock. */
static uint64_t work(uint64_t seed, long iterations)
{
	for (long i = 0; i < iterations; i++)
		seed = seed * 6364136223846793005u + 1442695040888963407u;
	return seed;
}

static void one(void)
{
	if (work_iterations == 0) {
		long time[2];
		if (bench_gettimeofday(time, NULL) != 0)
			abort();
		return;
	}
	static __thread uint64_t seed;
	seed = work(seed, work_iterations);
	if (bench_paced("hello DTrace", (long)(seed & 1)) != (long)(seed & 1) + 1)
		abort();
}

static void *batches(void *which)
{
	long thread = (long)which, processors = sysconf(_SC_NPROCESSORS_ONLN);
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET((size_t)(processors - 1 - thread % processors), &set);
	sched_setaffinity(0, sizeof set, &set);
	while (!stop) {
		uint64_t start = now(), used = processor_time(), calls = 0;
		do {
			for (int i = 0; i < 20; i++)
				one();
			calls += 20;
		} while (now() - start < BATCH_NS);
		used = processor_time() - used;
		char line[64];
		int length = snprintf(line, sizeof line, "batch %ld %.4f\n", thread, (double)used / (double)calls);
		if (write(1, line, (size_t)length) != length)
			_exit(1);
	}
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
