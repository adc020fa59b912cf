/* The floor: what a probe made by hand costs. The program patches its own function with a jump to a detour that counts,
 * executes the displaced instructions and jumps back:
 *
 *   bench_function:  e9 rel32 cc cc cc          jmp detour; the rest of the run
 *                    5d c3                      pop rbp; ret
 *   detour:          48 ff 05 rel32             inc qword [rip + counter]
 *                    55                         push rbp        | the displaced run,
 *                    48 89 e5                   mov rbp, rsp    | 8 bytes
 *                    48 8d 46 01                lea rax, [rsi+1]|
 *                    e9 rel32                   jmp bench_function + 8
 *
 * Prints `plain <ns per call>` and `patched <ns per call>` in turn, then `counted <hits> <calls while patched>`.
 * floor [pairs] */
#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

long bench_function(const char *text, long value);
__asm__(".section .text.bench_function, \"ax\", @progbits\n.p2align 12\n.globl bench_function\n.type bench_function, @function\n"
        "bench_function:\n	pushq %rbp\n	movq %rsp, %rbp\n	leaq 1(%rsi), %rax\n	popq %rbp\n	ret\n"
        ".size bench_function, . - bench_function\n.p2align 12\n.text\n");

enum { RUN = 8, CHUNK = 2000, BATCH_NS = 4000000 };

static uint64_t now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static void put_rel32(uint8_t *at, const void *target)
{
	int64_t distance = (const uint8_t *)target - (at + 4);
	if (distance != (int32_t)distance)
		abort();
	int32_t rel32 = (int32_t)distance;
	memcpy(at, &rel32, 4);
}

/* A page of code and a page of data behind it, within reach of a rel32.
 *
 * The distance is no multiple of 2^24: branch target buffers tag branches by the low 24 bits or so of their address, and
 * a detour whose own jump or call lies at the same low bits as the branches around the site evicts them at every hit.
 * With the very code below, 2^24 apart costs 20 to 30 ns a call, anything else 1 to 2. */
static uint8_t *map_near(uint8_t *text)
{
	for (uintptr_t distance = (1 << 24) + 0x5000; distance < 1U << 30; distance += 1 << 20) {
		uintptr_t wanted = ((uintptr_t)text - distance) & ~(uintptr_t)4095;
		uint8_t *near = mmap((void *)wanted, 8192, PROT_READ | PROT_WRITE,
		                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
		if (near != MAP_FAILED)
			return near;
	}
	abort();
}

static void write_text(uint8_t *text, const uint8_t *bytes)
{
	uint8_t *page = (uint8_t *)((uintptr_t)text & ~(uintptr_t)4095);
	/* Never writable and executable at once. The function has a page of its own: nothing else is executed there. */
	if (mprotect(page, 4096, PROT_READ | PROT_WRITE) != 0)
		abort();
	memcpy(text, bytes, RUN);
	if (mprotect(page, 4096, PROT_READ | PROT_EXEC) != 0)
		abort();
}

static double batch(uint64_t *calls)
{
	uint64_t start = now(), end, done = 0;
	do {
		long value = 0;
		for (long i = 0; i < CHUNK; i++)
			value = bench_function("hello DTrace", value);
		if (value != CHUNK)
			abort();
		done += CHUNK;
		end = now();
	} while (end - start < BATCH_NS);
	*calls += done;
	return (double)(end - start) / (double)done;
}

int main(int argc, char **argv)
{
	long pairs = argc > 1 ? atol(argv[1]) : 50;
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET((size_t)sysconf(_SC_NPROCESSORS_ONLN) - 1, &set);
	sched_setaffinity(0, sizeof set, &set);

	uint8_t *text = (uint8_t *)bench_function;
	uint8_t *detour = map_near(text);
	uint64_t *counter = (uint64_t *)(detour + 4096);
	uint8_t *at = detour;
	memcpy(at, "\x48\xff\x05", 3);
	put_rel32(at + 3, counter);
	at += 7;
	memcpy(at, text, RUN);
	at += RUN;
	*at = 0xe9;
	put_rel32(at + 1, text + RUN);
	if (mprotect(detour, 4096, PROT_READ | PROT_EXEC) != 0)
		abort();

	uint8_t original[RUN], patched[RUN];
	memcpy(original, text, RUN);
	memset(patched, 0xcc, RUN);
	patched[0] = 0xe9;
	int32_t rel32 = (int32_t)(detour - (text + 5));
	memcpy(patched + 1, &rel32, 4);

	uint64_t plain_calls = 0, patched_calls = 0;
	for (long pair = 0; pair < pairs; pair++) {
		printf("plain %.4f\n", batch(&plain_calls));
		write_text(text, patched);
		printf("patched %.4f\n", batch(&patched_calls));
		write_text(text, original);
	}
	printf("counted %lu %lu\n", (unsigned long)*counter, (unsigned long)patched_calls);
	return *counter == patched_calls ? 0 : 1;
}
