/* Children by fork, vfork, posix_spawn and clone. They call functions on which the parent's calls are counted, while
 * the parent's threads call these functions, too.
 *
 *     forkstorm [rounds] [calls a round]
 *
 * `parent` is how often the parent called stormed(). vfork children call a different function: they run in the parent's
 * memory, so whether their calls count as the parent's is a matter of definition. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include "check.h"

extern char **environ;
static long calls_a_round;
static char *own_path;

PROBED uint64_t stormed(uint64_t value)
{
	return value * 31 + 7;
}

PROBED uint64_t stormed_in_vfork(uint64_t value)
{
	return value * 37 + 5;
}

static uint64_t storm(long calls)
{
	uint64_t value = 1;
	for (long i = 0; i < calls; i++)
		value = stormed(value);
	return value;
}

static uint64_t storm_unprobed(long calls)
{
	uint64_t value = 1;
	for (long i = 0; i < calls; i++)
		value = value * 31 + 7;
	return value;
}

static void *storm_thread(void *calls)
{
	return (void *)storm((long)calls);
}

static void wait_for(pid_t child, int code)
{
	int status;
	pid_t got;
	do
		got = waitpid(child, &status, 0);
	while (got < 0 && errno == EINTR);
	CHECK(got == child);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != code) {
		printf("child status %#x, code %d expected\n", status, code);
		CHECK(!"a child went wrong");
	}
}

/* In a forked child: calls, calls in a new thread, calls in a grandchild. */
static void child(uint64_t right)
{
	if (storm(calls_a_round) != right)
		_exit(2);
	pthread_t thread;
	void *result;
	if (pthread_create(&thread, NULL, storm_thread, (void *)calls_a_round) != 0)
		_exit(3);
	if (pthread_join(thread, &result) != 0 || (uint64_t)result != right)
		_exit(4);
	pid_t grandchild = fork();
	if (grandchild == 0)
		_exit(storm(calls_a_round) == right ? 77 : 5);
	int status;
	if (waitpid(grandchild, &status, 0) != grandchild || !WIFEXITED(status) || WEXITSTATUS(status) != 77)
		_exit(6);
	_exit(78);
}

static int cloned(void *unused)
{
	(void)unused;
	return storm(calls_a_round) == storm_unprobed(calls_a_round) ? 79 : 7;
}

/* vfork: calls, then either the end or another program. */
__attribute__((noinline)) static pid_t start_by_vfork(long odd, const char *calls_text)
{
	pid_t child = vfork();
	CHECK(child >= 0);
	if (child == 0) {
		if (stormed_in_vfork(1) != 42 || stormed_in_vfork(2) != 79)
			_exit(9);
		if (!odd)
			_exit(81);
		execl(own_path, "forkstorm", "spawned", calls_text, (char *)NULL);
		_exit(10);
	}
	return child;
}

static volatile int stop;
static uint64_t background_calls;

static void *background(void *unused)
{
	(void)unused;
	uint64_t right = storm_unprobed(100);
	while (!stop) {
		CHECK(storm(100) == right);
		background_calls += 100;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	begin(&argc, argv);
	own_path = "/proc/self/exe";
	if (argc > 1 && strcmp(argv[1], "spawned") == 0) {
		calls_a_round = number(argc, argv, 2, 0);
		return storm(calls_a_round) == storm_unprobed(calls_a_round) ? 80 : 8;
	}
	long rounds = number(argc, argv, 1, 50);
	calls_a_round = number(argc, argv, 2, 1000);
	uint64_t right = storm_unprobed(calls_a_round);
	char calls_text[32];
	snprintf(calls_text, sizeof calls_text, "%ld", calls_a_round);

	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, background, NULL) == 0);
	long parent = 0, vforked = 0;
	static char stack[64 * 1024] __attribute__((aligned(16)));
	for (long round = 0; round < rounds; round++) {
		fflush(stdout);
		pid_t forked = fork();
		CHECK(forked >= 0);
		if (forked == 0)
			child(right);

		CHECK(storm(calls_a_round) == right);
		parent += calls_a_round;

		wait_for(start_by_vfork(round % 2, calls_text), round % 2 == 0 ? 81 : 80);
		vforked += 2;

		pid_t spawned;
		char *arguments[] = {"forkstorm", "spawned", calls_text, NULL};
		CHECK(posix_spawn(&spawned, own_path, NULL, NULL, arguments, environ) == 0);
		CHECK(storm(calls_a_round) == right);
		parent += calls_a_round;
		wait_for(spawned, 80);

		/* A raw clone: fork's semantics on a stack of its own. */
		pid_t clone_child = clone(cloned, stack + sizeof stack, SIGCHLD, NULL);
		CHECK(clone_child > 0);
		wait_for(clone_child, 79);
		wait_for(forked, 78);
	}
	stop = 1;
	CHECK(pthread_join(thread, NULL) == 0);
	printf("parent %ld\nvforked %ld\n", parent + (long)background_calls, vforked);
	return finish(mix(MIX_START, right + (uint64_t)rounds));
}
