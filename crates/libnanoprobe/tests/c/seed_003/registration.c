/* Sections 3, 3.1 and 3.3: what a probe is, registering and unregistering it. */
#define _GNU_SOURCE
#include "../kernel.h"
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

FUNCTION uint64_t plain(uint64_t value)
{
	OPAQUE;
	return value * 3 + 1;
}

static _Thread_local int fired;

static int counts(struct np_probe *probe, struct np_regs *regs)
{
	(void)probe;
	(void)regs;
	fired++;
	return 0;
}

static void section_3_the_instruction_is_replaced(void)
{
	unsigned char before[16];
	memcpy(before, (void *)plain, sizeof(before));
	struct np_probe probe = { NP_SIZE(struct np_probe), .addr = (void *)plain, .pre_handler = counts, .flags = flags };
	CHECK(np_register_probe(&probe) == 0);
	unsigned char first = *(volatile unsigned char *)plain;
	CHECK(memcmp(before, (void *)plain, sizeof(before)) != 0);
	if (flags & NP_PROBE_TRAP)
		CHECK(first == 0xcc && np_probe_tactic(&probe) == NP_TACTIC_TRAP);
	else
		CHECK(first == 0xe9 && np_probe_tactic(&probe) <= NP_TACTIC_RUN);
	CHECK(plain(5) == 16 && fired == 1);
	CHECK(np_unregister_probe(&probe) == 0);
}

enum { THREADS = 4, CALLS = 20000 };

static void *calls_plain(void *unused)
{
	for (uint64_t value = 0; value < CALLS; value++)
		CHECK(plain(value) == value * 3 + 1);
	CHECK(fired == CALLS);
	return unused;
}

static void section_3_the_probepoint_is_never_missed_on_many_processors(void)
{
	struct np_probe probe = { NP_SIZE(struct np_probe), .addr = (void *)plain, .pre_handler = counts, .flags = flags };
	CHECK(np_register_probe(&probe) == 0);
	pthread_t threads[THREADS];
	for (int index = 0; index < THREADS; index++)
		CHECK(pthread_create(&threads[index], NULL, calls_plain, NULL) == 0);
	for (int index = 0; index < THREADS; index++)
		pthread_join(threads[index], NULL);
	CHECK(np_probe_hits(&probe) == THREADS * CALLS && np_probe_nmissed(&probe) == 0);
	CHECK(np_unregister_probe(&probe) == 0);
}

static volatile sig_atomic_t signals;

static void on_signal(int signal)
{
	(void)signal;
	signals++;
}

static void section_3_kprobes_is_the_first_to_be_told_of_an_exception(void)
{
	signal(SIGTRAP, on_signal);
	struct np_probe probe = { NP_SIZE(struct np_probe), .addr = (void *)plain, .pre_handler = counts, .flags = flags };
	CHECK(np_register_probe(&probe) == 0);
	for (int round = 0; round < 10; round++)
		CHECK(plain(1) == 4);
	signal(SIGTRAP, on_signal);
	for (int round = 0; round < 10; round++)
		CHECK(plain(1) == 4);
	CHECK(fired == 20 && signals == 0);
	CHECK(np_unregister_probe(&probe) == 0);
}

static void section_3_the_user_must_supply_the_address(void)
{
	struct np_probe probe = { NP_SIZE(struct np_probe), .pre_handler = counts, .flags = flags };
	CHECK(np_register_probe(&probe) == NP_ERROR_ARGUMENT);
	CHECK(np_unregister_probe(&probe) == NP_ERROR_NOT_REGISTERED);
	probe.addr = (void *)plain;
	CHECK(np_register_probe(&probe) == 0 && np_unregister_probe(&probe) == 0);
}

static void section_3_handlers_that_are_not_used_are_null(void)
{
	struct np_probe probe = { NP_SIZE(struct np_probe), .addr = (void *)plain, .flags = flags };
	CHECK(np_register_probe(&probe) == 0);
	for (uint64_t value = 0; value < 100; value++)
		CHECK(plain(value) == value * 3 + 1);
	CHECK(np_probe_hits(&probe) == 100);
	CHECK(np_unregister_probe(&probe) == 0);
}

/* The SIGTRAP handler that the kernel has. (libnanoprobe answers the C library's call with the program's own
 * action.) */
static void *trap_handler(void)
{
	struct {
		void *handler;
		unsigned long action_flags;
		void *restorer;
		uint64_t mask;
	} action;
	long result = kernel_action(SIGTRAP, &action);
	CHECK(result == 0 && action.handler != NULL);
	return action.handler;
}

