/* Calls by a caller who is hostile, or has not read the header. Each is refused with the right error, or works. */
#define _GNU_SOURCE
#include "foobar.h"

#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

FUNCTION uint64_t baz(uint64_t value)
{
	OPAQUE;
	return value * 7 + 3;
}

static uint64_t counted;

static int counts(struct np_probe *probe, struct np_regs *regs)
{
	(void)probe;
	(void)regs;
	__atomic_fetch_add(&counted, 1, __ATOMIC_RELAXED);
	return 0;
}

static struct np_probe at(void *address)
{
	return (struct np_probe){ NP_SIZE(struct np_probe), .addr = address, .pre_handler = counts, .flags = flags };
}

static void pointers_that_are_null(void)
{
	struct np_probe probe = at((void *)foo), *list[] = { &probe, NULL, &probe };
	struct np_retprobe *returns[] = { NULL };
	struct np_jprobe *jumpers[] = { NULL };
	void *original = &probe;
	CHECK(np_register_probe(NULL) == NP_ERROR_ARGUMENT && np_register_retprobe(NULL) == NP_ERROR_ARGUMENT);
	CHECK(np_register_jprobe(NULL) == NP_ERROR_ARGUMENT && np_register_watchpoint(NULL) == NP_ERROR_ARGUMENT);
	CHECK(np_register_probes(NULL, 3) == NP_ERROR_ARGUMENT && np_register_probes(NULL, 0) == 0);
	CHECK(np_register_probes(list, 3) == NP_ERROR_ARGUMENT && np_register_retprobes(returns, 1) == NP_ERROR_ARGUMENT);
	CHECK(np_register_jprobes(jumpers, 1) == NP_ERROR_ARGUMENT);
	CHECK(np_unregister_probe(NULL) < 0 && np_unregister_probes(list, 3) < 0 && np_unregister_retprobe(NULL) < 0);
	CHECK(np_unregister_jprobe(NULL) < 0 && np_unregister_watchpoint(NULL) < 0 && np_unregister_probe_async(NULL, NULL) < 0);
	CHECK(np_unregister_probes(NULL, 2) < 0 && np_unregister_retprobes(NULL, 2) < 0);
	CHECK(np_enable_probe(NULL) < 0 && np_disable_probe(NULL) < 0 && np_enable_watchpoint(NULL) < 0);
	CHECK(np_probe_hits(NULL) == 0 && np_probe_nmissed(NULL) == 0 && np_probe_tactic(NULL) == NP_TACTIC_NONE);
	CHECK(np_retprobe_nmissed(NULL) == 0 && np_retprobe_abandoned(NULL) == 0 && np_watchpoint_hits(NULL) == 0);
	CHECK(np_hook(NULL, (void *)foo, &original) < 0 && np_hook((void *)foo, NULL, NULL) == NP_ERROR_ARGUMENT);
	CHECK(np_unhook(NULL) == NP_ERROR_NOT_REGISTERED && original == &probe);
	CHECK(*np_strerror(INT_MIN) && *np_strerror(INT_MAX) && *np_tactic_name((enum np_tactic)99));
	CHECK(foo(1) == 4 && counted == 0);
}

static void handlers_that_are_null(void)
{
	struct np_probe probe = { NP_SIZE(struct np_probe), .addr = (void *)foo, .flags = flags };
	struct np_retprobe returns = { { NP_SIZE(struct np_retprobe), .addr = (void *)foo, .flags = flags } };
	struct np_jprobe jumper = { { NP_SIZE(struct np_probe), .addr = (void *)foo, .flags = flags }, .entry = NULL };
	CHECK(np_register_probe(&probe) == 0 && np_register_retprobe(&returns) == 0);
	CHECK(np_register_jprobe(&jumper) == NP_ERROR_ARGUMENT);
	for (uint64_t round = 0; round < 100; round++)
		CHECK(foo(round) == round * 3 + 1);
	CHECK(np_probe_hits(&probe) == 100 && np_probe_hits(&returns.probe) == 100);
	CHECK(np_unregister_probe(&probe) == 0 && np_unregister_retprobe(&returns) == 0);
}

static int faults_once(struct np_probe *probe, struct np_regs *regs, int signal)
{
	(void)probe;
	(void)regs;
	CHECK(signal == SIGSEGV);
	counted++;
	return 1;
}

