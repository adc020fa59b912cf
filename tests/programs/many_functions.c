/* A hundred and fifty thousand functions, none of which is called: planning probes at all of them takes a while. */
__asm__(".text\n"
	".macro one_of_many\n"
	".type many_\\@, @function\n"
	"many_\\@:\n"
	"	leal 1(%rdi, %rsi), %eax\n"
	"	imull %eax, %edi\n"
	"	addl %edi, %eax\n"
	"	ret\n"
	".size many_\\@, . - many_\\@\n"
	".endm\n"
	".rept 150000\n"
	"one_of_many\n"
	".endr\n");

int main(void)
{
	return 0;
}
