/* Return probes: argv[1] is the form, 1 exits, 2 the address. Both forms must print the same. */
#include <nanoprobe.h>
#include <execinfo.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* A function that ThreadSanitizer instruments reads its return address, so the address cannot be replaced. */
#define FUNCTION __attribute__((noinline, noclone, no_sanitize_thread))
#define OPAQUE __asm__ volatile("" ::: "memory")

static int form;

static void fail(const char *what, int error)
{
	fprintf(stderr, "%s: %s: %s\n", what, np_strerror(error), np_last_error());
	exit(1);
}

static void put(struct np_retprobe *probe, int flags)
{
	probe->probe.size = sizeof(*probe);
	probe->probe.flags |= flags;
	probe->form = form;
	int error = np_register_retprobe(probe);
	if (error)
		fail("register", error);
	if (np_retprobe_form(probe) != (enum np_retprobe_form)form)
		fail("form", 0);
}

static void take(struct np_retprobe *probe)
{
	int error = np_unregister_retprobe(probe);
	if (error)
		fail("unregister", error);
}

static void report(const char *what, struct np_retprobe *probe)
{
	printf("%s: %lu hits, %lu missed, %lu abandoned\n", what, np_probe_hits(&probe->probe),
	       np_retprobe_nmissed(probe), np_retprobe_abandoned(probe));
}

/* ---- values, data, skipping ---- */

FUNCTION uint64_t twice(uint64_t value)
{
	OPAQUE;
	return 2 * value;
}

struct seen {
	uint64_t argument, zeros;
};

static int on_entry(struct np_retprobe_instance *instance, struct np_regs *regs)
{
	struct seen *seen = instance->data;
	if ((uintptr_t)seen % 16 || seen->argument || seen->zeros)
		abort();
	if ((uint64_t)instance->frame != regs->rsp)
		abort();
	seen->argument = regs->rdi;
	seen->zeros = ~0UL;
	return regs->rdi == 13;
}

static int on_return(struct np_retprobe_instance *instance, struct np_regs *regs)
{
	struct seen *seen = instance->data;
	if (regs->rax != 2 * seen->argument || regs->rip != (uint64_t)instance->return_address ||
	    regs->rsp != (uint64_t)instance->frame + 8)
		abort();
	if (seen->argument == 7)
		regs->rax = 77;
	regs->rip = 0; /* no effect */
	regs->rsp = 0;
	return 0;
}

static void values(void)
{
	for (int flags = 0; flags <= NP_PROBE_TRAP; flags += NP_PROBE_NO_SIMD) {
		struct np_retprobe probe = { { .symbol = "twice" }, .handler = on_return, .entry_handler = on_entry,
					     .data_size = sizeof(struct seen) };
		put(&probe, flags);
		uint64_t sum = 0;
		for (uint64_t value = 0; value < 1000; value++)
			sum += twice(value);
		printf("sum %lu\n", sum);
		report("values", &probe);
		take(&probe);
		if (np_unregister_retprobe(&probe) != NP_ERROR_NOT_REGISTERED || twice(7) != 14)
			abort();
	}
}

/* ---- recursion, threads, maxactive ---- */

FUNCTION uint64_t descend(uint64_t depth)
{
	OPAQUE;
	uint64_t below = depth ? descend(depth - 1) : 0;
	OPAQUE;
	return below + 1;
}

enum { THREADS = 16, ROUNDS = 2000, DEPTH = 9 };

static void *descends(void *unused)
{
	for (int round = 0; round < ROUNDS; round++)
		if (descend(DEPTH) != DEPTH + 1)
			abort();
	return unused;
}

static void recursion(int maxactive)
{
	struct np_retprobe probe = { { .symbol = "descend" }, .maxactive = maxactive };
	pthread_t threads[THREADS];
	put(&probe, NP_PROBE_NO_SIMD);
	for (int index = 0; index < THREADS; index++)
		pthread_create(&threads[index], NULL, descends, NULL);
	for (int index = 0; index < THREADS; index++)
		pthread_join(threads[index], NULL);
	uint64_t hits = np_probe_hits(&probe.probe), missed = np_retprobe_nmissed(&probe);
	int exact = hits + missed == (uint64_t)THREADS * ROUNDS * (DEPTH + 1) && hits > 0;
	printf("recursion, maxactive %d: %s, %lu abandoned%s\n", maxactive, exact ? "exact" : "WRONG",
	       np_retprobe_abandoned(&probe), maxactive == 1 && missed == 0 ? ", none missed" : "");
	if (!exact)
		printf("%lu + %lu\n", hits, missed);
	take(&probe);
}

