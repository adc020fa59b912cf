/* Sets each resource limit to small values. A registration works, or says why not, and no signal comes. */
#define _GNU_SOURCE
#include "inside.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void registers_under(int limit, rlim_t most, int was_registered)
{
	struct np_probe probe = { NP_SIZE(struct np_probe), .addr = (void *)foo, .pre_handler = counts, .flags = flags };
	struct np_probe first = { NP_SIZE(struct np_probe), .addr = (void *)bar, .pre_handler = counts, .flags = flags };
	struct rlimit before, small;
	if (was_registered)
		CHECK(np_register_probe(&first) == 0);
	CHECK(getrlimit(limit, &before) == 0);
	small = before;
	small.rlim_cur = most;
	if (setrlimit(limit, &small))
		_exit(0);
	int error = np_register_probe(&probe);
	CHECK(foo(1) == 4 && bar(1) == 7);
	if (error) {
		CHECK(error < 0 && *np_last_error());
	} else {
		CHECK(np_probe_hits(&probe) == 1 && np_unregister_probe(&probe) == 0 && foo(1) == 4);
	}
	/* Without the limit everything works. */
	CHECK(setrlimit(limit, &before) == 0);
	error = np_register_probe(&probe);
	if (error)
		fprintf(stderr, "%s\n", np_last_error());
	CHECK(error == 0 && foo(1) == 4 && np_probe_hits(&probe) == 1 && np_unregister_probe(&probe) == 0);
	_exit(0);
}

static void each_of_them_at_its_smallest(void)
{
	/* RLIMIT_CPU ends any program. */
	static const int limits[] = { RLIMIT_FSIZE,   RLIMIT_DATA,	  RLIMIT_STACK,	 RLIMIT_CORE,	RLIMIT_RSS,
				      RLIMIT_NPROC,   RLIMIT_NOFILE,	  RLIMIT_MEMLOCK, RLIMIT_AS,	RLIMIT_LOCKS,
				      RLIMIT_SIGPENDING, RLIMIT_MSGQUEUE, RLIMIT_NICE,	 RLIMIT_RTPRIO, RLIMIT_RTTIME };
	static const rlim_t sizes[] = { 0, 1, 4096, 65536 };
	for (unsigned index = 0; index < sizeof(limits) / sizeof(limits[0]); index++)
		for (unsigned size = 0; size < 4; size++)
			for (int was_registered = 0; was_registered < 2; was_registered++) {
				/* This limit is in microseconds. */
				if (limits[index] == RLIMIT_RTTIME && size < 3)
					continue;
				pid_t child = fork();
				int status = 0;
				if (child == 0) {
					alarm(60);
					registers_under(limits[index], sizes[size], was_registered);
				}
				CHECK(waitpid(child, &status, 0) == child);
				if (status)
					fprintf(stderr, "limit %d at %lu, %d: status %x\n", limits[index], (unsigned long)sizes[size],
						was_registered, status);
				CHECK(status == 0);
			}
}

static const struct statement statements[] = {
	STATEMENT(each_of_them_at_its_smallest),
};

STATEMENTS(statements)
