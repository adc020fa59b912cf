/* Sections 4.4 and 5: hits inside of handlers, and handlers in parallel. */
#define _GNU_SOURCE
#include "../foobar.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

static uint64_t foo_pre, foo_post, bar_pre, bar_post, late_pre;

static int calls_bar(struct np_probe *probe, struct np_regs *regs)
{
	(void)probe;
	(void)regs;
	CHECK(bar(foo_pre) == foo_pre * 5 + 2);
	foo_pre++;
	return 0;
}

static void calls_bar_behind(struct np_probe *probe, struct np_regs *regs, unsigned long none)
{
	(void)probe;
	(void)regs;
	CHECK(none == 0 && bar(foo_post) == foo_post * 5 + 2);
	foo_post++;
}

static int counts(struct np_probe *probe, struct np_regs *regs)
{
	(void)regs;
	++*(uint64_t *)probe->user;
	return 0;
}

static void counts_behind(struct np_probe *probe, struct np_regs *regs, unsigned long none)
{
	(void)probe;
	(void)regs;
	bar_post += 1 + none;
}

static struct np_probe on_foo, on_bar, late;

static void put_all(void)
{
	on_foo = (struct np_probe){ NP_SIZE(struct np_probe), .addr = (void *)foo, .pre_handler = calls_bar,
				    .post_handler = calls_bar_behind, .flags = flags };
	late = (struct np_probe){ NP_SIZE(struct np_probe), .addr = (void *)foo, .pre_handler = counts, .flags = flags,
				  .user = &late_pre };
	on_bar = (struct np_probe){ NP_SIZE(struct np_probe), .addr = (void *)bar, .pre_handler = counts,
				    .post_handler = counts_behind, .flags = flags, .user = &bar_pre };
	CHECK(np_register_probe(&on_foo) == 0 && np_register_probe(&late) == 0 && np_register_probe(&on_bar) == 0);
}

static void take_all(void)
{
	CHECK(np_unregister_probe(&on_foo) == 0 && np_unregister_probe(&late) == 0 && np_unregister_probe(&on_bar) == 0);
}

static void section_4_4_a_probe_that_is_hit_in_a_handler_is_counted_in_nmissed(void)
{
	put_all();
	for (uint64_t round = 1; round <= 100; round++) {
		CHECK(foo(round) == round * 3 + 1);
		CHECK(np_probe_nmissed(&on_bar) == 2 * round && np_probe_hits(&on_bar) == 0);
	}
	CHECK(np_probe_nmissed(&on_foo) == 0 && np_probe_hits(&on_foo) == 100);
	/* Outside of handlers the probe is hit as usual. */
	CHECK(bar(1) == 7 && np_probe_hits(&on_bar) == 1 && np_probe_nmissed(&on_bar) == 200);
	take_all();
}

static void section_4_4_its_handlers_are_bypassed_and_its_instruction_is_executed(void)
{
	put_all();
	for (uint64_t round = 0; round < 100; round++)
		CHECK(foo(round) == round * 3 + 1);
	/* The handlers of foo check that bar was executed. */
	CHECK(foo_pre == 100 && foo_post == 100 && bar_pre == 0 && bar_post == 0);
	CHECK(bar(1) == 7 && bar_pre == 1 && bar_post == 1);
	take_all();
}

static void section_4_4_the_original_probe_goes_on_afterwards(void)
{
	put_all();
	for (uint64_t round = 0; round < 100; round++)
		CHECK(foo(round) == round * 3 + 1);
	/* The later probe on the same address still fires, and so does the post-handler of this probe. */
	CHECK(late_pre == 100 && foo_post == 100);
	take_all();
}

static volatile sig_atomic_t signalled;

static void on_signal(int signal)
{
	(void)signal;
	CHECK(bar(5) == 27);
	signalled++;
}

static int raises(struct np_probe *probe, struct np_regs *regs)
{
	counts(probe, regs);
	raise(SIGUSR1);
	return 0;
}

