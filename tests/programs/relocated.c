/* Instructions that can notice their own address, each in its own function, probed at every instruction.
 *
 *     relocated [rounds]
 *
 * Faults are handled as in a virtual machine: the handler knows each instruction that may fault, by its address, and
 * continues at the place that belongs to the instruction. System calls are interrupted, restarted, and return in a
 * child. */
#include <cpuid.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include "check.h"

/* clang-format off */
#define FUNCTION(name) ".p2align 4\n.globl " name "\n.type " name ", @function\n" name ":\n"
#define END(name) ".size " name ", . - " name "\n"
__asm__(".text\n"
	/* loads *pointer; yields -1 if that is unreadable */
	FUNCTION("moved_load") " xorl %eax, %eax\n"
	".globl load_may_fault\nload_may_fault: movq (%rdi), %rax\n ret\n"
	".globl load_recovers\nload_recovers: movq $-1, %rax\n ret\n" END("moved_load")
	/* (*pointer)(); the stack pointer at the call is kept in rsi */
	FUNCTION("moved_call") " pushq %rbx\n movq %rsp, %rsi\n"
	".globl call_may_fault\ncall_may_fault: callq *(%rdi)\n"
	" popq %rbx\n ret\n"
	".globl call_recovers\ncall_recovers: movq $-1, %rax\n popq %rbx\n ret\n" END("moved_call")
	/* calls pointer(), which may be an invalid address */
	FUNCTION("moved_call_register") " pushq %rbx\n movq %rsp, %rsi\n"
	".globl register_may_fault\nregister_may_fault: callq *%rdi\n"
	" popq %rbx\n ret\n"
	".globl register_recovers\nregister_recovers: movq $-1, %rax\n popq %rbx\n ret\n" END("moved_call_register")
	FUNCTION("seven") " movl $7, %eax\n ret\n" END("seven")
	/* dividend / divisor */
	FUNCTION("moved_divide") " movq %rdi, %rax\n xorl %edx, %edx\n"
	".globl divide_may_fault\ndivide_may_fault: divq %rsi\n ret\n"
	".globl divide_recovers\ndivide_recovers: movq $-1, %rax\n ret\n" END("moved_divide")
	/* A system call of three arguments; rcx afterwards shows the address after it. */
	FUNCTION("moved_syscall") " movq %rdi, %rax\n movq %rsi, %rdi\n movq %rdx, %rsi\n movq %rcx, %rdx\n"
	" syscall\n"
	".globl behind_syscall\nbehind_syscall: leaq behind_syscall(%rip), %rdx\n cmpq %rdx, %rcx\n jne 1f\n ret\n"
	"1: ud2\n" END("moved_syscall")
	/* vfork: the child exits with 7 */
	FUNCTION("moved_vfork") " movl $58, %eax\n syscall\n testl %eax, %eax\n jne 1f\n"
	" movl $60, %eax\n movl $7, %edi\n syscall\n 1: ret\n" END("moved_vfork")
	/* clone on the stack rsi, in this memory: the child adds to *rdi and exits */
	FUNCTION("moved_clone") " movq %rdi, %r8\n movl $56, %eax\n movl $0x111, %edi\n xorl %edx, %edx\n xorl %r10d, %r10d\n"
	" syscall\n testq %rax, %rax\n jne 1f\n"
	" incq (%r8)\n popq %rdi\n movl $60, %eax\n syscall\n 1: ret\n" END("moved_clone")
	/* getpid by int $0x80; -1 if that faults, because the kernel has no 32-bit system calls */
	FUNCTION("moved_gate") " movl $20, %eax\n"
	".globl gate_may_fault\ngate_may_fault: int $0x80\n ret\n"
	".globl gate_recovers\ngate_recovers: movq $-1, %rax\n ret\n" END("moved_gate")
	FUNCTION("moved_copy") " movq %rdx, %rcx\n rep movsb\n movq %rcx, %rax\n ret\n" END("moved_copy")
	/* The processor's number by rdtscp, over its node */
	FUNCTION("moved_time") " rdtscp\n shlq $32, %rdx\n orq %rdx, %rax\n ret\n" END("moved_time")
	/* All flags that a program may set, but TF and AC, through popf and pushf */
	FUNCTION("moved_flags") " pushq %rdi\n popfq\n pushfq\n popq %rax\n cld\n ret\n" END("moved_flags")
	/* 1: committed; 0: aborted, which may happen at any time */
	FUNCTION("moved_transaction") " movl $-1, %eax\n xbegin 1f\n movq $1, (%rdi)\n xend\n movl $1, %eax\n ret\n"
	"1: xorl %eax, %eax\n ret\n" END("moved_transaction")
	".p2align 6\nones: .fill 16, 4, 1\n"
	FUNCTION("moved_wide") " vmovdqu32 (%rdi), %zmm17\n vpaddd ones(%rip), %zmm17, %zmm17\n"
	" vpaddd ones(%rip){1to16}, %zmm17, %zmm17\n vmovdqu32 %zmm17, (%rdi)\n vzeroupper\n ret\n" END("moved_wide"));
