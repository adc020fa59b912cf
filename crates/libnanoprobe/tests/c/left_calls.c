/* Handlers that are left for ever, by siglongjmp from a signal handler. Afterwards the thread may call the library,
 * however deep its stack is. While the thread is in a handler, it may not. */
#define _GNU_SOURCE
#include "inside.h"

#include <setjmp.h>
#include <signal.h>

static sigjmp_buf back;
static int leaves, answers[2];
static struct np_probe other;

static void on_signal(int signal)
{
	(void)signal;
	if (leaves)
		siglongjmp(back, 1);
	answers[1] = np_register_probe(&other);
}

static int handler(struct np_probe *probe, struct np_regs *regs)
{
	(void)regs;
	answers[0] = np_unregister_probe(probe);
	raise(SIGUSR1);
	return 0;
}

__attribute__((noinline)) static int deeper(struct np_probe *probe, int depth)
{
	volatile char room[4096];
	room[0] = (char)depth;
	return depth ? deeper(probe, depth - 1) + room[0] - (char)depth : np_unregister_probe(probe);
}

static void and_then_it_is_called_from_anywhere(void)
{
	static char alternate[65536];
	static int on_alternate, depth;
	for (on_alternate = 0; on_alternate < 2; on_alternate++) {
		stack_t stack = { .ss_sp = alternate, .ss_size = sizeof(alternate) };
		sigaltstack(&stack, NULL);
		struct sigaction action = { .sa_handler = on_signal, .sa_flags = on_alternate ? SA_ONSTACK : 0 };
		sigaction(SIGUSR1, &action, NULL);
		for (depth = 0; depth < 10; depth++) {
			static struct np_probe probe;
			probe = (struct np_probe){ NP_SIZE(struct np_probe), .addr = (void *)foo, .pre_handler = handler,
						   .flags = flags };
			other = (struct np_probe){ NP_SIZE(struct np_probe), .addr = (void *)bar, .pre_handler = counts };
			CHECK(np_register_probe(&probe) == 0);
			leaves = answers[0] = answers[1] = 0;
			CHECK(foo(1) == 4 && answers[0] == NP_ERROR_IN_HANDLER && answers[1] == NP_ERROR_IN_HANDLER);
			leaves = 1;
			if (!sigsetjmp(back, 1))
				CHECK(foo(1) == 0 && !"left");
			CHECK(deeper(&probe, depth) == 0);
			CHECK(np_probe_hits(&probe) == 2 && np_register_probe(&other) == 0 && bar(1) == 7);
			CHECK(np_probe_hits(&other) == 1 && np_unregister_probe(&other) == 0);
		}
	}
}

static const struct statement statements[] = {
	STATEMENT(and_then_it_is_called_from_anywhere),
};

STATEMENTS(statements)
