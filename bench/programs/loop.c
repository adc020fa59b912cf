/* Calls small functions for ever and prints the cost of a call, in time of its thread on a processor.
 *
 * loop batches [threads] [function]   prints `batch <thread> <ns per call>` about every 4 ms, until its input ends
 * loop exact THREADS CALLS            each thread calls bench_function() exactly so often; prints `calls <total>`
 *
 * function: 0 bench_function (begins with push, as most do), 1 bench_nop (begins with a 5-byte nop), 2 bench_call
 * (begins with an instruction of four bytes and a call, like many small functions), 3 to 7 a function that begins with
 * a nop of one byte, mov, sub, ret (another function calls it), endbr64; 8 executes an int3, for which there is a
 * handler that does nothing: the floor of a trap. Threads are pinned to processors, from the last one down. */
#define _GNU_SOURCE
#include "batches.h"
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

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
#define NP_BENCH_FUNCTION(name, code) \
	long name(const char *text, long value); \
	__asm__(".text\n.p2align 6\n.globl " #name "\n.type " #name ", @function\n" \
	        #name ":\n" code "\n.size " #name ", . - " #name "\n.p2align 6\n")
NP_BENCH_FUNCTION(bench_nop1, "nop; leaq 1(%rsi), %rax; ret");
NP_BENCH_FUNCTION(bench_mov, "movq %rsi, %rax; incq %rax; ret");
NP_BENCH_FUNCTION(bench_sub, "subq $8, %rsp; leaq 1(%rsi), %rax; addq $8, %rsp; ret");
NP_BENCH_FUNCTION(bench_ret, "ret");
NP_BENCH_FUNCTION(bench_calls_ret, "leaq 1(%rsi), %rax; call bench_ret; ret");
NP_BENCH_FUNCTION(bench_endbr, "endbr64; leaq 1(%rsi), %rax; ret");
NP_BENCH_FUNCTION(bench_int3, "int3; leaq 1(%rsi), %rax; ret");

enum { CHUNK = 2000 };

static long (*const functions[])(const char *, long) = {
	bench_function, bench_nop, bench_call, bench_nop1, bench_mov, bench_sub, bench_calls_ret, bench_endbr, bench_int3,
};
enum { INT3 = 8, FUNCTIONS = 9 };
static long (*function)(const char *, long) = bench_function;
static volatile int stop;
static long exact_calls;

static void on_trap(int signal, siginfo_t *information, void *context)
{
	(void)signal, (void)information, (void)context;
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
		uint64_t start = now(), used = processor_time(), end;
		uint64_t calls = 0;
		do {
			if (chunk(CHUNK) != CHUNK)
				abort();
			calls += CHUNK;
			end = now();
		} while (end - start < BATCH_NS);
		used = processor_time() - used;
		if (!say_batch(thread, (double)used / (double)calls))
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
	else if (argc > 3 && atoi(argv[3]) > 0 && atoi(argv[3]) < FUNCTIONS)
		function = functions[atoi(argv[3])];
	if (function == functions[INT3]) {
		struct sigaction action = { .sa_sigaction = on_trap, .sa_flags = SA_SIGINFO };
		sigaction(SIGTRAP, &action, NULL);
	}
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
