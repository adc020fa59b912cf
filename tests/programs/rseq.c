/* Counters of each processor, added to by restartable sequences: rseq listed|unlisted|LIBRARY ROUNDS.
 *
 * Four threads, on any number of processors, add to them by load, work and store, which is atomic only because the
 * kernel restarts an interrupted sequence. `listed`: the descriptor lies in section __rseq_cs. `unlisted`: it is made
 * when the program runs, so that no file describes it. LIBRARY: this source as a library, whose `listed` one is used.
 */
#include "check.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <sys/syscall.h>

enum { PROCESSORS = 1024, THREADS = 4 };

struct counter {
	unsigned long value;
	char rest[56];
} __attribute__((aligned(64)));

typedef void add(struct counter *counters, ptrdiff_t area);

/* The structure that the kernel reads: linux/rseq.h. */
struct descriptor {
	unsigned version, flags;
	unsigned long start, bytes, abort;
} __attribute__((aligned(32)));

#define SEQUENCE                                                                                             \
	"	movq %%rax, %%fs:8(%[area])\n"                                                                      \
	"1:	movl %%fs:4(%[area]), %%eax\n"                                                                      \
	"	shlq $6, %%rax\n"                                                                                   \
	"	movq (%[counters], %%rax), %%rcx\n"                                                                 \
	"	movl $20, %%edx\n"                                                                                  \
	"5:	decl %%edx\n"                                                                                       \
	"	jnz 5b\n"                                                                                           \
	"	incq %%rcx\n"                                                                                       \
	"	movq %%rcx, (%[counters], %%rax)\n"                                                                 \
	"2:	nop\n"

/* Where an interrupted thread continues, after RSEQ_SIG. */
#define ABORT                                                                                                \
	".pushsection .text.aborted, \"ax\"\n"                                                                  \
	"	.byte 0x0f, 0xb9, 0x3d\n"                                                                           \
	"	.long 0x53053053\n"                                                                                 \
	"4:	jmp 3b\n"                                                                                           \
	".popsection\n"

PROBED void add_listed(struct counter *counters, ptrdiff_t area)
{
	__asm__ volatile(".pushsection __rseq_cs, \"aw\"\n"
	                 "	.balign 32\n"
	                 "9:	.long 0, 0\n"
	                 "	.quad 1f, 2f - 1f, 4f\n"
	                 ".popsection\n"
	                 "3:	leaq 9b(%%rip), %%rax\n" SEQUENCE ABORT
	                 :
	                 : [area] "r"(area), [counters] "r"(counters)
	                 : "rax", "rcx", "rdx", "memory", "cc");
}

PROBED void add_unlisted(struct counter *counters, ptrdiff_t area)
{
	static struct descriptor descriptor;
	__asm__ volatile("3:	leaq 1f(%%rip), %%rax\n"
	                 "	movq %%rax, 8(%[descriptor])\n"
	                 "	movq $2f - 1f, 16(%[descriptor])\n"
	                 "	leaq 4f(%%rip), %%rax\n"
	                 "	movq %%rax, 24(%[descriptor])\n"
	                 "	movq %[descriptor], %%rax\n" SEQUENCE ABORT
	                 :
	                 : [area] "r"(area), [counters] "r"(counters), [descriptor] "r"(&descriptor)
	                 : "rax", "rcx", "rdx", "memory", "cc");
}

static struct counter counters[PROCESSORS];
static add *added = add_listed;
static unsigned long rounds;
static ptrdiff_t area;

static void *work(void *unused)
{
	(void)unused;
	for (unsigned long round = 0; round < rounds; round++)
		added(counters, area);
	return NULL;
}

/* Moves the threads about: half of them are bound to one processor, then to all. */
static void move(pthread_t *threads, int turn)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	for (int processor = 0; processor < CPU_SETSIZE; processor++)
		if (turn % 3 == 0 || processor % 2 == turn % 2)
			CPU_SET(processor, &set);
	for (int thread = 0; thread < THREADS / 2; thread++)
		pthread_setaffinity_np(threads[thread], sizeof set, &set);
}

int main(int argc, char **argv)
{
	take_arguments(&argc, argv);
	CHECK(argc == 3);
	const ptrdiff_t *offset = dlsym(RTLD_DEFAULT, "__rseq_offset");
	const unsigned *size = dlsym(RTLD_DEFAULT, "__rseq_size");
	if (!offset || !size || *size == 0) {
		printf("no rseq\n");
		return 0;
	}
	area = *offset;
	rounds = strtoul(argv[2], NULL, 0);
	if (strcmp(argv[1], "unlisted") == 0) {
		added = add_unlisted;
	} else if (strcmp(argv[1], "listed") != 0) {
		void *library = dlopen(argv[1], RTLD_NOW);
		CHECK(library);
		added = (add *)dlsym(library, "add_listed");
		CHECK(added && added != add_listed);
	}
	wait_for_go();
	pthread_t threads[THREADS];
	for (int thread = 0; thread < THREADS; thread++)
		CHECK(pthread_create(&threads[thread], NULL, work, NULL) == 0);
	for (int turn = 0; turn < 200; turn++) {
		move(threads, turn);
		usleep(1000);
	}
	for (int thread = 0; thread < THREADS; thread++)
		pthread_join(threads[thread], NULL);
	unsigned long sum = 0;
	for (int processor = 0; processor < PROCESSORS; processor++)
		sum += counters[processor].value;
	printf("sum %lu\n", sum);
	CHECK(sum == THREADS * rounds);
	printf("OK\n");
	return 0;
}
