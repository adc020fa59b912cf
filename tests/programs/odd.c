/* Programs that are unlike others.
 * odd MODE
 * small-stacks  threads on the smallest stacks, calling probed functions to within a page of their end
 * contexts      coroutines by swapcontext, on stacks of their own
 * shared        tasks by clone(CLONE_VM): another process in the same memory with the same thread pointer
 * outlived      such a task that is made after a tracer has come, and works on when it has gone: a line on stdin ends
 *               it, and another one the program
 * seccomp       a filter that kills the process at any system call but a few
 * container     a filter that permits what is usual, and kills at some calls
 * late          as seccomp, but only after it was told to go on; late-by-syscall: by syscall(3); late-by-itself: by an
 *               instruction of its own
 * masks         blocks all signals by instructions of its own, of which nobody can tell which call they make
 * undumpable    prctl(PR_SET_DUMPABLE, 0)
 * errno         probed calls between system calls whose errno is looked at
 * fs-base       a thread that changes its thread pointer
 * locked        mlockall: whatever is mapped is filled and locked
 * limited       a limited address space, of which it then maps half of what is left
 * headless      the main thread has ended */
#include <errno.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include "check.h"

static long calls;

PROBED uint64_t odd_work(uint64_t value)
{
	return value * 5 + 1;
}

static void work(long amount)
{
	uint64_t value = 3, right = 3;
	for (long i = 0; i < amount; i++) {
		value = odd_work(value);
		right = right * 5 + 1;
	}
	CHECK(value == right);
	__atomic_fetch_add(&calls, amount, __ATOMIC_RELAXED);
}

/* ---- small-stacks */

static void *on_small_stack(void *unused)
{
	(void)unused;
	work(100);
	return NULL;
}

static void small_stacks(void)
{
	for (int i = 0; i < 50; i++) {
		pthread_attr_t attributes;
		pthread_t thread;
		CHECK(pthread_attr_init(&attributes) == 0);
		CHECK(pthread_attr_setstacksize(&attributes, (size_t)sysconf(_SC_THREAD_STACK_MIN)) == 0);
		CHECK(pthread_create(&thread, &attributes, on_small_stack, NULL) == 0);
		CHECK(pthread_join(thread, NULL) == 0);
	}
}

/* ---- contexts */

static ucontext_t here, coroutines[8];

static void coroutine(int which)
{
	for (int i = 0; i < 100; i++) {
		work(10);
		CHECK(swapcontext(&coroutines[which], &here) == 0);
	}
}

__attribute__((noinline)) static void prepare(ucontext_t *context, char *stack, size_t bytes, int which)
{
	CHECK(getcontext(context) == 0);
	context->uc_stack.ss_sp = stack;
	context->uc_stack.ss_size = bytes;
	context->uc_link = &here;
	makecontext(context, (void (*)(void))coroutine, 1, which);
}

static void contexts(void)
{
	static char stacks[8][16384] __attribute__((aligned(16)));
	for (int i = 0; i < 8; i++)
		prepare(&coroutines[i], stacks[i], sizeof stacks[i], i);
	for (int i = 0; i < 101; i++)
		for (int which = 0; which < 8; which++)
			CHECK(swapcontext(&here, &coroutines[which]) == 0);
}

/* ---- shared */

static int in_shared_memory(void *unused)
{
	(void)unused;
	uint64_t value = 3;
	for (int i = 0; i < 20000; i++)
		value = odd_work(value);
	return value != 0 ? 55 : 56;
}

static void shared(void)
{
	static char stack[65536] __attribute__((aligned(16)));
	for (int i = 0; i < 20; i++) {
		pid_t child = clone(in_shared_memory, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL);
		CHECK(child > 0);
		work(20000);
		int status;
		CHECK(waitpid(child, &status, 0) == child);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 55);
	}
}

static volatile int is_over;

static int until_over(void *unused)
{
	(void)unused;
	for (uint64_t value = 3; !is_over; value = value * 5 + 1)
		CHECK(odd_work(value) == value * 5 + 1);
	return 55;
}

