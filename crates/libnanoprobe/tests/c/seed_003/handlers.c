/* Section 3.2: what runs at a hit, and the state that the thread finds after it. */
#define _GNU_SOURCE
#include "check.h"

#include <setjmp.h>
#include <signal.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

static volatile uint64_t cell;
static volatile int pre_hits, post_hits;

/* A function with one instruction that has an effect: it adds rdi to the cell. */
uint64_t adds(uint64_t value, volatile uint64_t *to);
extern const char adds_here[], adds_behind[];
__asm__(".text\n.globl adds\n.type adds, @function\n"
	"adds:\n\tmovl $1, %eax\nadds_here:\n\taddq %rdi, (%rsi)\nadds_behind:\n\taddq $4, %rax\n\tret\n"
	".size adds, . - adds\n");

static int before(struct np_probe *probe, struct np_regs *regs)
{
	CHECK(cell == 10 && regs->rip == (uint64_t)adds_here && probe->addr == adds_here && regs->rax == 1);
	pre_hits++;
	return 0;
}

static void behind(struct np_probe *probe, struct np_regs *regs, unsigned long none)
{
	CHECK(cell == 17 && regs->rip == (uint64_t)adds_behind && probe->addr == adds_here && none == 0);
	post_hits++;
}

static void section_3_2_the_pre_handler_runs_before_the_instruction_and_the_post_handler_behind(void)
{
	struct np_probe probe = { NP_SIZE(struct np_probe), .addr = (void *)adds_here, .pre_handler = before,
				  .post_handler = behind, .flags = flags };
	CHECK(np_register_probe(&probe) == 0);
	for (int round = 1; round <= 10; round++) {
		cell = 10;
		CHECK(adds(7, &cell) == 5 && cell == 17 && pre_hits == round && post_hits == round);
	}
	CHECK(np_unregister_probe(&probe) == 0);
}

static int skips(struct np_probe *probe, struct np_regs *regs)
{
	(void)probe;
	regs->rip = (uint64_t)adds_behind;
	return 1;
}

static void section_3_2_the_pre_handlers_answer_decides_whether_the_instruction_is_executed(void)
{
	struct np_probe probe = { NP_SIZE(struct np_probe), .addr = (void *)adds_here, .pre_handler = skips,
				  .post_handler = behind, .flags = flags };
	CHECK(np_register_probe(&probe) == 0);
	cell = 10;
	CHECK(adds(7, &cell) == 5 && cell == 10 && post_hits == 0);
	CHECK(np_unregister_probe(&probe) == 0);
	CHECK(adds(7, &cell) == 5 && cell == 17);
}

static volatile uint64_t signals, signal_rip;
static sigjmp_buf back;

static void on_signal(int signal, siginfo_t *information, void *context)
{
	(void)signal;
	(void)information;
	signals++;
	signal_rip = (uint64_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
	if (signal == SIGSEGV)
		siglongjmp(back, 1);
}

static void take(int signal)
{
	struct sigaction action = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO };
	CHECK(sigaction(signal, &action, NULL) == 0);
}

void own_breakpoint(void);
extern const char own_breakpoint_behind[];
__asm__(".text\n.globl own_breakpoint\n.type own_breakpoint, @function\n"
	"own_breakpoint:\n\tint3\nown_breakpoint_behind:\n\tret\n.size own_breakpoint, . - own_breakpoint\n");

static int nothing(struct np_probe *probe, struct np_regs *regs)
{
	(void)probe;
	(void)regs;
	return 0;
}

static void section_3_2_a_breakpoint_of_somebody_else_is_handed_on(void)
{
	take(SIGTRAP);
	struct np_probe probe = { NP_SIZE(struct np_probe), .addr = (void *)adds_here, .pre_handler = nothing, .flags = flags };
	CHECK(np_register_probe(&probe) == 0);
	own_breakpoint();
	CHECK(signals == 1 && signal_rip == (uint64_t)own_breakpoint_behind);
	CHECK(adds(7, &cell) == 5 && signals == 1);
	CHECK(np_unregister_probe(&probe) == 0);
	struct np_probe there = { NP_SIZE(struct np_probe), .addr = (void *)own_breakpoint, .pre_handler = nothing,
				  .flags = flags };
	CHECK(np_register_probe(&there) == NP_ERROR_BREAKPOINT);
}

static void section_3_2_without_anybody_else_the_default_handler_takes_over(void)
{
	struct np_probe probe = { NP_SIZE(struct np_probe), .addr = (void *)adds_here, .pre_handler = nothing, .flags = flags };
	CHECK(np_register_probe(&probe) == 0);
	pid_t child = fork();
	if (child == 0) {
		adds(7, &cell);
		own_breakpoint();
		_exit(0);
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGTRAP);
	CHECK(np_unregister_probe(&probe) == 0);
}

