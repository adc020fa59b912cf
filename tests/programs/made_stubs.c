/* System calls of code that the program makes, copies, moves, overwrites and frees.
 *
 *     made_stubs rounds what
 *
 *     what   l  a copy of a function of libc, made before the go
 *            w  stubs in memory that is writable, then executable
 *            r  a stub in memory that is both; with a tracer, it is called when it is patched
 *            t  four threads, in the same two stubs
 *            m  copies of code that has been executed: made, and moved by mremap
 *            c  children by fork, vfork and clone with a stack of their own, and a thread that ends
 *            i  calls that signals interrupt, and sleeps that they restart
 *            b  all signals are blocked by made code, while other made code makes calls
 *            d  a call whose number its code does not show, which blocks all signals; then another one
 *            k  code that is made, called, overwritten and freed all the time, by three threads
 *
 * Prints how often each call was made by made code: getpgid, getsid, getpriority. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include "check.h"

#define PAGE 4096
typedef long (*stub_t)(long, long, long, long, long, long, long);

static long rounds;
static atomic_long getpgids, getsids, priorities;

/* As libc's syscall(): the number is the first argument. The usual test follows. */
static const unsigned char any_call[] = {
	0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x48, 0x89, 0xd6, 0x48, 0x89, 0xca, 0x4d, 0x89, 0xc2, 0x4d, 0x89, 0xc8,
	0x4c, 0x8b, 0x4c, 0x24, 0x08, 0x0f, 0x05, 0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff, 0xc3,
};
#define ANY_CALL 23 /* where its syscall lies */

/* mov $number, %eax; syscall; ret */
static size_t put_stub(unsigned char *at, unsigned number)
{
	unsigned char code[] = { 0xb8, number & 0xff, number >> 8, 0, 0, 0x0f, 0x05, 0xc3 };
	memcpy(at, code, sizeof code);
	return sizeof code;
}

