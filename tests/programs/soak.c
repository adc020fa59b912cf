/* A program for the soak: calls in batches, on request, whose number is known; and work in between, so that a tracer
 * always comes upon a program that executes.
 *
 *   soak threads|coroutines|rseq
 *
 * For a line with a number on the input, the program calls soak_call that many times and answers `done NUMBER`. The end
 * of the input ends the program, which then says OK. It checks its own results after each batch:
 *
 *   threads     four threads make the calls; each sums what the calls returned
 *   coroutines  64 coroutines whose stacks lie side by side in one array, with a filled gap between any two
 *   rseq        two threads that change their processor add to a counter of each processor in a restartable sequence,
 *               which nothing else keeps from losing an addition
 */
#include <pthread.h>
#include <sched.h>
#include <sys/select.h>
#include <stddef.h>
#include <stdatomic.h>
#include <ucontext.h>

#include "check.h"

#define THREADS 4
#define COROUTINES 64
#define STACK_BYTES 16384
#define GAP_BYTES 4096
#define PROCESSORS 1024

static atomic_ulong calls;

PROBED uint64_t soak_call(uint64_t number)
{
	atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
	return number * 2654435761u ^ number >> 3;
}

static uint64_t expected(uint64_t from, uint64_t to)
{
	uint64_t sum = 0;
	for (uint64_t number = from; number < to; number++)
		sum += number * 2654435761u ^ number >> 3;
	return sum;
}

/* Work that is not counted in any batch: allocations and strings. */
static void *noise(void *argument)
{
	(void)argument;
	for (unsigned round = 0;; round++) {
		char *text = malloc(64 + round % 512);
		snprintf(text, 64, "round %u", round);
		CHECK(strtoul(text + 6, NULL, 10) == round);
		free(text);
		if (round % 4096 == 0)
			usleep(1000);
	}
	return NULL;
}

struct part {
	uint64_t from, to, sum;
};

static void *make_calls(void *argument)
{
	struct part *part = argument;
	for (uint64_t number = part->from; number < part->to; number++)
		part->sum += soak_call(number);
	return NULL;
}

static void batch_of_threads(uint64_t count)
{
	pthread_t threads[THREADS];
	struct part parts[THREADS] = {0};
	uint64_t sum = 0;
	for (unsigned index = 0; index < THREADS; index++) {
		parts[index].from = count * index / THREADS;
		parts[index].to = count * (index + 1) / THREADS;
		CHECK(pthread_create(&threads[index], NULL, make_calls, &parts[index]) == 0);
	}
	for (unsigned index = 0; index < THREADS; index++) {
		CHECK(pthread_join(threads[index], NULL) == 0);
		sum += parts[index].sum;
	}
	CHECK(sum == expected(0, count));
}

static unsigned char stacks[COROUTINES][STACK_BYTES + GAP_BYTES];
static ucontext_t scheduler, coroutines[COROUTINES];
static uint64_t left[COROUTINES], sums[COROUTINES];

static void coroutine(unsigned index)
{
	for (;;) {
		if (left[index]) {
			left[index]--;
			sums[index] += soak_call(left[index]);
		}
		swapcontext(&coroutines[index], &scheduler);
	}
}

static void make_coroutines(void)
{
	for (unsigned index = 0; index < COROUTINES; index++) {
		memset(stacks[index], (int)(0x40 + index), GAP_BYTES);
		getcontext(&coroutines[index]);
		coroutines[index].uc_stack.ss_sp = stacks[index] + GAP_BYTES;
		coroutines[index].uc_stack.ss_size = STACK_BYTES;
		coroutines[index].uc_link = &scheduler;
		makecontext(&coroutines[index], (void (*)(void))coroutine, 1, index);
	}
}

/* The gap lies below a stack, so a write beyond the end of the stack is seen in it. */
static void check_gaps(void)
{
	for (unsigned index = 0; index < COROUTINES; index++)
		for (unsigned byte = 0; byte < GAP_BYTES; byte++)
			CHECK(stacks[index][byte] == 0x40 + index);
}

static void batch_of_coroutines(uint64_t count)
{
	uint64_t open = count, sum = 0, wanted = 0;
	for (unsigned index = 0; index < COROUTINES; index++) {
		left[index] = count * (index + 1) / COROUTINES - count * index / COROUTINES;
		sums[index] = 0;
		wanted += expected(0, left[index]);
	}
	while (open) {
		open = 0;
		for (unsigned index = 0; index < COROUTINES; index++) {
			swapcontext(&scheduler, &coroutines[index]);
			open += left[index];
		}
	}
	for (unsigned index = 0; index < COROUTINES; index++)
		sum += sums[index];
	CHECK(sum == wanted);
	check_gaps();
}

/* Switches between coroutines all the time, so that a tracer meets the thread on a coroutine's stack. */
static void turn_coroutines(void)
{
	for (unsigned turn = 0; turn < 64; turn++)
		for (unsigned index = 0; index < COROUTINES; index++)
			swapcontext(&scheduler, &coroutines[index]);
	check_gaps();
}

