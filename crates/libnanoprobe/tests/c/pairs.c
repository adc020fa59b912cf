/* Every register and flag on the way into a function with a return probe, and back: argv[1] is the form. The function
 * is written so that all of them matter: it stores its registers, loads other values, and returns with the direction
 * flag set or clear. Also by tail calls of two functions with probes, and where the address is put back while the
 * function runs. */
#define _GNU_SOURCE
#include <nanoprobe.h>
#include <execinfo.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* rax rcx rdx rbx rbp rsi rdi r8 .. r15, flags, rsp */
struct state {
	uint64_t registers[17];
};
struct state given, inside, wanted, left;

/* `keep` stores everything at a symbol but rsp, which is at +128; flags by pushf, which changes nothing. */
__asm__(".macro keep to, depth\n"
	"	pushfq\n	popq \\to+120(%rip)\n"
	"	movq %rax, \\to(%rip)\n	movq %rcx, \\to+8(%rip)\n	movq %rdx, \\to+16(%rip)\n	movq %rbx, \\to+24(%rip)\n"
	"	movq %rbp, \\to+32(%rip)\n	movq %rsi, \\to+40(%rip)\n	movq %rdi, \\to+48(%rip)\n	movq %r8, \\to+56(%rip)\n"
	"	movq %r9, \\to+64(%rip)\n	movq %r10, \\to+72(%rip)\n	movq %r11, \\to+80(%rip)\n	movq %r12, \\to+88(%rip)\n"
	"	movq %r13, \\to+96(%rip)\n	movq %r14, \\to+104(%rip)\n	movq %r15, \\to+112(%rip)\n"
	"	movq %rsp, \\to+128(%rip)\n"
	".endm\n"
	".macro fetch from\n"
	"	pushq \\from+120(%rip)\n	popfq\n"
	"	movq \\from(%rip), %rax\n	movq \\from+8(%rip), %rcx\n	movq \\from+16(%rip), %rdx\n	movq \\from+24(%rip), %rbx\n"
	"	movq \\from+32(%rip), %rbp\n	movq \\from+40(%rip), %rsi\n	movq \\from+48(%rip), %rdi\n	movq \\from+56(%rip), %r8\n"
	"	movq \\from+64(%rip), %r9\n	movq \\from+72(%rip), %r10\n	movq \\from+80(%rip), %r11\n	movq \\from+88(%rip), %r12\n"
	"	movq \\from+96(%rip), %r13\n	movq \\from+104(%rip), %r14\n	movq \\from+112(%rip), %r15\n"
	".endm\n"
	".text\n.globl exchange\n.type exchange, @function\nexchange:\n"
	"	nopl 0(%rax,%rax,1)\n"
	"	keep inside\n	fetch wanted\n"
	"	nopl 0(%rax,%rax,1)\n	ret\n.size exchange, . - exchange\n"
	".globl first\n.type first, @function\nfirst:\n"
	"	nopl 0(%rax,%rax,1)\n	jmp exchange\n.size first, . - first\n"
	".globl run\n.type run, @function\nrun:\n"
	"	pushq %rbx\n	pushq %rbp\n	pushq %r12\n	pushq %r13\n	pushq %r14\n	pushq %r15\n"
	"	movq %rdi, called(%rip)\n	fetch given\n"
	"	call *called(%rip)\n"
	"	keep left\n	cld\n"
	"	popq %r15\n	popq %r14\n	popq %r13\n	popq %r12\n	popq %rbp\n	popq %rbx\n	ret\n.size run, . - run\n"
	".data\n.globl called\ncalled: .quad 0\n.text\n");
extern void exchange(void), first(void), run(void (*function)(void));

static int returns;
static int counts(struct np_retprobe_instance *instance, struct np_regs *regs)
{
	(void)instance;
	returns += regs->rax == wanted.registers[0];
	return 0;
}

static void put(struct np_retprobe *probe, const char *symbol, int form)
{
	memset(probe, 0, sizeof(*probe));
	probe->probe.size = sizeof(*probe);
	probe->probe.symbol = symbol;
	probe->probe.flags = NP_PROBE_NO_SIMD;
	probe->handler = counts;
	probe->form = form;
	int error = np_register_retprobe(probe);
	if (error) {
		fprintf(stderr, "register %s: %s: %s\n", symbol, np_strerror(error), np_last_error());
		exit(1);
	}
}

static uint64_t random_word(void)
{
	static uint64_t state = 88172645463325252UL;
	state ^= state << 13;
	state ^= state >> 7;
	return state ^= state << 17;
}

/* Carry, parity, adjust, zero, sign, direction, overflow. */
enum { FLAGS = 0xcd5, ROUNDS = 2000 };

static int wrong(const struct state *is, const struct state *was)
{
	return memcmp(is, was, 15 * 8) != 0 || ((is->registers[15] ^ was->registers[15]) & FLAGS) != 0;
}

static void rounds(const char *what, void (*function)(void), int each)
{
	int bad = 0, moved = 0;
	returns = 0;
	uint64_t stack = 0;
	for (int round = 0; round < ROUNDS; round++) {
		for (int number = 0; number < 15; number++) {
			given.registers[number] = random_word();
			wanted.registers[number] = random_word();
		}
		given.registers[15] = (random_word() & FLAGS) | 2;
		wanted.registers[15] = (random_word() & FLAGS) | 2;
		run(function);
		bad += wrong(&inside, &given) + wrong(&left, &wanted);
		/* In the function, and after its return. */
		if (!stack)
			stack = left.registers[16];
		moved += left.registers[16] != stack || inside.registers[16] != stack - 8;
	}
	printf("%s: %d wrong, %d moved, %s\n", what, bad, moved, returns == each * ROUNDS ? "all seen" : "some lost");
}

/* ---- the address is put back while the function runs ---- */

__attribute__((noinline, noclone)) int unwinds(int value)
{
	void *frames[4];
	backtrace(frames, 4);
	__asm__ volatile("" ::: "memory");
	return value + 1;
}

int main(int count, char **arguments)
{
	int form = count > 1 ? atoi(arguments[1]) : NP_RETPROBE_ADDRESS;
	struct np_retprobe one, other;
	rounds("without", exchange, 0);
	put(&one, "exchange", form);
	rounds("one", exchange, 1);
	put(&other, "exchange", form);
	rounds("two at one entry", exchange, 2);
	np_unregister_retprobe(&other);
	rounds("one again", exchange, 1);
	/* The exit form does not support tail calls. */
	put(&other, "first", NP_RETPROBE_ADDRESS);
	rounds("by a tail call", first, 2);
	np_unregister_retprobe(&one);
	rounds("the first alone", first, 1);
	np_unregister_retprobe(&other);
	put(&one, "unwinds", form);
	int sum = 0;
	for (int round = 0; round < 1000; round++)
		sum += unwinds(round);
	printf("unwinds: %d, %s\n", sum, np_unregister_retprobe(&one) ? "WRONG" : "good");
	rounds("at last", exchange, 0);
	return 0;
}
