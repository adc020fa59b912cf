/* Ends in the given way, after an exact number of calls, so that records still in a buffer must not be lost.
 *
 *     exits WAY [calls]
 *
 * WAY: return exit _exit abort kill segv thread main-first exec group */
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include "check.h"

static long calls;

PROBED uint64_t last_calls(uint64_t value)
{
	return value + 3;
}

PROBED void at_the_end(void)
{
	__asm__ volatile("");
}

static void raise_fault(void)
{
	volatile uintptr_t address = 8;
	*(volatile int *)address = 1;
}

static void work(void)
{
	uint64_t value = 0;
	for (long i = 0; i < calls; i++)
		value = last_calls(value);
	CHECK(value == (uint64_t)calls * 3);
	printf("calls %ld\n", calls);
	finish(mix(MIX_START, value));
}

static void *ending_thread(void *way)
{
	work();
	if (strcmp(way, "thread") == 0)
		exit(0);
	if (strcmp(way, "group") == 0)
		syscall(SYS_exit_group, 0);
	return NULL; /* for main-first: the last thread ends the process */
}

int main(int argc, char **argv)
{
	begin(&argc, argv);
	const char *way = argc > 1 ? argv[1] : "return";
	calls = number(argc, argv, 2, 1000);
	atexit(at_the_end);
	if (strcmp(way, "thread") == 0 || strcmp(way, "main-first") == 0 || strcmp(way, "group") == 0) {
		pthread_t thread;
		CHECK(pthread_create(&thread, NULL, ending_thread, (void *)way) == 0);
		if (strcmp(way, "main-first") == 0)
			pthread_exit(NULL);
		for (;;)
			pause();
	}
	work();
	if (strcmp(way, "exit") == 0)
		exit(3);
	if (strcmp(way, "_exit") == 0)
		_exit(4);
	if (strcmp(way, "abort") == 0)
		abort();
	if (strcmp(way, "kill") == 0)
		raise(SIGKILL);
	if (strcmp(way, "segv") == 0)
		raise_fault();
	if (strcmp(way, "exec") == 0)
		execl("/bin/echo", "echo", "executed", (char *)NULL);
	return 0;
}
