/* Threads' blocks.
 *
 * A block is taken over from a thread that is dead, else mapped. Blocks are never unmapped: counters are the sum over all
 * of them, and who reads them holds no lock. */
#include "hit.h"
#include "raw.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>

/* The model once more: that of the declaration says nothing for the file that has the definition. */
__thread struct np_hit_thread *np_hit_self __attribute__((tls_model("initial-exec")));
static struct np_hit_thread *first;
static uint64_t lives;
static uint32_t blocks;

/* Of pthread_key_create, by np_hit_watch_threads; only a key below this needs no memory to be set. */
enum { KEYS_IN_PLACE = 32 };
static unsigned key = KEYS_IN_PLACE;

static NP_PATH int is_dead(uint64_t process, uint64_t tid)
{
	enum { NO_SUCH_PROCESS = -3 };
	return np_raw_call(SYS_tgkill, (long)process, (long)tid, 0, 0, 0, 0) == NO_SUCH_PROCESS;
}

/* Blocks whose owner is looked for before a new one is mapped, at most: a bound on the time of a thread's first hit. */
enum { LOOKED_AT = 64 };

static NP_PATH struct np_hit_thread *take_over(uint64_t process, uint64_t tid)
{
	int looked = 0;
	for (struct np_hit_thread *block = __atomic_load_n(&first, __ATOMIC_ACQUIRE); block && looked < LOOKED_AT;
	     block = block->next, looked++) {
		uint64_t owner = __atomic_load_n(&block->tid, __ATOMIC_ACQUIRE);
		if (owner != 0 && !is_dead(process, owner))
			continue;
		if (!__atomic_compare_exchange_n(&block->tid, &owner, tid, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			continue;
		/* A thread may have died inside of a handler. */
		block->current = NULL;
		block->recoverable = 0;
		block->calls = 0;
		block->readable = 0;
		block->life = __atomic_add_fetch(&lives, 1, __ATOMIC_RELAXED);
		__atomic_store_n(&block->epoch, block->epoch + 1, __ATOMIC_RELEASE);
		__atomic_store_n(&block->depth, 0, __ATOMIC_RELEASE);
		return block;
	}
	return NULL;
}

NP_PATH struct np_hit_thread *np_hit_join(void)
{
	uint64_t process = (uint64_t)np_raw_call(SYS_getpid, 0, 0, 0, 0, 0, 0);
	uint64_t tid = (uint64_t)np_raw_call(SYS_gettid, 0, 0, 0, 0, 0, 0);
	struct np_hit_thread *block = take_over(process, tid);
	if (!block) {
		long mapped = np_raw_call(SYS_mmap, 0, sizeof(*block), PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (mapped < 0 && mapped > -4096)
			return NULL;
		block = (struct np_hit_thread *)mapped;
		block->tid = tid;
		block->life = __atomic_add_fetch(&lives, 1, __ATOMIC_RELAXED);
		block->context.index = __atomic_fetch_add(&blocks, 1, __ATOMIC_RELAXED);
		block->next = __atomic_load_n(&first, __ATOMIC_ACQUIRE);
		while (!__atomic_compare_exchange_n(&first, &block->next, block, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			;
	}
	/* The C library's function that yields errno's address may be probed: whoever is hit in it finds a block, whole. To the
	 * compiler it is a constant, which may be asked for earlier, and behind which nobody looks at the block: so it is not
	 * told which function this is. */
	int *(*volatile location)(void) = __errno_location;
	block->error = &block->fallback;
	__asm__ volatile("" ::: "memory");
	np_hit_self = block;
	__asm__ volatile("" ::: "memory");
	block->error = location();
	if (key < KEYS_IN_PLACE)
		pthread_setspecific(key, block);
	return block;
}

int np_hit_watch_threads(void (*ends)(void *))
{
	pthread_key_t made;
	int error = key == KEYS_IN_PLACE ? pthread_key_create(&made, ends) : 0;
	if (error == 0 && key == KEYS_IN_PLACE)
		key = made;
	return error;
}

NP_PATH int np_hit_is_over(uint64_t life)
{
	uint64_t process = (uint64_t)np_raw_call(SYS_getpid, 0, 0, 0, 0, 0, 0);
	for (struct np_hit_thread *block = np_hit_threads(); block; block = block->next)
		if (block->life == life)
			return block->tid == 0 || is_dead(process, block->tid);
	return 1;
}

struct np_hit_thread *np_hit_thread_or_null(void)
{
	return np_hit_self;
}

struct np_hit_thread *np_hit_threads(void)
{
	return __atomic_load_n(&first, __ATOMIC_ACQUIRE);
}

struct np_hit_thread **np_hit_threads_address(void)
{
	return &first;
}

void np_hit_forked(void)
{
	for (struct np_hit_thread *block = np_hit_threads(); block; block = block->next)
		if (block != np_hit_self)
			block->tid = 0;
	if (np_hit_self)
		np_hit_self->tid = (uint64_t)np_raw_call(SYS_gettid, 0, 0, 0, 0, 0, 0);
}
