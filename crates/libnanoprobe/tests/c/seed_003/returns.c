/* Section 4.3: return probes. Each statement is checked for both forms. */
#define _GNU_SOURCE
#include "check.h"

#include <execinfo.h>
#include <pthread.h>

FUNCTION uint64_t twice(uint64_t value)
{
	OPAQUE;
	return 2 * value;
}

static uint64_t seen_value, seen_calls, seen_returns;
static void *seen_address;

static int on_entry(struct np_retprobe_instance *instance, struct np_regs *regs)
{
	(void)instance;
	(void)regs;
	__atomic_fetch_add(&seen_calls, 1, __ATOMIC_RELAXED);
	return 0;
}

static int on_return(struct np_retprobe_instance *instance, struct np_regs *regs)
{
	__atomic_store_n(&seen_value, regs->rax, __ATOMIC_RELAXED);
	__atomic_store_n(&seen_address, instance->return_address, __ATOMIC_RELAXED);
	__atomic_fetch_add(&seen_returns, 1, __ATOMIC_RELAXED);
	return 0;
}

static struct np_retprobe probe;

static void put(void *function, int form, int maxactive)
{
	probe = (struct np_retprobe){ { NP_SIZE(struct np_retprobe), .addr = function, .flags = flags },
				      .handler = on_return, .entry_handler = on_entry, .maxactive = maxactive, .form = form };
	seen_calls = seen_returns = 0;
	CHECK(np_register_retprobe(&probe) == 0);
	CHECK((int)np_retprobe_form(&probe) == form);
}

#define FOR_EACH_FORM for (int form = NP_RETPROBE_EXITS; form <= NP_RETPROBE_ADDRESS; form++)

static void section_4_3_it_fires_when_the_function_returns(void)
{
	FOR_EACH_FORM {
		put((void *)twice, form, 0);
		for (uint64_t value = 0; value < 100; value++) {
			CHECK(seen_returns == value);
			CHECK(twice(value) == 2 * value);
			CHECK(seen_returns == value + 1);
		}
		CHECK(np_probe_hits(&probe.probe) == 100 && np_retprobe_nmissed(&probe) == 0);
		CHECK(np_unregister_retprobe(&probe) == 0);
		CHECK(twice(3) == 6 && seen_returns == 100);
	}
}

static void section_4_3_footnote_5_the_value_is_in_the_register_of_the_abi(void)
{
	FOR_EACH_FORM {
		put((void *)twice, form, 0);
		for (uint64_t value = 0; value < 100; value++)
			CHECK(twice(value) == seen_value && seen_value == 2 * value);
		CHECK(np_unregister_retprobe(&probe) == 0);
	}
}

