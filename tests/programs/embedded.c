/* Data among the code: strings, constants and jump tables inside of functions' sizes, as hand-written assembly and V8's
 * builtins have them. A patch on bytes that merely decode changes the data that is read here.
 *
 *     embedded [rounds] */
#include "check.h"

/* A function that returns a string inside of its own code, as libcrypto's RC4_options does. */
__asm__(".text; .p2align 4; .globl text_inside; .type text_inside, @function\n"
	"text_inside:\n"
	"	lea	.Ltext(%rip), %rax\n"
	"	test	%edi, %edi\n"
	"	jz	1f\n"
	"	add	$12, %rax\n"
	"1:	ret\n"
	".p2align 4\n"
	".Ltext:	.asciz \"rc4(8x,int)\"\n"
	"	.asciz \"PUSH QPXSZ[]\"\n" /* these characters decode as pushes and pops */
	".size text_inside, . - text_inside\n");

/* A switch through a table that lies between the jump and its cases. After the table a linear decode is out of step. */
__asm__(".p2align 4; .globl table_inside; .type table_inside, @function\n"
	"table_inside:\n"
	"	cmp	$3, %edi\n"
	"	ja	9f\n"
	"	lea	.Ltable(%rip), %rdx\n"
	"	mov	%edi, %edi\n"
	"	movslq	(%rdx,%rdi,4), %rax\n"
	"	add	%rdx, %rax\n"
	"	jmp	*%rax\n"
	".Ltable: .long .Lcase0-.Ltable, .Lcase1-.Ltable, .Lcase2-.Ltable, .Lcase3-.Ltable\n"
	".Lcase0: mov	$0x11, %eax\n"
	"	ret\n"
	".Lcase1: mov	$0x22, %eax\n"
	"	ret\n"
	".Lcase2: lea	1(%rdi,%rdi), %eax\n"
	"	jmp	.Lcase1\n"
	".Lcase3: jmp	only_ret_here\n"
	"9:	xor	%eax, %eax\n"
	"	ret\n"
	".size table_inside, . - table_inside\n"
	".type only_ret_here, @function\n"
	"only_ret_here:\n"
	"	lea	(%rdi,%rdi,8), %eax\n"
	"	ret\n"
	".size only_ret_here, . - only_ret_here\n");

/* Reads constants after a call that does not return; runs on into the next function. */
__asm__(".p2align 4; .globl constant_inside; .type constant_inside, @function\n"
	"constant_inside:\n"
	"	mov	.Lconstant(%rip), %rax\n"
	"	test	%edi, %edi\n"
	"	jns	2f\n"
	"	call	abort@PLT\n"
	".Lconstant: .quad 0x9090909090909090, 0xc3c3c3c3c3c3c3c3\n"
	"2:	add	.Lconstant+8(%rip), %rax\n"
	".size constant_inside, . - constant_inside\n"
	".globl falls_in; .type falls_in, @function\n"
	"falls_in:\n"
	"	xor	%rdi, %rax\n"
	"	ret\n"
	".size falls_in, . - falls_in\n");

/* The address of the instruction after a call, and a branch around a lock prefix. */
__asm__(".p2align 4; .globl prefix_inside; .type prefix_inside, @function\n"
	"prefix_inside:\n"
	"	push	%rbx\n"
	"	call	1f\n"
	"	.quad	0x5b5b5b5b5b5b5b5b\n"
	"1:	pop	%rbx\n"
	"	mov	(%rbx), %rax\n"
	"	test	$1, %edi\n"
	"	jz	2f\n"
	"	.byte	0xf0\n"
	"2:	xadd	%rdi, (%rsi)\n"
	"	add	%rdi, %rax\n"
	"	pop	%rbx\n"
	"	ret\n"
	".size prefix_inside, . - prefix_inside\n");

const char *text_inside(int which);
uint64_t table_inside(unsigned which);
uint64_t constant_inside(long value);
uint64_t prefix_inside(unsigned long value, uint64_t *sum);

/* A switch as compilers make it: the table lies elsewhere. */
PROBED uint64_t dense(unsigned which, uint64_t value)
{
	switch (which) {
	case 0: return value * 3;
	case 1: return value ^ 0x55;
	case 2: return value + value % 10;
	case 3: return value >> 3;
	case 4: return value * value;
	case 5: return ~value;
	case 6: return value - 77;
	case 7: return value << 2;
	default: return 1;
	}
}

int main(int argc, char **argv)
{
	begin(&argc, argv);
	long rounds = number(argc, argv, 1, 1000);
	uint64_t sum = MIX_START, shared = 0;
	for (long i = 0; i < rounds; i++) {
		for (const char *text = text_inside(i & 1); *text != 0; text++)
			sum = mix(sum, (unsigned char)*text);
		sum = mix(sum, table_inside(i % 5));
		sum = mix(sum, constant_inside(i));
		sum = mix(sum, prefix_inside(i, &shared));
		sum = mix(sum, dense(i % 9, i));
	}
	CHECK(strcmp(text_inside(0), "rc4(8x,int)") == 0);
	CHECK(strcmp(text_inside(1), "PUSH QPXSZ[]") == 0);
	finish(sum);
}
