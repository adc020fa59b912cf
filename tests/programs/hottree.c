/* Processes that call a function all the time, until the end of the input, and print how often each of them has called
 * it: `by NUMBER CALLS`. The first line is the function's address.
 *
 *     hottree            the first process forks two that call, and each of these another one that calls. Each has a
 *                        second thread, which has a number of its own. Meanwhile the first process forks one after the
 *                        other that call, have a child by vfork, and end
 *     hottree orphans    the first process ends when it has forked the others */
#include <poll.h>
#include <pthread.h>
#include <sys/wait.h>
#include "check.h"

#define LONG_CALLERS 2
#define SHORT_CALLS 50
#define OF_THREADS 100

/* `count` is the number of this call in the process that has this number. */
PROBED uint64_t hot(uint64_t count, uint64_t process)
{
	return count * 31 + process;
}

static uint64_t call(uint64_t count, uint64_t process)
{
	CHECK(hot(count, process) == count * 31 + process);
	return count;
}

static int has_ended(void)
{
	struct pollfd input = { .fd = 0, .events = POLLIN };
	return poll(&input, 1, 0) != 0;
}

static void say(uint64_t process, uint64_t calls)
{
	char line[64];
	int length = snprintf(line, sizeof line, "by %lu %lu\n", (unsigned long)process, (unsigned long)calls);
	CHECK(write(1, line, (size_t)length) == length);
}

static pid_t forked(void)
{
	pid_t child = fork();
	CHECK(child >= 0);
	return child;
}

static void wait_for_all(void)
{
	int status;
	while (wait(&status) > 0)
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

static void *call_until_the_end(void *process)
{
	uint64_t calls = 0;
	while (!has_ended())
		for (int call_of_round = 0; call_of_round < 1000; call_of_round++)
			calls = call(calls + 1, (uint64_t)process);
	say((uint64_t)process, calls);
	return 0;
}

static void call_long(uint64_t process)
{
	pthread_t thread;
	CHECK(pthread_create(&thread, 0, call_until_the_end, (void *)(process + OF_THREADS)) == 0);
	call_until_the_end((void *)process);
	CHECK(pthread_join(thread, 0) == 0);
}

static void call_shortly(uint64_t process)
{
	uint64_t calls = 0;
	while (calls < SHORT_CALLS)
		calls = call(calls + 1, process);
	say(process, calls);
	pid_t child = vfork();
	if (child == 0)
		_exit(7);
	CHECK(child > 0);
	wait_for_all();
	_exit(7);
}

int main(int argc, char **argv)
{
	take_arguments(&argc, argv);
	printf("hot %lx\n", (unsigned long)&hot);
	wait_for_go();
	uint64_t process = 1; /* of the callers, and then of the others */
	for (int caller = 0; caller < LONG_CALLERS; caller++, process += 2) {
		if (forked() != 0)
			continue;
		if (forked() == 0) {
			call_long(process + 1);
			_exit(7);
		}
		call_long(process);
		wait_for_all();
		_exit(7);
	}
	if (argc > 1 && strcmp(argv[1], "orphans") == 0)
		return 0;
	for (process = 2 * OF_THREADS; !has_ended(); process++) {
		if (forked() == 0)
			call_shortly(process);
		/* The long callers end only with the input. */
		usleep(2000);
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
	}
	wait_for_all();
	printf("OK\n");
	return 0;
}
