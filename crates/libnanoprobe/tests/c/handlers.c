/* Post-handlers after branches, calls and returns; fault handlers. argv[1]: flags of all probes. */
#define _GNU_SOURCE
#include <nanoprobe.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

static unsigned flags;

static void fail(const char *what, int error)
{
	fprintf(stderr, "%s: %s: %s\n", what, np_strerror(error), np_last_error());
	exit(1);
}

static void put(struct np_probe *probe)
{
	int error = np_register_probe(probe);
	if (error)
		fail("register", error);
}

/* ---- post-handlers ---- */

/* Every kind of branch, with code around them. Labels are bytes from the start. */
uint64_t branches(uint64_t first, uint64_t second);
extern const char branches_jcc[], branches_jmp[], branches_loop[], branches_call[], branches_call_memory[],
	branches_jmp_register[], branches_ret[], branches_inner[], branches_inner_ret[], branches_else[], branches_behind[],
	branches_end[];
__asm__(".text\n.globl branches\n.type branches, @function\n"
	"branches:\n"
	"	subq $8, %rsp\n"
	"	xorl %eax, %eax\n"
	"	cmpq %rsi, %rdi\n"
	"branches_jcc:\n"
	"	jb branches_else\n"
	"	addq $1, %rax\n"
	"branches_jmp:\n"
	"	jmp branches_behind\n"
	"branches_else:\n"
	"	addq $2, %rax\n"
	"branches_behind:\n"
	"	movl $3, %ecx\n"
	"1:	addq $16, %rax\n"
	"branches_loop:\n"
	"	loop 1b\n"
	"branches_call:\n"
	"	call branches_inner\n"
	"	leaq branches_pointer(%rip), %rdx\n"
	"branches_call_memory:\n"
	"	call *(%rdx)\n"
	"	leaq branches_end(%rip), %r11\n"
	"	testq %r11, %r11\n"
	"	jz branches_end\n"
	"branches_jmp_register:\n"
	"	jmp *%r11\n"
	"	ud2\n"
	"branches_end:\n"
	"	addq $8, %rsp\n"
	"branches_ret:\n"
	"	ret\n"
	".size branches, . - branches\n"
	".type branches_inner, @function\n"
	"branches_inner:\n"
	"	addq $256, %rax\n"
	"branches_inner_ret:\n"
	"	ret $0\n"
	".size branches_inner, . - branches_inner\n"
	".section .data.rel, \"aw\"\nbranches_pointer: .quad branches_inner\n.text\n");

struct post {
	struct np_probe probe;
	const char *name;
	uint64_t rip, rsp_before, rsp, rcx, hits;
};

static int before(struct np_probe *probe, struct np_regs *regs)
{
	struct post *post = probe->user;
	post->rsp_before = regs->rsp;
	if (regs->rip != (uint64_t)probe->addr)
		abort();
	return 0;
}

static void behind(struct np_probe *probe, struct np_regs *regs, unsigned long zero)
{
	struct post *post = probe->user;
	post->rip = regs->rip;
	post->rsp = regs->rsp;
	post->rcx = regs->rcx;
	post->hits += 1 + zero;
}

