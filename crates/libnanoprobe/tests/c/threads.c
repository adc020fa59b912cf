/* Threads that end, processes that begin and stacks that are left inside of probed functions and of handlers. */
#define _GNU_SOURCE
#include "seed_003/check.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

extern char **environ;

FUNCTION uint64_t foo(uint64_t value)
{
	OPAQUE;
	return value * 3 + 1;
}

FUNCTION uint64_t bar(uint64_t value)
{
	OPAQUE;
	return value * 5 + 2;
}

static int counts(struct np_probe *probe, struct np_regs *regs)
{
	(void)regs;
	if (probe->user)
		__atomic_fetch_add((uint64_t *)probe->user, 1, __ATOMIC_RELAXED);
	return 0;
}

static int nothing(struct np_retprobe_instance *call, struct np_regs *regs)
{
	(void)call;
	(void)regs;
	return 0;
}

static struct np_retprobe on_return(void *function, int form)
{
	return (struct np_retprobe){ { NP_SIZE(struct np_retprobe), .addr = function, .flags = flags },
				     .handler = nothing, .entry_handler = nothing, .form = form };
}

#define EACH_FORM(form) for (int form = NP_RETPROBE_EXITS; form <= NP_RETPROBE_ADDRESS; form++)

/* hits, nmissed, abandoned */
static int is(struct np_retprobe *probe, uint64_t hits, uint64_t missed, uint64_t abandoned)
{
	uint64_t now[] = { np_probe_hits(&probe->probe), np_retprobe_nmissed(probe), np_retprobe_abandoned(probe) };
	if (now[0] == hits && now[1] == missed && now[2] == abandoned)
		return 1;
	fprintf(stderr, "%lu hits, %lu missed, %lu abandoned\n", now[0], now[1], now[2]);
	return 0;
}

enum { THREADS = 40 };

/* ---- threads that are cancelled ---- */

static uint64_t cleaned, inside;

static void cleans(void *unused)
{
	(void)unused;
	__atomic_fetch_add(&cleaned, 1, __ATOMIC_RELAXED);
}

FUNCTION uint64_t waits(uint64_t value)
{
	pthread_cleanup_push(cleans, NULL);
	__atomic_fetch_add(&inside, 1, __ATOMIC_RELEASE);
	for (;;)
		sleep(1000);
	pthread_cleanup_pop(0);
	return value;
}

static void *is_cancelled(void *unused)
{
	(void)unused;
	return (void *)waits(foo(1));
}

static void a_thread_that_is_cancelled_in_a_probed_function(void)
{
	EACH_FORM(form) {
		struct np_probe plain = { NP_SIZE(struct np_probe), .addr = (void *)waits, .pre_handler = counts, .flags = flags };
		struct np_retprobe returns = on_return((void *)waits, form), other = on_return((void *)foo, form);
		pthread_t threads[THREADS];
		void *result;
		if (np_register_retprobe(&returns)) {
			/* It never returns by a ret of its own. */
			CHECK(form == NP_RETPROBE_EXITS);
			continue;
		}
		CHECK(np_register_probe(&plain) == 0 && np_register_retprobe(&other) == 0);
		cleaned = inside = 0;
		for (int index = 0; index < THREADS; index++)
			CHECK(pthread_create(&threads[index], NULL, is_cancelled, NULL) == 0);
		while (__atomic_load_n(&inside, __ATOMIC_ACQUIRE) < THREADS)
			usleep(100);
		for (int index = 0; index < THREADS; index++)
			CHECK(pthread_cancel(threads[index]) == 0 && pthread_join(threads[index], &result) == 0 &&
			      result == PTHREAD_CANCELED);
		CHECK(cleaned == THREADS && np_probe_hits(&plain) == THREADS);
		CHECK(is(&returns, 0, 0, THREADS) && is(&other, THREADS, 0, 0));
		CHECK(np_unregister_retprobe(&returns) == 0 && np_unregister_retprobe(&other) == 0 &&
		      np_unregister_probe(&plain) == 0);
	}
}

static void *runs(void *sum)
{
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	__atomic_fetch_add(&inside, 1, __ATOMIC_RELEASE);
	for (uint64_t round = 0;; round++)
		*(uint64_t *)sum = foo(round);
	return NULL;
}

