/* Signals around and inside probed functions.
 * signals MODE [amount]
 * timers    timers interrupt a thread inside probed functions; handlers on an alternate stack call probed functions
 * blocked   probed functions called while every signal, SIGTRAP too, is blocked, ignored, or masked by a handler
 * own-segv  the program's SIGSEGV and SIGFPE handlers see its own faults where they happened
 * own-trap  the program's SIGTRAP handler gets the program's own int3 and raise(SIGTRAP), and nothing else
 * small     handlers on the smallest alternate stack that the program itself survives on: room for one signal frame of
 *           this machine's (AT_MINSIGSTKSZ) and 1 KiB, or for as many frames as a third argument says */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>
#include "check.h"

static long worked_calls, handled_calls;

PROBED uint64_t worked(uint64_t value)
{
	return (value ^ value >> 29) * 0xbf58476d1ce4e5b9UL;
}

PROBED uint64_t handled(uint64_t value)
{
	return value + 17;
}

static uint64_t unprobed_work(uint64_t value)
{
	return (value ^ value >> 29) * 0xbf58476d1ce4e5b9UL;
}

static void report(void)
{
	printf("worked %ld\nhandled %ld\n", worked_calls, handled_calls);
}

static void install(int signal, void (*action)(int, siginfo_t *, void *), int flags, int mask_all)
{
	struct sigaction sa = {.sa_sigaction = action, .sa_flags = SA_SIGINFO | flags};
	if (mask_all)
		sigfillset(&sa.sa_mask);
	CHECK(sigaction(signal, &sa, NULL) == 0);
}

static void use_alternate_stack(size_t bytes)
{
	/* Below the stack lies a page without rights, so an overflow is a fault and does not go unnoticed. */
	size_t page = 4096, rounded = (bytes + page - 1) & ~(page - 1);
	char *memory = mmap(NULL, rounded + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory != MAP_FAILED);
	CHECK(mprotect(memory, page, PROT_NONE) == 0);
	/* The stack begins where the guard ends, so exactly `bytes` bytes are above the guard. */
	stack_t stack = {.ss_sp = memory + page, .ss_size = bytes};
	CHECK(sigaltstack(&stack, NULL) == 0);
}

/* ---- timers, small */

static void on_timer(int signal, siginfo_t *information, void *context)
{
	(void)signal, (void)information, (void)context;
	int saved = errno;
	CHECK(handled(25) == 42);
	CHECK(handled(0) == 17);
	__atomic_fetch_add(&handled_calls, 2, __ATOMIC_RELAXED);
	errno = saved;
}

static void *interrupted(void *signals_wanted)
{
	use_alternate_stack(256 * 1024);
	uint64_t value = 1, right = 1;
	long calls = 0;
	while (__atomic_load_n(&handled_calls, __ATOMIC_RELAXED) < (long)signals_wanted * 2) {
		errno = 4711;
		for (int i = 0; i < 1000; i++)
			value = worked(value);
		CHECK(errno == 4711);
		for (int i = 0; i < 1000; i++)
			right = unprobed_work(right);
		CHECK(value == right);
		calls += 1000;
	}
	__atomic_fetch_add(&worked_calls, calls, __ATOMIC_RELAXED);
	return NULL;
}

static void timers(long signals)
{
	install(SIGALRM, on_timer, SA_ONSTACK | SA_RESTART, 0);
	install(SIGPROF, on_timer, SA_ONSTACK | SA_RESTART | SA_NODEFER, 0);
	struct itimerval often = {{0, 211}, {0, 211}}, processor = {{0, 1000}, {0, 1000}};
	CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
	CHECK(setitimer(ITIMER_PROF, &processor, NULL) == 0);
	pthread_t threads[3];
	for (int i = 0; i < 3; i++)
		CHECK(pthread_create(&threads[i], NULL, interrupted, (void *)signals) == 0);
	use_alternate_stack(256 * 1024);
	interrupted((void *)signals);
	for (int i = 0; i < 3; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	struct itimerval never = {{0, 0}, {0, 0}};
	CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
	CHECK(setitimer(ITIMER_PROF, &never, NULL) == 0);
	/* Pending signals are delivered before these return. */
	sched_yield();
	signal(SIGALRM, SIG_IGN);
	signal(SIGPROF, SIG_IGN);
}

static void small(long signals, long frames)
{
	use_alternate_stack(getauxval(AT_MINSIGSTKSZ) * (size_t)frames + 1024);
	/* The functions that the handler calls are bound now: on some machines, the dynamic linker would not fit into this
	 * KiB. */
	errno = 0;
	install(SIGUSR1, on_timer, SA_ONSTACK, 1);
	for (long i = 0; i < signals; i++)
		CHECK(raise(SIGUSR1) == 0);
	CHECK(handled_calls == signals * 2);
}

/* ---- blocked */

static void on_masked(int signal, siginfo_t *information, void *context)
{
	(void)signal, (void)information, (void)context;
	CHECK(handled(25) == 42);
	handled_calls++;
}

static void blocked(long calls)
{
	sigset_t all, before, now;
	sigfillset(&all);
	CHECK(pthread_sigmask(SIG_BLOCK, &all, &before) == 0);
	uint64_t value = 1, right = 1;
	for (long i = 0; i < calls; i++)
		value = worked(value), right = unprobed_work(right);
	CHECK(value == right);
	worked_calls += calls;
	/* The program must see the mask that it has set. */
	CHECK(pthread_sigmask(SIG_SETMASK, NULL, &now) == 0);
	CHECK(sigismember(&now, SIGTRAP) == 1 && sigismember(&now, SIGSEGV) == 1 && sigismember(&now, SIGUSR1) == 1);
	CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);

	/* Ignored. */
	CHECK(signal(SIGTRAP, SIG_IGN) != SIG_ERR);
	for (long i = 0; i < calls; i++)
		value = worked(value), right = unprobed_work(right);
	CHECK(value == right);
	worked_calls += calls;
	CHECK(signal(SIGTRAP, SIG_DFL) == SIG_IGN);
	for (long i = 0; i < calls; i++)
		value = worked(value), right = unprobed_work(right);
	CHECK(value == right);
	worked_calls += calls;

	/* In a handler whose mask is full. */
	install(SIGUSR2, on_masked, 0, 1);
	for (long i = 0; i < 100; i++)
		CHECK(raise(SIGUSR2) == 0);
	CHECK(handled_calls == 100);
}

