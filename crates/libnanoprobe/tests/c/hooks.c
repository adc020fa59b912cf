/* Hooks of functions that are probed as well, and of functions whose callers rely on more than the ABI says. */
#define _GNU_SOURCE
#include "inside.h"

#include <pthread.h>

static uint64_t (*original)(uint64_t);
static uint64_t replaced;

static uint64_t instead(uint64_t value)
{
	replaced++;
	return value % 2 ? original(value) : value + 1000;
}

static uint64_t expected(uint64_t value)
{
	return value % 2 ? 3 * value + 1 : value + 1000;
}

enum { HOOK, PROBE, RETURN, KINDS };

/* A hook and probes are registered in every order, and removed in every order. */
static void with_probes_in_any_order(void)
{
	static const int orders[6][KINDS] = { { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 }, { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 } };
	EACH_FORM(form) for (int order = 0; order < 36; order++) {
		struct np_probe probe = { NP_SIZE(struct np_probe), .addr = (void *)foo, .pre_handler = counts, .flags = flags };
		struct np_retprobe returns = on_return((void *)foo, form);
		int has_hook = 0, has_probe = 0, has_return = 0, had_probe = 0, had_return = 0;
		uint64_t hits = 0, seen = 0, hooked = 0;
		replaced = 0;
		for (int step = 0; step < 2 * KINDS; step++) {
			int kind = step < KINDS ? orders[order / 6][step] : orders[order % 6][step - KINDS], comes = step < KINDS;
			if (kind == HOOK)
				CHECK((comes ? np_hook((void *)foo, (void *)instead, (void **)&original) :
					       np_unhook((void *)foo)) == 0);
			if (kind == PROBE)
				CHECK((comes ? np_register_probe(&probe) : np_unregister_probe(&probe)) == 0);
			if (kind == RETURN)
				CHECK((comes ? np_register_retprobe(&returns) : np_unregister_retprobe(&returns)) == 0);
			*(kind == HOOK ? &has_hook : kind == PROBE ? &has_probe : &has_return) = comes;
			for (uint64_t value = 0; value < 20; value++)
				CHECK(foo(value) == (has_hook ? expected(value) : 3 * value + 1));
			had_probe |= has_probe;
			had_return |= has_return;
			hooked += has_hook ? 20 : 0;
			hits += has_probe ? 20 : 0;
			seen += has_return ? 20 : 0;
			CHECK(replaced == hooked);
			CHECK(!had_probe || (np_probe_hits(&probe) == hits && np_probe_nmissed(&probe) == 0));
			CHECK(!had_return || is(&returns, seen, 0, 0));
		}
	}
}

/* This function calls no other, so its callers may know which registers it keeps. The callers here, like a
 * compiler's code, have values in these registers. */
uint64_t leaf(uint64_t value);
uint64_t keeps_registers(uint64_t value);
__asm__(".text\n.globl leaf\n.type leaf, @function\nleaf:\n\tleaq 7(%rdi), %rax\n\tnop\n\tret\n.size leaf, . - leaf\n"
	".globl keeps_registers\n.type keeps_registers, @function\nkeeps_registers:\n"
	"\tmovl $11, %ecx\n\tmovl $12, %edx\n\tmovl $13, %esi\n\tmovl $14, %r8d\n\tmovl $15, %r9d\n\tmovl $16, %r10d\n"
	"\tmovl $17, %r11d\n\tmovq %rdx, %xmm0\n\tmovq %rsi, %xmm5\n\tmovq %r8, %xmm15\n"
	"\tsubq $8, %rsp\n\tcall leaf\n\taddq $8, %rsp\n"
	"\taddq %rcx, %rax\n\taddq %rdx, %rax\n\taddq %rsi, %rax\n\taddq %rdi, %rax\n\taddq %r8, %rax\n\taddq %r9, %rax\n"
	"\taddq %r10, %rax\n\taddq %r11, %rax\n\tmovq %xmm0, %rcx\n\taddq %rcx, %rax\n\tmovq %xmm5, %rcx\n\taddq %rcx, %rax\n"
	"\tmovq %xmm15, %rcx\n\taddq %rcx, %rax\n\tret\n.size keeps_registers, . - keeps_registers\n");
enum { KEPT = 11 + 12 + 13 + 14 + 15 + 16 + 17 + 12 + 13 + 14 };

