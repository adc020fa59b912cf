/* A call of a function with a return probe, instruction by instruction (the trap flag): in front of each a signal
 * handler calls the function, too. Every call is a hit or missed, and every register has the right value in the
 * function and after it. */
#define _GNU_SOURCE
#include <nanoprobe.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

enum { REGISTERS = 16, FLAGS = 15, ARITHMETIC = 0x8d5, DIRECTION = 0x400, TRAP = 0x100 };

/* rax rcx rdx rbx rbp rsi rdi r8 ... r15, flags: as they are loaded, as the function sees them, and as it leaves
   them. */
uint64_t given[REGISTERS], seen[REGISTERS], behind[REGISTERS];

void target(void);
void calls(void);

__asm__(".macro store_all to\n"
	"	movq %rax, \\to(%rip)\n\tmovq %rcx, \\to+8(%rip)\n\tmovq %rdx, \\to+16(%rip)\n\tmovq %rbx, \\to+24(%rip)\n"
	"	movq %rbp, \\to+32(%rip)\n\tmovq %rsi, \\to+40(%rip)\n\tmovq %rdi, \\to+48(%rip)\n\tmovq %r8, \\to+56(%rip)\n"
	"	movq %r9, \\to+64(%rip)\n\tmovq %r10, \\to+72(%rip)\n\tmovq %r11, \\to+80(%rip)\n\tmovq %r12, \\to+88(%rip)\n"
	"	movq %r13, \\to+96(%rip)\n\tmovq %r14, \\to+104(%rip)\n\tmovq %r15, \\to+112(%rip)\n"
	"	pushfq\n\tpopq \\to+120(%rip)\n"
	".endm\n"
	".text\n"
	".type target, @function\n"
	"target:\n"
	"	store_all seen\n"
	"	ret\n"
	".size target, . - target\n"
	".type calls, @function\n"
	"calls:\n"
	"	pushq %rbx\n\tpushq %rbp\n\tpushq %r12\n\tpushq %r13\n\tpushq %r14\n\tpushq %r15\n"
	"	movq given(%rip), %rax\n\tmovq given+8(%rip), %rcx\n\tmovq given+16(%rip), %rdx\n\tmovq given+24(%rip), %rbx\n"
	"	movq given+32(%rip), %rbp\n\tmovq given+40(%rip), %rsi\n\tmovq given+48(%rip), %rdi\n\tmovq given+56(%rip), %r8\n"
	"	movq given+64(%rip), %r9\n\tmovq given+72(%rip), %r10\n\tmovq given+80(%rip), %r11\n\tmovq given+88(%rip), %r12\n"
	"	movq given+96(%rip), %r13\n\tmovq given+104(%rip), %r14\n\tmovq given+112(%rip), %r15\n"
	"	pushq given+120(%rip)\n\tpopfq\n"
	"	call target\n"
	"	store_all behind\n"
	"	pushq $2\n\tpopfq\n"
	"	popq %r15\n\tpopq %r14\n\tpopq %r13\n\tpopq %r12\n\tpopq %rbp\n\tpopq %rbx\n"
	"	ret\n"
	".size calls, . - calls\n");

static uint64_t calls_made, steps_made, within;

static int returned(struct np_retprobe_instance *call, struct np_regs *regs)
{
	(void)call;
	(void)regs;
	return 0;
}

static void steps(int signal)
{
	uint64_t kept[REGISTERS];
	(void)signal;
	memcpy(kept, seen, sizeof(seen));
	steps_made++;
	if (within) {
		target();
		calls_made++;
	}
	memcpy(seen, kept, sizeof(seen));
}

static void check(int error)
{
	if (!error)
		return;
	fprintf(stderr, "%s: %s\n", np_strerror(error), np_last_error());
	exit(1);
}

static int is_same(const uint64_t *registers)
{
	uint64_t changed = (registers[FLAGS] ^ given[FLAGS]) & (ARITHMETIC | DIRECTION);
	return !memcmp(registers, given, FLAGS * sizeof(*given)) && !changed;
}

int main(void)
{
	struct sigaction action = { .sa_handler = steps };
	uint64_t number = 1, wrong = 0;
	sigaction(SIGTRAP, &action, NULL);
	for (int way = 0; way < 4; way++) {
		struct np_retprobe probe = { { NP_SIZE(struct np_retprobe), .addr = target }, .handler = returned,
					     .data_size = way / 2 * 8, .form = way % 2 ? NP_RETPROBE_ADDRESS : NP_RETPROBE_EXITS };
		uint64_t least = UINT64_MAX;
		check(np_register_retprobe(&probe));
		calls_made = 0;
		for (int round = 0; round < 30; round++) {
			for (int index = 0; index < FLAGS; index++)
				given[index] = number = number * 6364136223846793005UL + 1442695040888963407UL;
			number = number * 6364136223846793005UL + 1442695040888963407UL;
			given[FLAGS] = 0x202 | (number >> 32 & (ARITHMETIC | (round % 5 ? 0 : DIRECTION)));
			within = round % 3 == 1;
			steps_made = 0;
			/* In turn: no steps; steps with calls in between; only steps. */
			if (round % 3)
				given[FLAGS] |= TRAP;
			calls();
			calls_made++;
			wrong += !is_same(seen) || !is_same(behind);
			if (round % 3 == 2 && steps_made < least)
				least = steps_made;
		}
		uint64_t hits = np_probe_hits(&probe.probe), missed = np_retprobe_nmissed(&probe);
		int stepped = calls_made > 10 * least && least > 40;
		printf("way %d: %lu wrong, %s, %s\n", way, wrong, hits + missed == calls_made ? "exact" : "not exact",
		       hits && missed && stepped ? "all ways" : "not all ways");
		if (hits + missed != calls_made || !stepped)
			fprintf(stderr, "%lu + %lu of %lu, %lu steps\n", hits, missed, calls_made, least);
		check(np_unregister_retprobe(&probe));
	}
	return 0;
}