static void behind_branches(void)
{
	static struct post posts[] = {
		{ .probe = { .addr = (void *)branches_jcc }, .name = "jcc" },
		{ .probe = { .addr = (void *)branches_jmp }, .name = "jmp" },
		{ .probe = { .addr = (void *)branches_loop }, .name = "loop" },
		{ .probe = { .addr = (void *)branches_call }, .name = "call" },
		{ .probe = { .addr = (void *)branches_call_memory }, .name = "call [rdx]" },
		{ .probe = { .addr = (void *)branches_jmp_register }, .name = "jmp r11" },
		{ .probe = { .addr = (void *)branches_ret }, .name = "ret" },
		{ .probe = { .addr = (void *)branches_inner_ret }, .name = "ret 0" },
	};
	enum { COUNT = sizeof(posts) / sizeof(posts[0]) };
	for (int index = 0; index < COUNT; index++) {
		struct np_probe *probe = &posts[index].probe;
		probe->size = sizeof(*probe);
		probe->pre_handler = before;
		probe->post_handler = behind;
		probe->flags = flags;
		probe->user = &posts[index];
		put(probe);
	}
	for (uint64_t round = 0; round < 100; round++) {
		uint64_t result = branches(round & 1, 1);
		if (result != (round & 1 ? 1 : 2) + 48 + 512)
			fail("result", 0);
		/* The branch led to the address that the post-handler saw. */
		const char *expected = round & 1 ? branches_jcc + 2 : branches_else;
		if (posts[0].rip != (uint64_t)expected)
			fail("jcc", 0);
	}
	for (int index = 0; index < COUNT; index++) {
		struct post *post = &posts[index];
		const char *where = post->rip == (uint64_t)branches_inner  ? "inner" :
				    post->rip == (uint64_t)branches_end    ? "end" :
				    post->rip == (uint64_t)branches_behind ? "behind" :
				    post->rip == (uint64_t)branches_loop + 2 ? "out of the loop" :
				    post->rip > (uint64_t)branches_call && post->rip < (uint64_t)branches_end ? "caller" :
				    post->rip < (uint64_t)branches || post->rip > (uint64_t)branches_inner_ret ? "outside" :
														 "?";
		if (index)
			printf("%s: %lu, %s, stack %ld\n", post->name, post->hits, where,
			       (long)(post->rsp - post->rsp_before));
		else
			printf("%s: %lu\n", post->name, post->hits);
		np_unregister_probe(&post->probe);
	}
	if (branches(0, 1) != 562)
		fail("result behind", 0);
}

/* ---- fault handlers ---- */

static struct np_probe *volatile asked[16];
static volatile int signals[16], count_asked, answer = 1;

static int on_fault(struct np_probe *probe, struct np_regs *regs, int signal)
{
	(void)regs;
	if (count_asked < 16) {
		asked[count_asked] = probe;
		signals[count_asked] = signal;
	}
	count_asked++;
	return answer;
}

__attribute__((noinline, noclone)) uint64_t plain(uint64_t value)
{
	__asm__ volatile("" ::: "memory");
	return value * 3 + 1;
}

static volatile uint64_t seven = 7, zero, quotient;
static volatile uint64_t *volatile nowhere = (volatile uint64_t *)8;

static int faults(struct np_probe *probe, struct np_regs *regs)
{
	regs->rbx = regs->rbx;
	switch ((uintptr_t)probe->user) {
	case 0:
		return (int)*nowhere;
	case 1:
		quotient = seven / zero;
		break;
	case 2:
		__asm__ volatile("ud2");
	}
	return 0;
}

static void faults_behind(struct np_probe *probe, struct np_regs *regs, unsigned long unused)
{
	(void)unused;
	faults(probe, regs);
}

static volatile int counted;

static int counts(struct np_probe *probe, struct np_regs *regs)
{
	(void)probe;
	(void)regs;
	counted++;
	return 0;
}

/* Only the fault handler of the probe whose handler has faulted runs. The other probes' handlers run as usual. */
static void in_handlers(void)
{
	static const int expected[] = { SIGSEGV, SIGFPE, SIGILL };
	for (uintptr_t kind = 0; kind < 3; kind++) {
		for (int post = 0; post < 2; post++) {
			struct np_probe bad = { NP_SIZE(struct np_probe), .symbol = "plain", .fault_handler = on_fault,
						.flags = flags, .user = (void *)kind };
			struct np_probe good = { NP_SIZE(struct np_probe), .symbol = "plain", .pre_handler = counts,
						 .fault_handler = on_fault, .flags = flags };
			struct np_probe other = good;
			if (post)
				bad.post_handler = faults_behind;
			else
				bad.pre_handler = faults;
			put(&other);
			put(&bad);
			put(&good);
			count_asked = counted = 0;
			for (uint64_t value = 0; value < 10; value++)
				if (plain(value) != value * 3 + 1)
					fail("value", 0);
			if (count_asked != 10 || counted != 20 || asked[0] != &bad || signals[9] != expected[kind])
				fail("asked", count_asked);
			np_unregister_probe(&bad);
			np_unregister_probe(&good);
			np_unregister_probe(&other);
		}
	}
	printf("faults of handlers: dealt with\n");
}

static int return_faults(struct np_retprobe_instance *instance, struct np_regs *regs)
{
	regs->rax = 5;
	(void)instance;
	return (int)*nowhere;
}