static void a_handler_that_is_no_function(void)
{
	struct np_probe probe = at((void *)foo);
	probe.pre_handler = (np_pre_handler)16;
	probe.fault_handler = faults_once;
	CHECK(np_register_probe(&probe) == 0);
	for (uint64_t round = 0; round < 100; round++)
		CHECK(foo(round) == round * 3 + 1);
	CHECK(counted == 100 && np_unregister_probe(&probe) == 0 && foo(1) == 4);
}

/* The address of a registered structure identifies its probe. The library does not read the structure any more. */
static void a_structure_that_is_overwritten(void)
{
	struct np_probe probe = at((void *)foo);
	CHECK(np_register_probe(&probe) == 0);
	memset(&probe, 0xff, sizeof(probe));
	CHECK(foo(1) == 4 && counted == 1 && np_probe_hits(&probe) == 1);
	CHECK(np_disable_probe(&probe) == 0 && foo(1) == 4 && counted == 1 && np_enable_probe(&probe) == 0);
	CHECK(np_register_probe(&probe) < 0);
	CHECK(np_unregister_probe(&probe) == 0 && np_unregister_probe(&probe) == NP_ERROR_NOT_REGISTERED);
	CHECK(foo(1) == 4 && counted == 1);
}

/* A structure is registered as one kind of probe, and then used as another kind. */
static void a_structure_of_another_kind(void)
{
	struct np_retprobe returns = { { NP_SIZE(struct np_retprobe), .addr = (void *)foo } };
	struct np_probe probe = at((void *)foo);
	CHECK(np_register_retprobe(&returns) == 0 && np_register_probe(&probe) == 0);
	CHECK(np_unregister_probe(&returns.probe) == NP_ERROR_ARGUMENT);
	CHECK(np_unregister_probe_async(&returns.probe, NULL) == NP_ERROR_ARGUMENT);
	CHECK(np_register_probe(&returns.probe) == NP_ERROR_REGISTERED);
	CHECK(np_unregister_retprobe((struct np_retprobe *)&probe) == NP_ERROR_NOT_REGISTERED);
	CHECK(np_unregister_watchpoint((struct np_watchpoint *)&probe) == NP_ERROR_NOT_REGISTERED);
	CHECK(foo(1) == 4 && np_probe_hits(&probe) == 1 && np_probe_hits(&returns.probe) == 1);
	CHECK(np_unregister_retprobe(&returns) == 0 && np_unregister_probe(&probe) == 0);
}

enum { MANY = 1000 };

/* If one probe of a batch is wrong, no probe of the batch stays registered. */
static void a_batch_with_an_error_in_it(void)
{
	static struct np_probe probes[MANY];
	static struct np_probe *list[MANY];
	unsigned char text[16], now[16];
	void *const functions[] = { (void *)foo, (void *)bar, (void *)baz };
	memcpy(text, (void *)foo, sizeof(text));
	for (int error = 0; error < 4; error++) {
		for (int index = 0; index < MANY; index++) {
			probes[index] = at(functions[index % 3]);
			list[index] = &probes[index];
		}
		int expected = 0;
		switch (error) {
		case 0:
			probes[MANY / 2].addr = (char *)foo + 1;
			probes[MANY / 2].offset = (size_t)1 << 40;
			expected = NP_ERROR_NOT_CODE;
			break;
		case 1:
			probes[MANY / 2].addr = NULL;
			probes[MANY / 2].symbol = "np_no_such_function";
			expected = NP_ERROR_SYMBOL;
			break;
		case 2:
			list[MANY / 2] = &probes[3];
			expected = NP_ERROR_REGISTERED;
			break;
		case 3:
			probes[MANY - 1].size = 1;
			expected = NP_ERROR_ARGUMENT;
			break;
		}
		CHECK(np_register_probes(list, MANY) == expected);
		memcpy(now, (void *)foo, sizeof(now));
		CHECK(memcmp(now, text, sizeof(now)) == 0);
		CHECK(foo(1) == 4 && bar(1) == 7 && baz(1) == 10 && counted == 0);
		for (int index = 0; index < MANY; index++)
			CHECK(np_unregister_probe(&probes[index]) == NP_ERROR_NOT_REGISTERED);
	}
	/* Unregisters all probes, and then a batch in which one probe is not registered. */
	for (int index = 0; index < MANY; index++) {
		probes[index] = at(functions[index % 3]);
		list[index] = &probes[index];
	}
	CHECK(np_register_probes(list, MANY) == 0 && foo(1) == 4 && counted == (MANY + 2) / 3);
	CHECK(np_unregister_probe(list[7]) == 0 && np_unregister_probes(list, MANY) == NP_ERROR_NOT_REGISTERED);
	CHECK(foo(1) == 4 && np_probe_hits(list[0]) == 2);
	list[7] = list[MANY - 1];
	CHECK(np_unregister_probes(list, MANY - 1) == 0 && foo(1) == 4 && np_probe_hits(list[0]) == 2);
	CHECK(counted == 2 * ((MANY + 2) / 3));
}