static void outlived(void)
{
	static char stack[65536] __attribute__((aligned(16)));
	pid_t child = clone(until_over, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL);
	CHECK(child > 0);
	work(20000);
	printf("made\n");
	wait_for_line();
	work(20000);
	is_over = 1;
	int status;
	CHECK(waitpid(child, &status, 0) == child);
	CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 55);
	printf("ended\n");
	wait_for_line();
	work(20000);
}

/* ---- seccomp */

#define NUMBER BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))
#define WHEN(number, verdict) \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_##verdict)
#define OTHERWISE(verdict) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_##verdict)

/* Makes any system call: the number and the arguments come from the caller, and no instruction here has five bytes. */
__attribute__((noinline)) static long any_call(long number, long first, long second, long third, long fourth)
{
	long result;
	register long r10 __asm__("r10") = fourth;
	__asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(first), "S"(second), "d"(third), "r"(r10)
			 : "rcx", "r11", "memory");
	return result;
}

/* Keeps the number of the system call in a register across calls, as sanitizers do when they create a thread. */
static void masks(void)
{
	volatile long set_mask = SYS_rt_sigprocmask;
	long number = set_mask;
	uint64_t all = ~0UL, before = 0, seen = 0;
	for (int i = 0; i < 200; i++) {
		CHECK(any_call(number, SIG_SETMASK, (long)&all, (long)&before, 8) == 0);
		work(10);
		CHECK(any_call(number, SIG_BLOCK, 0, (long)&seen, 8) == 0);
		/* Only SIGKILL and SIGSTOP cannot be blocked. */
		CHECK(seen == (all & ~(1UL << (SIGKILL - 1) | 1UL << (SIGSTOP - 1))));
		CHECK(syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, &seen, 8) == 0);
		CHECK(seen == (all & ~(1UL << (SIGKILL - 1) | 1UL << (SIGSTOP - 1))));
		CHECK(syscall(number, SIG_SETMASK, &all, NULL, 8) == 0);
		work(10);
		CHECK(any_call(number, SIG_SETMASK, (long)&before, 0, 8) == 0);
		work(10);
	}
}

static void seccomp(const char *way)
{
	struct sock_filter filter[] = {
		NUMBER, WHEN(SYS_read, ALLOW), WHEN(SYS_write, ALLOW), WHEN(SYS_exit_group, ALLOW),
		WHEN(SYS_rt_sigreturn, ALLOW), WHEN(SYS_clock_nanosleep, ALLOW), OTHERWISE(KILL_PROCESS),
	};
	struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	if (strcmp(way, "late-by-itself") == 0)
		CHECK(any_call(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, (long)&program, 0) == 0);
	else if (strcmp(way, "late-by-syscall") == 0)
		CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0);
	else
		CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

/* A container's filter: it allows the calls that the tracer makes in the process, and kills for calls that the
 * agent would make. */