static volatile int depths[3];

static int counts_depth(struct np_retprobe_instance *instance, struct np_regs *regs)
{
	(void)instance;
	depths[0]++;
	depths[1] += (int)regs->rax;
	return 0;
}

static void alone(void)
{
	struct np_retprobe probe = { { .symbol = "descend" }, .handler = counts_depth, .maxactive = 4 };
	put(&probe, 0);
	for (int round = 0; round < 10; round++)
		descend(DEPTH);
	/* Of each ten nested calls, only the outermost four are followed. */
	printf("alone: %d %d\n", depths[0], depths[1]);
	report("alone", &probe);
	take(&probe);
}

/* ---- calls that never return ---- */

static jmp_buf back;

FUNCTION int jumps(int value)
{
	OPAQUE;
	if (value & 1)
		longjmp(back, 1);
	OPAQUE;
	return value;
}

FUNCTION int deeper(int value, int depth)
{
	volatile char room[64];
	room[depth & 63] = 1;
	int result = depth ? deeper(value, depth - 1) : jumps(value);
	OPAQUE;
	return result + room[depth & 63] - 1;
}

static void longjmps(int maxactive)
{
	struct np_retprobe probe = { { .symbol = "jumps" }, .maxactive = maxactive };
	put(&probe, 0);
	volatile int returned = 0, jumped = 0;
	for (volatile int value = 0; value < 100; value++) {
		if (setjmp(back)) {
			jumped++;
			continue;
		}
		returned += deeper(value, value % 7) == value;
	}
	setjmp(back);
	uint64_t all = np_probe_hits(&probe.probe) + np_retprobe_nmissed(&probe) + np_retprobe_abandoned(&probe);
	printf("longjmp, maxactive %d: %d %d, %lu hits, %s\n", maxactive, returned, jumped,
	       np_probe_hits(&probe.probe), all <= 100 && all >= 100 - 7 ? "the rest abandoned" : "WRONG");
	take(&probe);
}

FUNCTION int falls(int depth)
{
	OPAQUE;
	int below = depth ? falls(depth - 1) : jumps(1);
	OPAQUE;
	return below + 1;
}

static int entries;

static int counts_entries(struct np_retprobe_instance *instance, struct np_regs *regs)
{
	(void)instance;
	(void)regs;
	entries++;
	return 0;
}

/* The next call has the same frame and the same return address as the call that was left. It must count as another
 * call. */
static void recursion_left_by_longjmp(void)
{
	struct np_retprobe probe = { { .symbol = "falls" }, .entry_handler = counts_entries };
	put(&probe, 0);
	for (volatile int round = 0; round < 50; round++)
		if (!setjmp(back))
			falls(DEPTH);
	uint64_t all = np_probe_hits(&probe.probe) + np_retprobe_nmissed(&probe) + np_retprobe_abandoned(&probe);
	printf("recursion left by longjmp: %d entered, %s\n", entries,
	       all >= 49 * (DEPTH + 1) && all <= 50 * (DEPTH + 1) ? "the rest abandoned" : "WRONG");
	take(&probe);
}

FUNCTION void *leaves(void *value)
{
	OPAQUE;
	if (value)
		pthread_exit(value);
	OPAQUE;
	return NULL;
}

static void *thread_leaves(void *value)
{
	void *result = leaves(value);
	OPAQUE;
	return result;
}

static void thread_ends(void)
{
	struct np_retprobe probe = { { .symbol = "leaves" }, .maxactive = 1 };
	put(&probe, 0);
	for (long round = 0; round < 20; round++) {
		pthread_t thread;
		void *result;
		pthread_create(&thread, NULL, thread_leaves, (void *)(round & 1));
		pthread_join(thread, &result);
		if (result != (void *)(round & 1))
			abort();
	}
	report("threads that end inside", &probe);
	take(&probe);
}

/* ---- several at a place ---- */

static char order[64];

static int notes(struct np_retprobe_instance *instance, struct np_regs *regs)
{
	(void)regs;
	strcat(order, instance->retprobe->probe.user);
	return 0;
}

static int notes_too(struct np_probe *probe, struct np_regs *regs)
{
	(void)regs;
	strcat(order, probe->user);
	return 0;
}