/* The C library registers each thread's area. */
extern const ptrdiff_t __rseq_offset __attribute__((weak));
static uint64_t counters[PROCESSORS][8];

struct rseq_area {
	uint32_t cpu_id_start, cpu_id;
	uint64_t rseq_cs;
};

/* Adds 1 to the counter of the thread's processor, by load, add and store. If the kernel takes the processor away in
 * between, it restarts the sequence. */
PROBED void rseq_add(struct rseq_area *area)
{
	for (;;) {
		uint32_t processor = *(volatile uint32_t *)&area->cpu_id_start;
		uint64_t *counter = counters[processor % PROCESSORS];
		__asm__ goto volatile(
			".pushsection __rseq_cs, \"aw\"\n"
			".balign 32\n"
			"3: .long 0, 0\n"
			".quad 1f, 2f - 1f, 4f\n"
			".popsection\n"
			".pushsection __rseq_cs_ptr_array, \"aw\"\n"
			".quad 3b\n"
			".popsection\n"
			"lea 3b(%%rip), %%rax\n"
			"mov %%rax, 8(%[area])\n"
			"1:\n"
			"cmp %[processor], 4(%[area])\n"
			"jne 4f\n"
			"mov (%[counter]), %%rax\n"
			"nopl 0(%%rax,%%rax)\n"
			"add $1, %%rax\n"
			"nopw 0(%%rax,%%rax)\n"
			"mov %%rax, (%[counter])\n"
			"2:\n"
			".pushsection __rseq_failure, \"ax\"\n"
			".byte 0x0f, 0xb9, 0x3d\n"
			".long 0x53053053\n"
			"4: jmp %l[again]\n"
			".popsection\n"
			:
			: [area] "r"(area), [processor] "r"(processor), [counter] "r"(counter)
			: "rax", "memory", "cc"
			: again);
		return;
	again:;
	}
}

static void *add_by_rseq(void *argument)
{
	struct part *part = argument;
	struct rseq_area *area = (struct rseq_area *)((char *)__builtin_thread_pointer() + __rseq_offset);
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	for (uint64_t number = part->from; number < part->to; number++) {
		part->sum += soak_call(number);
		rseq_add(area);
		if (number % 1024 == 0) {
			cpu_set_t one;
			CPU_ZERO(&one);
			CPU_SET((number / 1024 + part->from) % (uint64_t)processors, &one);
			sched_setaffinity(0, sizeof one, &one);
		}
	}
	return NULL;
}

static void batch_of_rseq(uint64_t count)
{
	pthread_t threads[2];
	struct part parts[2] = {{0, count / 2, 0}, {count / 2, count, 0}};
	uint64_t added = 0;
	memset(counters, 0, sizeof counters);
	for (unsigned index = 0; index < 2; index++)
		CHECK(pthread_create(&threads[index], NULL, add_by_rseq, &parts[index]) == 0);
	for (unsigned index = 0; index < 2; index++)
		CHECK(pthread_join(threads[index], NULL) == 0);
	for (unsigned index = 0; index < PROCESSORS; index++)
		added += counters[index][0];
	CHECK(added == count);
	CHECK(parts[0].sum + parts[1].sum == expected(0, count));
}

int main(int argc, char **argv)
{
	void (*batch)(uint64_t) = batch_of_threads;
	void (*between)(void) = NULL;
	char line[64];
	size_t length = 0;
	pthread_t thread;
	take_arguments(&argc, argv);
	CHECK(argc == 2);
	if (strcmp(argv[1], "coroutines") == 0) {
		make_coroutines();
		batch = batch_of_coroutines;
		between = turn_coroutines;
	} else if (strcmp(argv[1], "rseq") == 0) {
		if (!&__rseq_offset || ((struct rseq_area *)((char *)__builtin_thread_pointer() + __rseq_offset))->cpu_id >= PROCESSORS) {
			printf("no rseq\n");
			return 0;
		}
		batch = batch_of_rseq;
	}
	CHECK(pthread_create(&thread, NULL, noise, NULL) == 0);
	printf("working\n");
	for (;;) {
		char byte;
		struct timeval wait = {0, between ? 1000 : 1000000};
		fd_set input;
		FD_ZERO(&input);
		FD_SET(0, &input);
		if (between)
			between();
		if (select(1, &input, NULL, NULL, &wait) <= 0)
			continue;
		if (read(0, &byte, 1) != 1)
			break;
		if (byte != '\n') {
			CHECK(length < sizeof line - 1);
			line[length++] = byte;
			continue;
		}
		line[length] = 0;
		length = 0;
		uint64_t count = strtoull(line, NULL, 10), before = calls;
		batch(count);
		CHECK(calls - before == count);
		printf("done %s\n", line);
	}
	printf("OK\n");
	return 0;
}