/* clang-format on */

long moved_load(const long *pointer), moved_call(long (**pointer)(void)), moved_call_register(long (*pointer)(void));
long moved_divide(long dividend, long divisor), moved_syscall(long, long, long, long);
long moved_vfork(void), moved_clone(long *counter, void *stack), moved_copy(void *, const void *, size_t);
long moved_flags(long), moved_transaction(long *), moved_gate(void), seven(void);
unsigned long moved_time(void);
void moved_wide(void *);
extern char load_may_fault[], load_recovers[], call_may_fault[], call_recovers[], register_may_fault[];
extern char register_recovers[], divide_may_fault[], divide_recovers[], gate_may_fault[], gate_recovers[];

static volatile long faults, ticks;

/* Each fault must be at its instruction's original address. At calls, nothing may have been pushed yet. */
static void on_fault(int signal, siginfo_t *information, void *context)
{
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
	char *rip = (char *)registers[REG_RIP];
	int at_call = rip == call_may_fault || rip == register_may_fault;
	if (at_call && registers[REG_RSP] != registers[REG_RSI])
		check_failed(__FILE__, __LINE__, "the stack pointer at a call that faults");
	if (rip == load_may_fault && signal == SIGSEGV) {
		registers[REG_RIP] = (greg_t)load_recovers;
	} else if (rip == call_may_fault && signal == SIGSEGV) {
		registers[REG_RIP] = (greg_t)call_recovers;
	} else if (rip == register_may_fault && signal == SIGSEGV) {
		registers[REG_RIP] = (greg_t)register_recovers;
	} else if (rip == divide_may_fault && signal == SIGFPE && information->si_addr == rip) {
		registers[REG_RIP] = (greg_t)divide_recovers;
	} else if (rip == gate_may_fault && signal == SIGSEGV) {
		registers[REG_RIP] = (greg_t)gate_recovers;
	} else {
		check_failed(__FILE__, __LINE__, "a fault at an address that is none of those known");
	}
	faults++;
}

static int pipe_ends[2];

/* After some signals the reader gets its data. */
static void on_tick(int signal)
{
	(void)signal;
	if (++ticks % 5 == 0 && write(pipe_ends[1], "x", 1) != 1)
		check_failed(__FILE__, __LINE__, "write");
}

static void tick_every(long microseconds)
{
	struct itimerval timer = { { 0, microseconds }, { 0, microseconds } };
	CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
}

static void faults_are_reported_where_they_are(long rounds)
{
	long value = 5, (*function)(void) = seven;
	for (long round = 0; round < rounds; round++) {
		CHECK(moved_load(&value) == 5 && moved_load(NULL) == -1);
		CHECK(moved_call(&function) == 7 && moved_call(NULL) == -1);
		/* Not canonical: no address that the processor has. */
		CHECK(moved_call_register(seven) == 7);
		CHECK(moved_call_register((long (*)(void))0x7fff123456789abcUL) == -1);
		CHECK(moved_divide(42, 6) == 7 && moved_divide(42, 0) == -1);
	}
	CHECK(faults == 4 * rounds);
	printf("faults %ld\n", faults);
}

