/* Watchpoints: which accesses they see, and that they change nothing else. */
#define _GNU_SOURCE
#include "watch.h"
#include <errno.h>
#include <linux/hw_breakpoint.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>

enum { THREADS = 4, TIMES = 2000, TIMES_COUNTED = 100000 };

static volatile uint64_t other;

/* The kernel's own count of the same writes, without libnanoprobe. */
static int kernels_own(void)
{
	struct perf_event_attr attributes = { .type = PERF_TYPE_BREAKPOINT, .size = sizeof attributes, .bp_type = HW_BREAKPOINT_W,
		.bp_addr = (uint64_t)&watched, .bp_len = 8, .exclude_kernel = 1, .exclude_hv = 1 };
	return (int)syscall(SYS_perf_event_open, &attributes, 0, -1, -1, 0UL);
}

/* Everything that the program has in registers stays, whatever the handler does. */
static void spoils(struct np_watchpoint *watchpoint, struct np_regs *regs)
{
	if (watchpoint->user != watchpoint)
		wrong++;
	(void)regs;
	__asm__ volatile("pxor %%xmm0, %%xmm0; pxor %%xmm7, %%xmm7; pxor %%xmm15, %%xmm15" ::: "xmm0", "xmm7", "xmm15");
	errno = 77;
	ran++;
}

/* Writes `count` times with known values in registers, flags and red zone. Yields how many of these values have
   changed. */
FUNCTION static uint64_t keeps(uint64_t count)
{
	uint64_t changed = 0;
	errno = 5;
	for (uint64_t round = 0; round < count; round++) {
		double low = (double)round, high = (double)round + 0.5, after_low, after_high;
		uint64_t flags, red;
		__asm__ volatile("movsd %[low], %%xmm7\n\tmovsd %[high], %%xmm15\n\tmovq %[round], -8(%%rsp)\n\t"
				 "movq %[round], -120(%%rsp)\n\tcmpq %%rax, %%rax\n\tstc\n\tstd\n\t"
				 "movq %[round], %[watched]\n\t"
				 "pushfq\n\tcld\n\tpopq %[flags]\n\tmovq -120(%%rsp), %[red]\n\t"
				 "movsd %%xmm7, %[after_low]\n\tmovsd %%xmm15, %[after_high]\n"
				 : [watched] "=m"(watched), [flags] "=&r"(flags), [red] "=&r"(red), [after_low] "=m"(after_low),
				   [after_high] "=m"(after_high)
				 : [low] "x"(low), [high] "x"(high), [round] "r"(round)
				 : "xmm7", "xmm15", "cc", "memory");
		changed += (flags & 0x8d5) != 0x45 || !(flags & 0x400) || red != round || after_low != low || after_high != high;
	}
	return changed + (errno != 5);
}

static void places(struct np_watchpoint *watchpoint, struct np_regs *regs)
{
	if (watchpoint->user != watchpoint || regs->rip - (uint64_t)writes > 32 || regs->rdi != watched)
		wrong++;
	ran++;
}

static void *writer(void *unused)
{
	for (uint64_t round = 0; round < TIMES; round++)
		writes(round);
	return unused;
}

static void *begetter(void *unused)
{
	pthread_t thread;
	pthread_create(&thread, NULL, writer, NULL);
	writes(1);
	pthread_join(thread, NULL);
	return unused;
}

static pthread_barrier_t barrier;

static void *waits(void *unused)
{
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	return begetter(unused);
}

/* Starts a thread, and ends. So the new thread has inherited its event from a thread that is gone. */
static pthread_t grandchild;
static void *orphans(void *unused)
{
	pthread_create(&grandchild, NULL, begetter, NULL);
	return unused;
}

static void threads(void)
{
	struct np_watchpoint watch = { NP_SIZE(struct np_watchpoint), .addr = (void *)&watched, .length = 8,
				       .type = NP_WATCH_WRITE, .handler = counts };
	pthread_t present[THREADS], child;
	ran = 0;
	pthread_barrier_init(&barrier, NULL, THREADS + 1);
	for (int index = 0; index < THREADS; index++)
		pthread_create(&present[index], NULL, waits, NULL);
	pthread_barrier_wait(&barrier);
	check(np_register_watchpoint(&watch), "register");
	pthread_barrier_wait(&barrier);
	for (int index = 0; index < THREADS; index++)
		pthread_join(present[index], NULL);
	pthread_create(&child, NULL, orphans, NULL);
	pthread_join(child, NULL);
	pthread_join(grandchild, NULL);
	uint64_t expected = (THREADS + 1) * (TIMES + 1);
	printf("threads: %s, %lu missed\n", ran == expected && np_watchpoint_hits(&watch) == expected ? "each" : "LOST",
	       np_watchpoint_nmissed(&watch));
	check(np_unregister_watchpoint(&watch), "unregister");
	writes(1);
	printf("without: %s\n", ran == expected ? "none" : "SOME");
}

