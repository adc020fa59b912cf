/* Threads that end inside of probed functions and of handlers. */
#define _GNU_SOURCE
#include "inside.h"

#include <pthread.h>
#include <unistd.h>

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
			/* This function never returns by a ret of its own. */
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

/* The cancellation comes anywhere: in the function, in the detour, in the middle of a handler. This is tested with
 * another probe at the entry and without. */
static void a_thread_that_is_cancelled_at_any_instruction(void)
{
	EACH_FORM(form) {
		uint64_t counted = 0;
		struct np_probe plain = { NP_SIZE(struct np_probe), .addr = (void *)foo, .pre_handler = counts, .user = &counted,
					  .flags = flags };
		struct np_retprobe returns = on_return((void *)foo, form);
		CHECK(np_register_retprobe(&returns) == 0 && (!with_entry || np_register_probe(&plain) == 0));
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
		/* Unregistering does not wait for a thread that has died in a handler. */
		uint64_t before = np_probe_hits(&returns.probe), entered = with_entry ? np_probe_hits(&plain) : 0;
		CHECK(foo(1) == 4 && np_probe_hits(&returns.probe) == before + 1);
		CHECK(!with_entry || (np_probe_hits(&plain) == entered + 1 && np_unregister_probe(&plain) == 0));
		CHECK(np_unregister_retprobe(&returns) == 0 && foo(1) == 4);
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

static const struct statement statements[] = {
	STATEMENT(a_thread_that_is_cancelled_in_a_probed_function),
	STATEMENT(a_thread_that_is_cancelled_at_any_instruction),
	STATEMENT(a_thread_that_is_cancelled_in_a_handler),
	STATEMENT(a_thread_that_exits_in_a_handler),
};

STATEMENTS(statements)
