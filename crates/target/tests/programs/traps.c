/* Traps as fast as it can, until SIGTERM. Then it prints how often, and how many of the traps reached its handler. */
#include <signal.h>
#include <stdio.h>

static volatile sig_atomic_t told, stop;

static void on_trap(int signal)
{
	(void)signal;
	told++;
}

static void on_term(int signal)
{
	(void)signal;
	stop = 1;
}

int main(void)
{
	int trapped = 0;
	signal(SIGTRAP, on_trap);
	signal(SIGTERM, on_term);
	setvbuf(stdout, 0, _IOLBF, 0);
	puts("ready");
	while (!stop) {
		__asm__ volatile("int3" ::: "memory");
		trapped++;
	}
	printf("%d %d\n", trapped, (int)told);
	return 0;
}
