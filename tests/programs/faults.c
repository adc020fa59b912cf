/* Instructions that fault at probed sites, or that the program itself single-steps. */
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include "check.h"

#define SITE(name, code) \
	extern char name[]; \
	__asm__(".text\n.p2align 4\n.globl " #name "\n.type " #name ", @function\n" \
	        #name ":\n" code "\n.size " #name ", . - " #name "\n")
SITE(fault_push, "pushq %rax; ret");
SITE(fault_pop, "popq %rax; ret");
SITE(fault_ret, "ret");
SITE(fault_ret_nowhere, "ret");
SITE(fault_leave, "leave; ret");
SITE(fault_call_memory, "call *(%rdi); ret");
SITE(fault_jump_memory, "jmp *8(%rdi)");
SITE(fault_call_stack, "call *%rdi; ret");
SITE(fault_call_nowhere, "call *%rdi; ret");
SITE(fault_load, "movq (%rdi), %rax; ret");
SITE(stepped,
     "pushq %rbp; movq %rsp, %rbp; subq $16, %rsp; movl $3, %ecx\n"
     "1: leaq 1(%rax,%rdi,2), %rax; subl $1, %ecx; jne 1b\n"
     "call stepped_inner; cmpq $5, %rax; ja 2f; nop\n"
     "2: leave; ret");
SITE(stepped_inner, "endbr64; xorl %edx, %edx; addq $7, %rax; ret");

uint64_t saved_stack, resume_address;
static uint64_t site, base, wanted_stack;
static volatile long told;

static void on_fault(int signal, siginfo_t *information, void *context)
{
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
	uint64_t address = (uint64_t)information->si_addr;
	told++;
	/* If the kernel gives no address, the address is 0. */
	printf("%d %d %ld %ld %ld\n", signal, information->si_code, address ? (long)(address - base) : -1,
	       (long)((uint64_t)registers[REG_RIP] - site), (long)((uint64_t)registers[REG_RSP] - wanted_stack));
	registers[REG_RIP] = (greg_t)resume_address;
	registers[REG_RSP] = (greg_t)saved_stack;
}

/* Jumps to an instruction with this stack pointer; rdi and rbp are `value`. */
__attribute__((noinline)) static void attempt(char *name, uint64_t stack, uint64_t value)
{
	site = (uint64_t)name;
	wanted_stack = stack;
	__asm__ volatile("pushq %%rbp; pushq %%rbx; leaq 1f(%%rip), %%rcx; movq %%rcx, resume_address(%%rip)\n"
	                 "movq %%rsp, saved_stack(%%rip); movq %1, %%rsp; movq %%rdi, %%rbp; jmp *%0\n"
	                 "1: popq %%rbx; popq %%rbp"
	                 :
	                 : "r"(name), "r"(stack), "D"(value)
	                 : "rax", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "memory", "cc");
}

static void faults(long rounds)
{
	static char alternate[65536];
	stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
	sigaltstack(&stack, NULL);
	struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	sigaction(SIGSEGV, &action, NULL);
	sigaction(SIGBUS, &action, NULL);
	char *pages = mmap(NULL, 16 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(pages != MAP_FAILED && mprotect(pages, 4096, PROT_NONE) == 0);
	base = (uint64_t)pages;
	uint64_t good = base + 8 * 4096, nowhere = 0x8000000000001234UL;
	*(uint64_t *)good = nowhere;
	for (long round = 0; round < rounds; round++) {
		attempt(fault_push, base + 4096, 1);
		attempt(fault_pop, base + 64, 1);
		attempt(fault_ret, base + 64, 1);
		attempt(fault_ret_nowhere, good, 1);
		attempt(fault_leave, good, base + 128);
		attempt(fault_call_memory, good, base + 8);
		attempt(fault_jump_memory, good, base + 16);
		attempt(fault_call_stack, base + 4096, good);
		attempt(fault_call_nowhere, good, nowhere);
		attempt(fault_load, good, base + 24);
	}
	CHECK(told == 10 * rounds);
}

static volatile long steps;
static volatile uint64_t trace;

static void on_trap(int signal, siginfo_t *information, void *context)
{
	(void)signal;
	uint64_t rip = (uint64_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
	/* Virtual machines lose the reason of a step now and then; the kernel then calls it a breakpoint. */
	CHECK(information->si_code == TRAP_TRACE || information->si_code == TRAP_BRKPT);
	steps++;
	trace = trace * 31 + (rip - (uint64_t)stepped);
}

static void step(long rounds)
{
	struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
	sigaction(SIGTRAP, &action, NULL);
	for (long round = 0; round < rounds; round++) {
		uint64_t value = (uint64_t)round;
		__asm__ volatile("pushfq; orq $0x100, (%%rsp); popfq; call stepped; pushfq; andq $~0x100, (%%rsp); popfq"
		                 : "+a"(value)
		                 : "D"(round)
		                 : "rcx", "rdx", "memory", "cc");
		printf("%lu\n", (unsigned long)value);
	}
	printf("steps %ld %lx\n", steps, (unsigned long)trace);
}

int main(int argc, char **argv)
{
	CHECK(argc > 2);
	if (strcmp(argv[1], "steps") == 0)
		step(atol(argv[2]));
	else
		faults(atol(argv[2]));
	printf("OK\n");
	return 0;
}
