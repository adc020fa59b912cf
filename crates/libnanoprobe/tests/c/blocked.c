/* Threads that block all signals, like the workers of servers, and execute functions whose probes come and go. */
#define _GNU_SOURCE
#include "inside.h"

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum mask { BLOCKS_ALL, BLOCKS_NOTHING };
static int wanted_mask, mask_now, ends, tid_of_worker;
static uint64_t rounds, wrong;

static void set_mask(int mask)
{
	sigset_t set;
	if (mask == BLOCKS_ALL)
		sigfillset(&set);
	else
		sigemptyset(&set);
	pthread_sigmask(SIG_SETMASK, &set, NULL);
	__atomic_store_n(&mask_now, mask, __ATOMIC_SEQ_CST);
}

static void *works(void *unused)
{
	(void)unused;
	set_mask(BLOCKS_ALL);
	__atomic_store_n(&tid_of_worker, (int)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
	for (uint64_t value = 0; !__atomic_load_n(&ends, __ATOMIC_RELAXED); value++) {
		if (foo(value) != 3 * value + 1 || bar(value) != 5 * value + 2)
			wrong++;
		__atomic_fetch_add(&rounds, 1, __ATOMIC_RELAXED);
		int mask = __atomic_load_n(&wanted_mask, __ATOMIC_SEQ_CST);
		if (mask != mask_now)
			set_mask(mask);
	}
	sigset_t now;
	pthread_sigmask(SIG_SETMASK, NULL, &now);
	/* The program must read back the mask that it has set. */
	CHECK(sigismember(&now, SIGTRAP) == (mask_now == BLOCKS_ALL) && sigismember(&now, SIGSEGV) == (mask_now == BLOCKS_ALL));
	return NULL;
}

static pthread_t begin(void)
{
	pthread_t worker;
	ends = tid_of_worker = wanted_mask = 0;
	CHECK(pthread_create(&worker, NULL, works, NULL) == 0);
	while (!__atomic_load_n(&tid_of_worker, __ATOMIC_SEQ_CST))
		usleep(100);
	return worker;
}

static void end(pthread_t worker)
{
	__atomic_store_n(&ends, 1, __ATOMIC_SEQ_CST);
	CHECK(pthread_join(worker, NULL) == 0 && wrong == 0);
}

static void have_mask(int mask)
{
	__atomic_store_n(&wanted_mask, mask, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&mask_now, __ATOMIC_SEQ_CST) != mask)
		usleep(100);
}

static struct np_probe probe_of(void *function)
{
	return (struct np_probe){ NP_SIZE(struct np_probe), .addr = function, .pre_handler = counts, .flags = flags };
}

/* Registers and unregisters in turn, and waits each time until the worker has executed the function. */
static void registered_and_unregistered(int times)
{
	for (int time = 0; time < times; time++) {
		struct np_probe probe = probe_of(time % 2 ? (void *)foo : (void *)bar);
		CHECK(np_register_probe(&probe) == 0);
		uint64_t before = __atomic_load_n(&rounds, __ATOMIC_RELAXED);
		while (__atomic_load_n(&rounds, __ATOMIC_RELAXED) < before + 2)
			sched_yield();
		CHECK(np_unregister_probe(&probe) == 0);
		CHECK(np_probe_hits(&probe) >= 1 && np_probe_nmissed(&probe) == 0);
	}
}

static void refused_and_then_not(void)
{
	pthread_t worker = begin();
	char name[32];
	snprintf(name, sizeof(name), "thread %d ", tid_of_worker);
	for (int time = 0; time < 100; time++) {
		struct np_probe probe = probe_of((void *)foo);
		CHECK(np_register_probe(&probe) == NP_ERROR_BLOCKED);
		CHECK(strstr(np_last_error(), name) && strstr(np_last_error(), "SIGTRAP"));
		CHECK(np_unregister_probe(&probe) == NP_ERROR_NOT_REGISTERED);
	}
	have_mask(BLOCKS_NOTHING);
	registered_and_unregistered(10);
	/* After the first patch the program may block any signals. */
	have_mask(BLOCKS_ALL);
	registered_and_unregistered(1000);
	end(worker);
}