static void section_3_1_code_of_the_infrastructure_is_refused(void)
{
	struct np_probe first = { NP_SIZE(struct np_probe), .addr = (void *)plain, .pre_handler = counts, .flags = flags };
	CHECK(np_register_probe(&first) == 0);
	void *const infrastructure[] = { (void *)np_register_probe, (void *)np_probe_hits, (void *)np_jprobe_return,
					 trap_handler() };
	for (size_t index = 0; index < sizeof(infrastructure) / sizeof(infrastructure[0]); index++) {
		struct np_probe probe = { NP_SIZE(struct np_probe), .addr = infrastructure[index], .pre_handler = counts,
					  .flags = flags };
		CHECK(np_register_probe(&probe) == NP_ERROR_FORBIDDEN);
	}
	CHECK(plain(1) == 4 && fired == 1);
	CHECK(np_unregister_probe(&first) == 0);
}

/* sysenter: the kernel returns to an address of its own choice. A call with an operand-size prefix has different
 * lengths on Intel's and AMD's processors. Neither is executed. */
uint64_t unsafe(void);
extern const char unsafe_sysenter[], unsafe_call[], unsafe_data[];
__asm__(".text\n.globl unsafe\n.type unsafe, @function\n"
	"unsafe:\n\tmovl $77, %eax\n\ttestl %eax, %eax\n\tjnz 1f\n"
	"unsafe_sysenter:\n\tsysenter\n"
	"unsafe_call:\n\t.byte 0x66, 0xe8, 0, 0, 0, 0\n"
	"1:\tret\n"
	"unsafe_data:\n\t.quad 0x1122334455667788\n"
	".size unsafe, . - unsafe\n");

static void section_3_1_instructions_that_are_unsafe_to_probe_are_refused(void)
{
	const char *const places[] = { unsafe_sysenter, unsafe_call };
	for (int index = 0; index < 2; index++) {
		struct np_probe probe = { NP_SIZE(struct np_probe), .addr = (void *)places[index], .pre_handler = counts,
					  .flags = flags };
		CHECK(np_register_probe(&probe) == NP_ERROR_UNMOVABLE);
		CHECK(np_unregister_probe(&probe) == NP_ERROR_NOT_REGISTERED);
	}
	CHECK(unsafe() == 77);
}

/* A counter whose remainder by 4 says the probe's state: 0: unregistered; 2: registered; odd: changing. */
static uint64_t state;
static int stop;

