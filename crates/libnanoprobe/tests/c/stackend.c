/* A jumper probe on stacks that end at every distance after the return address. After the stack's end there is a
 * page, or no page, or a page that existed only at the last hit. argv[1]: flags. */
#define _GNU_SOURCE
#include <nanoprobe.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, STACK = 64 * PAGE };

static uint64_t mirrored, right;
static uint64_t wanted_seventh, wanted_last;
static double wanted_real;

struct whole {
	uint64_t words[NP_JPROBE_STACK / 8];
};

__attribute__((noinline, noipa)) uint64_t probed(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f,
						 double real)
{
	return a * 2 + b + c + d + e + f + (uint64_t)real;
}

/* `stack` is one structure in place of all arguments on the stack. */
static uint64_t mirror(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, double real,
		       struct whole stack)
{
	mirrored++;
	right += a == 1 && b == 2 && c == 3 && d == 4 && e == 5 && f == 6 && real == wanted_real &&
		 stack.words[0] == wanted_seventh && stack.words[NP_JPROBE_STACK / 8 - 1] == wanted_last;
	if (mirrored % 2)
		np_jprobe_return();
	return 0;
}

/* Calls the function with the return address `room` bytes below `end`: rdi = end - room. */
uint64_t call_at(void *stack, double real);
__asm__(".text\n.globl call_at\n.type call_at, @function\ncall_at:\n"
	"	pushq %rbp\n	movq %rsp, %rbp\n	movq %rdi, %rsp\n"
	"	movl $1, %edi\n	movl $2, %esi\n	movl $3, %edx\n	movl $4, %ecx\n	movl $5, %r8d\n	movl $6, %r9d\n"
	"	call probed\n	movq %rbp, %rsp\n	popq %rbp\n	ret\n.size call_at, . - call_at\n");

static uint64_t *fill(char *from, char *to)
{
	for (uint64_t *word = (uint64_t *)from; (char *)word < to; word++)
		*word = (uint64_t)word ^ 0x5555;
	return (uint64_t *)from;
}

int main(int argc, char **argv)
{
	(void)argc;
	struct np_jprobe jumper = { { NP_SIZE(struct np_probe), .addr = (void *)probed,
				      .flags = (unsigned)atol(argv[1]) }, (void *)mirror };
	if (np_register_jprobe(&jumper)) {
		fprintf(stderr, "%s\n", np_last_error());
		return 1;
	}
	char *stack = mmap(NULL, STACK + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *end = stack + STACK;
	uint64_t calls = 0;
	for (int round = 0; round < 9; round++) {
		/* 0: a page follows; 1: none follows; 2: a page followed at the last hit, and is gone now. */
		if (round % 3 == 1)
			munmap(end, PAGE);
		else if (mmap(end, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != end)
			return 2;
		for (int room = 0; room < 2016; room += 8) {
			char *top = end - room;
			int there = round % 3 != 1;
			fill(end - 4 * PAGE, there ? end + PAGE : end);
			if (round % 3 == 2 && room % 16 == 0) {
				wanted_real = 0.25;
				wanted_seventh = *(uint64_t *)(room ? top : end), wanted_last = *(uint64_t *)(top + NP_JPROBE_STACK - 8);
				call_at(top, 0.25);
				munmap(end, PAGE);
				there = 0;
				calls++;
			}
			wanted_real = room + 0.5;
			wanted_seventh = top < end || there ? *(uint64_t *)top : 0;
			char *last = top + NP_JPROBE_STACK - 8;
			wanted_last = last < end || there ? *(uint64_t *)last : 0;
			if (call_at(top, wanted_real) != 22 + (uint64_t)room)
				return 3;
			calls++;
			if (round % 3 == 2 && room % 16 == 0)
				mmap(end, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		}
	}
	if (mirrored != calls || right != calls || np_probe_hits(&jumper.probe) != calls) {
		fprintf(stderr, "%lu calls, %lu mirrored, %lu of them right\n", calls, mirrored, right);
		return 4;
	}
	np_unregister_jprobe(&jumper);
	printf("%lu calls\n", calls);
	return 0;
}
