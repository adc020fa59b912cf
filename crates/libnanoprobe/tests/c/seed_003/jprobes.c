/* Section 4.1: jumper probes. */
#include "check.h"

#include <stddef.h>

/* The mirrors use floating-point registers, whatever the flags say. */
#define WITH_SIMD (flags & ~NP_PROBE_NO_SIMD)

enum { FUNCTION_RAN = 'f', MIRROR_RAN = 'm', PROBE_RAN = 'p' };
static char order[16];
static int length;

static void note(int what)
{
	if (length < (int)sizeof(order) - 1)
		order[length++] = (char)what;
}

struct large {
	uint64_t words[5];
};

/* Arguments of each class: integers and doubles in registers and on the stack, a structure in memory. */
FUNCTION double many(uint64_t a, double x, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g,
		     struct large large, float y)
{
	note(FUNCTION_RAN);
	OPAQUE;
	return (double)(a + b + c + d + e + f + g + large.words[0] + large.words[4]) + x * (double)y;
}

static int mirrored, returns_plainly;

static double many_mirror(uint64_t a, double x, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g,
			  struct large large, float y)
{
	CHECK(a == 1 && b == 2 && c == 3 && d == 4 && e == 5 && f == 6 && g == 7);
	CHECK(x == 0.5 && y == 4.0f && large.words[0] == 10 && large.words[4] == 50);
	note(MIRROR_RAN);
	mirrored++;
	/* The mirror changes its own copies of the arguments, in registers and on the stack. */
	a = b = c = d = e = f = g = 99;
	memset(&large, 0xee, sizeof(large));
	x = y = -1;
	__asm__ volatile("" : : "r"(&large), "r"(a + b + c + d + e + f + g), "x"(x + (double)y) : "memory");
	if (!returns_plainly)
		np_jprobe_return();
	return -1;
}

static void call_many(void)
{
	static const struct large large = { { 10, 20, 30, 40, 50 } };
	CHECK(many(1, 0.5, 2, 3, 4, 5, 6, 7, large, 4.0f) == 28 + 60 + 2);
}

static void section_4_1_the_mirror_is_given_control_before_the_function(void)
{
	struct np_jprobe probe = { { NP_SIZE(struct np_probe), .addr = (void *)many, .flags = WITH_SIMD }, (void *)many_mirror };
	CHECK(np_register_jprobe(&probe) == 0);
	call_many();
	CHECK(!strcmp(order, "mf") && np_probe_hits(&probe.probe) == 1);
	CHECK(np_unregister_jprobe(&probe) == 0);
}

static void section_4_1_the_mirror_sees_all_arguments(void)
{
	struct np_jprobe probe = { { NP_SIZE(struct np_probe), .addr = (void *)many, .flags = WITH_SIMD }, (void *)many_mirror };
	CHECK(np_register_jprobe(&probe) == 0);
	for (int round = 0; round < 100; round++)
		call_many();
	CHECK(mirrored == 100);
	CHECK(np_unregister_jprobe(&probe) == 0);
}

static void section_4_1_1_what_the_mirror_does_to_its_arguments_stays_with_it(void)
{
	struct np_jprobe probe = { { NP_SIZE(struct np_probe), .addr = (void *)many, .flags = WITH_SIMD }, (void *)many_mirror };
	CHECK(np_register_jprobe(&probe) == 0);
	for (returns_plainly = 0; returns_plainly < 2; returns_plainly++)
		call_many();
	CHECK(mirrored == 2);
	CHECK(np_unregister_jprobe(&probe) == 0);
}

/* A mirror that spoils every register, including those that it would have to keep. When it leaves, something is
 * still pushed on its stack. */
void spoils(void);
__asm__(".text\n.globl spoils\n.type spoils, @function\nspoils:\n"
	"\tmovq $-1, %rax\n\tmovq %rax, %rbx\n\tmovq %rax, %rcx\n\tmovq %rax, %rdx\n\tmovq %rax, %rsi\n\tmovq %rax, %rdi\n"
	"\tmovq %rax, %rbp\n\tmovq %rax, %r8\n\tmovq %rax, %r9\n\tmovq %rax, %r10\n\tmovq %rax, %r11\n\tmovq %rax, %r12\n"
	"\tmovq %rax, %r13\n\tmovq %rax, %r14\n\tmovq %rax, %r15\n\tpcmpeqd %xmm0, %xmm0\n\tpcmpeqd %xmm1, %xmm1\n"
	"\tpushq %rax\n\tpushq %rax\n\tandq $-16, %rsp\n\tstc\n\tcall np_jprobe_return@PLT\n\tud2\n.size spoils, . - spoils\n");

/* A sum of all registers that a callee must keep and of those that carry its arguments, with different weights. */
uint64_t sums(uint64_t first);
__asm__(".text\n.globl sums\n.type sums, @function\nsums:\n"
	"\tleaq (%rdi, %rbx, 2), %rax\n\tleaq (%rax, %rbp, 4), %rax\n\tleaq (%rax, %r12, 8), %rax\n\timulq $3, %rax\n"
	"\taddq %r13, %rax\n\timulq $3, %rax\n\taddq %r14, %rax\n\timulq $3, %rax\n\taddq %r15, %rax\n\timulq $3, %rax\n"
	"\taddq %rsi, %rax\n\timulq $3, %rax\n\taddq %rdx, %rax\n\timulq $3, %rax\n\taddq %rcx, %rax\n\timulq $3, %rax\n"
	"\taddq %r8, %rax\n\timulq $3, %rax\n\taddq %r9, %rax\n\timulq $3, %rax\n\taddq %r10, %rax\n\timulq $3, %rax\n"
	"\taddq %r11, %rax\n\tmovq %xmm0, %r11\n\taddq %r11, %rax\n\tmovq %xmm1, %r11\n\taddq %r11, %rax\n\tret\n"
	".size sums, . - sums\n");

