/* Says "ready", then answers each line of its input with a part of its own state. The tests make calls in it.
 *   f: double(21) through a pointer    x: whether the signal action of SIGTRAP is the default    m: zero bytes at an
 *                                                                                                address
 * Ends with its input, with status 7. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>

__attribute__((noinline)) long twice(long value)
{
	asm volatile("" : "+r"(value));
	return value * 2;
}

/* Overwrites every register that a function may change, including the SIMD registers. */
__attribute__((noinline)) long rude(long a, long b, long c, long d, long e, long f)
{
	asm volatile("pxor %%xmm6, %%xmm6\n\tpxor %%xmm0, %%xmm0\n\tfldz\n\tfstp %%st(0)"
		     : : : "xmm0", "xmm6", "rcx", "r11", "r10");
	return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f;
}

__attribute__((noinline)) long faulting(long *address)
{
	return *address;
}

__attribute__((noinline)) void endless(void)
{
	for (;;)
		asm volatile("");
}

int main(int count, char **arguments)
{
	/* With any argument, the program makes itself not dumpable. */
	(void)arguments;
	if (count > 1)
		prctl(PR_SET_DUMPABLE, 0);
	char line[100];
	printf("ready %lx %lx %lx %lx\n", (long)twice, (long)rude, (long)faulting, (long)endless);
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		struct sigaction action;
		switch (line[0]) {
		case 'f':
			printf("%ld\n", twice(21));
			break;
		case 'x':
			sigaction(SIGTRAP, 0, &action);
			printf("%d %d\n", action.sa_handler == SIG_DFL, action.sa_handler == SIG_IGN);
			break;
		case 'm':
			printf("%d\n", *(unsigned char *)strtoul(line + 1, 0, 16));
			break;
		case 'i':
			signal(SIGTRAP, SIG_IGN);
			signal(SIGSEGV, SIG_IGN);
			printf("ignored\n");
			break;
		}
		fflush(stdout);
	}
	return 7;
}
