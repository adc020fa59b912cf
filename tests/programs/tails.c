/* Functions that end in every way, with values that the tests know.
 * tails [rounds]
 * The work of each round is printed as `name calls` and `name_sum` (the sum of the returned values). */
#include <stdarg.h>
#include "check.h"

struct pair { long first, second; };
struct big { long words[8]; };

PROBED long plain(long value) { return value + 1; }

/* Leaves by a jump to plain. */
PROBED long tail_call(long value) { return plain(value * 2); }

/* Leaves by a jump through a pointer. */
static long (*volatile pointer)(long) = plain;
PROBED long tail_pointer(long value) { return pointer(value * 3); }

/* A tail call on one path, returns on others. */
PROBED long several(long value)
{
	if (value == 0)
		return 10;
	if (value == 1)
		return plain(100);
	if (value == 2) {
		long sum = 0;
		for (long i = 0; i < 5; i++)
			sum += plain(i);
		return sum;
	}
	return -7;
}

/* A switch by jump table, each case returning. */
PROBED long switched(long value)
{
	switch (value) {
	case 0: return plain(3) * 2;
	case 1: return plain(5) * 3;
	case 2: return plain(7) * 5;
	case 3: return plain(11) * 7;
	case 4: return plain(13) * 11;
	case 5: return plain(17) * 13;
	case 6: return plain(19) * 17;
	default: return 0;
	}
}

/* Its error path is moved to a cold part of the text. */
__attribute__((cold, noipa)) static long failure(long value) { return -value; }
PROBED long with_cold_part(long value)
{
	if (__builtin_expect(value < 0, 0)) {
		long result = failure(value);
		printf("never printed here %ld\n", result);
		return result;
	}
	return value * 9;
}

PROBED long recursive(long value)
{
	if (value == 0)
		return 1;
	long below = recursive(value - 1);
	DO_AFTER_CALL(below); /* no loop with an accumulator */
	return below * 2;
}

/* A tail recursion of two functions, which the compiler may not turn into a loop. */
PROBED long is_odd(long value);
PROBED long is_even(long value) { return value == 0 ? 1 : is_odd(value - 1); }
PROBED long is_odd(long value) { return value == 0 ? 0 : is_even(value - 1); }

PROBED struct pair returns_pair(long value) { return (struct pair){value, value * 10}; }
PROBED struct big returns_big(long value)
{
	struct big big;
	for (int i = 0; i < 8; i++)
		big.words[i] = value + i;
	return big;
}
PROBED double returns_double(double value, long other) { return value * 2.0 + (double)other; }
PROBED long double returns_long_double(long double value) { return value + 0.5L; }

PROBED long variadic(int count, ...)
{
	va_list list;
	va_start(list, count);
	long sum = 0;
	for (int i = 0; i < count; i++)
		sum += va_arg(list, long);
	va_end(list);
	return sum;
}
PROBED double variadic_double(int count, ...)
{
	va_list list;
	va_start(list, count);
	double sum = 0;
	for (int i = 0; i < count; i++)
		sum += va_arg(list, double);
	va_end(list);
	return sum;
}

/* arg0 .. arg9: six in registers, four on the stack. */
PROBED long ten_arguments(long a, long b, long c, long d, long e, long f, long g, long h, long i, long j)
{
	return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * i + 10 * j;
}

PROBED void returns_nothing(void) { __asm__ volatile("" ::: "memory"); }

/* One byte long: nothing but ret. Two bytes: xor, ret is three. */
void only_ret(void);
long short_zero(void);
/* `rep ret`, `ret imm16` (the caller pops), a first instruction that is a branch target of the function's loop, a first
 * instruction that is a call, a jump or RIP-relative. */