static void a_caller_that_blocks_all_itself(void)
{
	sigset_t all, now;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	struct np_probe probe = probe_of((void *)foo), other = probe_of((void *)bar);
	CHECK(np_register_probe(&probe) == 0 && foo(1) == 4 && np_probe_hits(&probe) == 1);
	pthread_t worker = begin();
	CHECK(np_register_probe(&other) == 0);
	end(worker);
	CHECK(np_unregister_probe(&probe) == 0 && np_unregister_probe(&other) == 0);
	pthread_sigmask(SIG_SETMASK, NULL, &now);
	CHECK(sigismember(&now, SIGTRAP) == 1 && sigismember(&now, SIGSEGV) == 1 && sigismember(&now, SIGTERM) == 1);
}

static void on_signal(int signal)
{
	(void)signal;
	for (uint64_t value = 0; value < 100; value++)
		if (foo(value) != 3 * value + 1)
			wrong++;
	__atomic_fetch_add(&rounds, 1, __ATOMIC_RELAXED);
}

static void *signals_itself(void *unused)
{
	(void)unused;
	while (!__atomic_load_n(&ends, __ATOMIC_RELAXED))
		raise(SIGUSR1);
	return NULL;
}

/* The action of this signal handler was set before anything was registered, and blocks all signals. */
static void a_signal_handler_that_blocks_all(void)
{
	struct sigaction action = { .sa_handler = on_signal }, now;
	sigfillset(&action.sa_mask);
	sigaction(SIGUSR1, &action, NULL);
	struct np_probe first = probe_of((void *)bar);
	CHECK(np_register_probe(&first) == 0);
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, signals_itself, NULL) == 0);
	for (int time = 0; time < 200; time++) {
		struct np_probe probe = probe_of((void *)foo);
		CHECK(np_register_probe(&probe) == 0);
		uint64_t before = __atomic_load_n(&rounds, __ATOMIC_RELAXED);
		while (__atomic_load_n(&rounds, __ATOMIC_RELAXED) < before + 2)
			sched_yield();
		CHECK(np_unregister_probe(&probe) == 0 && np_probe_hits(&probe) >= 100);
	}
	__atomic_store_n(&ends, 1, __ATOMIC_SEQ_CST);
	CHECK(pthread_join(thread, NULL) == 0 && wrong == 0);
	CHECK(np_unregister_probe(&first) == 0);
	sigaction(SIGUSR1, NULL, &now);
	CHECK(now.sa_handler == on_signal && sigismember(&now.sa_mask, SIGTRAP) == 1);
}

static void *unblocks_after_a_second(void *unused)
{
	struct timespec begun, now;
	(void)unused;
	set_mask(BLOCKS_ALL);
	clock_gettime(CLOCK_MONOTONIC, &begun);
	__atomic_store_n(&tid_of_worker, (int)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
	do
		clock_gettime(CLOCK_MONOTONIC, &now);
	while ((now.tv_sec - begun.tv_sec) * 1000000000L + now.tv_nsec - begun.tv_nsec < 1000000000L);
	set_mask(BLOCKS_NOTHING);
	return NULL;
}

/* A new thread blocks all signals until it has had a processor. On a busy machine that takes longer than the
 * library waits for a sleeping thread. This thread does not sleep. */
static void a_thread_that_runs_is_waited_for(void)
{
	pthread_t worker;
	tid_of_worker = 0;
	CHECK(pthread_create(&worker, NULL, unblocks_after_a_second, NULL) == 0);
	while (!__atomic_load_n(&tid_of_worker, __ATOMIC_SEQ_CST))
		usleep(100);
	struct np_probe probe = probe_of((void *)foo);
	CHECK(np_register_probe(&probe) == 0 && foo(1) == 4 && np_probe_hits(&probe) == 1);
	CHECK(pthread_join(worker, NULL) == 0 && np_unregister_probe(&probe) == 0);
}

static const struct statement statements[] = {
	STATEMENT(refused_and_then_not),
	STATEMENT(a_caller_that_blocks_all_itself),
	STATEMENT(a_signal_handler_that_blocks_all),
	STATEMENT(a_thread_that_runs_is_waited_for),
};

STATEMENTS(statements)
