/* A loop that has no room but together with what is in front of it: the last resort before two
 * traps. The program lies so low that what the bytes behind an instruction spell is below address
 * 0, and no padding is in reach. branched [rounds] */
#include "check.h"

/* More code than a short jump reaches, with no long instruction and no padding after it. */
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
	/* A call with a negative number comes to the loop by the branch alone. */
	"	jmp 3f\n"
	"branched_site:\n"
	"1:	mov %rdi, %rax\n"
	"branched_loop:\n"
	"2:	dec %eax\n"
	"3:	jne 2b\n"
	"	ret\n"
	/* Data, which keeps its bytes. */
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
	/* Where the test says. */
	CHECK(&branched_site - (char *)branched == 0xa && &branched_loop - (char *)branched == 0xd);
	long rounds = number(argc, argv, 1, 100);
	for (long round = 0; round < rounds; round++)
		for (long count = 1; count <= 10; count++) {
			CHECK(branched(count) == 0);
			CHECK(branched(-count) == 0);
		}
	return finish(MIX_START);
}