/* Calls, a jump, a conditional jump, a load relative to rip. The result shows that each was executed. The callee
 * adds the return address that it finds on the stack. */
uint64_t flows(uint64_t value, uint64_t *return_address);
extern const char flows_call[], flows_returned[], flows_jump[], flows_condition[], flows_load[], flows_lea[], flows_ret[],
	flows_inner_ret[];
__asm__(".text\n.globl flows\n.type flows, @function\n"
	"flows:\n\tsubq $8, %rsp\n\txorl %eax, %eax\n"
	"flows_call:\n\tcall flows_inner\n"
	"flows_returned:\n\tmovq %rdx, (%rsi)\n"
	"flows_jump:\n\tjmp 1f\n\tud2\n"
	"1:\ttestq %rdi, %rdi\n"
	"flows_condition:\n\tjz 2f\n\taddq $16, %rax\n"
	"2:\n"
	"flows_load:\n\taddq flows_constant(%rip), %rax\n"
	"flows_lea:\n\tleaq flows_constant(%rip), %rcx\n\taddq (%rcx), %rax\n\taddq $8, %rsp\n"
	"flows_ret:\n\tret\n.size flows, . - flows\n"
	".type flows_inner, @function\nflows_inner:\n\taddq $1, %rax\n\tmovq (%rsp), %rdx\n"
	"flows_inner_ret:\n\tret\n.size flows_inner, . - flows_inner\n"
	".section .rodata\nflows_constant:\n\t.quad 256\n.text\n");

static void post_nothing(struct np_probe *probe, struct np_regs *regs, unsigned long none)
{
	(void)probe;
	(void)regs;
	(void)none;
	post_hits++;
}

static void flow(int post)
{
	const char *const places[] = { (const char *)flows, flows_call, flows_returned, flows_jump, flows_condition, flows_load,
				       flows_lea,	     flows_ret,	 flows_inner_ret };
	enum { COUNT = sizeof(places) / sizeof(places[0]) };
	static struct np_probe probes[COUNT];
	for (int index = 0; index < COUNT; index++) {
		probes[index] = (struct np_probe){ NP_SIZE(struct np_probe), .addr = (void *)places[index],
						   .pre_handler = nothing, .flags = flags };
		if (post)
			probes[index].post_handler = post_nothing;
		CHECK(np_register_probe(&probes[index]) == 0);
	}
	for (uint64_t value = 0; value < 100; value++) {
		uint64_t return_address = 0;
		CHECK(flows(value & 1, &return_address) == 1 + (value & 1) * 16 + 512);
		CHECK(return_address == (uint64_t)flows_returned);
	}
	for (int index = 0; index < COUNT; index++) {
		CHECK(np_probe_hits(&probes[index]) == 100);
		CHECK(np_unregister_probe(&probes[index]) == 0);
	}
	CHECK(post_hits == (post ? 100 * COUNT : 0));
}

static void section_3_2_instructions_that_depend_on_where_they_are_do_as_in_place(void)
{
	flow(0);
	flow(1);
}

/* Loads `value` into the flags, and yields the flags after a probed instruction that does not change them. */
uint64_t keeps_flags(uint64_t value);
extern const char keeps_flags_here[];
__asm__(".text\n.globl keeps_flags\n.type keeps_flags, @function\n"
	"keeps_flags:\n\tpushq %rdi\n\tpopfq\n"
	"keeps_flags_here:\n\tmovl $5, %ecx\n\tmovl $6, %edx\n\tpushfq\n\tpopq %rax\n\tcld\n\tret\n.size keeps_flags, . - keeps_flags\n");

static void section_3_2_the_flags_are_restored(void)
{
	struct np_probe probe = { NP_SIZE(struct np_probe), .addr = (void *)keeps_flags_here, .pre_handler = nothing,
				  .flags = flags };
	CHECK(np_register_probe(&probe) == 0);
	/* Carry, parity, adjust, zero, sign, direction, overflow: each combination. */
	static const uint64_t bits[] = { 1, 4, 0x10, 0x40, 0x80, 0x400, 0x800 };
	for (int combination = 0; combination < 128; combination++) {
		uint64_t value = 0x202;
		for (int bit = 0; bit < 7; bit++)
			value |= combination & 1 << bit ? bits[bit] : 0;
		CHECK((keeps_flags(value) & 0xfd7) == (value & 0xfd7));
	}
	CHECK(np_probe_hits(&probe) == 128);
	CHECK(np_unregister_probe(&probe) == 0);
}

