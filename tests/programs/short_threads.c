/* Threads that live for one call, or a few.
 * short_threads [threads] [at once] [calls of each] [raw] raw: made by clone(2), each with a thread control block where
 * none has been before; else the C library's. After a batch of threads, which are gone by then, the program calls
 * batch_done; after `--wait` it waits for a line each time. */
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include "check.h"

#define AT_ONCE_MAX 2048
#define BLOCK_BYTES 8192
#define STACK_BYTES 65536
#define BATCH 400
#define WAIT_FOR_CHANGE 0 /* FUTEX_WAIT; not every C library has its header */

static long calls_each;
static uint64_t results[AT_ONCE_MAX];
static pthread_t ids[AT_ONCE_MAX];
/* Raw threads: their control blocks, their stacks, and where in such a block the C library keeps the thread's id. */
static char *blocks, *stacks;
static long blocks_used, tid_offset;
static int *tids[AT_ONCE_MAX];
/* All threads of a batch make their calls before the first of them ends. */
static long called, awaited;

PROBED uint64_t short_work(uint64_t value)
{
	return value * 6364136223846793005UL + 1442695040888963407UL;
}

PROBED uint64_t batch_done(uint64_t batch)
{
	return batch + 1;
}

static int run_raw(void *result)
{
	uint64_t value = 1;
	for (long i = 0; i < calls_each; i++)
		value = short_work(value);
	*(uint64_t *)result = value;
	__atomic_fetch_add(&called, 1, __ATOMIC_SEQ_CST);
	/* This calls no function of the C library: the thread is not one of its threads. */
	while (__atomic_load_n(&called, __ATOMIC_SEQ_CST) < awaited) {
		long result_of_yield = SYS_sched_yield;
		__asm__ volatile("syscall" : "+a"(result_of_yield) : : "rcx", "r11", "memory");
	}
	return 0;
}

static void *run(void *result)
{
	uint64_t value = 1;
	for (long i = 0; i < calls_each; i++)
		value = short_work(value);
	*(uint64_t *)result = value;
	return NULL;
}

static void find_tid_offset(void)
{
	char *own = (char *)pthread_self();
	for (tid_offset = 8; tid_offset < 1024; tid_offset += 4)
		if (*(int *)(own + tid_offset) == (int)getpid())
			return;
	tid_offset = 1024;
}

static void start_raw(long index)
{
	char *block = blocks + blocks_used++ * BLOCK_BYTES;
	*(char **)block = block;
	*(char **)(block + 16) = block;
	tids[index] = (int *)(block + tid_offset);
	*tids[index] = -1;
	int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_SETTLS |
	            CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID;
	CHECK(clone(run_raw, stacks + (index + 1) * STACK_BYTES, flags, &results[index], NULL, block, tids[index]) > 0);
}

static void join_raw(long index)
{
	int now;
	while ((now = __atomic_load_n(tids[index], __ATOMIC_SEQ_CST)) != 0)
		syscall(SYS_futex, tids[index], WAIT_FOR_CHANGE, now, NULL, NULL, 0);
}

int main(int argc, char **argv)
{
	take_arguments(&argc, argv);
	long threads = number(argc, argv, 1, 20000), at_once = number(argc, argv, 2, 1);
	calls_each = number(argc, argv, 3, 1);
	int raw = argc > 4 && strcmp(argv[4], "raw") == 0;
	CHECK(at_once >= 1 && at_once <= AT_ONCE_MAX && calls_each >= 1);
	if (raw) {
		int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, access = PROT_READ | PROT_WRITE;
		blocks = mmap(NULL, (size_t)(threads + at_once) * BLOCK_BYTES, access, flags, -1, 0);
		stacks = mmap(NULL, AT_ONCE_MAX * STACK_BYTES, access, flags, -1, 0);
		CHECK(blocks != MAP_FAILED && stacks != MAP_FAILED);
		find_tid_offset();
	}
	wait_for_go();
	uint64_t right = 1, batches = 0;
	for (long i = 0; i < calls_each; i++)
		right = right * 6364136223846793005UL + 1442695040888963407UL;
	long made = 0, in_batch = 0;
	/* This thread gets its slot and context before all of them are taken. */
	CHECK(batch_done(~0UL) == 0);
	while (made < threads) {
		long count = threads - made < at_once ? threads - made : at_once;
		awaited = called + count;
		for (long i = 0; i < count; i++) {
			if (raw)
				start_raw(i);
			else
				CHECK(pthread_create(&ids[i], NULL, run, &results[i]) == 0);
		}
		for (long i = 0; i < count; i++) {
			if (raw)
				join_raw(i);
			else
				CHECK(pthread_join(ids[i], NULL) == 0);
			CHECK(results[i] == right);
			results[i] = 0;
		}
		made += count;
		in_batch += count;
		if (in_batch >= BATCH || made == threads) {
			in_batch = 0;
			batches = batch_done(batches);
			if (check_wait)
				wait_for_line();
		}
	}
	printf("threads %ld\ncalls %ld\nbatches %ld\n", threads, threads * calls_each, (long)batches);
	return finish(right);
}
