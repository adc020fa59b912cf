/* Calls functions whose probes have no room of their own, and says what a call costs, as loop.c does.
 *
 * neighbour batches [threads] [function]
 *
 * function: 0 bench_neighbour, 1 bench_last_resort, 2 bench_shared. The program is linked to lie so low that a
 * displacement made of the bytes after an instruction leads below address 0, and no padding is in reach. */
#define _GNU_SOURCE
#include "batches.h"
#include <pthread.h>
#include <stdlib.h>

/* A stretch of code that is longer than a short jump reaches, without long instructions or padding. */
#define FAR(name)                                            \
	".type " #name ", @function\n" #name ":\n"               \
	"	.rept 40\n	leal 1(%rdi), %eax\n	.endr\n	ret\n"       \
	".size " #name ", . - " #name "\n"

/* A jump leads to the site, and the neighbour comes after it; branches lead to the neighbour and to the instruction
   after the neighbour. */
#define NEIGHBOUR(name, instruction)                         \
	".globl " #name "\n.type " #name ", @function\n"         \
	#name ":\n	testl %esi, %esi\n	js 2f\n	js 3f\n	jmp 1f\n" \
	#name "_site:\n"                                         \
	"1:	leaq 1(%rsi), %rax\n"                               \
	"2:	" instruction "\n"                                   \
	"3:	ret\n"                                              \
	".size " #name ", . - " #name "\n"

long bench_neighbour(const char *text, long value);
long bench_shared(const char *text, long value);
long bench_last_resort(const char *text, long value);
__asm__(".text\n" FAR(far_0)
        NEIGHBOUR(bench_neighbour, "movabsq $1, %rcx") FAR(far_1)
        /* The instruction is shorter than the ten bytes of two jumps. */
        NEIGHBOUR(bench_shared, "addl $0x11111, %ecx") FAR(far_3)
        /* A loop that is entered from above. It has room for a jump only together with the instruction before it. */
        ".globl bench_last_resort\n.type bench_last_resort, @function\n"
        "bench_last_resort:\n	leaq 1(%rsi), %rax\n	movl $1, %ecx\n	testl %esi, %esi\n	jns 1f\n	jmp 3f\n"
        "bench_last_resort_site:\n"
        "1:	movq %rcx, %rdx\n"
        "bench_last_resort_loop:\n"
        "2:	decl %ecx\n"
        "3:	jne 2b\n"
        "	ret\n"
        /* Data, whose bytes must not change. */
        "	.rept 16\n	.byte 0xf1\n	.endr\n"
        ".size bench_last_resort, . - bench_last_resort\n" FAR(far_2));
extern char bench_neighbour_site, bench_shared_site, bench_last_resort_site, bench_last_resort_loop;

enum { CHUNK = 2000 };

static long (*function)(const char *, long) = bench_neighbour;
static volatile int stop;

static void *batches(void *which)
{
	pin((long)which);
	while (!stop) {
		uint64_t start = now(), used = processor_time(), end, calls = 0;
		do {
			long value = 0;
			for (long i = 0; i < CHUNK; i++)
				value = function("hello DTrace", value);
			if (value != CHUNK)
				abort();
			calls += CHUNK;
			end = now();
		} while (end - start < BATCH_NS);
		used = processor_time() - used;
		if (!say_batch((long)which, (double)used / (double)calls))
			_exit(1);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	long threads = argc > 2 ? atol(argv[2]) : 1;
	if (threads < 1 || threads > 256)
		return 2;
	/* Checks that the sites lie at the offsets at which the comparison probes them. */
	if (&bench_neighbour_site - (char *)bench_neighbour != 0x8 || &bench_shared_site - (char *)bench_shared != 0x8 ||
	    &bench_last_resort_site - (char *)bench_last_resort != 0xf ||
	    &bench_last_resort_loop - (char *)bench_last_resort != 0x12)
		return 3;
	switch (argc > 3 ? atoi(argv[3]) : 0) {
	case 1:
		function = bench_last_resort;
		break;
	case 2:
		function = bench_shared;
		break;
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