static void container(void)
{
	struct sock_filter filter[] = {
		NUMBER, WHEN(SYS_getpid, KILL_PROCESS), WHEN(SYS_gettid, KILL_PROCESS),
		WHEN(SYS_process_vm_readv, KILL_PROCESS), WHEN(SYS_clock_gettime, KILL_PROCESS),
		WHEN(SYS_futex, KILL_PROCESS), OTHERWISE(ALLOW),
	};
	struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
	CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
	CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

/* Calls, sleeps, and calls again, for a second. */
static void sandboxed_work(void)
{
	printf("inside\n");
	for (int i = 0; i < 100; i++) {
		work(100);
		usleep(10000);
	}
}

/* ---- errno, fs-base */

static void errors(void)
{
	for (int i = 0; i < 1000; i++) {
		CHECK(close(-1) == -1);
		work(1);
		CHECK(errno == EBADF);
		CHECK(read(0, (void *)8, 0) == 0 || errno != EBADF);
	}
}

static void *with_another_thread_pointer(void *unused)
{
	(void)unused;
	/* A copy of the thread's control block, as other runtimes make it. Its self pointer leads to the copy. */
	static uint64_t block[512] __attribute__((aligned(64)));
	uint64_t old, value = 3, right = 3;
	__asm__ volatile("movq %%fs:0, %0" : "=r"(old));
	memcpy(block, (void *)old, 704);
	block[0] = (uint64_t)block;
	for (int i = 0; i < 1000; i++) {
		long result;
		__asm__ volatile("syscall" : "=a"(result)
		                 : "a"(SYS_arch_prctl), "D"(0x1002), "S"(block) : "rcx", "r11", "memory");
		for (int j = 0; j < 10; j++)
			value = odd_work(value);
		__asm__ volatile("syscall" : "=a"(result)
		                 : "a"(SYS_arch_prctl), "D"(0x1002), "S"(old) : "rcx", "r11", "memory");
		for (int j = 0; j < 10; j++)
			right = right * 5 + 1;
	}
	CHECK(value == right);
	__atomic_fetch_add(&calls, 10000, __ATOMIC_RELAXED);
	return NULL;
}

/* ---- locked, limited */

static long status_kib(const char *name)
{
	char line[256];
	long value = -1;
	FILE *file = fopen("/proc/self/status", "r");
	while (file && fgets(line, sizeof line, file))
		if (strncmp(line, name, strlen(name)) == 0)
			value = strtol(line + strlen(name), NULL, 10);
	CHECK(value >= 0 && fclose(file) == 0);
	return value;
}

/* Existing memory is locked, and memory that we add is not. */
static void locked(long before)
{
	work(1000);
	CHECK(status_kib("VmLck:") - before < 1024);
}

#define LIMIT (4L << 30)

static void limited(void)
{
	work(1000);
	long bytes = LIMIT / 2 - (32 << 20);
	CHECK(mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
}

/* ---- headless */

static void *without_the_main_thread(void *unused)
{
	(void)unused;
	usleep(10000);
	wait_for_go();
	work(1000);
	printf("calls %ld\n", calls);
	exit(finish(MIX_START));
}

int main(int argc, char **argv)
{
	take_arguments(&argc, argv);
	const char *mode = argc > 1 ? argv[1] : "contexts";
	if (strcmp(mode, "seccomp") == 0) {
		printf("filtered\n"); /* by now stdio has allocated its buffers */
		seccomp(mode);
	}
	if (strcmp(mode, "container") == 0) {
		printf("filtered\n");
		container();
	}
	if (strcmp(mode, "undumpable") == 0)
		CHECK(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0);
	if (strcmp(mode, "headless") == 0) {
		pthread_t thread;
		CHECK(pthread_create(&thread, NULL, without_the_main_thread, NULL) == 0);
		pthread_exit(NULL);
	}
	long locked_before = 0;
	if (strcmp(mode, "locked") == 0) {
		/* Only root may lock so much. */
		if (mlockall(MCL_CURRENT | MCL_FUTURE) == 0)
			locked_before = status_kib("VmLck:");
		else
			locked_before = LONG_MAX;
	}
	if (strcmp(mode, "limited") == 0)
		CHECK(setrlimit(RLIMIT_AS, &(struct rlimit){ LIMIT, LIMIT }) == 0);
	wait_for_go();
	if (strcmp(mode, "small-stacks") == 0)
		small_stacks();
	else if (strcmp(mode, "contexts") == 0)
		contexts();
	else if (strcmp(mode, "shared") == 0)
		shared();
	else if (strcmp(mode, "outlived") == 0)
		outlived();
	else if (strcmp(mode, "errno") == 0)
		errors();
	else if (strcmp(mode, "fs-base") == 0) {
		pthread_t thread;
		CHECK(pthread_create(&thread, NULL, with_another_thread_pointer, NULL) == 0);
		CHECK(pthread_join(thread, NULL) == 0);
	} else if (strcmp(mode, "locked") == 0)
		locked(locked_before);
	else if (strcmp(mode, "limited") == 0)
		limited();
	else if (strcmp(mode, "masks") == 0)
		masks();
	else if (strncmp(mode, "late", 4) == 0) {
		seccomp(mode);
		sandboxed_work();
	}
	else
		work(1000);
	printf("calls %ld\n", calls);
	return finish(MIX_START);
}