/* Calls sums with known values in all of these registers. Afterwards the registers must have the same values. */
uint64_t calls_sums(uint64_t first);
__asm__(".text\n.globl calls_sums\n.type calls_sums, @function\ncalls_sums:\n"
	"\tpushq %rbx\n\tpushq %rbp\n\tpushq %r12\n\tpushq %r13\n\tpushq %r14\n\tpushq %r15\n\tsubq $8, %rsp\n"
	"\tmovq $11, %rbx\n\tmovq $12, %rbp\n\tmovq $13, %r12\n\tmovq $14, %r13\n\tmovq $15, %r14\n\tmovq $16, %r15\n"
	"\tmovq $17, %rsi\n\tmovq $18, %rdx\n\tmovq $19, %rcx\n\tmovq $20, %r8\n\tmovq $21, %r9\n\tmovq $22, %r10\n"
	"\tmovq $23, %r11\n\tmovq %r8, %xmm0\n\tmovq %r9, %xmm1\n\tcall sums\n"
	"\taddq %rbx, %rax\n\taddq %rbp, %rax\n\taddq %r12, %rax\n\taddq %r13, %rax\n\taddq %r14, %rax\n\taddq %r15, %rax\n"
	"\taddq $8, %rsp\n\tpopq %r15\n\tpopq %r14\n\tpopq %r13\n\tpopq %r12\n\tpopq %rbp\n\tpopq %rbx\n\tret\n"
	".size calls_sums, . - calls_sums\n");

static void section_4_1_1_registers_are_restored_when_the_mirror_returns(void)
{
	uint64_t expected = calls_sums(5);
	struct np_jprobe probe = { { NP_SIZE(struct np_probe), .addr = (void *)sums, .flags = WITH_SIMD },
				   (void *)spoils };
	CHECK(np_register_jprobe(&probe) == 0);
	for (uint64_t round = 0; round < 100; round++)
		CHECK(calls_sums(5) == expected);
	CHECK(np_probe_hits(&probe.probe) == 100);
	CHECK(np_unregister_jprobe(&probe) == 0);
}

static int notes(struct np_probe *probe, struct np_regs *regs)
{
	(void)probe;
	(void)regs;
	note(PROBE_RAN);
	return 0;
}

static void section_4_1_1_a_jprobe_has_a_kprobe_embedded(void)
{
	CHECK(offsetof(struct np_jprobe, probe) == 0);
	struct np_jprobe jumper = { { NP_SIZE(struct np_probe), .addr = (void *)many, .flags = WITH_SIMD }, (void *)many_mirror };
	struct np_probe probe = { NP_SIZE(struct np_probe), .addr = (void *)many, .pre_handler = notes, .flags = WITH_SIMD };
	CHECK(np_register_jprobe(&jumper) == 0 && np_register_probe(&probe) == 0);
	CHECK(np_probe_tactic(&jumper.probe) == np_probe_tactic(&probe));
	call_many();
	CHECK(np_disable_probe(&jumper.probe) == 0);
	call_many();
	CHECK(np_enable_probe(&jumper.probe) == 0);
	call_many();
	CHECK(!strcmp(order, "mpfpfmpf"));
	CHECK(np_probe_hits(&jumper.probe) == 2 && np_probe_hits(&probe) == 3);
	CHECK(np_unregister_probe(&probe) == 0 && np_unregister_jprobe(&jumper) == 0);
}

static void section_4_1_1_unregistering_a_jprobe_is_unregistering_its_kprobe(void)
{
	unsigned char before[16];
	memcpy(before, (void *)many, sizeof(before));
	struct np_jprobe jumper = { { NP_SIZE(struct np_probe), .addr = (void *)many, .flags = WITH_SIMD }, (void *)many_mirror };
	for (int plainly = 0; plainly < 2; plainly++) {
		CHECK(np_register_jprobe(&jumper) == 0);
		CHECK((plainly ? np_unregister_probe(&jumper.probe) : np_unregister_jprobe(&jumper)) == 0);
		CHECK(memcmp(before, (void *)many, sizeof(before)) == 0);
		call_many();
	}
	CHECK(!strcmp(order, "ff"));
}

static const struct statement statements[] = {
	STATEMENT(section_4_1_the_mirror_is_given_control_before_the_function),
	STATEMENT(section_4_1_the_mirror_sees_all_arguments),
	STATEMENT(section_4_1_1_what_the_mirror_does_to_its_arguments_stays_with_it),
	STATEMENT(section_4_1_1_registers_are_restored_when_the_mirror_returns),
	STATEMENT(section_4_1_1_a_jprobe_has_a_kprobe_embedded),
	STATEMENT(section_4_1_1_unregistering_a_jprobe_is_unregistering_its_kprobe),
};

STATEMENTS(statements)