static void kinds(void)
{
	struct np_watchpoint watch = { NP_SIZE(struct np_watchpoint), .addr = (void *)&watched, .length = 8,
				       .type = NP_WATCH_WRITE, .handler = places, .user = &watch };
	check(np_register_watchpoint(&watch), "register");
	watch.handler = NULL; /* the library uses the handler that was registered */
	for (int round = 0; round < 100; round++)
		writes((uint64_t)round);
	uint64_t sum = 0;
	for (int round = 0; round < 100; round++)
		sum += watched;
	printf("writes: %lu of 100, %lu wrong, value %lu\n", np_watchpoint_hits(&watch), wrong, sum / 100);
	check(np_unregister_watchpoint(&watch), "unregister");
	watch.handler = spoils;
	check(np_register_watchpoint(&watch), "register");
	ran = 0;
	uint64_t changed = keeps(1000);
	printf("kept: %lu changed, %lu wrong, %lu ran\n", changed, wrong, ran);
	check(np_unregister_watchpoint(&watch), "unregister");
	watch.handler = counts;

	watch.type = NP_WATCH_READ_WRITE;
	check(np_register_watchpoint(&watch), "register");
	for (int round = 0; round < 50; round++) {
		sum += watched;
		watched = sum;
	}
	printf("reads and writes: %lu\n", np_watchpoint_hits(&watch));
	check(np_unregister_watchpoint(&watch), "unregister");

	/* Watches one of eight bytes. */
	watch.type = NP_WATCH_WRITE;
	watch.addr = (char *)&watched + 3;
	watch.length = 1;
	check(np_register_watchpoint(&watch), "register");
	for (int byte = 0; byte < 8; byte++)
		((volatile char *)&watched)[byte] = (char)byte;
	__asm__ volatile("movl $1, (%0)\n\tmovl $1, 4(%0)" : : "r"(&watched) : "memory");
	printf("a byte: %lu\n", np_watchpoint_hits(&watch));
	check(np_unregister_watchpoint(&watch), "unregister");

	/* Without a handler. */
	watch.handler = NULL;
	watch.addr = (void *)&watched;
	watch.length = 8;
	check(np_register_watchpoint(&watch), "register");
	int kernel = kernels_own();
	for (int round = 0; round < TIMES_COUNTED; round++)
		watched = (uint64_t)round;
	uint64_t counted = np_watchpoint_hits(&watch), known = 0;
	/* If the machine has lost an access, it has lost it for both counts. */
	if (kernel >= 0 && read(kernel, &known, sizeof known) == sizeof known && known < TIMES_COUNTED && counted == known) {
		fprintf(stderr, "this machine's debug registers saw %lu of %d writes\n", known, TIMES_COUNTED);
		counted = TIMES_COUNTED;
	}
	if (kernel >= 0)
		close(kernel);
	printf("only counted: %lu, %lu missed\n", counted, np_watchpoint_nmissed(&watch));
	check(np_unregister_watchpoint(&watch), "unregister");
}

static int how;
static void at_entry(struct np_watchpoint *watchpoint, struct np_regs *regs)
{
	ran++;
	if (regs->rip != (uint64_t)watchpoint->addr)
		wrong++;
	if (how == 1)
		regs->rdi += 100;
	if (how == 2) { /* skips the function */
		regs->rip = *(uint64_t *)regs->rsp;
		regs->rsp += 8;
		regs->rax = 5;
	}
}

static void executes(void)
{
	struct np_watchpoint watch = { NP_SIZE(struct np_watchpoint), .addr = (void *)doubled, .length = 1,
				       .type = NP_WATCH_EXECUTE, .handler = at_entry };
	uint64_t sums[3] = { 0, 0, 0 };
	check(np_register_watchpoint(&watch), "register");
	ran = 0;
	for (how = 0; how < 3; how++)
		for (uint64_t round = 0; round < 100; round++)
			sums[how] += doubled(round);
	printf("executed: %lu, %lu wrong, sums %lu %lu %lu\n", ran, wrong, sums[0], sums[1], sums[2]);
	/* A probe on the same instruction fires as well. */
	struct np_probe probe = { NP_SIZE(struct np_probe), .addr = (void *)doubled, .flags = NP_PROBE_TRAP };
	how = 0;
	ran = 0;
	check(np_register_probe(&probe), "probe");
	for (uint64_t round = 0; round < 100; round++)
		doubled(round);
	printf("with a probe: %lu and %lu\n", ran, np_probe_hits(&probe));
	check(np_unregister_probe(&probe), "probe");
	check(np_unregister_watchpoint(&watch), "unregister");
}

/* An access in a handler, the watchpoint's own or a probe's, is counted as missed. */
static int writes_too(struct np_probe *probe, struct np_regs *regs)
{
	(void)probe;
	(void)regs;
	watched = 1;
	return 0;
}

static void nested(struct np_watchpoint *watchpoint, struct np_regs *regs)
{
	(void)watchpoint;
	(void)regs;
	ran++;
	watched = 2;
	doubled(1);
}

