/* Programs that execute programs, and that each say how often they have called a function: `by PID CALLS`.
 * executes call CALLS             calls
 * executes self TIMES CALLS       calls, and executes itself so many times
 * executes fork|vfork|spawn|path CHILDREN CALLS   children one after the other, each of which executes `call`
 * executes together CHILDREN CALLS                all at the same time, by posix_spawn
 * executes thread CALLS           a second thread executes `call`
 * executes then PROGRAM ...      executes this program with these arguments
 * executes fails TIMES CALLS      executions that fail, then calls */
#include <errno.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/wait.h>
#include "check.h"

extern char **environ;

/* How often the program is to execute itself: another value in each. */
volatile long times_left;

PROBED uint64_t called(uint64_t value)
{
	return value * 31 + 7;
}

static void call(long calls)
{
	uint64_t value = 1, right = 1;
	for (long i = 0; i < calls; i++) {
		value = called(value);
		right = right * 31 + 7;
	}
	CHECK(value == right);
	/* One write for each line, so that lines of several processes do not mix. */
	char line[64];
	int length = snprintf(line, sizeof line, "by %d %ld\n", (int)getpid(), calls);
	CHECK(write(1, line, (size_t)length) == length);
}

static void wait_for(pid_t child)
{
	int status = 1;
	CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

static char *called_so_often[] = { "executes", "call", 0, 0 };
static const char *own;

static void *execute(void *unused)
{
	(void)unused;
	execve(own, called_so_often, environ);
	CHECK(!"executed");
	return 0;
}

static pid_t spawned(void)
{
	pid_t child;
	CHECK(posix_spawn(&child, own, 0, 0, called_so_often, environ) == 0);
	return child;
}

static pid_t vforked(void)
{
	pid_t child = vfork();
	if (child == 0) {
		execve("/nothing/here", called_so_often, environ);
		execve(own, called_so_often, environ);
		_exit(1);
	}
	return child;
}

/* The program is found in the last folder of PATH; the first ones have none, or a file that is none. */
static pid_t found(void)
{
	pid_t child = fork();
	if (child == 0) {
		execvp("executes-here", called_so_often);
		_exit(1);
	}
	return child;
}

static pid_t forked(void)
{
	pid_t child = fork();
	if (child == 0)
		execute(0);
	return child;
}

static void children(const char *how, long count)
{
	static pid_t all[1000];
	for (long i = 0; i < count; i++) {
		pid_t child = strcmp(how, "fork") == 0 ? forked() :
			      strcmp(how, "vfork") == 0 ? vforked() :
			      strcmp(how, "path") == 0 ? found() :
							 spawned();
		if (strcmp(how, "together") == 0)
			all[i] = child;
		else
			wait_for(child);
	}
	for (long i = 0; i < count && all[0]; i++)
		wait_for(all[i]);
}

int main(int argc, char **argv)
{
	static char path[4096];
	take_arguments(&argc, argv);
	CHECK(argc >= 3 && readlink("/proc/self/exe", path, sizeof path - 1) > 0);
	own = path;
	const char *how = argv[1];
	if (strcmp(how, "then") == 0) {
		execv(argv[2], argv + 2);
		CHECK(!"executed");
	}
	called_so_often[2] = argv[argc - 1];
	long calls = atol(argv[argc - 1]), times = atol(argv[2]);
	if (strcmp(how, "call") == 0) {
		call(calls);
		return 0;
	}
	if (strcmp(how, "self") == 0) {
		times_left = times;
		call(calls);
		char left[32];
		snprintf(left, sizeof left, "%ld", times - 1);
		if (times > 0)
			execl(own, argv[0], "self", left, argv[3], NULL);
		CHECK(times == 0);
	} else if (strcmp(how, "thread") == 0) {
		pthread_t thread;
		CHECK(pthread_create(&thread, 0, execute, 0) == 0);
		pthread_join(thread, 0);
		CHECK(!"executed");
	} else if (strcmp(how, "fails") == 0) {
		const char *volatile no_path = 0;
		char **volatile nowhere = (char **)8;
		for (long i = 0; i < times; i++) {
			CHECK(execve("/nothing/here", argv, environ) == -1 && errno == ENOENT);
			CHECK(execve("/dev/null", argv, environ) == -1 && errno == EACCES);
			CHECK(execve(no_path, argv, environ) == -1 && errno == EFAULT);
			CHECK(execve(own, nowhere, environ) == -1 && errno == EFAULT);
		}
		call(calls);
	} else {
		wait_for_go();
		children(how, times);
	}
	return finish(0);
}
