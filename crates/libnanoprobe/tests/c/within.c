/* Handlers call the library: every call that would wait is refused, in every kind of handler, and registered probes
 * keep working. A replacement is no handler, nor is the function that np_unregister_probe_async calls. */
#define _GNU_SOURCE
#include "foobar.h"
#include "loads.h"

#include <setjmp.h>
#include <signal.h>
#include <unistd.h>

static struct np_probe first, second, fresh;
static struct np_jprobe jumper;
static struct np_retprobe fresh_return, returning;
static uint64_t asked, watched;
static struct np_watchpoint watch = { NP_SIZE(struct np_watchpoint), .addr = &watched, .length = 8, .type = NP_WATCH_WRITE };

static int visits(const struct np_info *info, void *user)
{
	(void)info;
	return ++*(int *)user;
}

static void done(struct np_probe *probe)
{
	(void)probe;
	abort();
}

/* Calls functions of the library for the handler's own probe, another probe at the same address, probes elsewhere,
   and new probes. */
static void asks(void)
{
	struct np_probe *probes[2] = { &first, &second };
	struct np_retprobe *returns = &returning;
	struct np_jprobe *jumpers = &jumper;
	void *original;
	int visited = 0;
	const int answers[] = {
		np_register_probe(&fresh),
		np_register_probes(probes, 2),
		np_unregister_probe(&first),
		np_unregister_probe(&second),
		np_unregister_probes(probes, 2),
		np_unregister_probe_async(&first, done),
		np_unregister_probe_async(&second, NULL),
		np_disable_probe(&first),
		np_disable_probe(&second),
		np_enable_probe(&first),
		np_enable_probe(&second),
		np_disable_probe(&returning.probe),
		np_register_jprobe(&jumper),
		np_unregister_jprobe(&jumper),
		np_unregister_jprobes(&jumpers, 1),
		np_register_retprobe(&fresh_return),
		np_unregister_retprobe(&returning),
		np_unregister_retprobes(&returns, 1),
		np_hook((void *)bar, (void *)foo, &original),
		np_unhook((void *)bar),
		np_register_watchpoint(&watch),
		np_unregister_watchpoint(&watch),
		np_disable_watchpoint(&watch),
		np_enable_watchpoint(&watch),
		np_list(visits, &visited),
		np_synchronize(),
	};
	for (size_t index = 0; index < sizeof(answers) / sizeof(answers[0]); index++)
		if (answers[index] != NP_ERROR_IN_HANDLER) {
			fprintf(stderr, "%zu: %d\n", index, answers[index]);
			_Exit(1);
		}
	CHECK(visited == 0 && np_probe_hits(&first) == 0 && np_probe_tactic(&first) == NP_TACTIC_NONE);
	CHECK(!strncmp(np_last_error(), "called from a handler", 21));
	asked++;
}

static int pre(struct np_probe *probe, struct np_regs *regs)
{
	(void)probe;
	(void)regs;
	asks();
	return 0;
}

static void post(struct np_probe *probe, struct np_regs *regs, unsigned long none)
{
	(void)probe;
	(void)regs;
	(void)none;
	asks();
}

static int counts(struct np_probe *probe, struct np_regs *regs)
{
	(void)regs;
	++*(uint64_t *)probe->user;
	return 0;
}

static uint64_t counted;

static void put(np_pre_handler before, np_post_handler behind)
{
	first = (struct np_probe){ NP_SIZE(struct np_probe), .addr = (void *)foo, .pre_handler = before, .post_handler = behind,
				   .flags = flags };
	second = (struct np_probe){ NP_SIZE(struct np_probe), .addr = (void *)foo, .pre_handler = counts, .user = &counted,
				    .flags = flags };
	fresh = (struct np_probe){ NP_SIZE(struct np_probe), .addr = (void *)bar, .pre_handler = counts, .user = &counted };
	fresh_return = (struct np_retprobe){ { NP_SIZE(struct np_retprobe), .addr = (void *)bar } };
	CHECK(np_register_probe(&first) == 0 && np_register_probe(&second) == 0);
}

/* All probes are unchanged, and can be removed. */
static void take(uint64_t rounds)
{
	CHECK(counted == rounds && np_probe_hits(&first) == rounds && np_probe_hits(&second) == rounds);
	CHECK(np_probe_nmissed(&first) == 0 && np_probe_nmissed(&second) == 0);
	CHECK(np_unregister_probe(&second) == 0 && np_unregister_probe(&first) == 0);
	CHECK(np_unregister_probe(&fresh) == NP_ERROR_NOT_REGISTERED);
	CHECK(foo(1) == 4 && counted == rounds);
}

static void from_a_pre_handler(void)
{
	put(pre, NULL);
	for (uint64_t round = 0; round < 50; round++)
		CHECK(foo(round) == round * 3 + 1);
	CHECK(asked == 50);
	take(50);
}

static void from_a_post_handler(void)
{
	put(NULL, post);
	for (uint64_t round = 0; round < 50; round++)
		CHECK(foo(round) == round * 3 + 1);
	CHECK(asked == 50);
	take(50);
}