static volatile uint64_t *volatile nowhere = (volatile uint64_t *)8;
static volatile int asked, deals;

static int reads_nowhere(struct np_probe *probe, struct np_regs *regs)
{
	(void)probe;
	(void)regs;
	pre_hits++;
	return (int)*nowhere;
}

static int on_fault(struct np_probe *probe, struct np_regs *regs, int signal)
{
	(void)regs;
	CHECK(signal == SIGSEGV && probe->addr == adds_here);
	asked++;
	return deals;
}

static void section_3_2_a_fault_of_a_handler_goes_to_the_fault_handler_of_its_probe(void)
{
	deals = 1;
	struct np_probe probe = { NP_SIZE(struct np_probe), .addr = (void *)adds_here, .pre_handler = reads_nowhere,
				  .fault_handler = on_fault, .flags = flags };
	CHECK(np_register_probe(&probe) == 0);
	for (int round = 1; round <= 10; round++) {
		cell = 10;
		CHECK(adds(7, &cell) == 5 && cell == 17 && asked == round && pre_hits == round);
	}
	CHECK(np_unregister_probe(&probe) == 0);
}

static void section_3_2_a_fault_that_nobody_has_dealt_with_is_the_systems(void)
{
	deals = 0;
	struct np_probe probe = { NP_SIZE(struct np_probe), .addr = (void *)adds_here, .pre_handler = reads_nowhere,
				  .fault_handler = on_fault, .flags = flags };
	struct np_probe without = { NP_SIZE(struct np_probe), .addr = (void *)adds, .pre_handler = reads_nowhere,
				    .flags = flags };
	for (int round = 0; round < 2; round++) {
		struct np_probe *one = round ? &without : &probe;
		CHECK(np_register_probe(one) == 0);
		pid_t child = fork();
		if (child == 0) {
			adds(7, &cell);
			_exit(0);
		}
		int status;
		CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
		CHECK(np_unregister_probe(one) == 0);
	}
}

static int makes_it_fault(struct np_probe *probe, struct np_regs *regs)
{
	(void)probe;
	regs->rsi = 8;
	return 0;
}

static int rectifies(struct np_probe *probe, struct np_regs *regs, int signal)
{
	(void)probe;
	CHECK(signal == SIGSEGV && regs->rip == (uint64_t)adds_here && regs->rsi == 8);
	asked++;
	regs->rsi = (uint64_t)&cell;
	return 1;
}

static void section_3_2_a_fault_that_was_induced_is_rectified(void)
{
	struct np_probe probe = { NP_SIZE(struct np_probe), .addr = (void *)adds_here, .pre_handler = makes_it_fault,
				  .fault_handler = rectifies, .flags = flags };
	CHECK(np_register_probe(&probe) == 0);
	cell = 10;
	CHECK(adds(7, &cell) == 5 && cell == 17 && asked == 1);
	CHECK(np_unregister_probe(&probe) == 0);
}

static void section_3_2_a_fault_of_the_instruction_that_nobody_rectifies_is_the_programs(void)
{
	take(SIGSEGV);
	deals = 0;
	struct np_probe probe = { NP_SIZE(struct np_probe), .addr = (void *)adds_here, .pre_handler = nothing,
				  .fault_handler = on_fault, .flags = flags };
	CHECK(np_register_probe(&probe) == 0);
	if (!sigsetjmp(back, 1))
		adds(7, (volatile uint64_t *)8);
	CHECK(signals == 1 && asked == 1 && signal_rip == (uint64_t)adds_here);
	CHECK(np_unregister_probe(&probe) == 0);
}

static const struct statement statements[] = {
	STATEMENT(section_3_2_the_pre_handler_runs_before_the_instruction_and_the_post_handler_behind),
	STATEMENT(section_3_2_the_pre_handlers_answer_decides_whether_the_instruction_is_executed),
	STATEMENT(section_3_2_a_breakpoint_of_somebody_else_is_handed_on),
	STATEMENT(section_3_2_without_anybody_else_the_default_handler_takes_over),
	STATEMENT(section_3_2_instructions_that_depend_on_where_they_are_do_as_in_place),
	STATEMENT(section_3_2_the_flags_are_restored),
	STATEMENT(section_3_2_a_fault_of_a_handler_goes_to_the_fault_handler_of_its_probe),
	STATEMENT(section_3_2_a_fault_that_nobody_has_dealt_with_is_the_systems),
	STATEMENT(section_3_2_a_fault_that_was_induced_is_rectified),
	STATEMENT(section_3_2_a_fault_of_the_instruction_that_nobody_rectifies_is_the_programs),
};

STATEMENTS(statements)
