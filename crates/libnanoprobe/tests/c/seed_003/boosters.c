/* Section 6: how many exceptions a hit takes; and section 8.1: a child's probes.
 *
 * Exceptions are counted from outside: the code under test runs in a child that is traced, and each
 * SIGTRAP that is about to be delivered to it stops it first.
 */
#define _GNU_SOURCE
#include "check.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

FUNCTION uint64_t plain(uint64_t value)
{
	OPAQUE;
	return value * 3 + 1;
}

enum { CALLS = 100 };

static void call_plain(void)
{
	for (uint64_t value = 0; value < CALLS; value++)
		CHECK(plain(value) == value * 3 + 1);
}

/* How many SIGTRAPs occur while `run` runs in a child process. */
static int exceptions_of(void (*run)(void))
{
	pid_t child = fork();
	if (child == 0) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
			_exit(99);
		raise(SIGSTOP);
		run();
		_exit(0);
	}
	int status, traps = 0, signal = 0;
	CHECK(waitpid(child, &status, 0) == child && WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
	for (;;) {
		CHECK(ptrace(PTRACE_CONT, child, NULL, signal) == 0);
		CHECK(waitpid(child, &status, 0) == child);
		if (!WIFSTOPPED(status))
			break;
		signal = WSTOPSIG(status);
		traps += signal == SIGTRAP;
	}
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	return traps;
}

static uint64_t pre_hits, post_hits;

static int pre(struct np_probe *probe, struct np_regs *regs)
{
	(void)probe;
	(void)regs;
	pre_hits++;
	return 0;
}

static void post(struct np_probe *probe, struct np_regs *regs, unsigned long none)
{
	(void)probe;
	(void)regs;
	post_hits += 1 + none;
}

static void section_6_1_a_hit_without_a_post_handler_takes_one_exception_or_none(void)
{
	struct np_probe probe = { NP_SIZE(struct np_probe), .addr = (void *)plain, .pre_handler = pre, .flags = flags };
	CHECK(np_register_probe(&probe) == 0);
	CHECK(exceptions_of(call_plain) == (flags & NP_PROBE_TRAP ? CALLS : 0));
	CHECK(np_unregister_probe(&probe) == 0);
	CHECK(exceptions_of(call_plain) == 0);
}

static void call_with_post(void)
{
	call_plain();
	CHECK(pre_hits == CALLS && post_hits == CALLS);
}

static void section_6_1_a_post_handler_takes_no_second_exception(void)
{
	struct np_probe probe = { NP_SIZE(struct np_probe), .addr = (void *)plain, .pre_handler = pre, .post_handler = post,
				  .flags = flags };
	CHECK(np_register_probe(&probe) == 0);
	CHECK(exceptions_of(call_with_post) == (flags & NP_PROBE_TRAP ? CALLS : 0));
	CHECK(np_unregister_probe(&probe) == 0);
}

static uint64_t returns;

static int on_return(struct np_retprobe_instance *instance, struct np_regs *regs)
{
	(void)instance;
	(void)regs;
	returns++;
	return 0;
}

static void call_with_returns(void)
{
	call_plain();
	CHECK(returns == CALLS);
}

static void section_6_2_the_return_through_the_trampoline_takes_no_exception(void)
{
	struct np_retprobe probe = { { NP_SIZE(struct np_retprobe), .addr = (void *)plain, .flags = flags },
				     .handler = on_return, .form = NP_RETPROBE_ADDRESS };
	CHECK(np_register_retprobe(&probe) == 0);
	/* Only the entry's breakpoint, if a breakpoint was asked for. */
	CHECK(exceptions_of(call_with_returns) == (flags & NP_PROBE_TRAP ? CALLS : 0));
	CHECK(np_unregister_retprobe(&probe) == 0);
}

/* Instructions that the kernel cannot boost: they refer to the address at which they are executed, or the kernel
   assumes so. */
uint64_t unboostable(uint64_t value);
extern const char unboostable_jump[], unboostable_call[], unboostable_cpuid[], unboostable_relative[];
__asm__(".text\n.globl unboostable\n.type unboostable, @function\n"
	"unboostable:\n\tpushq %rbx\n\txorl %esi, %esi\n"
	"unboostable_jump:\n\tjmp 1f\n\tud2\n1:\n"
	"unboostable_call:\n\tcall unboostable_inner\n\tmovl $0, %eax\n\tmovl $0, %ecx\n"
	"unboostable_cpuid:\n\tcpuid\n\taddq %rbx, %rsi\n"
	"unboostable_relative:\n\taddq unboostable_constant(%rip), %rsi\n"
	"\tleaq (%rdi, %rsi), %rax\n\tpopq %rbx\n\tret\n.size unboostable, . - unboostable\n"
	".type unboostable_inner, @function\nunboostable_inner:\n\taddq $7, %rsi\n\tret\n"
	".size unboostable_inner, . - unboostable_inner\n"
	".section .rodata\nunboostable_constant:\n\t.quad 1000\n.text\n");