static void section_4_4_an_asynchronous_routine_may_be_what_reenters(void)
{
	signal(SIGUSR1, on_signal);
	on_foo = (struct np_probe){ NP_SIZE(struct np_probe), .addr = (void *)foo, .pre_handler = raises, .flags = flags,
				    .user = &foo_pre };
	on_bar = (struct np_probe){ NP_SIZE(struct np_probe), .addr = (void *)bar, .pre_handler = counts, .flags = flags,
				    .user = &bar_pre };
	CHECK(np_register_probe(&on_foo) == 0 && np_register_probe(&on_bar) == 0);
	for (int round = 1; round <= 100; round++) {
		CHECK(foo(1) == 4 && signalled == round);
		CHECK(np_probe_nmissed(&on_bar) == (uint64_t)round && bar_pre == 0);
	}
	/* Raises the same signal outside of a handler. */
	raise(SIGUSR1);
	CHECK(bar_pre == 1 && np_probe_hits(&on_bar) == 1 && np_probe_nmissed(&on_bar) == 100);
	CHECK(np_unregister_probe(&on_foo) == 0 && np_unregister_probe(&on_bar) == 0);
}

static int calls_foo(struct np_probe *probe, struct np_regs *regs)
{
	counts(probe, regs);
	CHECK(foo(1) == 4);
	return 0;
}

static void section_4_4_a_probe_that_hits_itself_recurses_once(void)
{
	on_foo = (struct np_probe){ NP_SIZE(struct np_probe), .addr = (void *)foo, .pre_handler = calls_foo, .flags = flags,
				    .user = &foo_pre };
	CHECK(np_register_probe(&on_foo) == 0);
	for (uint64_t round = 1; round <= 100; round++)
		CHECK(foo(round) == round * 3 + 1 && foo_pre == round && np_probe_nmissed(&on_foo) == round);
	CHECK(np_unregister_probe(&on_foo) == 0);
}

/* ---- section 5 ---- */

static pthread_barrier_t together;

/* A handler that waits at a barrier until enough threads are in it. */
static int meets(struct np_probe *probe, struct np_regs *regs)
{
	(void)probe;
	(void)regs;
	pthread_barrier_wait(&together);
	return 0;
}

enum { THREADS = 4, ROUNDS = 50 };

static void *hits_both(void *which)
{
	for (uint64_t round = 0; round < ROUNDS; round++)
		CHECK((uintptr_t)which ? bar(round) == round * 5 + 2 : foo(round) == round * 3 + 1);
	return NULL;
}

static void run_threads(int different)
{
	pthread_t threads[THREADS];
	pthread_barrier_init(&together, NULL, THREADS);
	for (int index = 0; index < THREADS; index++)
		CHECK(pthread_create(&threads[index], NULL, hits_both, (void *)(uintptr_t)(different && index % 2)) == 0);
	for (int index = 0; index < THREADS; index++)
		pthread_join(threads[index], NULL);
}

static void section_5_2_handlers_of_one_probe_and_of_different_ones_run_in_parallel(void)
{
	on_foo = (struct np_probe){ NP_SIZE(struct np_probe), .addr = (void *)foo, .pre_handler = meets, .flags = flags };
	on_bar = (struct np_probe){ NP_SIZE(struct np_probe), .addr = (void *)bar, .pre_handler = meets, .flags = flags };
	CHECK(np_register_probe(&on_foo) == 0 && np_register_probe(&on_bar) == 0);
	run_threads(0);
	CHECK(np_probe_hits(&on_foo) == THREADS * ROUNDS);
	run_threads(1);
	CHECK(np_probe_hits(&on_foo) + np_probe_hits(&on_bar) == 2 * THREADS * ROUNDS);
	CHECK(np_probe_nmissed(&on_foo) == 0 && np_probe_nmissed(&on_bar) == 0);
	CHECK(np_unregister_probe(&on_foo) == 0 && np_unregister_probe(&on_bar) == 0);
}

static int hold, held;

static int holds_on(struct np_probe *probe, struct np_regs *regs)
{
	(void)probe;
	(void)regs;
	__atomic_store_n(&held, 1, __ATOMIC_RELEASE);
	while (__atomic_load_n(&hold, __ATOMIC_ACQUIRE))
		usleep(100);
	return 0;
}

static void *hits_foo(void *unused)
{
	CHECK(foo(1) == 4);
	return unused;
}

