/* The floor: the cost of a hand-made probe. The program patches its own function with a jump to a
 * detour that counts, executes the displaced instructions and jumps back:
 *
 *   bench_function:  e9 rel32 cc cc cc          jmp detour; the rest of the run
 *                    5d c3                      pop rbp; ret
 *   detour:          64 48 ff 04 25 disp32      inc qword fs:[counter]: each thread's own
 *                    55                         push rbp        | the displaced run,
 *                    48 89 e5                   mov rbp, rsp    | 8 bytes
 *                    48 8d 46 01                lea rax, [rsi+1]|
 *                    e9 rel32                   jmp bench_function + 8
 *
 * Prints `plain <ns per call>` and `patched <ns per call>` in turn, of each thread, in time of that thread on a
 * processor; then `counted <hits> <calls while patched>`. While the text is changed no thread executes it.
 * floor [pairs] [threads] */
#define _GNU_SOURCE
#include <pthread.h>
#include "batches.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

long bench_function(const char *text, long value);
__asm__(".section .text.bench_function, \"ax\", @progbits\n.p2align 12\n.globl bench_function\n.type bench_function, @function\n"
        "bench_function:\n	pushq %rbp\n	movq %rsp, %rbp\n	leaq 1(%rsi), %rax\n	popq %rbp\n	ret\n"
        ".size bench_function, . - bench_function\n.p2align 12\n.text\n");

enum { RUN = 8, CHUNK = 2000 };

static void put_rel32(uint8_t *at, const void *target)
{
	int64_t distance = (const uint8_t *)target - (at + 4);
	if (distance != (int32_t)distance)
		abort();
	int32_t rel32 = (int32_t)distance;
	memcpy(at, &rel32, 4);
}

/* A page of code within reach of a rel32.
 *
 * The distance is no multiple of 2^24: branch target buffers tag branches by the low 24 bits or so of their address,
 * and a detour whose own jump or call lies at the same low bits as the branches around the site evicts them at every
 * hit. With the very code below, 2^24 apart costs 20 to 30 ns a call, anything else 1 to 2. */
static uint8_t *map_near(uint8_t *text)
{
	for (uintptr_t distance = (1 << 24) + 0x5000; distance < 1U << 30; distance += 1 << 20) {
		uintptr_t wanted = ((uintptr_t)text - distance) & ~(uintptr_t)4095;
		uint8_t *near = mmap((void *)wanted, 4096, PROT_READ | PROT_WRITE,
		                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
		if (near != MAP_FAILED)
			return near;
	}
	abort();
}

static void write_text(uint8_t *text, const uint8_t *bytes)
{
	uint8_t *page = (uint8_t *)((uintptr_t)text & ~(uintptr_t)4095);
	/* Never writable and executable at once. The function has a page of its own: nothing else is executed there. */
	if (mprotect(page, 4096, PROT_READ | PROT_WRITE) != 0)
		abort();
	memcpy(text, bytes, RUN);
	if (mprotect(page, 4096, PROT_READ | PROT_EXEC) != 0)
		abort();
}

static double batch(uint64_t *calls)
{
	uint64_t start = processor_time(), end, done = 0;
	do {
		long value = 0;
		for (long i = 0; i < CHUNK; i++)
			value = bench_function("hello DTrace", value);
		if (value != CHUNK)
			abort();
		done += CHUNK;
		end = processor_time();
	} while (end - start < BATCH_NS);
	*calls += done;
	return (double)(end - start) / (double)done;
}

enum { THREADS_MAX = 256 };

struct thread {
	pthread_t id;
	uint64_t plain_calls, patched_calls, counted;
};

static uint8_t *text, original[RUN], patched[RUN];
static long pairs;
static pthread_barrier_t barrier;
static pthread_mutex_t printing = PTHREAD_MUTEX_INITIALIZER;
static __thread uint64_t counter;

static void say(const char *what, double cost)
{
	pthread_mutex_lock(&printing);
	printf("%s %.4f\n", what, cost);
	pthread_mutex_unlock(&printing);
}

static struct thread threads[THREADS_MAX];

/* All threads measure at once, first the plain function, then the patched one. The first thread changes the text
   while no other thread executes it. */
static void *measure(void *which)
{
	struct thread *self = which;
	long thread = self - threads;
	pin(thread);
	for (long pair = 0; pair < pairs; pair++) {
		pthread_barrier_wait(&barrier);
		say("plain", batch(&self->plain_calls));
		pthread_barrier_wait(&barrier);
		if (thread == 0)
			write_text(text, patched);
		pthread_barrier_wait(&barrier);
		say("patched", batch(&self->patched_calls));
		pthread_barrier_wait(&barrier);
		if (thread == 0)
			write_text(text, original);
	}
	self->counted = counter;
	return NULL;
}

int main(int argc, char **argv)
{
	pairs = argc > 1 ? atol(argv[1]) : 50;
	long count = argc > 2 ? atol(argv[2]) : 1;
	if (count < 1 || count > THREADS_MAX)
		return 2;
	text = (uint8_t *)bench_function;
	uint8_t *detour = map_near(text), *at = detour;
	uint64_t thread_pointer;
	__asm__("movq %%fs:0, %0" : "=r"(thread_pointer));
	int32_t offset = (int32_t)((int64_t)((uint64_t)&counter - thread_pointer));
	memcpy(at, "\x64\x48\xff\x04\x25", 5);
	memcpy(at + 5, &offset, 4);
	at += 9;
	memcpy(at, text, RUN);
	at += RUN;
	*at = 0xe9;
	put_rel32(at + 1, text + RUN);
	if (mprotect(detour, 4096, PROT_READ | PROT_EXEC) != 0)
		abort();

	memcpy(original, text, RUN);
	memset(patched, 0xcc, RUN);
	patched[0] = 0xe9;
	int32_t rel32 = (int32_t)(detour - (text + 5));
	memcpy(patched + 1, &rel32, 4);

	pthread_barrier_init(&barrier, NULL, (unsigned)count);
	uint64_t counted = 0, calls = 0;
	for (long thread = 0; thread < count; thread++)
		if (pthread_create(&threads[thread].id, NULL, measure, &threads[thread]) != 0)
			return 1;
	for (long thread = 0; thread < count; thread++) {
		pthread_join(threads[thread].id, NULL);
		counted += threads[thread].counted;
		calls += threads[thread].patched_calls;
	}
	printf("counted %lu %lu\n", (unsigned long)counted, (unsigned long)calls);
	return counted == calls ? 0 : 1;
}