static void system_calls_come_back(long rounds)
{
	char byte;
	CHECK(pipe(pipe_ends) == 0);
	for (long round = 0; round < rounds; round++) {
		CHECK(moved_syscall(SYS_getpid, 0, 0, 0) == getpid());
		CHECK(moved_syscall(SYS_read, -1, 0, 0) == -EBADF);
	}
	/* The read is interrupted and restarted until the handler itself writes. */
	tick_every(1000);
	for (int round = 0; round < 20; round++)
		CHECK(moved_syscall(SYS_read, pipe_ends[0], (long)&byte, 1) == 1 && byte == 'x');
	tick_every(0);
	CHECK(ticks >= 100);
}

static void children_come_back(void)
{
	static long counter;
	char *stack = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int status;
	CHECK(stack != MAP_FAILED);
	for (int round = 0; round < 20; round++) {
		long child = moved_syscall(SYS_fork, 0, 0, 0);
		if (child == 0)
			_exit(3);
		CHECK(waitpid((pid_t)child, &status, 0) == child && WEXITSTATUS(status) == 3);
		child = moved_vfork();
		CHECK(child > 0 && waitpid((pid_t)child, &status, 0) == child && WEXITSTATUS(status) == 7);
		*(long *)(stack + 65528) = 9;
		child = moved_clone(&counter, stack + 65528);
		CHECK(child > 0 && waitpid((pid_t)child, &status, 0) == child && WEXITSTATUS(status) == 9);
		CHECK(counter == round + 1);
	}
}

static void copies_go_on_after_signals(void)
{
	enum { BYTES = 1 << 20 };
	static unsigned char from[BYTES], to[BYTES];
	for (int index = 0; index < BYTES; index++)
		from[index] = (unsigned char)(index * 167 >> 5);
	tick_every(300);
	for (int round = 0; round < 50; round++) {
		memset(to, round, BYTES);
		CHECK(moved_copy(to, from, BYTES) == 0 && memcmp(to, from, BYTES) == 0);
	}
	tick_every(0);
}

static void the_rest(long rounds)
{
	unsigned eax, ebx = 0, ecx, edx;
	int has_transactions = __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && ebx >> 11 & 1;
	int has_wide = __builtin_cpu_supports("avx512f");
	unsigned values[16] = { 0 };
	unsigned long last = 0;
	long committed, word;
	for (long round = 0; round < rounds; round++) {
		unsigned long now = moved_time();
		CHECK(now > last);
		last = now;
		long flags = (round * 0x9e3779b9 & 0xcd5) | 0x202;
		CHECK(moved_flags(flags) == flags);
		long told = faults, process = moved_gate();
		CHECK(faults == told ? process == getpid() : faults == told + 1 && process == -1);
		word = 0;
		if (has_transactions) {
			committed = moved_transaction(&word);
			CHECK(committed == word);
		}
		if (has_wide) {
			moved_wide(values);
			CHECK(values[0] == 2 * (round + 1) && values[15] == values[0]);
		}
	}
}

int main(int argc, char **argv)
{
	begin(&argc, argv);
	long rounds = number(argc, argv, 1, 200);
	struct sigaction fault = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_RESTART };
	struct sigaction tick = { .sa_handler = on_tick, .sa_flags = SA_RESTART };
	CHECK(sigaction(SIGSEGV, &fault, NULL) == 0 && sigaction(SIGFPE, &fault, NULL) == 0);
	CHECK(sigaction(SIGALRM, &tick, NULL) == 0);
	faults_are_reported_where_they_are(rounds);
	system_calls_come_back(rounds);
	children_come_back();
	copies_go_on_after_signals();
	the_rest(rounds);
	return finish((uint64_t)rounds);
}
