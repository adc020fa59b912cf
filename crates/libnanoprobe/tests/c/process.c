/* A program uses its own signals and processes after it has registered probes. */
#define _GNU_SOURCE
#include "loads.h"

#include <link.h>
#include <nanoprobe.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define FUNCTION __attribute__((noinline, noclone))
#define OPAQUE __asm__ volatile("" ::: "memory")

static void fail(const char *what, int error)
{
	fprintf(stderr, "%s: %s: %s\n", what, np_strerror(error), np_last_error());
	_exit(1);
}

FUNCTION uint64_t plain(uint64_t value)
{
	OPAQUE;
	return value * 3 + 1;
}

FUNCTION uint64_t other(uint64_t value)
{
	OPAQUE;
	return value * 5 + 2;
}

static volatile int counted;

static int counts(struct np_probe *probe, struct np_regs *regs)
{
	(void)probe;
	(void)regs;
	counted = counted + 1;
	return 0;
}

static sigjmp_buf back;
static volatile uint64_t seen_rip;
static volatile int traps;

static void on_fault(int signal, siginfo_t *information, void *context)
{
	(void)signal;
	(void)information;
	seen_rip = (uint64_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
	siglongjmp(back, 1);
}

static void on_trap(int signal)
{
	(void)signal;
	traps = traps + 1;
}

/* The program blocks all signals, and sets its own actions, after the first probe was registered. */
static void signals(void)
{
	struct np_probe probe = { NP_SIZE(struct np_probe), .symbol = "plain", .pre_handler = counts,
				  .flags = NP_PROBE_TRAP };
	struct np_probe load = { NP_SIZE(struct np_probe), .addr = (void *)loads_here, .pre_handler = counts };
	sigset_t all, now;
	int error = np_register_probe(&probe);
	if (error || (error = np_register_probe(&load)))
		fail("register", error);
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	uint64_t result = plain(1);
	sigprocmask(SIG_SETMASK, NULL, &now);
	printf("blocked: %lu, %d hits, believes %d %d\n", result, counted, sigismember(&now, SIGTRAP),
	       sigismember(&now, SIGUSR1));
	sigprocmask(SIG_UNBLOCK, &all, &now);
	sigprocmask(SIG_SETMASK, NULL, &now);
	printf("unblocked: believes %d\n", sigismember(&now, SIGTRAP));

	struct sigaction fault = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO }, trap = { .sa_handler = on_trap };
	struct sigaction asked;
	sigaction(SIGSEGV, &fault, NULL);
	sigaction(SIGTRAP, &trap, NULL);
	sigaction(SIGSEGV, NULL, &asked);
	counted = 0;
	if (!sigsetjmp(back, 1))
		loads((void *)8);
	raise(SIGTRAP);
	plain(1);
	printf("actions: %s, %s, %d trap, %d hits\n", asked.sa_sigaction == on_fault ? "own" : "WRONG",
	       seen_rip == (uint64_t)loads_here ? "original" : "WRONG", traps, counted);
	np_unregister_probe(&probe);
	np_unregister_probe(&load);
	counted = 0;
	if (!sigsetjmp(back, 1))
		loads((void *)8);
	printf("without: %d hits\n", counted);
}

static volatile int stop;

/* The handler of the thread's probe, which stays registered in the child. */
static int ignores(struct np_probe *probe, struct np_regs *regs)
{
	(void)probe;
	(void)regs;
	return 0;
}

static void *registers(void *unused)
{
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		struct np_probe probe = { NP_SIZE(struct np_probe), .symbol = "other", .pre_handler = ignores };
		if (np_register_probe(&probe) || other(1) != 7 || np_unregister_probe(&probe))
			fail("thread", 0);
	}
	return unused;
}

/* In the child of a fork all functions of the library work, and the parent does not notice the child's probes. */
static int child(struct np_probe *inherited)
{
	counted = 0;
	if (plain(2) != 7 || counted != 1)
		return 2;
	struct np_probe probe = { NP_SIZE(struct np_probe), .symbol = "other", .pre_handler = counts };
	if (np_register_probe(&probe))
		fail("child", 0);
	other(1);
	if (np_probe_hits(&probe) != 1 || np_unregister_probe(&probe) || np_unregister_probe(inherited))
		return 3;
	plain(2);
	return counted == 2 ? 0 : 4;
}

/* `alone`: no other thread registers anything meanwhile. */
static void forks(int alone)
{
	struct np_probe probe = { NP_SIZE(struct np_probe), .symbol = "plain", .pre_handler = counts };
	pthread_t thread;
	int good = 0;
	if (np_register_probe(&probe))
		fail("register", 0);
	if (!alone)
		pthread_create(&thread, NULL, registers, NULL);
	for (int round = 0; round < 50; round++) {
		int status = 1;
		pid_t process = fork();
		if (process == 0)
			_exit(child(&probe));
		uint64_t hits = np_probe_hits(&probe);
		plain(1);
		good += waitpid(process, &status, 0) == process && status == 0 && np_probe_hits(&probe) == hits + 1;
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	if (!alone)
		pthread_join(thread, NULL);
	printf("forks: %d good\n", good);
	np_unregister_probe(&probe);
}

static int holds(struct dl_phdr_info *info, size_t size, void *held)
{
	(void)info;
	(void)size;
	__atomic_store_n((int *)held, 1, __ATOMIC_RELEASE);
	usleep(2000);
	__atomic_store_n((int *)held, 0, __ATOMIC_RELEASE);
	return 1;
}

static void *iterates(void *held)
{
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
		dl_iterate_phdr(holds, held);
	return held;
}

/* Another thread holds the dynamic linker's lock, as if it threw an exception. In the child no thread releases
 * this lock. */
static void forks_beside_the_linker(void)
{
	static int held;
	struct np_probe probe = { NP_SIZE(struct np_probe), .symbol = "plain", .pre_handler = counts };
	pthread_t thread;
	int good = 0;
	if (np_register_probe(&probe))
		fail("register", 0);
	stop = 0;
	pthread_create(&thread, NULL, iterates, &held);
	for (int round = 0; round < 20; round++) {
		int status = 1;
		while (!__atomic_load_n(&held, __ATOMIC_ACQUIRE))
			;
		pid_t process = fork();
		if (process == 0) {
			alarm(30);
			_exit(child(&probe));
		}
		good += waitpid(process, &status, 0) == process && status == 0;
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	printf("forks beside the linker: %d good\n", good);
	np_unregister_probe(&probe);
}

int main(int argc, char **argv)
{
	signals();
	forks(argc > 1 && strcmp(argv[1], "alone") == 0);
	if (argc == 1)
		forks_beside_the_linker();
	return 0;
}