static void mirror(uint64_t value)
{
	*nowhere = value;
	np_jprobe_return();
}

static void in_other_kinds(void)
{
	for (int form = NP_RETPROBE_EXITS; form <= NP_RETPROBE_ADDRESS; form++) {
		for (int at_entry = 0; at_entry < 2; at_entry++) {
			struct np_retprobe probe = { { NP_SIZE(struct np_retprobe), .symbol = "plain",
						       .fault_handler = on_fault, .flags = flags },
						     .maxactive = 1, .form = form };
			*(at_entry ? &probe.entry_handler : &probe.handler) = return_faults;
			int error = np_register_retprobe(&probe);
			if (error)
				fail("retprobe", error);
			count_asked = 0;
			for (uint64_t value = 0; value < 10; value++)
				if (plain(value) != value * 3 + 1)
					fail("value", 0);
			if (count_asked != 10 || np_retprobe_nmissed(&probe) || np_retprobe_abandoned(&probe))
				fail("return probe", count_asked);
			np_unregister_retprobe(&probe);
		}
	}
	struct np_jprobe jumper = { { NP_SIZE(struct np_probe), .symbol = "plain", .fault_handler = on_fault, .flags = flags },
				    (void *)mirror };
	np_register_jprobe(&jumper);
	count_asked = 0;
	for (uint64_t value = 0; value < 10; value++)
		if (plain(value) != value * 3 + 1)
			fail("value", 0);
	printf("faults of other kinds: %d\n", count_asked);
	np_unregister_jprobe(&jumper);
}

/* Loads from rdi; reached by its label. */
uint64_t loads(const uint64_t *from);
extern const char loads_here[], loads_behind[];
__asm__(".text\n.globl loads\n.type loads, @function\nloads:\n\tmovl $1, %eax\nloads_here:\n\tmovq (%rdi), %rax\n"
	"loads_behind:\n\taddq $1, %rax\n\tret\n.size loads, . - loads\n");

static volatile uint64_t good = 41;
static volatile int way;

static int mends(struct np_probe *probe, struct np_regs *regs, int signal)
{
	(void)probe;
	if (signal != SIGSEGV || regs->rip != (uint64_t)loads_here || regs->rax != 1)
		abort();
	count_asked++;
	switch (way) {
	case 0: /* execute the instruction once more, with another address */
		regs->rdi = (uint64_t)&good;
		return 1;
	case 1: /* continue after the instruction */
		regs->rax = 6;
		regs->rip = (uint64_t)loads_behind;
		return 1;
	}
	return 0;
}

static sigjmp_buf back;
static volatile uint64_t seen_rip, seen_address;

static void on_signal(int signal, siginfo_t *information, void *context)
{
	(void)signal;
	seen_rip = (uint64_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
	seen_address = (uint64_t)information->si_addr;
	siglongjmp(back, 1);
}

static void at_instruction(void)
{
	struct np_probe probe = { NP_SIZE(struct np_probe), .addr = (void *)loads_here, .pre_handler = counts,
				  .fault_handler = mends, .flags = flags };
	struct np_probe second = probe;
	put(&probe);
	put(&second);
	counted = count_asked = 0;
	way = 0;
	uint64_t mended = loads((void *)8);
	printf("mended: %lu, %d pre-handlers, %d asked\n", mended, counted, count_asked);
	way = 1;
	mended = loads((void *)8);
	printf("skipped: %lu, %d pre-handlers, %d asked\n", mended, counted, count_asked);
	way = 2;
	if (!sigsetjmp(back, 1))
		loads((void *)8);
	printf("the program's: %d asked, %s, address %lu\n", count_asked, seen_rip == (uint64_t)loads_here ? "there" : "WRONG",
	       seen_address);
	np_unregister_probe(&probe);
	np_unregister_probe(&second);
	printf("without: %lu\n", loads((const uint64_t *)&good));
}

int main(int count, char **arguments)
{
	struct sigaction action = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO };
	sigaction(SIGSEGV, &action, NULL);
	flags = count > 1 ? (unsigned)atoi(arguments[1]) : 0;
	behind_branches();
	in_handlers();
	in_other_kinds();
	at_instruction();
	return 0;
}
