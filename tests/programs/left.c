/* A signal handler that leaves by siglongjmp, whatever it has interrupted. argv[1]: the number of calls. With
 * argv[2] it runs on an alternate stack above all frames that it interrupts, and also calls the function itself
 * before it returns. */
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

static sigjmp_buf back;
static volatile unsigned long calls, signals, within;
static int returns;

__attribute__((noinline, noclone)) unsigned long called(unsigned long value)
{
	__asm__ volatile("" ::: "memory");
	return value + 1;
}

static void on_alarm(int signal)
{
	(void)signal;
	signals++;
	if (!returns)
		siglongjmp(back, 1);
	called(0);
	within++;
}

int main(int count, char **arguments)
{
	static const struct itimerval every = { { 0, 300 }, { 0, 300 } }, never = { { 0, 0 }, { 0, 0 } };
	char alternate[1 << 16];
	struct sigaction action = { .sa_handler = on_alarm };
	unsigned long wanted = strtoul(arguments[1], NULL, 10);
	returns = count > 2;
	if (returns) {
		stack_t stack = { .ss_sp = alternate, .ss_size = sizeof(alternate) };
		sigaltstack(&stack, NULL);
		action.sa_flags = SA_ONSTACK;
	}
	sigaction(SIGALRM, &action, NULL);
	/* The first signal may come as soon as the timer runs, so the place to return to is set before. */
	if (sigsetjmp(back, 1) == 0)
		setitimer(ITIMER_REAL, &every, NULL);
	while (calls < wanted) {
		called(calls);
		calls++;
	}
	setitimer(ITIMER_REAL, &never, NULL);
	printf("calls %lu\nsignals %lu\nwithin %lu\nOK\n", calls, signals, within);
	return 0;
}