/* A list to unregister names one probe twice. */
static void a_batch_that_names_one_twice(void)
{
	struct np_probe probe = at((void *)foo), other = at((void *)bar), *list[] = { &probe, &other, &probe };
	CHECK(np_register_probe(&probe) == 0 && np_register_probe(&other) == 0);
	CHECK(np_unregister_probes(list, 3) == NP_ERROR_NOT_REGISTERED && foo(1) == 4 && counted == 1);
	CHECK(np_unregister_probes(list, 2) == 0);
	counted = 0;
	CHECK(foo(1) == 4 && bar(1) == 7 && counted == 0 && np_unregister_probe(&probe) == NP_ERROR_NOT_REGISTERED);
	/* Other probes are registered in place of the freed ones, and have their own counts. */
	struct np_probe again[4] = { at((void *)foo), at((void *)foo), at((void *)bar), at((void *)bar) };
	for (int index = 0; index < 4; index++)
		CHECK(np_register_probe(&again[index]) == 0);
	for (int round = 0; round < 10; round++)
		CHECK(foo(1) == 4);
	CHECK(np_probe_hits(&again[0]) == 10 && np_probe_hits(&again[1]) == 10);
	CHECK(np_probe_hits(&again[2]) == 0 && np_probe_hits(&again[3]) == 0);
	for (int index = 0; index < 4; index++)
		CHECK(np_unregister_probe(&again[index]) == 0);
}

/* ---- odd places ---- */

/* Tries to register a probe. If the probe is accepted, calls `use`, which must hit the probe at least `least`
   times. */
static int stands(struct np_probe probe, void (*use)(void), uint64_t least)
{
	probe.pre_handler = counts;
	probe.flags = flags;
	counted = 0;
	int error = np_register_probe(&probe);
	use();
	if (error)
		return error;
	uint64_t hits = np_probe_hits(&probe);
	CHECK(hits >= least && hits == counted && np_unregister_probe(&probe) == 0);
	use();
	CHECK(counted == hits);
	return 0;
}

static void none(void)
{
	CHECK(foo(1) == 4);
}

static char printed[64];

static void prints(void)
{
	for (int round = 0; round < 10; round++)
		CHECK(snprintf(printed, sizeof(printed), "%d", round) == 1);
}

static void tells_time(void)
{
	struct timespec before, after;
	CHECK(clock_gettime(CLOCK_MONOTONIC, &before) == 0);
	for (int round = 0; round < 10; round++)
		CHECK(clock_gettime(CLOCK_MONOTONIC, &after) == 0);
	CHECK(after.tv_sec >= before.tv_sec && after.tv_sec - before.tv_sec < 1000);
}

#define NAMED(name) ((struct np_probe){ NP_SIZE(struct np_probe), .symbol = name })
#define PLACED(address, by) ((struct np_probe){ NP_SIZE(struct np_probe), .addr = (void *)(address), .offset = by })

static void odd_places(void)
{
	void *stub;
	__asm__("leaq snprintf@PLT(%%rip), %0" : "=r"(stub));
	int error = stands(PLACED(stub, 0), prints, stub == (void *)snprintf ? 0 : 10);
	CHECK(error == 0 || error == NP_ERROR_NOT_CODE);
	error = stands(NAMED("[vdso]:__vdso_clock_gettime"), tells_time, 10);
	CHECK(error == 0 || error == NP_ERROR_SYMBOL);
	for (int index = 0; index < 4; index++) {
		const char *const names[] = { "_init", "_fini", "_start", "__libc_start_main" };
		error = stands(NAMED(names[index]), none, 0);
		CHECK(error == 0 || error == NP_ERROR_SYMBOL);
	}
	CHECK(stands(NAMED("libnone.so:foo"), none, 0) == NP_ERROR_SYMBOL && stands(NAMED(""), none, 0) == NP_ERROR_ARGUMENT);
	CHECK(stands(NAMED(":foo"), none, 0) == NP_ERROR_SYMBOL && stands(NAMED("foo:"), none, 0) == NP_ERROR_SYMBOL);
	error = stands(PLACED(foo, 100000), none, 0);
	CHECK(error == NP_ERROR_NOT_CODE || error == NP_ERROR_BOUNDARY);
	CHECK(stands(PLACED(foo, (size_t)-1 - (size_t)foo), none, 0) == NP_ERROR_NOT_CODE);
	CHECK(stands(PLACED(&counted, 0), none, 0) == NP_ERROR_NOT_CODE && stands(PLACED(printed, 0), none, 0) == NP_ERROR_NOT_CODE);
	CHECK(stands(PLACED(foo, 0), none, 1) == 0);
}