static uint64_t expected_of_unboostable;

static void call_unboostable(void)
{
	for (uint64_t value = 0; value < CALLS; value++)
		CHECK(unboostable(value) == value + expected_of_unboostable);
	CHECK(pre_hits == 4 * CALLS);
}

static void section_6_3_instructions_that_cannot_be_boosted_are_executed_as_in_place(void)
{
	expected_of_unboostable = unboostable(0);
	CHECK(expected_of_unboostable > 1007);
	void *const places[] = { (void *)unboostable_jump, (void *)unboostable_call, (void *)unboostable_cpuid,
				 (void *)unboostable_relative };
	struct np_probe probes[4];
	for (int index = 0; index < 4; index++) {
		probes[index] = (struct np_probe){ NP_SIZE(struct np_probe), .addr = places[index], .pre_handler = pre,
						   .flags = flags };
		CHECK(np_register_probe(&probes[index]) == 0);
	}
	int traps = exceptions_of(call_unboostable);
	/* One exception for each breakpoint: no copy is stepped. */
	if (flags & NP_PROBE_TRAP)
		CHECK(traps == 4 * CALLS);
	else
		CHECK(traps <= 4 * CALLS && traps % CALLS == 0);
	for (int index = 0; index < 4; index++)
		CHECK(np_unregister_probe(&probes[index]) == 0);
}

static void section_6_2_the_interface_is_the_same_whether_it_is_boosted(void)
{
	/* Registers, results and counts of one probe as a jump, as a boosted breakpoint, and with a post-handler. */
	for (int with_post = 0; with_post < 2; with_post++) {
		struct np_probe probe = { NP_SIZE(struct np_probe), .addr = (void *)plain, .pre_handler = pre,
					  .flags = flags };
		probe.post_handler = with_post ? post : NULL;
		pre_hits = post_hits = 0;
		CHECK(np_register_probe(&probe) == 0);
		call_plain();
		CHECK(pre_hits == CALLS && post_hits == (with_post ? CALLS : 0) && np_probe_hits(&probe) == CALLS);
		CHECK(np_probe_nmissed(&probe) == 0);
		CHECK(np_disable_probe(&probe) == 0);
		call_plain();
		CHECK(np_enable_probe(&probe) == 0);
		call_plain();
		CHECK(np_probe_hits(&probe) == 2 * CALLS);
		CHECK(np_unregister_probe(&probe) == 0);
	}
}

static void section_8_1_a_child_of_fork_inherits_the_probes(void)
{
	struct np_probe probe = { NP_SIZE(struct np_probe), .addr = (void *)plain, .pre_handler = pre, .flags = flags };
	CHECK(np_register_probe(&probe) == 0);
	pid_t child = fork();
	if (child == 0) {
		call_plain();
		CHECK(pre_hits == CALLS && np_probe_hits(&probe) == CALLS);
		CHECK(np_unregister_probe(&probe) == 0);
		call_plain();
		CHECK(pre_hits == CALLS);
		CHECK(np_register_probe(&probe) == 0);
		call_plain();
		CHECK(pre_hits == 2 * CALLS);
		_exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	/* The child's changes to its probes do not affect the parent's. */
	call_plain();
	CHECK(pre_hits == CALLS);
	CHECK(np_unregister_probe(&probe) == 0);
}

static const struct statement statements[] = {
	STATEMENT(section_6_1_a_hit_without_a_post_handler_takes_one_exception_or_none),
	STATEMENT(section_6_1_a_post_handler_takes_no_second_exception),
	STATEMENT(section_6_2_the_return_through_the_trampoline_takes_no_exception),
	STATEMENT(section_6_2_the_interface_is_the_same_whether_it_is_boosted),
	STATEMENT(section_6_3_instructions_that_cannot_be_boosted_are_executed_as_in_place),
	STATEMENT(section_8_1_a_child_of_fork_inherits_the_probes),
};

STATEMENTS(statements)
