/* Tables of redirects are published all the time while threads look addresses up in them: some threads trap all
 * the time, and another thread registers and unregisters other probes. Processors are interrupted, so that some
 * publications take long. argv[1]: how many publications. */
#define _GNU_SOURCE
#include <nanoprobe.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FUNCTION __attribute__((noinline, noclone))
enum { TRAPPING = 2, MANY = 32, BYTES = 16, PRIVATE_EXPEDITED = 1 << 3 };

/* Many functions of 16 bytes, so that the tables of redirects are about a page long. */
__asm__(".text\n"
	".macro one\n"
	"	.p2align 4\n"
	"	.type one_\\@, @function\n"
	"one_\\@:\n"
	"	leaq 1(%rdi), %rax\n"
	"	leaq 1(%rax), %rax\n"
	"	nopl 0(%rax)\n"
	"	ret\n"
	"	.size one_\\@, . - one_\\@\n"
	".endm\n"
	"	.p2align 4\n"
	"many:\n"
	".rept 32\n"
	"one\n"
	".endr\n");
extern char many[] __attribute__((visibility("hidden")));

static atomic_int stop;

FUNCTION uint64_t traps(uint64_t value)
{
	__asm__ volatile("" ::: "memory");
	return value * 5 + 1;
}

FUNCTION uint64_t comes_and_goes(uint64_t value)
{
	__asm__ volatile("" ::: "memory");
	return value * 7 + 2;
}

static void check(int error, const char *what)
{
	if (!error)
		return;
	fprintf(stderr, "%s: %s: %s\n", what, np_strerror(error), np_last_error());
	abort();
}

static int nothing(struct np_probe *probe, struct np_regs *regs)
{
	(void)probe;
	(void)regs;
	return 0;
}

static void *calls(void *unused)
{
	uint64_t count = 0;
	(void)unused;
	for (; !stop; count++)
		if (traps(count) != count * 5 + 1)
			abort();
	return (void *)count;
}

static void *interrupts(void *unused)
{
	(void)unused;
	while (!stop)
		syscall(SYS_membarrier, PRIVATE_EXPEDITED, 0, 0);
	return NULL;
}

int main(int count, char **arguments)
{
	int rounds = count > 1 ? atoi(arguments[1]) : 1000;
	struct np_probe trap = { NP_SIZE(struct np_probe), .addr = (void *)traps, .pre_handler = nothing, .flags = NP_PROBE_TRAP };
	check(np_register_probe(&trap), "register");
	static struct np_probe stay[MANY];
	for (int index = 0; index < MANY; index++) {
		stay[index] = (struct np_probe){ NP_SIZE(struct np_probe), .addr = many + BYTES * index, .pre_handler = nothing };
		check(np_register_probe(&stay[index]), "register");
	}
	pthread_t callers[TRAPPING], interrupter;
	for (int index = 0; index < TRAPPING; index++)
		pthread_create(&callers[index], NULL, calls, NULL);
	pthread_create(&interrupter, NULL, interrupts, NULL);
	for (int round = 0; round < rounds; round++) {
		struct np_probe probe = { NP_SIZE(struct np_probe), .addr = (void *)comes_and_goes, .pre_handler = nothing,
					  .flags = round & 1 ? NP_PROBE_TRAP : 0 };
		check(np_register_probe(&probe), "register");
		check(np_unregister_probe(&probe), "unregister");
	}
	stop = 1;
	uint64_t sum = 0;
	for (int index = 0; index < TRAPPING; index++) {
		void *called;
		pthread_join(callers[index], &called);
		sum += (uint64_t)called;
	}
	pthread_join(interrupter, NULL);
	printf("%s, %s\n", np_probe_hits(&trap) == sum ? "exact" : "not exact", sum ? "called" : "idle");
	return 0;
}
