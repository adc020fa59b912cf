/* Processes that call a function, and print how often each of them has called it: `by PID CALLS`.
 *
 *     tree fork [children] [calls]  the parent calls once, then each child that often, at the same time
 *     tree storm [children]         children one after the other, each of which calls once
 *     tree daemon [calls]           a double fork; the last process calls after the first one has ended
 *     tree outlive [calls]          the same, and the last process waits for the end of the input
 *     tree faults [children]        children with actions and masks of their own, whose own faults must reach them
 *     tree masked                   all signals blocked before the tracing; a bare fork's child asks for its mask
 *     tree touch                    a child that prints how many page faults its first call was: `faults N`
 *     tree sleep [children]         children that call, and wait for the end of the input */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include "check.h"

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
}

/* One write for each line, so that lines of several processes do not mix. */
static void say(long calls)
{
	char line[64];
	int length = snprintf(line, sizeof line, "by %d %ld\n", (int)getpid(), calls);
	CHECK(write(1, line, (size_t)length) == length);
}

static void wait_for_all(void)
{
	int status;
	pid_t child;
	while ((child = wait(&status)) > 0 || errno == EINTR)
		CHECK(child < 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 7));
}

static pid_t forked(void)
{
	fflush(stdout);
	pid_t child = fork();
	CHECK(child >= 0);
	return child;
}

static sigjmp_buf before_fault;

static void on_fault(int signal)
{
	siglongjmp(before_fault, signal);
}

/* All signals are blocked: a child that is created by the bare system call blocks them, too. */
static void fork_blocked(void)
{
	sigset_t mask;
	pid_t child = (pid_t)syscall(SYS_fork);
	CHECK(child >= 0);
	if (child == 0) {
		call(3);
		CHECK(sigprocmask(SIG_SETMASK, NULL, &mask) == 0 && sigismember(&mask, SIGTRAP) &&
		      sigismember(&mask, SIGSEGV));
		say(3);
		_exit(7);
	}
}

/* A child's own handler, and its own mask, while its calls are probed. */
static void fault(void)
{
	struct sigaction action = { .sa_handler = on_fault };
	sigset_t all;
	volatile int *volatile nowhere = (volatile int *)8;
	CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
	CHECK(sigaction(SIGTRAP, &action, NULL) == 0);
	for (int round = 0; round < 20; round++) {
		int got = sigsetjmp(before_fault, 1);
		if (got == 0) {
			call(5);
			*nowhere = round;
			CHECK(!"no fault");
		}
		CHECK(got == SIGSEGV);
	}
	CHECK(sigaction(SIGSEGV, NULL, &action) == 0 && action.sa_handler == on_fault);
	sigfillset(&all);
	CHECK(sigprocmask(SIG_SETMASK, &all, NULL) == 0);
	fork_blocked();
	call(5);
	wait_for_all();
	say(105);
	_exit(7);
}

/* The tracer has found this mask when it attached. No call has told the agent of it. */
static void masked(void)
{
	fork_blocked();
	wait_for_all();
}

static long page_faults(void)
{
	struct rusage usage;
	CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
	return usage.ru_minflt;
}

/* The second child gets memory that the first one has used, if the tracer has looked meanwhile. */
static void touch(void)
{
	if (forked() == 0) {
		char line[64];
		long before = page_faults();
		before = page_faults();
		uint64_t value = called(1);
		long faults = page_faults() - before;
		CHECK(value == 38);
		int length = snprintf(line, sizeof line, "faults %ld\n", faults);
		CHECK(write(1, line, (size_t)length) == length);
		_exit(7);
	}
	wait_for_all();
	usleep(50000);
}

static void end_daemon(long calls, int outlives)
{
	if (forked() != 0)
		_exit(7);
	CHECK(setsid() > 0);
	if (forked() != 0)
		_exit(7);
	/* Waits until the first process has ended: then the parent has changed. */
	while (getppid() == getpgrp())
		usleep(1000);
	usleep(200000);
	call(calls);
	say(calls);
	if (outlives)
		wait_for_line();
	printf("OK\n");
	fflush(stdout);
	_exit(7);
}

int main(int argc, char **argv)
{
	sigset_t all;
	sigfillset(&all);
	CHECK(strcmp(argv[argc - 1], "masked") != 0 || sigprocmask(SIG_SETMASK, &all, NULL) == 0);
	begin(&argc, argv);
	const char *kind = argc > 1 ? argv[1] : "fork";
	long children = number(argc, argv, 2, 3), calls = number(argc, argv, 3, 1000);
	int outlives = strcmp(kind, "outlive") == 0;
	if (outlives || strcmp(kind, "daemon") == 0) {
		call(1);
		say(1);
		fflush(stdout);
		if (forked() == 0)
			end_daemon(children, outlives);
		wait_for_all();
		return 0;
	}
	call(1);
	say(1);
	if (strcmp(kind, "masked") == 0) {
		masked();
		printf("OK\n");
		return 0;
	}
	if (strcmp(kind, "touch") == 0) {
		for (int child = 0; child < 4; child++)
			touch();
		printf("OK\n");
		return 0;
	}
	for (long child = 0; child < children; child++) {
		if (forked() == 0) {
			if (strcmp(kind, "faults") == 0)
				fault();
			long own = strcmp(kind, "storm") == 0 ? 1 : calls;
			call(own);
			say(own);
			if (strcmp(kind, "sleep") == 0) {
				wait_for_line();
				call(own);
			}
			_exit(7);
		}
		if (strcmp(kind, "storm") == 0)
			wait_for_all();
	}
	wait_for_all();
	return finish(mix(MIX_START, (uint64_t)children));
}