static void colocated(void)
{
	struct np_retprobe probes[3];
	struct np_probe plain = { NP_SIZE(struct np_probe), .symbol = "twice", .pre_handler = notes_too, .user = "p" };
	memset(probes, 0, sizeof(probes));
	for (int index = 0; index < 3; index++) {
		static char names[3][3] = { "a", "b", "c" };
		probes[index].probe.symbol = "twice";
		probes[index].probe.user = names[index];
		probes[index].handler = notes;
		if (index == 1)
			np_register_probe(&plain);
		put(&probes[index], 0);
	}
	twice(1);
	strcat(order, " ");
	take(&probes[0]);
	twice(1);
	strcat(order, " ");
	probes[0].probe.addr = NULL;
	put(&probes[0], 0);
	np_disable_probe(&probes[1].probe);
	twice(1);
	np_unregister_probe(&plain);
	printf("colocated: %s\n", order);
	for (int index = 0; index < 3; index++)
		take(&probes[index]);
}

/* ---- taken away while calls are active ---- */

static struct np_retprobe removed = { { .symbol = "removes" } };

FUNCTION int removes(int value)
{
	OPAQUE;
	if (value)
		take(&removed);
	OPAQUE;
	return value + 1;
}

static void removal(void)
{
	for (int round = 0; round < 50; round++) {
		removed.probe.addr = NULL;
		put(&removed, 0);
		if (removes(0) != 1 || np_probe_hits(&removed.probe) != 1 || removes(1) != 2)
			abort();
	}
	printf("removed while active\n");
}

/* ---- unwinding, fork, reentry ---- */

FUNCTION int walks(int depth)
{
	OPAQUE;
	if (depth) {
		int below = walks(depth - 1);
		OPAQUE; /* no tail call */
		return below;
	}
	void *frames[64];
	int count = backtrace(frames, 64), found = 0;
	for (int index = 0; index < count; index++)
		found += (char *)frames[index] > (char *)walks && (char *)frames[index] < (char *)walks + 200;
	return found;
}

static void unwinding(void)
{
	struct np_retprobe probe = { { .symbol = "walks" } };
	put(&probe, 0);
	int first = walks(5), second = walks(5);
	printf("backtrace: %d %d\n", first, second);
	take(&probe);
}

static void forks(void)
{
	struct np_retprobe probe = { { .symbol = "descend" }, .handler = counts_depth };
	put(&probe, 0);
	depths[0] = 0;
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		descend(DEPTH);
		_exit(depths[0]);
	}
	int status = 0;
	waitpid(child, &status, 0);
	descend(DEPTH);
	printf("fork: child %d, parent %d\n", WEXITSTATUS(status), depths[0]);
	take(&probe);
}

static int calls_it(struct np_retprobe_instance *instance, struct np_regs *regs)
{
	(void)instance;
	regs->rax += twice(1);
	return 0;
}

static void reentry(void)
{
	struct np_retprobe probe = { { .symbol = "twice" }, .handler = calls_it, .entry_handler = calls_it };
	put(&probe, 0);
	/* The entry handler returns 0, so the call is followed. The function does not read the rax that the handler
	   changes. */
	printf("reentry: %lu\n", twice(5));
	report("reentry", &probe);
	take(&probe);
}

/* A function that jumps to its own entry. */
uint64_t loops(uint64_t count, uint64_t sum);
__asm__(".text\n.globl loops\n.type loops, @function\nloops:\n\tleaq 8(%rsi,%rdi), %rsi\n\tsubq $1, %rdi\n\tjnz loops\n"
	"\tmovq %rsi, %rax\n\tnop\n\tret\n.size loops, . - loops\n");

static void own_entry(void)
{
	struct np_retprobe probe = { { .symbol = "loops" } };
	put(&probe, 0);
	uint64_t sum = 0;
	for (int round = 0; round < 10; round++)
		sum += loops(4, 0);
	printf("own entry: %lu\n", sum);
	report("own entry", &probe);
	take(&probe);
}

int main(int count, char **arguments)
{
	form = count > 1 ? atoi(arguments[1]) : NP_RETPROBE_EXITS;
	values();
	recursion(1);
	recursion(40);
	recursion(0);
	alone();
	longjmps(0);
	longjmps(1);
	recursion_left_by_longjmp();
	thread_ends();
	colocated();
	removal();
	unwinding();
	forks();
	reentry();
	own_entry();
	return 0;
}