uint64_t alone(uint64_t value);
__asm__(".text\n.balign 4096\n.globl alone\n.type alone, @function\nalone:\n\tleaq 5(%rdi,%rdi), %rax\n\taddq $1, %rax\n\tret\n"
	".size alone, . - alone\n.balign 4096\n");

/* A page that the program may not read for a while. */
static void a_page_without_rights(void)
{
	struct np_probe probe = at((void *)alone);
	CHECK(alone(1) == 8 && mprotect((void *)alone, 4096, PROT_NONE) == 0);
	int error = np_register_probe(&probe);
	CHECK(mprotect((void *)alone, 4096, PROT_READ | PROT_EXEC) == 0 && alone(1) == 8);
	if (!error)
		CHECK(np_probe_hits(&probe) == 1 && np_unregister_probe(&probe) == 0);
	CHECK(counted == !error && np_register_probe(&probe) == 0 && alone(1) == 8 && np_probe_hits(&probe) == 1);
	/* The probe is removed while the page has no rights. */
	CHECK(mprotect((void *)alone, 4096, PROT_NONE) == 0 && np_unregister_probe(&probe) == 0);
	CHECK(mprotect((void *)alone, 4096, PROT_READ | PROT_EXEC) == 0 && alone(1) == 8 && counted == 1u + !error);
}

static volatile sig_atomic_t ticks;

static void on_tick(int signal)
{
	(void)signal;
	for (uint64_t round = 0; round < 50; round++)
		CHECK(foo(round) == round * 3 + 1);
	ticks++;
}

/* Probes come and go while a signal handler of the same thread is in the middle of the probed function, or of the
 * library. */
static void what_a_signal_handler_executes(void)
{
	signal(SIGALRM, on_tick);
	struct itimerval often = { { 0, 300 }, { 0, 300 } }, never = { { 0, 0 }, { 0, 0 } };
	setitimer(ITIMER_REAL, &often, NULL);
	for (int round = 0; round < 200 || ticks < 20; round++) {
		struct np_probe probe = at((void *)foo);
		CHECK(np_register_probe(&probe) == 0);
		uint64_t before = np_probe_hits(&probe);
		CHECK(foo(1) == 4 && np_probe_hits(&probe) > before);
		CHECK(np_unregister_probe(&probe) == 0);
	}
	setitimer(ITIMER_REAL, &never, NULL);
}

/* ---- odd functions ---- */

static uint64_t (*first)(uint64_t), (*second)(uint64_t);

FUNCTION static uint64_t adds(uint64_t value)
{
	return first(value) + 1000;
}

FUNCTION static uint64_t adds_more(uint64_t value)
{
	return second(value) + 100000;
}

static void hooks_of_hooks(void)
{
	void *nowhere;
	CHECK(np_hook((void *)foo, (void *)adds, (void **)&first) == 0 && foo(1) == 1004);
	/* The replacement may have a hook, too. The code that calls the original function may not. */
	CHECK(np_hook((void *)adds, (void *)adds_more, (void **)&second) == 0 && foo(1) == 101004);
	CHECK(np_hook((void *)first, (void *)bar, &nowhere) == NP_ERROR_FORBIDDEN);
	CHECK(np_hook((void *)foo, (void *)bar, &nowhere) == NP_ERROR_BUSY && foo(2) == 101007);
	CHECK(np_unhook((void *)foo) == 0 && foo(1) == 4 && adds(1) == 101004);
	CHECK(np_unhook((void *)adds) == 0 && adds(1) == 1004 && first(1) == 4 && second(1) == 1004);
	CHECK(np_hook((void *)foo, (void *)foo, &nowhere) == 0 ? foo(1) == 4 && np_unhook((void *)foo) == 0 : foo(1) == 4);
}

__attribute__((noinline, noclone, noipa)) double adds_up(int count, ...)
{
	va_list list;
	double sum = 0;
	va_start(list, count);
	for (int index = 0; index < count; index++)
		sum += index % 2 ? va_arg(list, double) : va_arg(list, int);
	va_end(list);
	return sum;
}

static double mirrored;

