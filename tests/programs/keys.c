/* Threads whose thread pointer differs from the one that a C library has set.
 *
 *     keys moved THREADS ROUNDS    each thread changes its thread pointer, and clears it
 *     keys shared THREADS CALLS    threads with one thread pointer, which exist before the go
 *     keys child TIMES CALLS       as beside, in a child of fork
 *     keys beside TIMES CALLS      processes with the memory and the thread pointer of the first thread, which runs */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "check.h"

/* <asm/prctl.h>, which musl lacks. */
enum { ARCH_SET_FS = 0x1002, ARCH_GET_FS = 0x1003 };
enum { THREADS_MAX = 16, STACK_BYTES = 65536 };

static uint64_t calls, sum;
static int go, left;
static unsigned long rounds;

PROBED uint64_t counted(uint64_t value)
{
	return value * 2862933555777941757u + 3037000493u;
}

static inline long raw(long number, long first, long second)
{
	long result;
	__asm__ volatile("syscall" : "=a"(result) : "0"(number), "D"(first), "S"(second) : "rcx", "r11", "memory");
	return result;
}

static __attribute__((noinline)) uint64_t call(unsigned long times)
{
	uint64_t value = 1;
	for (unsigned long time = 0; time < times; time++)
		value = counted(value);
	return value;
}

static void *moved(void *argument)
{
	(void)argument;
	uint64_t block[8] = { 0x1234567 }, right = call(10), own = 0;
	CHECK(raw(SYS_arch_prctl, ARCH_GET_FS, (long)&own) == 0);
	for (unsigned long round = 0; round < rounds; round++) {
		raw(SYS_arch_prctl, ARCH_SET_FS, (long)block);
		uint64_t other = call(10);
		raw(SYS_arch_prctl, ARCH_SET_FS, 0);
		uint64_t none = call(10);
		raw(SYS_arch_prctl, ARCH_SET_FS, (long)own);
		CHECK(other == right && none == right);
	}
	__atomic_fetch_add(&calls, 10 + rounds * 20, __ATOMIC_RELAXED);
	return 0;
}

static int bare(void *argument)
{
	(void)argument;
	while (!__atomic_load_n(&go, __ATOMIC_ACQUIRE))
		raw(SYS_sched_yield, 0, 0);
	uint64_t value = call(rounds);
	__atomic_fetch_add(&sum, value, __ATOMIC_RELAXED);
	__atomic_fetch_add(&calls, rounds, __ATOMIC_RELAXED);
	__atomic_fetch_sub(&left, 1, __ATOMIC_RELEASE);
	for (;;)
		raw(SYS_exit, 0, 0);
	return 0;
}

/* Makes threads that keep the thread pointer of their maker. They wait. */
static void make_bare(int threads)
{
	static _Alignas(16) char stacks[THREADS_MAX][STACK_BYTES];
	int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
	left = threads;
	for (int thread = 0; thread < threads; thread++)
		CHECK(clone(bare, stacks[thread] + STACK_BYTES, flags, 0) > 0);
}

/* Lets them work, and works beside them. */
static void run_bare(int threads)
{
	__atomic_store_n(&go, 1, __ATOMIC_RELEASE);
	uint64_t own = call(rounds);
	while (__atomic_load_n(&left, __ATOMIC_ACQUIRE))
		sched_yield();
	CHECK(sum == own * (unsigned)threads);
	calls += rounds;
}

static void beside(int times)
{
	static _Alignas(16) char stack[STACK_BYTES];
	uint64_t by_children = 0;
	for (int time = 0; time < times; time++) {
		sum = go = 0;
		left = 1;
		int child = clone(bare, stack + STACK_BYTES, CLONE_VM | SIGCHLD, 0), status;
		CHECK(child > 0);
		uint64_t before = calls;
		run_bare(1);
		by_children += calls - before - rounds;
		CHECK(waitpid(child, &status, 0) == child && status == 0);
	}
	printf("children %lu\n", by_children);
}

/* The same in a child of fork. */
static void beside_in_child(int times)
{
	fflush(stdout);
	int child = fork(), status;
	CHECK(child >= 0);
	if (child == 0) {
		beside(times);
		printf("calls %lu\nOK\n", calls);
		fflush(stdout);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(int argc, char **argv)
{
	take_arguments(&argc, argv);
	CHECK(argc == 4);
	int threads = atoi(argv[2]);
	CHECK(threads <= THREADS_MAX || strcmp(argv[1], "beside") == 0 || strcmp(argv[1], "child") == 0);
	rounds = strtoul(argv[3], 0, 0);
	if (strcmp(argv[1], "moved") == 0) {
		pthread_t all[THREADS_MAX];
		wait_for_go();
		for (int thread = 0; thread < threads; thread++)
			CHECK(pthread_create(&all[thread], 0, moved, 0) == 0);
		for (int thread = 0; thread < threads; thread++)
			CHECK(pthread_join(all[thread], 0) == 0);
	} else if (strcmp(argv[1], "beside") == 0) {
		wait_for_go();
		beside(threads);
	} else if (strcmp(argv[1], "child") == 0) {
		wait_for_go();
		beside_in_child(threads);
		return 0;
	} else {
		make_bare(threads);
		wait_for_go();
		run_bare(threads);
	}
	printf("calls %lu\nOK\n", calls);
	return 0;
}