static void *watches(void *sure)
{
	while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
		uint64_t before = __atomic_load_n(&state, __ATOMIC_ACQUIRE);
		fired = 0;
		CHECK(plain(before) == before * 3 + 1);
		if (__atomic_load_n(&state, __ATOMIC_ACQUIRE) != before || before % 2)
			continue;
		CHECK(fired == (before % 4 == 2));
		__atomic_fetch_add((uint64_t *)sure + before % 4 / 2, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void section_3_1_all_processors_see_the_change(void)
{
	static uint64_t sure[2];
	pthread_t threads[2];
	for (int index = 0; index < 2; index++)
		CHECK(pthread_create(&threads[index], NULL, watches, sure) == 0);
	for (int round = 0; round < 300; round++) {
		struct np_probe probe = { NP_SIZE(struct np_probe), .addr = (void *)plain, .pre_handler = counts,
					  .flags = flags };
		uint64_t seen[2] = { __atomic_load_n(&sure[0], __ATOMIC_RELAXED),
				     __atomic_load_n(&sure[1], __ATOMIC_RELAXED) };
		__atomic_fetch_add(&state, 1, __ATOMIC_RELEASE);
		CHECK(np_register_probe(&probe) == 0);
		__atomic_fetch_add(&state, 1, __ATOMIC_RELEASE);
		while (__atomic_load_n(&sure[1], __ATOMIC_RELAXED) == seen[1])
			usleep(1);
		__atomic_fetch_add(&state, 1, __ATOMIC_RELEASE);
		CHECK(np_unregister_probe(&probe) == 0);
		__atomic_fetch_add(&state, 1, __ATOMIC_RELEASE);
		while (__atomic_load_n(&sure[0], __ATOMIC_RELAXED) == seen[0])
			usleep(1);
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELEASE);
	for (int index = 0; index < 2; index++)
		pthread_join(threads[index], NULL);
}

static void section_3_1_an_address_inside_of_an_instruction_is_refused(void)
{
	struct np_probe probe = { NP_SIZE(struct np_probe), .addr = (void *)unsafe, .offset = 1, .flags = flags };
	CHECK(np_register_probe(&probe) == NP_ERROR_BOUNDARY);
	CHECK(strstr(np_last_error(), "the nearest are") != NULL);
	probe.addr = (void *)unsafe_data;
	probe.offset = 0;
	int error = np_register_probe(&probe);
	CHECK(error == NP_ERROR_NOT_CODE || error == NP_ERROR_BOUNDARY);
}

static void section_3_1_copies_lie_on_pages_of_their_own_that_are_executable(void)
{
	struct np_probe *probe = calloc(1, sizeof(*probe));
	*probe = (struct np_probe){ NP_SIZE(struct np_probe), .addr = (void *)plain, .pre_handler = counts, .flags = flags };
	CHECK(np_register_probe(probe) == 0);
	CHECK(plain(1) == 4 && fired == 1);
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	int executable = 0;
	while (fgets(line, sizeof(line), maps)) {
		CHECK(strstr(line, "rwx") == NULL && strstr(line, "-wx") == NULL);
		executable += strstr(line, "r-xp 00000000 00:00 0") != NULL;
	}
	fclose(maps);
	CHECK(executable >= 1);
	CHECK(np_unregister_probe(probe) == 0);
	free(probe);
}

static void section_3_3_the_original_instruction_is_put_back(void)
{
	unsigned char before[64];
	memcpy(before, (void *)plain, sizeof(before));
	for (int round = 0; round < 20; round++) {
		struct np_probe probe = { NP_SIZE(struct np_probe), .addr = (void *)plain, .pre_handler = counts,
					  .flags = flags };
		CHECK(np_register_probe(&probe) == 0);
		CHECK(memcmp(before, (void *)plain, sizeof(before)) != 0);
		CHECK(np_unregister_probe(&probe) == 0);
		CHECK(memcmp(before, (void *)plain, sizeof(before)) == 0);
	}
}

static void section_3_3_an_unregistered_probe_is_not_found_any_more(void)
{
	struct np_probe probe = { NP_SIZE(struct np_probe), .addr = (void *)plain, .pre_handler = counts, .flags = flags };
	CHECK(np_register_probe(&probe) == 0);
	CHECK(plain(1) == 4 && fired == 1);
	CHECK(np_unregister_probe(&probe) == 0);
	memset(&probe, 0xee, sizeof(probe));
	for (int round = 0; round < 100; round++)
		CHECK(plain(1) == 4);
	CHECK(fired == 1);
	CHECK(np_unregister_probe(&probe) == NP_ERROR_NOT_REGISTERED);
}

static uint64_t mapped_bytes(void)
{
	FILE *statm = fopen("/proc/self/statm", "r");
	uint64_t pages = 0;
	CHECK(fscanf(statm, "%lu", &pages) == 1);
	fclose(statm);
	return pages * 4096;
}

static void section_3_3_the_scratch_area_is_used_again(void)
{
	uint64_t warm = 0;
	for (int round = 0; round < 2000; round++) {
		struct np_probe probe = { NP_SIZE(struct np_probe), .addr = (void *)plain, .pre_handler = counts,
					  .flags = flags };
		CHECK(np_register_probe(&probe) == 0);
		CHECK(np_unregister_probe(&probe) == 0);
		if (round == 200)
			warm = mapped_bytes();
	}
	CHECK(mapped_bytes() == warm);
}

static const struct statement statements[] = {
	STATEMENT(section_3_the_instruction_is_replaced),
	STATEMENT(section_3_the_probepoint_is_never_missed_on_many_processors),
	STATEMENT(section_3_kprobes_is_the_first_to_be_told_of_an_exception),
	STATEMENT(section_3_the_user_must_supply_the_address),
	STATEMENT(section_3_handlers_that_are_not_used_are_null),
	STATEMENT(section_3_1_code_of_the_infrastructure_is_refused),
	STATEMENT(section_3_1_instructions_that_are_unsafe_to_probe_are_refused),
	STATEMENT(section_3_1_all_processors_see_the_change),
	STATEMENT(section_3_1_an_address_inside_of_an_instruction_is_refused),
	STATEMENT(section_3_1_copies_lie_on_pages_of_their_own_that_are_executable),
	STATEMENT(section_3_3_the_original_instruction_is_put_back),
	STATEMENT(section_3_3_an_unregistered_probe_is_not_found_any_more),
	STATEMENT(section_3_3_the_scratch_area_is_used_again),
};

STATEMENTS(statements)