static void section_5_1_what_one_thread_is_doing_is_tracked_apart_from_the_others(void)
{
	on_foo = (struct np_probe){ NP_SIZE(struct np_probe), .addr = (void *)foo, .pre_handler = holds_on, .flags = flags };
	on_bar = (struct np_probe){ NP_SIZE(struct np_probe), .addr = (void *)bar, .pre_handler = counts, .flags = flags,
				    .user = &bar_pre };
	CHECK(np_register_probe(&on_foo) == 0 && np_register_probe(&on_bar) == 0);
	hold = 1;
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, hits_foo, NULL) == 0);
	while (!__atomic_load_n(&held, __ATOMIC_ACQUIRE))
		usleep(100);
	/* The other thread is in a handler; this one is not. */
	for (int round = 0; round < 100; round++)
		CHECK(bar(1) == 7);
	CHECK(bar_pre == 100 && np_probe_nmissed(&on_bar) == 0);
	__atomic_store_n(&hold, 0, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	CHECK(np_unregister_probe(&on_foo) == 0 && np_unregister_probe(&on_bar) == 0);
}

static int gone;

static void *unregisters(void *probe)
{
	CHECK(np_unregister_probe(probe) == 0);
	__atomic_store_n(&gone, 1, __ATOMIC_RELEASE);
	return NULL;
}

static void section_5_2_unregistering_waits_for_handlers_and_registering_does_not(void)
{
	on_foo = (struct np_probe){ NP_SIZE(struct np_probe), .addr = (void *)foo, .pre_handler = holds_on, .flags = flags };
	CHECK(np_register_probe(&on_foo) == 0);
	hold = 1;
	unsigned char patched[8];
	memcpy(patched, (void *)foo, sizeof(patched));
	pthread_t hitting, unregistering;
	CHECK(pthread_create(&hitting, NULL, hits_foo, NULL) == 0);
	while (!__atomic_load_n(&held, __ATOMIC_ACQUIRE))
		usleep(100);
	CHECK(pthread_create(&unregistering, NULL, unregisters, &on_foo) == 0);
	/* Waits until the instruction is restored, which happens first. */
	while (!memcmp(patched, (void *)foo, sizeof(patched)))
		usleep(100);
	/* Meanwhile other probes come and go, also on the same address. */
	for (int round = 0; round < 50; round++) {
		late = (struct np_probe){ NP_SIZE(struct np_probe), .addr = (void *)(round % 2 ? foo : bar),
					  .pre_handler = counts, .flags = flags, .user = &late_pre };
		CHECK(np_register_probe(&late) == 0);
		if (round % 2 == 0) {
			CHECK(bar(1) == 7 && late_pre == (uint64_t)round / 2 + 1);
			CHECK(np_unregister_probe_async(&late, NULL) == 0);
		} else {
			CHECK(np_unregister_probe_async(&late, NULL) == 0);
		}
		CHECK(!__atomic_load_n(&gone, __ATOMIC_ACQUIRE));
	}
	/* Threads that call foo from now on execute its original first instruction. */
	CHECK(foo(1) == 4);
	__atomic_store_n(&hold, 0, __ATOMIC_RELEASE);
	pthread_join(unregistering, NULL);
	pthread_join(hitting, NULL);
	CHECK(gone && np_synchronize() == 0);
}

static const struct statement statements[] = {
	STATEMENT(section_4_4_a_probe_that_is_hit_in_a_handler_is_counted_in_nmissed),
	STATEMENT(section_4_4_its_handlers_are_bypassed_and_its_instruction_is_executed),
	STATEMENT(section_4_4_the_original_probe_goes_on_afterwards),
	STATEMENT(section_4_4_an_asynchronous_routine_may_be_what_reenters),
	STATEMENT(section_4_4_a_probe_that_hits_itself_recurses_once),
	STATEMENT(section_5_1_what_one_thread_is_doing_is_tracked_apart_from_the_others),
	STATEMENT(section_5_2_handlers_of_one_probe_and_of_different_ones_run_in_parallel),
	STATEMENT(section_5_2_unregistering_waits_for_handlers_and_registering_does_not),
};

STATEMENTS(statements)
