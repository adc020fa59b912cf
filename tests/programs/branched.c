/* A loop that has room for a jump only together with the instruction before it: the last resort before two traps. The
 * program lies so low that a pun would lead to below address 0, and no padding is in reach.
 *
 *     branched [rounds] */
#include "check.h"

/* A stretch of code that is longer than a short jump reaches, without long instructions or padding. */
#define FAR(name)                                                                                            \
	".globl " #name "\n"                                                                                     \
	".type " #name ", @function\n" #name ":\n"                                                               \
	"	.rept 40\n"                                                                                          \
	"	lea 1(%rdi), %rax\n"                                                                                 \
	"	.endr\n"                                                                                             \
	"	ret\n"                                                                                               \
	".size " #name ", . - " #name "\n"

__asm__(".text\n" FAR(far_before)
	".globl branched\n"
	".type branched, @function\n"
	"branched:\n"
	"	mov %edi, %eax\n"
	"	test %eax, %eax\n"
	"	jns 1f\n"
	"	neg %eax\n"
	/* A call with a negative number enters the loop only by the branch. */
	"	jmp 3f\n"
	"branched_site:\n"
	"1:	mov %rdi, %rax\n"
	"branched_loop:\n"
	"2:	dec %eax\n"
	"3:	jne 2b\n"
	"	ret\n"
	/* Data, whose bytes must not change. */
	"	.rept 16\n"
	"	.byte 0xf1\n"
	"	.endr\n"
	".size branched, . - branched\n"
	FAR(far_behind));

extern int branched(long rounds);
extern char branched_site, branched_loop;

int main(int argc, char **argv)
{
	begin(&argc, argv);
	/* The address of the site, for the test. */
	CHECK(&branched_site - (char *)branched == 0xa && &branched_loop - (char *)branched == 0xd);
	long rounds = number(argc, argv, 1, 100);
	for (long round = 0; round < rounds; round++)
		for (long count = 1; count <= 10; count++) {
			CHECK(branched(count) == 0);
			CHECK(branched(-count) == 0);
		}
	return finish(MIX_START);
}