/* Anywhere: in the function, in the detour, in the midst of a handler. */
static void a_thread_that_is_cancelled_at_any_instruction(void)
{
	EACH_FORM(form) {
		uint64_t counted = 0;
		struct np_probe plain = { NP_SIZE(struct np_probe), .addr = (void *)foo, .pre_handler = counts, .user = &counted,
					  .flags = flags };
		struct np_retprobe returns = on_return((void *)foo, form);
		CHECK(np_register_retprobe(&returns) == 0 && np_register_probe(&plain) == 0);
		for (int round = 0; round < THREADS; round++) {
			pthread_t thread;
			uint64_t sum;
			void *result;
			inside = 0;
			CHECK(pthread_create(&thread, NULL, runs, &sum) == 0);
			while (!__atomic_load_n(&inside, __ATOMIC_ACQUIRE))
				sched_yield();
			usleep((useconds_t)(round * 37 % 500));
			CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
		}
		/* Nobody is waited for who has died in a handler. */
		uint64_t before = np_probe_hits(&returns.probe), entered = np_probe_hits(&plain);
		CHECK(foo(1) == 4 && np_probe_hits(&returns.probe) == before + 1 && np_probe_hits(&plain) == entered + 1);
		CHECK(np_unregister_retprobe(&returns) == 0 && np_unregister_probe(&plain) == 0 && foo(1) == 4);
	}
}

static int is_cancelled_here(struct np_probe *probe, struct np_regs *regs)
{
	counts(probe, regs);
	pthread_testcancel();
	return 0;
}

static void *cancels_itself(void *unused)
{
	pthread_cancel(pthread_self());
	foo(1);
	return unused;
}

static void a_thread_that_is_cancelled_in_a_handler(void)
{
	struct np_probe probe = { NP_SIZE(struct np_probe), .addr = (void *)foo, .pre_handler = is_cancelled_here, .flags = flags };
	CHECK(np_register_probe(&probe) == 0);
	for (int round = 0; round < THREADS; round++) {
		pthread_t thread;
		void *result;
		CHECK(pthread_create(&thread, NULL, cancels_itself, NULL) == 0 && pthread_join(thread, &result) == 0);
		CHECK(result == PTHREAD_CANCELED);
	}
	CHECK(foo(1) == 4 && np_probe_hits(&probe) == THREADS + 1 && np_unregister_probe(&probe) == 0);
}

static int exits_here(struct np_probe *probe, struct np_regs *regs)
{
	counts(probe, regs);
	if (regs->rdi == 77)
		pthread_exit(&inside);
	return 0;
}

static void *exits(void *unused)
{
	foo(77);
	return unused;
}

static void a_thread_that_exits_in_a_handler(void)
{
	struct np_probe probe = { NP_SIZE(struct np_probe), .addr = (void *)foo, .pre_handler = exits_here, .flags = flags };
	CHECK(np_register_probe(&probe) == 0);
	for (int round = 0; round < THREADS; round++) {
		pthread_t thread;
		void *result;
		CHECK(pthread_create(&thread, NULL, exits, NULL) == 0 && pthread_join(thread, &result) == 0);
		CHECK(result == &inside);
	}
	CHECK(foo(1) == 4 && np_probe_hits(&probe) == THREADS + 1 && np_unregister_probe(&probe) == 0);
}

/* ---- processes ---- */

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
		/* Still a handler: of the child's. */
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
			/* The child goes on behind the probe: it has all of them, and takes and sets its own. */
			CHECK(np_probe_hits(&probe) == 1 && np_unregister_probe(&probe) == 0 && foo(5) == 16);
			CHECK(np_register_probe(&other) == 0 && bar(1) == 7 && np_probe_hits(&other) == 1);
			CHECK(np_unregister_probe(&other) == 0);
			_exit(7);
		}
		CHECK(ends_with(forked, 7) && np_probe_hits(&probe) == 1);
		CHECK(np_unregister_probe(&probe) == 0 && np_unregister_probe(&other) == NP_ERROR_NOT_REGISTERED);
	}
}

/* ---- stacks ---- */

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
		/* 7 * depth + 3 of each, and the 10 at the end. */
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

/* So many times one of them, whichever, so that calls return in another order than they were made in. */
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

/* Each thread goes on where another one has stopped, and ends with calls of others in progress. */
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

/* The stack's end is met by the function, by the detour or by the handler: the program's handler hears of it in any case. */
static void a_stack_that_ends_in_a_probed_function(void)
{
	struct sigaction action = { .sa_handler = overflows, .sa_flags = SA_ONSTACK };
	sigaction(SIGSEGV, &action, NULL);
	pthread_attr_t attributes;
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, 256 << 10);
	for (int kind = 0; kind < 3; kind++) {
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
	STATEMENT(a_thread_that_is_cancelled_in_a_probed_function),
	STATEMENT(a_thread_that_is_cancelled_at_any_instruction),
	STATEMENT(a_thread_that_is_cancelled_in_a_handler),
	STATEMENT(a_thread_that_exits_in_a_handler),
	STATEMENT(processes_that_begin_in_a_probed_function),
	STATEMENT(processes_that_begin_in_a_handler),
	STATEMENT(a_fork_in_a_handler),
	STATEMENT(coroutines_that_switch_inside_of_probed_functions),
	STATEMENT(coroutines_that_go_from_thread_to_thread),
	STATEMENT(signal_handlers_with_a_stack_of_their_own),
	STATEMENT(a_stack_that_ends_in_a_probed_function),
};

STATEMENTS(statements)
