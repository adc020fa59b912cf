/* Processes that begin inside of probed functions and of handlers. */
#define _GNU_SOURCE
#include "inside.h"

#include <errno.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int ends_with(pid_t process, int code)
{
	int status = 0;
	return process > 0 && waitpid(process, &status, 0) == process && WIFEXITED(status) && WEXITSTATUS(status) == code;
}

static void begin_processes(void)
{
	char *const arguments[] = { "sh", "-c", "exit 7", NULL };
	pid_t process;
	char line[16] = "";
	CHECK(posix_spawn(&process, "/bin/sh", NULL, NULL, arguments, environ) == 0 && ends_with(process, 7));
	process = vfork();
	if (process == 0) {
		execv("/bin/sh", arguments);
		_exit(1);
	}
	CHECK(ends_with(process, 7));
	CHECK(WEXITSTATUS(system("exit 9")) == 9);
	FILE *pipe = popen("echo word", "r");
	CHECK(pipe && fgets(line, sizeof(line), pipe) && !strcmp(line, "word\n") && pclose(pipe) == 0);
}

FUNCTION uint64_t begins(uint64_t value)
{
	begin_processes();
	return foo(value) + 1;
}

static const char *const called[] = { "vfork", "execve", "posix_spawn", "_exit", "waitpid", "pipe2" };
enum { CALLED = sizeof(called) / sizeof(called[0]) };

static void processes_that_begin_in_a_probed_function(void)
{
	static struct np_probe probes[CALLED];
	for (int index = 0; index < CALLED; index++) {
		probes[index] = (struct np_probe){ NP_SIZE(struct np_probe), .symbol = called[index], .pre_handler = counts,
						   .flags = flags };
		CHECK(np_register_probe(&probes[index]) == 0);
	}
	EACH_FORM(form) {
		struct np_retprobe returns = on_return((void *)begins, form), inner = on_return((void *)foo, form);
		if (np_register_retprobe(&returns))
			continue;
		CHECK(np_register_retprobe(&inner) == 0);
		for (uint64_t round = 0; round < 5; round++)
			CHECK(begins(round) == round * 3 + 2);
		CHECK(is(&returns, 5, 0, 0) && is(&inner, 5, 0, 0));
		CHECK(np_unregister_retprobe(&returns) == 0 && np_unregister_retprobe(&inner) == 0);
	}
	CHECK(np_probe_hits(&probes[0]) >= 5);
	for (int index = 0; index < CALLED; index++)
		CHECK(np_unregister_probe(&probes[index]) == 0);
}

static int begins_here(struct np_probe *probe, struct np_regs *regs)
{
	(void)probe;
	(void)regs;
	begin_processes();
	return 0;
}

static void processes_that_begin_in_a_handler(void)
{
	struct np_probe probe = { NP_SIZE(struct np_probe), .addr = (void *)foo, .pre_handler = begins_here, .flags = flags };
	struct np_probe inner = { NP_SIZE(struct np_probe), .symbol = "execve", .pre_handler = counts, .flags = flags };
	CHECK(np_register_probe(&probe) == 0 && np_register_probe(&inner) == 0);
	for (uint64_t round = 0; round < 5; round++)
		CHECK(foo(round) == round * 3 + 1);
	CHECK(np_probe_hits(&probe) == 5 && np_probe_nmissed(&probe) == 0 && np_probe_hits(&inner) == 0);
	CHECK(np_unregister_probe(&probe) == 0 && np_unregister_probe(&inner) == 0);
}

static pid_t forked;

static int forks_here(struct np_probe *probe, struct np_regs *regs)
{
	counts(probe, regs);
	forked = fork();
	if (forked == 0)
		/* The child is still inside of the handler. */
		CHECK(np_unregister_probe(probe) == NP_ERROR_IN_HANDLER);
	return 0;
}

static void a_fork_in_a_handler(void)
{
	for (int round = 0; round < 20; round++) {
		struct np_probe probe = { NP_SIZE(struct np_probe), .addr = (void *)foo, .pre_handler = forks_here, .flags = flags };
		struct np_probe other = { NP_SIZE(struct np_probe), .addr = (void *)bar, .pre_handler = counts, .flags = flags };
		CHECK(np_register_probe(&probe) == 0);
		CHECK(foo(5) == 16);
		if (forked == 0) {
			/* The child continues after the probe. It has all of the parent's probes, and can remove and register its own. */
			CHECK(np_probe_hits(&probe) == 1 && np_unregister_probe(&probe) == 0 && foo(5) == 16);
			CHECK(np_register_probe(&other) == 0 && bar(1) == 7 && np_probe_hits(&other) == 1);
			CHECK(np_unregister_probe(&other) == 0);
			_exit(7);
		}
		CHECK(ends_with(forked, 7) && np_probe_hits(&probe) == 1);
		CHECK(np_unregister_probe(&probe) == 0 && np_unregister_probe(&other) == NP_ERROR_NOT_REGISTERED);
	}
}

static const struct statement statements[] = {
	STATEMENT(processes_that_begin_in_a_probed_function),
	STATEMENT(processes_that_begin_in_a_handler),
	STATEMENT(a_fork_in_a_handler),
};

STATEMENTS(statements)