static int faults(struct np_probe *probe, struct np_regs *regs)
{
	(void)probe;
	(void)regs;
	int *volatile nowhere = (int *)8;
	*nowhere = 1;
	return 0;
}

static int deals(struct np_probe *probe, struct np_regs *regs, int signal)
{
	(void)probe;
	(void)regs;
	CHECK(signal == SIGSEGV);
	asks();
	return 1;
}

static void from_a_fault_handler_of_a_handler(void)
{
	put(NULL, NULL);
	struct np_probe faulty = { NP_SIZE(struct np_probe), .addr = (void *)foo, .pre_handler = faults, .fault_handler = deals,
				   .flags = flags };
	CHECK(np_register_probe(&faulty) == 0);
	for (uint64_t round = 0; round < 50; round++)
		CHECK(foo(round) == round * 3 + 1);
	CHECK(asked == 50 && np_unregister_probe(&faulty) == 0);
	take(50);
}

static uint64_t there = 41;

static int mends(struct np_probe *probe, struct np_regs *regs, int signal)
{
	deals(probe, regs, signal);
	regs->rdi = (uint64_t)&there;
	return 1;
}

static void from_a_fault_handler_of_an_instruction(void)
{
	put(NULL, NULL);
	struct np_probe load = { NP_SIZE(struct np_probe), .addr = (void *)loads_here, .fault_handler = mends, .flags = flags };
	CHECK(np_register_probe(&load) == 0);
	for (uint64_t round = 0; round < 50; round++)
		CHECK(loads((uint64_t *)8) == 42 && foo(round) == round * 3 + 1);
	CHECK(asked == 50 && np_unregister_probe(&load) == 0);
	take(50);
}

static int enters(struct np_retprobe_instance *call, struct np_regs *regs)
{
	(void)call;
	(void)regs;
	asks();
	return 0;
}

static void from_handlers_of_return_probes(void)
{
	for (int form = NP_RETPROBE_EXITS; form <= NP_RETPROBE_ADDRESS; form++) {
		counted = asked = 0;
		put(NULL, NULL);
		returning = (struct np_retprobe){ { NP_SIZE(struct np_retprobe), .addr = (void *)foo, .flags = flags },
						  .handler = enters, .entry_handler = enters, .form = form };
		CHECK(np_register_retprobe(&returning) == 0);
		for (uint64_t round = 0; round < 50; round++)
			CHECK(foo(round) == round * 3 + 1);
		CHECK(asked == 100 && np_probe_hits(&returning.probe) == 50 && np_retprobe_nmissed(&returning) == 0);
		CHECK(np_unregister_retprobe(&returning) == 0);
		take(50);
	}
}

static uint64_t mirror(uint64_t value)
{
	(void)value;
	asks();
	np_jprobe_return();
}

static void from_a_mirror(void)
{
	put(NULL, NULL);
	jumper = (struct np_jprobe){ { NP_SIZE(struct np_probe), .addr = (void *)foo, .flags = flags }, .entry = (void *)mirror };
	CHECK(np_register_jprobe(&jumper) == 0);
	for (uint64_t round = 0; round < 50; round++)
		CHECK(foo(round) == round * 3 + 1);
	CHECK(asked == 50 && np_unregister_jprobe(&jumper) == 0);
	take(50);
}

static void sees(struct np_watchpoint *watchpoint, struct np_regs *regs)
{
	(void)watchpoint;
	(void)regs;
	asks();
}

static void from_a_watchpoints_handler(void)
{
	put(NULL, NULL);
	watch = (struct np_watchpoint){ NP_SIZE(struct np_watchpoint), .addr = &watched, .length = 8, .type = NP_WATCH_WRITE,
					.handler = sees };
	int error = np_register_watchpoint(&watch);
	if (!error) {
		for (uint64_t round = 0; round < 50; round++) {
			__atomic_store_n(&watched, round, __ATOMIC_RELAXED);
			CHECK(foo(round) == round * 3 + 1);
		}
		CHECK(asked == 50 && np_watchpoint_hits(&watch) == 50 && np_unregister_watchpoint(&watch) == 0);
		take(50);
	} else {
		CHECK(error == NP_ERROR_UNSUPPORTED || error == NP_ERROR_PERMISSION || error == NP_ERROR_NO_WATCHPOINT);
	}
}

static void on_signal(int signal)
{
	(void)signal;
	asks();
}

static int raises(struct np_probe *probe, struct np_regs *regs)
{
	(void)probe;
	(void)regs;
	raise(SIGUSR1);
	return 0;
}

static void from_a_signal_handler_that_has_interrupted_one(void)
{
	signal(SIGUSR1, on_signal);
	put(raises, NULL);
	for (uint64_t round = 0; round < 50; round++)
		CHECK(foo(round) == round * 3 + 1);
	CHECK(asked == 50);
	take(50);
}