static double mirrors(int count, ...)
{
	va_list list;
	va_start(list, count);
	mirrored = 0;
	for (int index = 0; index < count; index++)
		mirrored += index % 2 ? va_arg(list, double) : va_arg(list, int);
	va_end(list);
	np_jprobe_return();
}

static void a_mirror_of_a_variadic_function(void)
{
	/* The mirror uses SIMD registers. */
	struct np_jprobe jumper = { { NP_SIZE(struct np_probe), .addr = (void *)adds_up, .flags = flags & ~NP_PROBE_NO_SIMD },
				    .entry = (void *)mirrors };
	CHECK(np_register_jprobe(&jumper) == 0);
	for (int round = 0; round < 50; round++) {
		double sum = adds_up(12, round, 0.5, 2, 1.5, 3, 2.5, 4, 3.5, 5, 4.5, 6, 5.5);
		CHECK(sum == round + 38.0 && mirrored == sum);
		CHECK(adds_up(20, round, .5, 1, .5, 1, .5, 1, .5, 1, .5, 1, .5, 1, .5, 1, .5, 1, .5, 1, .5) == round + 14.0);
		CHECK(mirrored == round + 14.0);
	}
	CHECK(np_probe_hits(&jumper.probe) == 100 && np_unregister_jprobe(&jumper) == 0);
}

static jmp_buf back;

FUNCTION __attribute__((noreturn)) void never_returns(int value)
{
	OPAQUE;
	longjmp(back, value);
}

FUNCTION uint64_t leaves_by_a_jump(uint64_t value)
{
	OPAQUE;
	if (value % 2)
		return foo(value + 1);
	return value;
}

static uint64_t last;

static int sees(struct np_retprobe_instance *call, struct np_regs *regs)
{
	(void)call;
	last = regs->rax;
	return 0;
}

static void returns_of_functions_that_never_return_or_leave_by_a_jump(void)
{
	struct np_retprobe never = { { NP_SIZE(struct np_retprobe), .addr = (void *)never_returns, .flags = flags }, .handler = sees,
				     .form = NP_RETPROBE_EXITS };
	CHECK(np_register_retprobe(&never) == NP_ERROR_EXITS);
	never.form = NP_RETPROBE_ADDRESS;
	CHECK(np_register_retprobe(&never) == 0);
	volatile int returned = 0;
	for (volatile int round = 1; round <= 50; round++)
		if (setjmp(back) == 0)
			never_returns(round);
		else
			returned++;
	CHECK(returned == 50 && np_probe_hits(&never.probe) == 0 && last == 0 && np_retprobe_nmissed(&never) == 0);
	CHECK(np_unregister_retprobe(&never) == 0);
	struct np_retprobe jumps = { { NP_SIZE(struct np_retprobe), .addr = (void *)leaves_by_a_jump, .flags = flags },
				     .handler = sees, .form = NP_RETPROBE_EXITS };
	int error = np_register_retprobe(&jumps);
	CHECK(error == NP_ERROR_EXITS);
	jumps.form = NP_RETPROBE_ADDRESS;
	struct np_retprobe inner = { { NP_SIZE(struct np_retprobe), .addr = (void *)foo, .flags = flags } };
	CHECK(np_register_retprobe(&jumps) == 0 && np_register_retprobe(&inner) == 0);
	for (uint64_t round = 0; round < 100; round++) {
		uint64_t expected = round % 2 ? (round + 1) * 3 + 1 : round;
		CHECK(leaves_by_a_jump(round) == expected && last == expected);
	}
	CHECK(np_probe_hits(&jumps.probe) == 100 && np_probe_hits(&inner.probe) == 50);
	CHECK(np_retprobe_nmissed(&jumps) == 0 && np_retprobe_nmissed(&inner) == 0);
	CHECK(np_unregister_retprobe(&jumps) == 0 && np_unregister_retprobe(&inner) == 0);
}

static const struct statement statements[] = {
	STATEMENT(pointers_that_are_null),
	STATEMENT(handlers_that_are_null),
	STATEMENT(a_handler_that_is_no_function),
	STATEMENT(a_structure_that_is_overwritten),
	STATEMENT(a_structure_of_another_kind),
	STATEMENT(a_batch_with_an_error_in_it),
	STATEMENT(a_batch_that_names_one_twice),
	STATEMENT(odd_places),
	STATEMENT(a_page_without_rights),
	STATEMENT(what_a_signal_handler_executes),
	STATEMENT(hooks_of_hooks),
	STATEMENT(a_mirror_of_a_variadic_function),
	STATEMENT(returns_of_functions_that_never_return_or_leave_by_a_jump),
};

STATEMENTS(statements)