static unsigned char *map(int protection)
{
	unsigned char *page = mmap(NULL, PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(page != MAP_FAILED);
	return page;
}

static unsigned char *executable(const void *code, size_t bytes)
{
	unsigned char *page = map(PROT_READ | PROT_WRITE);
	memcpy(page + 64, code, bytes);
	CHECK(mprotect(page, PAGE, PROT_READ | PROT_EXEC) == 0);
	return page + 64;
}

/* With a tracer: waits until a call in writable code is patched. */
static void wait_until_patched(const unsigned char *call)
{
	for (int look = 0; check_wait && look < 60000 && *(const volatile unsigned char *)call != 0xcc; look++)
		usleep(1000);
}

#define NO_PROCESS (-3L) /* -ESRCH, which getsid(-5) yields */
#define CALL0(code) (((long (*)(void))(code))())

/* Calls the kernel with a known value in every register, and checks what is left of them. */
struct registers {
	unsigned long rax, rbx, rcx, rdx, rsi, rdi, rbp, r8, r9, r10, r11, r12, r13, r14, r15;
};
void with_registers(void *code, struct registers *registers);
__asm__(".text\n.globl with_registers\n.type with_registers, @function\nwith_registers:\n"
	"push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15; push %rsi\n"
	"push %rdi\n" /* the code's address, at (%rsp) */
	"mov 8(%rsi), %rbx; mov 24(%rsi), %rdx; mov 40(%rsi), %rdi; mov 48(%rsi), %rbp; mov 56(%rsi), %r8\n"
	"mov 64(%rsi), %r9; mov 72(%rsi), %r10; mov 88(%rsi), %r12; mov 96(%rsi), %r13; mov 104(%rsi), %r14\n"
	"mov 112(%rsi), %r15; mov 32(%rsi), %rsi\n"
	"movq $0x5a5a5a5a, -24(%rsp)\n" /* the red zone */
	"stc\n"
	"call *(%rsp)\n"
	"mov 8(%rsp), %rax\n" /* the structure; the result is in the code's hands */
	"mov %rbx, 8(%rax); mov %rcx, 16(%rax); mov %rdx, 24(%rax); mov %rsi, 32(%rax); mov %rdi, 40(%rax)\n"
	"mov %rbp, 48(%rax); mov %r8, 56(%rax); mov %r9, 64(%rax); mov %r10, 72(%rax); mov %r11, 80(%rax)\n"
	"mov %r12, 88(%rax); mov %r13, 96(%rax); mov %r14, 104(%rax); mov %r15, 112(%rax)\n"
	"pop %rdi; pop %rsi; pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx\n"
	"ret\n"
	".size with_registers, . - with_registers\n");

static void check_registers(unsigned char *getpgid_stub)
{
	struct registers before, after;
	for (size_t index = 0; index < sizeof before / 8; index++)
		((unsigned long *)&before)[index] = 0x1111111100000000UL * (index + 1) + index;
	before.rdi = 0;
	after = before;
	with_registers(getpgid_stub, &after);
	getpgids++;
	CHECK(after.rbx == before.rbx && after.rdx == before.rdx && after.rsi == before.rsi && after.rdi == 0);
	CHECK(after.rbp == before.rbp && after.r8 == before.r8 && after.r9 == before.r9 && after.r10 == before.r10);
	CHECK(after.r12 == before.r12 && after.r13 == before.r13 && after.r14 == before.r14 && after.r15 == before.r15);
	/* As the kernel leaves them: the address after the call, and the flags, with the carry that was set. */
	CHECK(after.rcx == (unsigned long)getpgid_stub + 7 && (after.r11 & 1));
}

static void written_then_executed(void)
{
	unsigned char code[2 * 8];
	put_stub(code, SYS_getpgid);
	put_stub(code + 8, SYS_getsid);
	unsigned char *made = executable(code, sizeof code);
	stub_t any = (stub_t)executable(any_call, sizeof any_call);
	check_registers(made);
	for (long i = 0; i < rounds; i++) {
		CHECK(((long (*)(long))made)(0) == getpgrp());
		CHECK(((long (*)(long))(made + 8))(-5) == NO_PROCESS);
		CHECK(any(SYS_getpriority, 9, 0, 0, 0, 0, 0) == -22);
	}
	getpgids += rounds;
	getsids += rounds;
	priorities += rounds;
	CHECK(munmap(made - 64, PAGE) == 0);
}

static volatile int traps;

static void on_trap(int signal)
{
	(void)signal;
	traps++;
}

static void writable(void)
{
	unsigned char *page = map(PROT_READ | PROT_WRITE | PROT_EXEC);
	put_stub(page + 32, SYS_getpgid);
	memcpy(page + 64, any_call, sizeof any_call);
	wait_until_patched(page + 37);
	wait_until_patched(page + 64 + ANY_CALL);
	check_registers(page + 32);
	for (long i = 0; i < rounds; i++) {
		CHECK(((long (*)(long))(page + 32))(0) == getpgrp());
		CHECK(((stub_t)(page + 64))(SYS_getsid, -5, 0, 0, 0, 0, 0) == NO_PROCESS);
	}
	getpgids += rounds;
	getsids += rounds;
	/* The program's own breakpoint where the tracer had its byte. */
	struct sigaction action = { .sa_handler = on_trap }, old;
	CHECK(sigaction(SIGTRAP, &action, &old) == 0);
	memcpy(page + 37, "\xcc\xc3", 2);
	CALL0(page + 37);
	CHECK(traps == 1 && sigaction(SIGTRAP, &old, NULL) == 0);
	/* Other code in its place, which is not what the tracer has patched. */
	memset(page + 32, 0xcc, 32);
	page[40] = 0xb8;
	memcpy(page + 41, "\x07\0\0\0\xc3", 5);
	CHECK(CALL0(page + 40) == 7);
}

static unsigned char *shared_stub;

static void *caller(void *unused)
{
	(void)unused;
	for (long i = 0; i < rounds; i++)
		CHECK(((long (*)(long))shared_stub)(-5) == NO_PROCESS);
	return NULL;
}

static void threads(void)
{
	unsigned char code[8];
	pthread_t all[4];
	put_stub(code, SYS_getsid);
	shared_stub = executable(code, sizeof code);
	for (int i = 0; i < 4; i++)
		CHECK(pthread_create(&all[i], NULL, caller, NULL) == 0);
	for (int i = 0; i < 4; i++)
		CHECK(pthread_join(all[i], NULL) == 0);
	getsids += 4 * rounds;
}

static void moved(void)
{
	unsigned char code[8];
	put_stub(code, SYS_getsid);
	unsigned char *made = executable(code, sizeof code);
	CHECK(((long (*)(long))made)(-5) == NO_PROCESS);
	/* With whatever byte is there now. */
	unsigned char *copy = executable(made, sizeof code);
	for (long i = 0; i < rounds; i++)
		CHECK(((long (*)(long))copy)(-5) == NO_PROCESS);
	getsids += 1 + rounds;
	/* Copies that no tracer has seen: their calls count for nothing. */
	unsigned char *place = map(PROT_NONE);
	unsigned char *there = mremap(copy - 64, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place);
	CHECK(there == place && ((long (*)(long))(there + 64))(-5) == NO_PROCESS);
	unsigned char *both = map(PROT_READ | PROT_WRITE | PROT_EXEC);
	memcpy(both, made, sizeof code);
	CHECK(((long (*)(long))both)(-5) == NO_PROCESS);
	printf("uncertain 2\n");
	/* A copy in memory that is not executable, for those who search. It is executed at the end. */
	CHECK(mprotect(both, PAGE, PROT_READ | PROT_WRITE) == 0);
	memcpy(both + 100, made, sizeof code);
	if (check_wait) {
		printf("copied\n");
		wait_for_line();
	}
	CHECK(mprotect(both, PAGE, PROT_READ | PROT_EXEC) == 0);
	CHECK(((long (*)(long))(both + 100))(-5) == NO_PROCESS);
}


static _Alignas(16) long stack[2048];
int clones_ran;

/* The child of clone comes here from the made code, on its own stack, in the same memory. */
void cloned(void);
__asm__(".text\n.globl cloned\n.type cloned, @function\ncloned:\n"
	"lock incl clones_ran(%rip)\n"
	"mov $3, %edi\n"
	"mov $60, %eax\n"
	"syscall\n"
	"hlt\n"
	".size cloned, . - cloned\n");

static void children(void)
{
	stub_t any = (stub_t)executable(any_call, sizeof any_call);
	/* mov $56, %eax; syscall; ret */
	unsigned char code[8];
	put_stub(code, SYS_clone);
	long (*clone_stub)(long, long) = (long (*)(long, long))executable(code, sizeof code);
	/* pop %rdx; mov $58, %eax; syscall; push %rdx; ret: as libc's vfork */
	static const unsigned char vfork_code[] = { 0x5a, 0xb8, 58, 0, 0, 0, 0x0f, 0x05, 0x52, 0xc3 };
	long (*vfork_stub)(void) = (long (*)(void))executable(vfork_code, sizeof vfork_code);
	for (long i = 0; i < rounds; i++) {
		int status;
		long child = any(SYS_fork, 0, 0, 0, 0, 0, 0);
		if (child == 0)
			_exit(any(SYS_getpriority, 9, 0, 0, 0, 0, 0) == -22 ? 7 : 1);
		CHECK(child > 0 && waitpid((pid_t)child, &status, 0) == child && WEXITSTATUS(status) == 7);
		child = vfork_stub();
		if (child == 0)
			_exit(5);
		CHECK(child > 0 && waitpid((pid_t)child, &status, 0) == child && WEXITSTATUS(status) == 5);
		stack[2040] = (long)cloned;
		int ran = clones_ran;
		child = clone_stub(CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | SIGCHLD, (long)&stack[2040]);
		CHECK(child > 0 && waitpid((pid_t)child, &status, 0) == child && WEXITSTATUS(status) == 3);
		CHECK(clones_ran == ran + 1);
	}
}

static volatile int alarms;
static stub_t in_handler;

static void on_alarm(int signal)
{
	(void)signal;
	alarms++;
	CHECK(in_handler(SYS_getsid, -5, 0, 0, 0, 0, 0) == NO_PROCESS);
	getsids++;
}

/* Reads of an empty pipe that signals interrupt, restarted and not; sleeps that only stops interrupt. */
static void interrupted(void)
{
	int ends[2];
	char byte;
	CHECK(pipe(ends) == 0);
	stub_t any = (stub_t)executable(any_call, sizeof any_call);
	in_handler = any;
	for (long i = 0; i < rounds; i++) {
		struct sigaction action = { .sa_handler = on_alarm, .sa_flags = i % 2 ? SA_RESTART : 0 };
		struct itimerval soon = { .it_value = { 0, 2000 } };
		CHECK(sigaction(SIGALRM, &action, NULL) == 0);
		long before = alarms;
		if (i % 2) {
			long child = fork();
			if (child == 0) {
				usleep(20000);
				_exit(write(ends[1], "x", 1) == 1 ? 0 : 1);
			}
			CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
			CHECK(any(SYS_read, ends[0], (long)&byte, 1, 0, 0, 0) == 1);
			CHECK(waitpid((pid_t)child, NULL, 0) == child);
		} else {
			CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
			CHECK(any(SYS_read, ends[0], (long)&byte, 1, 0, 0, 0) == -4);
		}
		CHECK(alarms == before + 1);
		struct timespec nap = { 0, 3000000 };
		CHECK(any(SYS_nanosleep, (long)&nap, 0, 0, 0, 0, 0) == 0);
	}
}

/* The set of signals that the kernel has is the tracer's affair; the program sees what it has set. */
static void blocking(void)
{
	stub_t any = (stub_t)executable(any_call, sizeof any_call);
	unsigned char code[8];
	put_stub(code, SYS_getpgid);
	long (*made)(long) = (long (*)(long))executable(code, sizeof code);
	unsigned long all = ~0UL, old, now;
	for (long i = 0; i < rounds; i++) {
		CHECK(any(SYS_rt_sigprocmask, SIG_SETMASK, (long)&all, (long)&old, 8, 0, 0) == 0);
		CHECK(made(0) == getpgrp());
		CHECK(any(SYS_rt_sigprocmask, SIG_SETMASK, (long)&old, (long)&now, 8, 0, 0) == 0);
		/* All but SIGKILL and SIGSTOP, and what was set before. */
		CHECK(now == (all & ~(1UL << 8 | 1UL << 18)) && old == 0);
		CHECK(made(0) == getpgrp());
	}
	getpgids += 2 * rounds;
}

/* A tracer that patched the second call would end the program. */
static void doubtful(void)
{
	/* mov %rdi, %rax; mov %rsi, %rdi; mov %rdx, %rsi; mov %rcx, %rdx; mov %r8, %r10; mov %r9, %r8; nop; syscall; ret */
	static const unsigned char code[] = { 0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x48, 0x89, 0xd6, 0x48, 0x89, 0xca,
		                                  0x4d, 0x89, 0xc2, 0x4d, 0x89, 0xc8, 0x90, 0x0f, 0x05, 0xc3 };
	stub_t unknown = (stub_t)executable(code, sizeof code);
	unsigned char known[8];
	put_stub(known, SYS_getsid);
	long (*made)(long) = (long (*)(long))executable(known, sizeof known);
	unsigned long all = ~0UL, old;
	for (long i = 0; i < rounds; i++) {
		CHECK(unknown(SYS_rt_sigprocmask, SIG_SETMASK, (long)&all, (long)&old, 8, 0, 0) == 0);
		CHECK(made(-5) == NO_PROCESS);
		CHECK(unknown(SYS_rt_sigprocmask, SIG_SETMASK, (long)&old, 0, 8, 0, 0) == 0);
	}
}

/* Makes code, calls it, changes it, frees it. */
static void *maker(void *unused)
{
	(void)unused;
	for (long i = 0; i < rounds; i++) {
		unsigned char *page = map(PROT_READ | PROT_WRITE);
		put_stub(page + i % 512, SYS_getsid);
		CHECK(mprotect(page, PAGE, PROT_READ | PROT_EXEC) == 0);
		for (int j = 0; j < 3; j++)
			CHECK(((long (*)(long))(page + i % 512))(-5) == NO_PROCESS);
		CHECK(mprotect(page, PAGE, PROT_READ | PROT_WRITE) == 0);
		memset(page, 0xcc, PAGE);
		put_stub(page + 8, SYS_getpgid);
		memcpy(page + 200, any_call, sizeof any_call);
		CHECK(mprotect(page, PAGE, PROT_READ | PROT_EXEC) == 0);
		CHECK(((long (*)(long))(page + 8))(0) == getpgrp());
		CHECK(((stub_t)(page + 200))(SYS_getpriority, 9, 0, 0, 0, 0, 0) == -22);
		if (i % 2)
			CHECK(munmap(page, PAGE) == 0);
		else
			CHECK((page = mremap(page, PAGE, 2 * PAGE, MREMAP_MAYMOVE)) != MAP_FAILED && munmap(page, 2 * PAGE) == 0);
	}
	getsids += 3 * rounds;
	getpgids += rounds;
	priorities += rounds;
	return NULL;
}

static void busy_makers(void)
{
	pthread_t all[3];
	for (int i = 0; i < 3; i++)
		CHECK(pthread_create(&all[i], NULL, maker, NULL) == 0);
	for (int i = 0; i < 3; i++)
		CHECK(pthread_join(all[i], NULL) == 0);
}

int main(int argc, char **argv)
{
	take_arguments(&argc, argv);
	rounds = number(argc, argv, 1, 10);
	const char *what = argc > 2 ? argv[2] : "lwrtmcibk";
	/* The first bytes of getpgid: mov $121, %eax; syscall; cmp; ... ret. */
	unsigned char *copied = strchr(what, 'l') ? executable((const void *)getpgid, 32) : NULL;
	wait_for_go();
	for (long i = 0; copied && i < rounds; i++, getpgids++)
		CHECK(((long (*)(long))copied)(0) == getpgrp());
	if (strchr(what, 'w'))
		written_then_executed();
	if (strchr(what, 'r'))
		writable();
	if (strchr(what, 't'))
		threads();
	if (strchr(what, 'm'))
		moved();
	if (strchr(what, 'c'))
		children();
	if (strchr(what, 'i'))
		interrupted();
	if (strchr(what, 'b'))
		blocking();
	if (strchr(what, 'd'))
		doubtful();
	if (strchr(what, 'k'))
		busy_makers();
	printf("getpgid %ld\ngetsid %ld\ngetpriority %ld\n", (long)getpgids, (long)getsids, (long)priorities);
	return finish(mix(MIX_START, (uint64_t)rounds));
}
