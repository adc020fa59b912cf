/* Calls small functions for ever and says what a call costs.
 *
 * loop batches [threads] [function]   prints `batch <thread> <ns per call>` about every 4 ms, until its input ends
 * loop exact THREADS CALLS            each thread calls bench_function() exactly so often; prints `calls <total>`
 *
 * function: 0 bench_function (begins with push, as most do), 1 bench_nop (begins with a 5-byte nop), 2 bench_call (begins
 * with four bytes and a call, as small functions do that call at once).
 * Threads are pinned to processors, from the last one down. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

long bench_function(const char *text, long value);
long bench_nop(const char *text, long value);
long bench_call(const char *text, long value);
__asm__(".text\n.p2align 6\n.globl bench_function\n.type bench_function, @function\n"
        "bench_function:\n	pushq %rbp\n	movq %rsp, %rbp\n	leaq 1(%rsi), %rax\n	popq %rbp\n	ret\n"
        ".size bench_function, . - bench_function\n"
        ".p2align 6\n.globl bench_nop\n.type bench_nop, @function\n"
        "bench_nop:\n	.byte 0x0f, 0x1f, 0x44, 0x00, 0x00\n	leaq 1(%rsi), %rax\n	ret\n"
        ".size bench_nop, . - bench_nop\n"
        ".p2align 6\n.globl bench_call\n.type bench_call, @function\n"
        "bench_call:\n	subq $8, %rsp\n	call bench_inner\n	addq $8, %rsp\n	ret\n"
        ".size bench_call, . - bench_call\n"
        ".p2align 6\n.type bench_inner, @function\n"
        "bench_inner:\n	leaq 1(%rsi), %rax\n	ret\n"
        ".size bench_inner, . - bench_inner\n.p2align 6\n");

enum { CHUNK = 2000, BATCH_NS = 4000000 };

static long (*function)(const char *, long) = bench_function;
static volatile int stop;
static long exact_calls;

static uint64_t now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void pin(long thread)
{
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET((size_t)(processors - 1 - thread % processors), &set);
	sched_setaffinity(0, sizeof set, &set);
}

static long chunk(long calls)
{
	long value = 0;
	for (long i = 0; i < calls; i++)
		value = function("hello DTrace", value);
	return value;
}

static void *batches(void *which)
{
	long thread = (long)which;
	pin(thread);
	while (!stop) {
		uint64_t start = now(), end;
		uint64_t calls = 0;
		do {
			if (chunk(CHUNK) != CHUNK)
				abort();
			calls += CHUNK;
			end = now();
		} while (end - start < BATCH_NS);
		char line[64];
		int length = snprintf(line, sizeof line, "batch %ld %.4f\n", thread, (double)(end - start) / (double)calls);
		if (write(1, line, (size_t)length) != length)
			_exit(1);
	}
	return NULL;
}

static void *exact(void *which)
{
	pin((long)which);
	return (void *)(chunk(exact_calls) == exact_calls ? 0L : 1L);
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	int is_exact = strcmp(argv[1], "exact") == 0;
	long threads = argc > 2 ? atol(argv[2]) : 1;
	if (threads < 1 || threads > 256)
		return 2;
	if (is_exact)
		exact_calls = argc > 3 ? atol(argv[3]) : 1000000;
	else if (argc > 3 && atoi(argv[3]) == 1)
		function = bench_nop;
	else if (argc > 3 && atoi(argv[3]) == 2)
		function = bench_call;
	pthread_t ids[256];
	for (long i = 0; i < threads; i++)
		if (pthread_create(&ids[i], NULL, is_exact ? exact : batches, (void *)i) != 0)
			return 1;
	if (!is_exact) {
		char byte;
		while (read(0, &byte, 1) == 1)
			;
		stop = 1;
	}
	for (long i = 0; i < threads; i++) {
		void *result;
		pthread_join(ids[i], &result);
		if (result != NULL)
			return 1;
	}
	if (is_exact)
		printf("calls %ld\n", threads * exact_calls);
	return 0;
}