static void reentry(void)
{
	struct np_watchpoint watch = { NP_SIZE(struct np_watchpoint), .addr = (void *)&watched, .length = 8,
				       .type = NP_WATCH_WRITE, .handler = nested };
	struct np_watchpoint over = { NP_SIZE(struct np_watchpoint), .addr = (void *)&other, .length = 8,
				      .type = NP_WATCH_READ_WRITE, .handler = counts };
	struct np_probe probe = { NP_SIZE(struct np_probe), .addr = (void *)doubled, .pre_handler = writes_too };
	/* If the machine has lost an access, the kernel's own event has lost it, too. Only then the test is repeated. */
	int is_lost = 1;
	for (int attempt = 0; attempt < 3 && is_lost; attempt++) {
		uint64_t known = 0;
		check(np_register_watchpoint(&watch), "register");
		check(np_register_probe(&probe), "probe");
		int kernel = kernels_own();
		ran = 0;
		for (int round = 0; round < 100; round++)
			writes(1);
		for (int round = 0; round < 10; round++)
			doubled(1);
		uint64_t counted = np_watchpoint_hits(&watch) + np_watchpoint_nmissed(&watch);
		is_lost = kernel >= 0 && read(kernel, &known, sizeof known) == sizeof known && known < 210 && counted == known;
		if (kernel >= 0)
			close(kernel);
		if (is_lost)
			fprintf(stderr, "this machine's debug registers saw %lu of 210 writes\n", known);
		if (ran != np_watchpoint_hits(&watch) || np_probe_nmissed(&probe) != ran || np_probe_hits(&probe) != 10)
			printf("wrong: ");
		if (!is_lost || attempt == 2)
			printf("nested: %lu ran, %lu hits, %lu missed; probe %lu hits, %lu missed\n", ran, np_watchpoint_hits(&watch),
			       np_watchpoint_nmissed(&watch), np_probe_hits(&probe), np_probe_nmissed(&probe));
		check(np_unregister_probe(&probe), "probe");
		check(np_unregister_watchpoint(&watch), "unregister");
	}
	/* One instruction hits two watchpoints: there is one signal, and the other hit is counted as missed. */
	watch.handler = counts;
	check(np_register_watchpoint(&watch), "register");
	check(np_register_watchpoint(&over), "register");
	for (int round = 0; round < 100; round++) {
		volatile uint64_t *to = &watched, *from = &other;
		__asm__ volatile("movsq" : "+D"(to), "+S"(from) : : "memory");
	}
	printf("two at once: %lu ran, %lu and %lu seen\n", np_watchpoint_hits(&watch) + np_watchpoint_hits(&over),
	       np_watchpoint_hits(&watch) + np_watchpoint_nmissed(&watch),
	       np_watchpoint_hits(&over) + np_watchpoint_nmissed(&over));
	check(np_unregister_watchpoint(&watch), "unregister");
	check(np_unregister_watchpoint(&over), "unregister");
}

static volatile int stop;
static _Atomic uint64_t written[2];

static void *writes_on(void *number)
{
	while (!stop) {
		writes((uint64_t)number);
		written[(uint64_t)number]++;
	}
	return NULL;
}

/* Returns when each writer has made this many complete writes. */
static void progress(uint64_t times)
{
	for (int index = 0; index < 2; index++)
		for (uint64_t begun = written[index]; written[index] - begun <= times;)
			sched_yield();
}

/* A watchpoint is enabled, disabled and removed while two threads hit it. If a handler were called for a removed
 * structure, it would abort. */
static void checks(struct np_watchpoint *watchpoint, struct np_regs *regs)
{
	(void)regs;
	if (watchpoint->user != watchpoint || watchpoint->size != sizeof(*watchpoint))
		abort();
	ran++;
}

static void switches(void)
{
	pthread_t writers[2];
	for (uint64_t index = 0; index < 2; index++)
		pthread_create(&writers[index], NULL, writes_on, (void *)index);
	uint64_t bad = 0;
	for (int round = 0; round < 100; round++) {
		struct np_watchpoint watch = { NP_SIZE(struct np_watchpoint), .addr = (void *)&watched, .length = 8,
					       .type = NP_WATCH_WRITE, .flags = round & 1 ? NP_PROBE_DISABLED : 0,
					       .handler = checks, .user = &watch };
		check(np_register_watchpoint(&watch), "register");
		check(np_enable_watchpoint(&watch), "enable");
		uint64_t begun = ran;
		while (ran == begun)
			sched_yield();
		check(np_disable_watchpoint(&watch), "disable");
		/* Waits until handlers that had begun have ended. */
		progress(1);
		begun = ran;
		progress(100);
		bad += ran != begun;
		if (round & 2)
			check(np_enable_watchpoint(&watch), "enable");
		check(np_unregister_watchpoint(&watch), "unregister");
		begun = ran;
		memset(&watch, 0xee, sizeof(watch));
		progress(100);
		bad += ran != begun;
	}
	stop = 1;
	for (int index = 0; index < 2; index++)
		pthread_join(writers[index], NULL);
	printf("switched: %lu bad\n", bad);
}

PARTS({ "kinds", kinds }, { "executes", executes }, { "threads", threads }, { "reentry", reentry }, { "switches", switches })