/* ---- own-segv */

static sigjmp_buf escape;
static uint64_t fault_address;
static volatile long faults;
static volatile int longjmps;
extern char faulting_load[], faulting_load_at[], faulting_divide[], faulting_divide_at[], faulting_end[];

/* The faulting instructions are the functions' first, so a patch displaces them. */
__asm__(".text\n.p2align 4\n.globl faulting_load\n.type faulting_load, @function\n"
        "faulting_load:\nfaulting_load_at:\n"
        "	movl (%rdi), %eax\n	addl $1, %eax\n	nop\n	ret\n"
        ".size faulting_load, . - faulting_load\n.p2align 4\n"
        ".globl faulting_divide\n.type faulting_divide, @function\n"
        "faulting_divide:\n	movl %edi, %eax\n	cltd\n"
        "faulting_divide_at:\n	idivl %esi\n	ret\n"
        ".size faulting_divide, . - faulting_divide\nfaulting_end:\n");

int faulting_load_call(const int *) __asm__("faulting_load");
int faulting_divide_call(int, int) __asm__("faulting_divide");

static void on_fault(int signal, siginfo_t *information, void *context)
{
	ucontext_t *machine = context;
	uint64_t rip = (uint64_t)machine->uc_mcontext.gregs[REG_RIP];
	faults++;
	if (signal == SIGSEGV) {
		CHECK((uint64_t)information->si_addr == fault_address);
		CHECK(rip == (uint64_t)faulting_load_at);
	} else {
		CHECK(rip == (uint64_t)faulting_divide_at);
	}
	if (longjmps)
		siglongjmp(escape, 1);
	/* Continues at the function's return with a value of ours. The stack is as at the entry in both functions. */
	uint64_t *stack = (uint64_t *)machine->uc_mcontext.gregs[REG_RSP];
	machine->uc_mcontext.gregs[REG_RAX] = 99;
	machine->uc_mcontext.gregs[REG_RIP] = (long long)stack[0];
	machine->uc_mcontext.gregs[REG_RSP] += 8;
}

static void own_segv(long amount)
{
	install(SIGSEGV, on_fault, 0, 0);
	install(SIGFPE, on_fault, 0, 0);
	int good = 41;
	long wanted = 0;
	for (long i = 0; i < amount; i++) {
		longjmps = i % 2;
		CHECK(faulting_load_call(&good) == 42);
		CHECK(faulting_divide_call(84, 2) == 42);
		fault_address = 8 + (uint64_t)(i % 7) * 4;
		if (sigsetjmp(escape, 1) == 0)
			CHECK(faulting_load_call((int *)fault_address) == 99);
		if (sigsetjmp(escape, 1) == 0)
			CHECK(faulting_divide_call(84, 0) == 99);
		wanted += 2;
	}
	CHECK(faults == wanted);
	struct sigaction now;
	CHECK(sigaction(SIGSEGV, NULL, &now) == 0 && now.sa_sigaction == on_fault);
	printf("faults %ld\nloads %ld\n", wanted, amount * 2);
}

/* ---- own-trap */

static volatile long raised, breakpoints;

static void on_trap(int signal, siginfo_t *information, void *context)
{
	(void)signal, (void)context;
	if (information->si_code == SI_TKILL || information->si_code == SI_USER)
		raised++;
	else
		breakpoints++;
}

static void own_trap(long amount)
{
	install(SIGTRAP, on_trap, 0, 0);
	uint64_t value = 1, right = 1;
	for (long i = 0; i < amount; i++) {
		CHECK(raise(SIGTRAP) == 0);
		__asm__ volatile("int3");
		value = worked(value), right = unprobed_work(right);
	}
	worked_calls += amount;
	CHECK(value == right);
	CHECK(raised == amount && breakpoints == amount);
	struct sigaction now;
	CHECK(sigaction(SIGTRAP, NULL, &now) == 0 && now.sa_sigaction == on_trap);
}

int main(int argc, char **argv)
{
	begin(&argc, argv);
	const char *mode = argc > 1 ? argv[1] : "timers";
	if (strcmp(mode, "timers") == 0)
		timers(number(argc, argv, 2, 2000));
	else if (strcmp(mode, "small") == 0)
		small(number(argc, argv, 2, 1000), number(argc, argv, 3, 1));
	else if (strcmp(mode, "blocked") == 0)
		blocked(number(argc, argv, 2, 10000));
	else if (strcmp(mode, "own-segv") == 0)
		own_segv(number(argc, argv, 2, 500));
	else if (strcmp(mode, "own-trap") == 0)
		own_trap(number(argc, argv, 2, 500));
	else
		CHECK(!"a mode");
	report();
	return finish(MIX_START);
}
