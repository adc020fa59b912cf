/* Stacks that are left inside of probed functions: by coroutines, by signal handlers, and at their ends. */
#define _GNU_SOURCE
#include "inside.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <ucontext.h>

enum { COROUTINES = 16, SWITCHES = 200 };
static ucontext_t main_context, contexts[COROUTINES];
static unsigned char stacks[COROUTINES][128 << 10] __attribute__((aligned(64)));
static uint64_t wrong, finished;
static int current;

FUNCTION uint64_t yields(uint64_t value)
{
	OPAQUE;
	swapcontext(&contexts[current], &main_context);
	OPAQUE;
	return value * 7 + 3;
}

FUNCTION uint64_t calls_itself(uint64_t depth)
{
	uint64_t below = depth ? calls_itself(depth - 1) : 0;
	OPAQUE;
	below += yields(depth ? depth : 1);
	OPAQUE;
	return below;
}

static void coroutine(int number)
{
	for (uint64_t round = 0; round < SWITCHES; round++) {
		uint64_t depth = (round + (uint64_t)number) % 5;
		/* The expected sum: 7 * depth + 3 at each depth, and 10 at the end. */
		wrong += calls_itself(depth) != 10 + 7 * depth * (depth + 1) / 2 + 3 * depth;
	}
	finished++;
}

static int running;
static char over[COROUTINES];

static void begin_coroutines(void)
{
	wrong = finished = 0;
	running = COROUTINES;
	memset(over, 0, sizeof(over));
	for (int index = 0; index < COROUTINES; index++) {
		getcontext(&contexts[index]);
		contexts[index].uc_stack.ss_sp = stacks[index];
		contexts[index].uc_stack.ss_size = sizeof(stacks[index]);
		contexts[index].uc_link = &main_context;
		makecontext(&contexts[index], (void (*)(void))coroutine, 1, index);
	}
}

/* Resumes one of the coroutines this many times, at random. So calls return in another order than they were made. */
static void *resumes(void *times)
{
	static uint64_t number = 12345, left;
	for (left = (uint64_t)times; running && left; left--) {
		number = number * 6364136223846793005UL + 1442695040888963407UL;
		current = (int)((number >> 33) % COROUTINES);
		if (over[current])
			continue;
		uint64_t before = finished;
		swapcontext(&main_context, &contexts[current]);
		over[current] = finished != before;
		running -= finished != before;
	}
	return NULL;
}

static void run_coroutines(int in_threads)
{
	EACH_FORM(form) {
		struct np_retprobe yielding = on_return((void *)yields, form), recursive = on_return((void *)calls_itself, form);
		uint64_t calls = 0;
		for (uint64_t index = 0; index < COROUTINES; index++)
			for (uint64_t round = 0; round < SWITCHES; round++)
				calls += (round + index) % 5 + 1;
		CHECK(np_register_retprobe(&yielding) == 0 && np_register_retprobe(&recursive) == 0);
		begin_coroutines();
		while (running) {
			pthread_t thread;
			if (!in_threads)
				resumes((void *)1000);
			else
				CHECK(pthread_create(&thread, NULL, resumes, (void *)1000) == 0 && pthread_join(thread, NULL) == 0);
		}
		CHECK(wrong == 0 && finished == COROUTINES);
		CHECK(is(&yielding, calls, 0, 0) && is(&recursive, calls, 0, 0));
		CHECK(np_unregister_retprobe(&yielding) == 0 && np_unregister_retprobe(&recursive) == 0);
	}
}

static void coroutines_that_switch_inside_of_probed_functions(void)
{
	run_coroutines(0);
}

/* Each thread resumes coroutines that another thread has left, and ends while calls of others are in progress. */
static void coroutines_that_go_from_thread_to_thread(void)
{
	run_coroutines(1);
}

static void on_signal(int signal)
{
	(void)signal;
	wrong += foo(3) != 10;
	wrong += bar(3) != 17;
}

static void *in_thread(void *rounds)
{
	static __thread char stack[64 << 10];
	stack_t alternate = { .ss_sp = stack, .ss_size = sizeof(stack) };
	CHECK(sigaltstack(&alternate, NULL) == 0);
	for (uint64_t round = 0; round < (uint64_t)rounds; round++) {
		raise(SIGUSR1);
		wrong += foo(round) != round * 3 + 1;
	}
	alternate.ss_flags = SS_DISABLE;
	sigaltstack(&alternate, NULL);
	return NULL;
}