static int asks_in_malloc(struct np_probe *probe, struct np_regs *regs)
{
	counts(probe, regs);
	asks();
	return 0;
}

/* The library's own use of malloc hits it with the library's locks held. */
static void from_a_handler_that_the_library_itself_hits(void)
{
	uint64_t allocated = 0;
	void *original;
	struct np_probe on_malloc = { NP_SIZE(struct np_probe), .symbol = "malloc", .pre_handler = asks_in_malloc,
				      .user = &allocated, .flags = flags };
	CHECK(np_register_probe(&on_malloc) == 0);
	for (int round = 0; round < 20; round++) {
		put(NULL, NULL);
		CHECK(np_hook((void *)bar, (void *)foo, &original) == 0 && np_unhook((void *)bar) == 0);
		CHECK(np_unregister_probe(&first) == 0 && np_unregister_probe(&second) == 0);
		CHECK(np_register_probe(&(struct np_probe){ NP_SIZE(struct np_probe), .symbol = "np_no_such" }) ==
		      NP_ERROR_SYMBOL);
	}
	CHECK(allocated > 20 && asked == allocated && np_unregister_probe(&on_malloc) == 0);
}

/* ---- no handlers ---- */

static uint64_t (*original_foo)(uint64_t);
static uint64_t replaced;

static uint64_t unhooks_itself(uint64_t value)
{
	replaced++;
	CHECK(np_unhook((void *)foo) == 0 && np_unhook((void *)foo) == NP_ERROR_NOT_REGISTERED);
	put(NULL, NULL);
	CHECK(foo(value) == value * 3 + 1);
	take(1);
	counted = 0;
	return original_foo(value) + 1000;
}

static void a_replacement_may_take_itself_away(void)
{
	for (uint64_t round = 0; round < 50; round++) {
		CHECK(np_hook((void *)foo, (void *)unhooks_itself, (void **)&original_foo) == 0);
		CHECK(foo(round) == round * 3 + 1001 && foo(round) == round * 3 + 1);
	}
	CHECK(replaced == 50);
}

static void *(*original_malloc)(size_t);
static void *(*original_realloc)(void *, size_t);
static void (*original_free)(void *);

/* Volatile, since compilers assume that malloc changes no variable. */
static volatile uint64_t allocations;

static void *in_place_of_malloc(size_t bytes)
{
	allocations++;
	return original_malloc(bytes);
}

static void *in_place_of_realloc(void *memory, size_t bytes)
{
	allocations++;
	return original_realloc(memory, bytes);
}

static void in_place_of_free(void *memory)
{
	allocations++;
	original_free(memory);
}

/* The library itself calls these functions while it writes the text, and other threads may call them, too. So
 * *original must be set before that. */
static void no_replacement_is_called_before_it_has_the_original(void)
{
	for (int round = 0; round < 20; round++) {
		CHECK(np_hook((void *)realloc, (void *)in_place_of_realloc, (void **)&original_realloc) == 0);
		CHECK(np_hook((void *)malloc, (void *)in_place_of_malloc, (void **)&original_malloc) == 0);
		CHECK(np_hook((void *)free, (void *)in_place_of_free, (void **)&original_free) == 0);
		allocations = 0;
		char *volatile memory = realloc(malloc(100), 200000);
		free(memory);
		CHECK(allocations >= 3);
		CHECK(np_unhook((void *)realloc) == 0 && np_unhook((void *)malloc) == 0 && np_unhook((void *)free) == 0);
		original_malloc = NULL;
		original_realloc = NULL;
		original_free = NULL;
	}
}

static int finished;

static void registers_again(struct np_probe *probe)
{
	finished++;
	if (finished < 50)
		CHECK(np_register_probe(probe) == 0 && foo(1) == 4 && np_unregister_probe_async(probe, registers_again) == 0);
}

static void what_an_asynchronous_removal_calls_may_register_again(void)
{
	put(NULL, NULL);
	CHECK(np_unregister_probe(&first) == 0);
	CHECK(np_unregister_probe_async(&second, registers_again) == 0 && np_synchronize() == 0);
	CHECK(finished == 50 && counted == 49 && np_unregister_probe(&second) == NP_ERROR_NOT_REGISTERED);
}

static const struct statement statements[] = {
	STATEMENT(from_a_pre_handler),
	STATEMENT(from_a_post_handler),
	STATEMENT(from_a_fault_handler_of_a_handler),
	STATEMENT(from_a_fault_handler_of_an_instruction),
	STATEMENT(from_handlers_of_return_probes),
	STATEMENT(from_a_mirror),
	STATEMENT(from_a_watchpoints_handler),
	STATEMENT(from_a_signal_handler_that_has_interrupted_one),
	STATEMENT(from_a_handler_that_the_library_itself_hits),
	STATEMENT(a_replacement_may_take_itself_away),
	STATEMENT(no_replacement_is_called_before_it_has_the_original),
	STATEMENT(what_an_asynchronous_removal_calls_may_register_again),
};

STATEMENTS(statements)
