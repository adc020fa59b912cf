/* Functions that use rsp as a general register: stackless ROUNDS. */
#include "check.h"

unsigned long stackless_sum(const unsigned long *values, unsigned long count);
unsigned long stackless_product(unsigned long left, unsigned long right);
unsigned long stackless_switch(unsigned long value, void *stack);

/* Registers beyond the fifteenth: rsp is an operand, a pointer to data, and a counter. */
__asm__(".text\n"
	".globl stackless_sum\n"
	".type stackless_sum, @function\n"
	"stackless_sum:\n"
	"	movq %rsp, %r11\n"
	"	xorl %eax, %eax\n"
	"	leaq (, %rsi, 8), %rsp\n"
	"	addq %rdi, %rsp\n"
	"1:	cmpq %rdi, %rsp\n"
	"	je 2f\n"
	"	subq $8, %rsp\n"
	"	addq (%rsp), %rax\n"
	"	jmp 1b\n"
	"2:	xorl %esp, %esp\n"
	"	addq %rsp, %rax\n"
	"	movq %r11, %rsp\n"
	"	ret\n"
	".size stackless_sum, . - stackless_sum\n"
	".globl stackless_product\n"
	".type stackless_product, @function\n"
	"stackless_product:\n"
	"	pushq %rbx\n"
	"	movq %rsp, %xmm5\n"
	"	movq %rdi, %rbx\n"
	"	movl $3, %esp\n"
	"	imulq %rsi, %rsp\n"
	"	leaq 1(%rsp, %rbx), %rax\n"
	"	imulq %rbx, %rsp\n"
	"	xorq %rsp, %rax\n"
	"	movq %xmm5, %rsp\n"
	"	popq %rbx\n"
	"	ret\n"
	".size stackless_product, . - stackless_product\n"
	".globl stackless_switch\n"
	".type stackless_switch, @function\n"
	"stackless_switch:\n"
	"	pushq %rbp\n"
	"	movq %rsp, %rbp\n"
	"	movq %rsi, %rsp\n"
	"	andq $-64, %rsp\n"
	"	pushq %rdi\n"
	"	subq $512, %rsp\n"
	"	movq %rdi, (%rsp)\n"
	"	addq $512, %rsp\n"
	"	popq %rax\n"
	"	incq %rax\n"
	"	movq %rbp, %rsp\n"
	"	popq %rbp\n"
	"	ret\n"
	".size stackless_switch, . - stackless_switch\n");

static char other_stack[65536];

int main(int argc, char **argv)
{
	take_arguments(&argc, argv);
	CHECK(argc == 2);
	unsigned long rounds = strtoul(argv[1], NULL, 0), values[7] = { 3, 1, 4, 1, 5, 9, 2 };
	wait_for_go();
	for (unsigned long round = 0; round < rounds; round++) {
		CHECK(stackless_sum(values, 7) == 25);
		CHECK(stackless_product(round, 7) == ((21 + round + 1) ^ (21 * round)));
		CHECK(stackless_switch(round, other_stack + sizeof other_stack / 2) == round + 1);
	}
	printf("OK\n");
	return 0;
}