static void signal_handlers_with_a_stack_of_their_own(void)
{
	struct sigaction action = { .sa_handler = on_signal, .sa_flags = SA_ONSTACK };
	sigaction(SIGUSR1, &action, NULL);
	EACH_FORM(form) {
		struct np_retprobe returns = on_return((void *)foo, form);
		struct np_probe plain = { NP_SIZE(struct np_probe), .addr = (void *)bar, .pre_handler = counts, .flags = flags };
		pthread_t threads[4];
		CHECK(np_register_retprobe(&returns) == 0 && np_register_probe(&plain) == 0);
		for (int index = 0; index < 4; index++)
			CHECK(pthread_create(&threads[index], NULL, in_thread, (void *)200) == 0);
		for (int index = 0; index < 4; index++)
			pthread_join(threads[index], NULL);
		CHECK(wrong == 0 && is(&returns, 2 * 4 * 200, 0, 0) && np_probe_hits(&plain) == 4 * 200);
		CHECK(np_unregister_retprobe(&returns) == 0 && np_unregister_probe(&plain) == 0);
	}
}

static sigjmp_buf back;
static volatile uint64_t deepest, never = UINT64_MAX;

FUNCTION uint64_t too_deep(uint64_t depth)
{
	volatile char room[100];
	room[0] = (char)depth;
	deepest = depth;
	OPAQUE;
	uint64_t result = depth + 1 < never ? too_deep(depth + 1) : 0;
	OPAQUE;
	return result + (uint64_t)room[0];
}

static void overflows(int signal)
{
	(void)signal;
	siglongjmp(back, 1);
}

static uint64_t rounds_done;

static void *recurses(void *unused)
{
	static char stack[64 << 10];
	stack_t alternate = { .ss_sp = stack, .ss_size = sizeof(stack) };
	CHECK(sigaltstack(&alternate, NULL) == 0);
	for (volatile int round = 0; round < 5; round++)
		if (!sigsetjmp(back, 1))
			too_deep((uint64_t)round);
		else
			rounds_done++;
	alternate.ss_flags = SS_DISABLE;
	sigaltstack(&alternate, NULL);
	return unused;
}

/* The function, the detour or the handler reaches the end of the stack. In each case the program's signal handler
 * runs. */
static void a_stack_that_ends_in_a_probed_function(void)
{
	struct sigaction action = { .sa_handler = overflows, .sa_flags = SA_ONSTACK };
	sigaction(SIGSEGV, &action, NULL);
	pthread_attr_t attributes;
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 256 << 10);
	/* A plain probe; return probes by either form, with an entry handler and without. */
	for (int way = 0; way < 5; way++) {
		int kind = way < 3 ? way : way - 2;
		with_entry = way < 3;
		struct np_probe plain = { NP_SIZE(struct np_probe), .addr = (void *)too_deep, .pre_handler = counts, .flags = flags };
		struct np_retprobe returns = on_return((void *)too_deep, kind);
		pthread_t thread;
		CHECK((kind ? np_register_retprobe(&returns) : np_register_probe(&plain)) == 0);
		rounds_done = 0;
		CHECK(pthread_create(&thread, &attributes, recurses, NULL) == 0 && pthread_join(thread, NULL) == 0);
		CHECK(rounds_done == 5 && deepest > 500);
		uint64_t seen = kind ? np_retprobe_nmissed(&returns) + np_retprobe_abandoned(&returns) : np_probe_hits(&plain);
		CHECK(seen > 500);
		CHECK((kind ? np_unregister_retprobe(&returns) : np_unregister_probe(&plain)) == 0);
	}
}

static const struct statement statements[] = {
	STATEMENT(coroutines_that_switch_inside_of_probed_functions),
	STATEMENT(coroutines_that_go_from_thread_to_thread),
	STATEMENT(signal_handlers_with_a_stack_of_their_own),
	STATEMENT(a_stack_that_ends_in_a_probed_function),
};

STATEMENTS(statements)