static void section_4_3_execution_continues_at_the_real_return_address(void)
{
	FOR_EACH_FORM {
		put((void *)twice, form, 0);
		/* The label in front of the call gives the call's address. */
		uint64_t result, address;
		__asm__ volatile("movl $21, %%edi\n\tsubq $136, %%rsp\n\tcall twice\n1:\taddq $136, %%rsp\n\tleaq 1b(%%rip), %1"
				 : "=&a"(result), "=&r"(address)
				 :
				 : "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "cc", "memory");
		CHECK(result == 42 && (uint64_t)seen_address == address);
		CHECK(np_unregister_retprobe(&probe) == 0);
	}
}

static void section_4_3_it_is_registered_at_the_functions_entry(void)
{
	FOR_EACH_FORM {
		struct np_retprobe inside = { { NP_SIZE(struct np_retprobe), .addr = (void *)twice, .flags = flags },
					      .form = form };
		/* Some offset is an instruction, and the others are none. */
		for (size_t offset = 1; offset < 4; offset++) {
			inside.probe.offset = offset;
			int error = np_register_retprobe(&inside);
			CHECK(error == NP_ERROR_ARGUMENT || error == NP_ERROR_BOUNDARY);
		}
	}
}

/* ---- instances ---- */

FUNCTION uint64_t descend(uint64_t depth)
{
	OPAQUE;
	uint64_t below = depth ? descend(depth - 1) : 0;
	OPAQUE;
	return below + 1;
}

enum { THREADS = 16, ROUNDS = 500, DEPTH = 9 };

static void *descends(void *unused)
{
	for (int round = 0; round < ROUNDS; round++)
		CHECK(descend(DEPTH) == DEPTH + 1);
	return unused;
}

static void run_threads(void *(*function)(void *))
{
	pthread_t threads[THREADS];
	for (int index = 0; index < THREADS; index++)
		CHECK(pthread_create(&threads[index], NULL, function, NULL) == 0);
	for (int index = 0; index < THREADS; index++)
		CHECK(pthread_join(threads[index], NULL) == 0);
}

static void section_4_3_1_several_instances_are_active_at_a_time(void)
{
	FOR_EACH_FORM {
		put((void *)descend, form, THREADS * (DEPTH + 1));
		run_threads(descends);
		CHECK(np_probe_hits(&probe.probe) == THREADS * ROUNDS * (DEPTH + 1));
		CHECK(np_retprobe_nmissed(&probe) == 0 && seen_returns == np_probe_hits(&probe.probe));
		CHECK(np_unregister_retprobe(&probe) == 0);
	}
}

static void section_4_3_1_with_maxactive_too_low_some_are_missed_and_counted(void)
{
	FOR_EACH_FORM {
		/* There is one instance: of each ten nested calls, only the outermost call gets it. */
		put((void *)descend, form, 1);
		descends(NULL);
		CHECK(np_probe_hits(&probe.probe) == ROUNDS && np_retprobe_nmissed(&probe) == ROUNDS * DEPTH);
		CHECK(np_unregister_retprobe(&probe) == 0);
		/* All threads at once: the counts add up to exactly all calls. */
		put((void *)descend, form, 1);
		run_threads(descends);
		uint64_t hits = np_probe_hits(&probe.probe), missed = np_retprobe_nmissed(&probe);
		CHECK(hits + missed == THREADS * ROUNDS * (DEPTH + 1) && hits > 0 && missed > 0);
		CHECK(seen_calls == hits && seen_returns == hits && np_retprobe_abandoned(&probe) == 0);
		CHECK(np_unregister_retprobe(&probe) == 0);
	}
}

static pthread_barrier_t inside;

FUNCTION uint64_t waits(uint64_t value)
{
	pthread_barrier_wait(&inside);
	pthread_barrier_wait(&inside);
	return value + 1;
}

static void *waits_once(void *value)
{
	CHECK(waits((uint64_t)value) == (uint64_t)value + 1);
	return NULL;
}

static void section_4_3_1_a_function_may_yield_and_another_task_enter_it(void)
{
	FOR_EACH_FORM {
		pthread_t threads[3];
		pthread_barrier_init(&inside, NULL, 4);
		put((void *)waits, form, 2);
		for (uint64_t index = 0; index < 3; index++)
			CHECK(pthread_create(&threads[index], NULL, waits_once, (void *)index) == 0);
		pthread_barrier_wait(&inside);
		/* All three threads are inside of the function, and two have an instance. */
		CHECK(seen_calls == 2 && seen_returns == 0 && np_retprobe_nmissed(&probe) == 1);
		pthread_barrier_wait(&inside);
		for (int index = 0; index < 3; index++)
			pthread_join(threads[index], NULL);
		CHECK(seen_returns == 2 && np_probe_hits(&probe.probe) == 2);
		CHECK(np_unregister_retprobe(&probe) == 0);
	}
}

static void section_4_3_1_instances_are_allocated_at_registration_not_at_a_hit(void)
{
	FOR_EACH_FORM {
		put((void *)descend, form, 4096);
		struct np_probe allocations[3];
		static const char *const names[] = { "libc:malloc", "libc:calloc", "libc:mmap" };
		for (int index = 0; index < 3; index++) {
			allocations[index] = (struct np_probe){ NP_SIZE(struct np_probe), .symbol = names[index] };
			CHECK(np_register_probe(&allocations[index]) == 0);
		}
		CHECK(descend(2000) == 2001);
		CHECK(np_probe_hits(&probe.probe) == 2001 && np_retprobe_nmissed(&probe) == 0);
		/* A call inside of a handler would be missed, not hit. */
		uint64_t called[3];
		for (int index = 0; index < 3; index++)
			called[index] = np_probe_nmissed(&allocations[index]);
		CHECK(called[0] + called[1] + called[2] == 0);
		for (int index = 0; index < 3; index++)
			CHECK(np_unregister_probe(&allocations[index]) == 0);
		CHECK(np_unregister_retprobe(&probe) == 0);
	}
}

/* ---- implications ---- */

static void section_4_3_2_calls_that_are_active_return_after_the_probe_was_unregistered(void)
{
	FOR_EACH_FORM {
		pthread_t threads[3];
		pthread_barrier_init(&inside, NULL, 4);
		put((void *)waits, form, 0);
		for (uint64_t index = 0; index < 3; index++)
			CHECK(pthread_create(&threads[index], NULL, waits_once, (void *)index) == 0);
		pthread_barrier_wait(&inside);
		CHECK(seen_calls == 3);
		CHECK(np_unregister_retprobe(&probe) == 0);
		memset(&probe, 0xee, sizeof(probe));
		pthread_barrier_wait(&inside);
		for (int index = 0; index < 3; index++)
			pthread_join(threads[index], NULL);
		CHECK(seen_returns == 0);
	}
}

FUNCTION uint64_t leaves(uint64_t value)
{
	OPAQUE;
	if (value == 1)
		pthread_exit(NULL);
	OPAQUE;
	return value + 1;
}

static void *leaves_once(void *unused)
{
	leaves(1);
	return unused;
}

static void section_4_3_2_instances_of_tasks_that_have_ended_are_recycled(void)
{
	FOR_EACH_FORM {
		put((void *)leaves, form, 1);
		for (uint64_t round = 1; round <= 50; round++) {
			pthread_t thread;
			CHECK(pthread_create(&thread, NULL, leaves_once, NULL) == 0);
			pthread_join(thread, NULL);
			CHECK(leaves(round + 1) == round + 2);
			CHECK(seen_calls == 2 * round && seen_returns == round);
		}
		CHECK(np_retprobe_abandoned(&probe) == 50 && np_retprobe_nmissed(&probe) == 0);
		CHECK(np_unregister_retprobe(&probe) == 0);
	}
}

static void *frames[2][32];
static int frames_count[2];

FUNCTION uint64_t looks(int when)
{
	frames_count[when] = backtrace(frames[when], 32);
	OPAQUE;
	return (uint64_t)when + 1;
}

FUNCTION static uint64_t looks_at_one_place(int when)
{
	uint64_t result = looks(when);
	OPAQUE;
	return result;
}

static void section_4_3_2_stack_traces_show_real_addresses_not_a_trampolines(void)
{
	FOR_EACH_FORM {
		for (int when = 0; when < 2; when++) {
			if (when)
				put((void *)looks, form, 1);
			CHECK(looks_at_one_place(when) == (uint64_t)when + 1);
		}
		CHECK(frames_count[0] >= 3 && frames_count[0] == frames_count[1]);
		CHECK(frames[0][1] == frames[1][1]);
		/* The stack trace has a price: the real address was put back, so this return was not seen. The call is counted
		 * as abandoned when the next call needs its place. */
		int lost = form == NP_RETPROBE_ADDRESS;
		CHECK(looks_at_one_place(1) == 2 && seen_calls == 2 && seen_returns == (lost ? 0 : 2));
		CHECK(np_retprobe_abandoned(&probe) == (uint64_t)lost && np_retprobe_nmissed(&probe) == 0);
		CHECK(np_unregister_retprobe(&probe) == 0);
	}
}

static const struct statement statements[] = {
	STATEMENT(section_4_3_it_fires_when_the_function_returns),
	STATEMENT(section_4_3_footnote_5_the_value_is_in_the_register_of_the_abi),
	STATEMENT(section_4_3_execution_continues_at_the_real_return_address),
	STATEMENT(section_4_3_it_is_registered_at_the_functions_entry),
	STATEMENT(section_4_3_1_several_instances_are_active_at_a_time),
	STATEMENT(section_4_3_1_with_maxactive_too_low_some_are_missed_and_counted),
	STATEMENT(section_4_3_1_a_function_may_yield_and_another_task_enter_it),
	STATEMENT(section_4_3_1_instances_are_allocated_at_registration_not_at_a_hit),
	STATEMENT(section_4_3_2_calls_that_are_active_return_after_the_probe_was_unregistered),
	STATEMENT(section_4_3_2_instances_of_tasks_that_have_ended_are_recycled),
	STATEMENT(section_4_3_2_stack_traces_show_real_addresses_not_a_trampolines),
};

STATEMENTS(statements)