/* Changes all registers that the ABI lets a function change. */
static uint64_t changes_all(uint64_t value)
{
	__asm__ volatile("movl $99, %%ecx\n\tmovl $99, %%edx\n\tmovl $99, %%esi\n\tmovl $99, %%edi\n\tmovl $99, %%r8d\n\t"
			 "movl $99, %%r9d\n\tmovl $99, %%r10d\n\tmovl $99, %%r11d\n\tmovq %%rcx, %%xmm0\n\tmovq %%rcx, %%xmm5\n\t"
			 "movq %%rcx, %%xmm15"
			 ::: "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "xmm0", "xmm5", "xmm15");
	return value + 100;
}

static void of_functions_that_leave_registers_alone(void)
{
	CHECK(keeps_registers(1000) == 2007 + KEPT);
	CHECK(np_hook((void *)leaf, (void *)changes_all, NULL) == 0);
	for (uint64_t value = 0; value < 100; value++)
		CHECK(keeps_registers(value) == value + 100 + value + KEPT);
	CHECK(np_unhook((void *)leaf) == 0 && keeps_registers(1000) == 2007 + KEPT);
}

/* Calls a function with a stack that is not aligned to 16, like a compiler that knows that the function needs no
 * alignment. */
#define ODDLY(name, function)                                                                                         \
	uint64_t name(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h);  \
	__asm__(".text\n.globl " #name "\n.type " #name ", @function\n" #name ":\n\tpushq 16(%rsp)\n\tpushq 16(%rsp)\n"   \
		"\tcall " #function "\n\taddq $16, %rsp\n\tret\n.size " #name ", . - " #name "\n")
ODDLY(call_eight_oddly, eight);

uint64_t eight(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h);
FUNCTION uint64_t eight(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h)
{
	OPAQUE;
	return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h;
}

static uint64_t (*original_eight)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
static volatile uint64_t aligned;

/* The compiler moves data that is aligned to 16 by instructions that demand this alignment. */
static uint64_t with_vectors(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h)
{
	__attribute__((aligned(16))) volatile uint64_t pair[2] = { a, b };
	__asm__ volatile("movaps %0, %%xmm1\n\tmovaps %%xmm1, %0" : "+m"(pair) : : "xmm1");
	aligned += ((uint64_t)pair % 16 == 0);
	return original_eight(pair[0], pair[1], c, d, e, f, g, h) + 10000;
}

static void of_functions_that_need_no_aligned_stack(void)
{
	uint64_t before = call_eight_oddly(1, 2, 3, 4, 5, 6, 7, 8);
	CHECK(before == 204);
	CHECK(np_hook((void *)eight, (void *)with_vectors, (void **)&original_eight) == 0);
	for (uint64_t value = 0; value < 100; value++)
		CHECK(call_eight_oddly(value, 2, 3, 4, 5, 6, 7, 8) == 204 - 1 + value + 10000);
	CHECK(aligned == 100);
	CHECK(eight(1, 2, 3, 4, 5, 6, 7, 8) == 10204 && aligned == 101);
	CHECK(np_unhook((void *)eight) == 0 && call_eight_oddly(1, 2, 3, 4, 5, 6, 7, 8) == 204);
}

/* A structure that is returned in two registers, neither of them rax. */
struct two {
	uint64_t first, second;
};
FUNCTION struct two two(uint64_t value)
{
	OPAQUE;
	return (struct two){ value, value + 1 };
}
static struct two other_two(uint64_t value)
{
	return (struct two){ value + 10, value + 20 };
}
FUNCTION double half(double value)
{
	OPAQUE;
	return value / 2;
}
static double other_half(double value)
{
	return value / 4;
}
FUNCTION long double third(long double value)
{
	OPAQUE;
	return value / 3;
}
static long double other_third(long double value)
{
	return value / 6;
}

static void of_functions_that_return_otherwise(void)
{
	CHECK(np_hook((void *)two, (void *)other_two, NULL) == 0 && np_hook((void *)half, (void *)other_half, NULL) == 0);
	CHECK(np_hook((void *)third, (void *)other_third, NULL) == 0);
	struct two (*volatile call_two)(uint64_t) = two;
	double (*volatile call_half)(double) = half;
	long double (*volatile call_third)(long double) = third;
	struct two found = call_two(1);
	CHECK(found.first == 11 && found.second == 21 && call_half(8) == 2 && call_third(12) == 2);
	CHECK(np_unhook((void *)two) == 0 && np_unhook((void *)half) == 0 && np_unhook((void *)third) == 0);
	found = call_two(1);
	CHECK(found.first == 1 && found.second == 2 && call_half(8) == 4 && call_third(12) == 4);
}

/* A replacement that is called has a caller with a frame. */
#pragma GCC diagnostic ignored "-Wframe-address"
static void *callers[2];
static uint64_t looks_up(uint64_t value)
{
	callers[0] = __builtin_return_address(0);
	callers[1] = __builtin_extract_return_addr(__builtin_return_address(1));
	return value + 7;
}
FUNCTION uint64_t calls_leaf(uint64_t value)
{
	uint64_t result = leaf(value);
	OPAQUE;
	return result + 1;
}

static void and_the_replacement_finds_the_caller(void)
{
	CHECK(np_hook((void *)leaf, (void *)looks_up, NULL) == 0 && calls_leaf(1) == 9);
	uint64_t start = (uint64_t)calls_leaf;
	CHECK((uint64_t)callers[1] - start < 64 || (uint64_t)callers[0] - start < 64);
	CHECK(np_unhook((void *)leaf) == 0);
}

/* A stack that ends right above the arguments: no memory after the arguments can be copied. */
static void *on_the_thread(void *unused)
{
	(void)unused;
	for (uint64_t value = 0; value < 1000; value++)
		CHECK(call_eight_oddly(value, 2, 3, 4, 5, 6, 7, 8) == 203 + value + 10000);
	return NULL;
}

static void in_threads(void)
{
	pthread_t threads[4];
	CHECK(np_hook((void *)eight, (void *)with_vectors, (void **)&original_eight) == 0);
	for (int index = 0; index < 4; index++)
		CHECK(pthread_create(&threads[index], NULL, on_the_thread, NULL) == 0);
	for (int index = 0; index < 4; index++)
		CHECK(pthread_join(threads[index], NULL) == 0);
	CHECK(np_unhook((void *)eight) == 0);
}

static const struct statement statements[] = {
	STATEMENT(with_probes_in_any_order),
	STATEMENT(of_functions_that_leave_registers_alone),
	STATEMENT(of_functions_that_need_no_aligned_stack),
	STATEMENT(of_functions_that_return_otherwise),
	STATEMENT(and_the_replacement_finds_the_caller),
	STATEMENT(in_threads),
};

STATEMENTS(statements)