void rep_ret(void);
long ret_pops(long);
long loop_to_start(long);
long starts_with_call(long);
long starts_with_jump(long);
long starts_rip_relative(long);
long starts_with_jcc(long);
long call_ret_pops(long);
__asm__(".text\n"
        ".p2align 4\n.globl only_ret\n.type only_ret,@function\nonly_ret: ret\n.size only_ret,.-only_ret\n"
        ".globl short_zero\n.type short_zero,@function\nshort_zero: xorl %eax,%eax\n ret\n.size short_zero,.-short_zero\n"
        ".globl rep_ret\n.type rep_ret,@function\nrep_ret: rep ret\n.size rep_ret,.-rep_ret\n"
        ".globl ret_pops\n.type ret_pops,@function\nret_pops: movq 8(%rsp),%rax\n addq %rdi,%rax\n ret $8\n"
        ".size ret_pops,.-ret_pops\n"
        ".globl call_ret_pops\n.type call_ret_pops,@function\ncall_ret_pops: pushq $5\n call ret_pops\n ret\n"
        ".size call_ret_pops,.-call_ret_pops\n"
        ".globl loop_to_start\n.type loop_to_start,@function\nloop_to_start: decq %rdi\n jnz loop_to_start\n"
        " movl $21,%eax\n ret\n.size loop_to_start,.-loop_to_start\n"
        ".globl starts_with_call\n.type starts_with_call,@function\nstarts_with_call: call 1f\n addq $1,%rax\n ret\n"
        "1: movq (%rsp),%rax\n leaq starts_with_call+5(%rip),%rcx\n subq %rcx,%rax\n addq %rdi,%rax\n ret\n"
        ".size starts_with_call,.-starts_with_call\n"
        ".globl starts_with_jump\n.type starts_with_jump,@function\nstarts_with_jump: jmp 2f\n"
        "3: leaq 4(%rdi),%rax\n ret\n2: jmp 3b\n.size starts_with_jump,.-starts_with_jump\n"
        ".globl starts_rip_relative\n.type starts_rip_relative,@function\nstarts_rip_relative: movq seven(%rip),%rax\n"
        " addq %rdi,%rax\n ret\n.size starts_rip_relative,.-starts_rip_relative\n"
        ".globl starts_with_jcc\n.type starts_with_jcc,@function\nstarts_with_jcc: testq %rdi,%rdi\n js 4f\n"
        " movl $1,%eax\n ret\n4: movl $2,%eax\n ret\n.size starts_with_jcc,.-starts_with_jcc\n"
        ".section .rodata\n.p2align 3\nseven: .quad 7\n.text\n");

static uint64_t checksum = MIX_START;

#define CALL(expression, right)                    \
	do {                                           \
		long result_ = (long)(expression);         \
		CHECK(result_ == (right));                 \
		checksum = mix(checksum, (uint64_t)result_); \
	} while (0)

int main(int argc, char **argv)
{
	begin(&argc, argv);
	long rounds = number(argc, argv, 1, 100);
	for (long round = 0; round < rounds; round++) {
		CALL(plain(4), 5);
		CALL(tail_call(4), 9);
		CALL(tail_pointer(4), 13);
		CALL(several(0), 10);
		CALL(several(1), 101);
		CALL(several(2), 15);
		CALL(several(3), -7);
		static const long right[8] = {8, 18, 40, 84, 154, 234, 340, 0};
		for (long i = 0; i < 8; i++)
			CALL(switched(i), right[i]);
		CALL(with_cold_part(5), 45);
		CALL(recursive(10), 1024);
		CALL(is_even(9), 0);
		CALL(is_even(10), 1);
		struct pair pair = returns_pair(6);
		CALL(pair.first, 6);
		CALL(pair.second, 60);
		struct big big = returns_big(100);
		for (int i = 0; i < 8; i++)
			CALL(big.words[i], 100 + i);
		CALL(returns_double(1.25, 3) * 8, 44);
		CALL(returns_long_double(2.25L) * 4, 11);
		CALL(variadic(9, 1L, 2L, 3L, 4L, 5L, 6L, 7L, 8L, 9L), 45);
		CALL(variadic_double(9, 1., 2., 3., 4., 5., 6., 7., 8., 9.), 45);
		CALL(ten_arguments(1, 2, 3, 4, 5, 6, 7, 8, 9, 10), 385);
		returns_nothing();
		only_ret();
		rep_ret();
		CALL(short_zero(), 0);
		CALL(call_ret_pops(30), 35);
		CALL(loop_to_start(5), 21);
		CALL(starts_with_call(7), 8);
		CALL(starts_with_jump(7), 11);
		CALL(starts_rip_relative(7), 14);
		CALL(starts_with_jcc(7), 1);
		CALL(starts_with_jcc(-7), 2);
	}
	/* plain: itself, the two tail calls, several(1), five of several(2), seven of switched. */
	printf("rounds %ld\nplain %ld\n", rounds, rounds * 16);
	return finish(checksum);
}
