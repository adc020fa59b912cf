/* Forks while another thread makes the library's first registration. Each child registers something of its own. */
#define _GNU_SOURCE
#include "inside.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILDREN = 6 };
static int is_ready, is_done;

static struct np_probe probe_of(void *function)
{
	return (struct np_probe){ NP_SIZE(struct np_probe), .addr = function, .pre_handler = counts, .flags = flags };
}

static void *registers_first(void *unused)
{
	(void)unused;
	struct np_probe probe = probe_of((void *)foo);
	__atomic_store_n(&is_ready, 1, __ATOMIC_SEQ_CST);
	CHECK(np_register_probe(&probe) == 0 && foo(1) == 4 && np_unregister_probe(&probe) == 0);
	__atomic_store_n(&is_done, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

static void in_the_child(void)
{
	struct np_probe probe = probe_of((void *)bar);
	alarm(60);
	CHECK(np_register_probe(&probe) == 0 && bar(1) == 7 && np_probe_hits(&probe) == 1);
	CHECK(np_unregister_probe(&probe) == 0);
	_exit(7);
}

static void children_of_the_first_registration(void)
{
	pthread_t thread;
	pid_t children[CHILDREN];
	CHECK(pthread_create(&thread, NULL, registers_first, NULL) == 0);
	while (!__atomic_load_n(&is_ready, __ATOMIC_SEQ_CST))
		;
	for (int index = 0; index < CHILDREN; index++) {
		children[index] = fork();
		if (children[index] == 0)
			in_the_child();
		usleep(1000);
	}
	for (int index = 0; index < CHILDREN; index++) {
		int status = 0;
		CHECK(waitpid(children[index], &status, 0) == children[index]);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
	}
	CHECK(pthread_join(thread, NULL) == 0 && is_done);
}

static const struct statement statements[] = {
	STATEMENT(children_of_the_first_registration),
};

STATEMENTS(statements)
