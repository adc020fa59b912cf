/* Handlers that are left for ever, by siglongjmp from a signal handler that has interrupted them. Afterwards the
 * thread hits probes as before. Unregistering waits at most until the thread's next hit. */
#define _GNU_SOURCE
#include "inside.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <unistd.h>

static __thread sigjmp_buf back;
static __thread volatile int leaves;
static volatile int calls_back;
static volatile uint64_t seen;

static void on_signal(int signal)
{
	(void)signal;
	if (calls_back)
		bar(1);
	else
		siglongjmp(back, 1);
}

/* If `leaves` is set, raises a signal once, whose handler leaves the probe's handler. */
static void may_leave(void)
{
	seen++;
	if (leaves) {
		leaves = 0;
		raise(SIGUSR1);
	}
}

static int handler(struct np_probe *probe, struct np_regs *regs)
{
	(void)probe;
	(void)regs;
	may_leave();
	return 0;
}

static void behind(struct np_probe *probe, struct np_regs *regs, uint64_t unused)
{
	(void)unused;
	handler(probe, regs);
}

static int of_a_return(struct np_retprobe_instance *call, struct np_regs *regs)
{
	(void)call;
	(void)regs;
	may_leave();
	return 0;
}

static void leave_once(void)
{
	leaves = 1;
	if (!sigsetjmp(back, 1))
		CHECK(foo(1) == 0 && !"left");
	CHECK(!leaves);
}

static void calls(uint64_t times)
{
	for (uint64_t time = 0; time < times; time++)
		CHECK(foo(time) == 3 * time + 1);
}

/* Leaves a handler, and checks that all probes fire again. */
static void leave_and_see(void)
{
	for (int round = 0; round < 10; round++) {
		leave_once();
		seen = 0;
		calls(1000);
		CHECK(seen == 1000);
	}
}

static void act(int options)
{
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = options };
	sigaction(SIGUSR1, &action, NULL);
}

static void from_handlers_of_plain_probes(void)
{
	act(0);
	for (int post = 0; post < 2; post++) {
		struct np_probe probe = { NP_SIZE(struct np_probe), .addr = (void *)foo, .pre_handler = post ? NULL : handler,
					  .post_handler = post ? behind : NULL, .flags = flags };
		CHECK(np_register_probe(&probe) == 0);
		leave_and_see();
		CHECK(np_probe_hits(&probe) == 10 * 1001 && np_probe_nmissed(&probe) == 0);
		CHECK(np_unregister_probe(&probe) == 0);
	}
}

static void from_handlers_of_return_probes(void)
{
	act(0);
	EACH_FORM(form)
	{
		struct np_retprobe probe = on_return((void *)foo, form);
		probe.handler = of_a_return;
		CHECK(np_register_retprobe(&probe) == 0);
		leave_and_see();
		CHECK(np_unregister_retprobe(&probe) == 0);
	}
}

static volatile int stops;

static void *in_thread(void *unused)
{
	leave_once();
	stops = 1;
	while (stops)
		calls(10);
	return unused;
}

static void who_unregisters_does_not_wait(void)
{
	act(0);
	struct np_probe probe = { NP_SIZE(struct np_probe), .addr = (void *)foo, .pre_handler = handler, .flags = flags };
	struct np_probe other = { NP_SIZE(struct np_probe), .addr = (void *)foo, .flags = flags };
	pthread_t thread;
	CHECK(np_register_probe(&probe) == 0 && np_register_probe(&other) == 0);
	CHECK(pthread_create(&thread, NULL, in_thread, NULL) == 0);
	while (!stops)
		usleep(100);
	CHECK(np_unregister_probe(&probe) == 0);
	stops = 0;
	CHECK(pthread_join(thread, NULL) == 0 && np_unregister_probe(&other) == 0);
}

/* A signal handler that returns has interrupted a probe's handler. Hits of the signal handler count as hits within
 * that handler, so they are missed, wherever the signal handler's stack is. */
static void one_that_returns_is_inside(void)
{
	char above[64 << 10];
	for (int alternate = 0; alternate < 2; alternate++) {
		struct np_probe probe = { NP_SIZE(struct np_probe), .addr = (void *)foo, .pre_handler = handler, .flags = flags };
		struct np_probe other = { NP_SIZE(struct np_probe), .addr = (void *)bar, .pre_handler = handler, .flags = flags };
		stack_t stack = { .ss_sp = above, .ss_size = sizeof(above) };
		act(alternate ? SA_ONSTACK : 0);
		CHECK(sigaltstack(&stack, NULL) == 0);
		CHECK(np_register_probe(&probe) == 0 && np_register_probe(&other) == 0);
		calls_back = 1;
		seen = 0;
		for (int round = 0; round < 100; round++) {
			leaves = 1;
			calls(1);
		}
		calls_back = 0;
		CHECK(seen == 100 && np_probe_hits(&other) == 0 && np_probe_nmissed(&other) == 100);
		CHECK(np_unregister_probe(&probe) == 0 && np_unregister_probe(&other) == 0);
		stack.ss_flags = SS_DISABLE;
		sigaltstack(&stack, NULL);
	}
}

static const struct statement statements[] = {
	STATEMENT(from_handlers_of_plain_probes),
	STATEMENT(from_handlers_of_return_probes),
	STATEMENT(who_unregisters_does_not_wait),
	STATEMENT(one_that_returns_is_inside),
};

STATEMENTS(statements)
