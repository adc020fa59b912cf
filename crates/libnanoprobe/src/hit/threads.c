/* Threads' blocks.
 *
 * A new thread takes over the block of a dead one, or maps a block. Blocks are never unmapped: a count is the sum
 * over all of them, and readers hold no lock. */
#include "hit.h"
#include "raw.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>

/* The TLS model is stated again: the declaration's model does not apply in the file with the definition. */
__thread struct np_hit_thread *np_hit_self __attribute__((tls_model("initial-exec")));
static struct np_hit_thread *first;
static uint64_t lives;
static uint32_t blocks;

/* The key of pthread_key_create, for np_hit_watch_threads. Only a key below this can be set without allocating
 * memory. */
enum { KEYS_IN_PLACE = 32 };
static unsigned key = KEYS_IN_PLACE;

static NP_PATH int is_dead(uint64_t process, uint64_t tid)
{
	enum { NO_SUCH_PROCESS = -3 };
	return np_raw_call(SYS_tgkill, (long)process, (long)tid, 0, 0, 0, 0) == NO_SUCH_PROCESS;
}

/* How many blocks are checked for a dead owner before a new one is mapped: this bounds the time of a thread's first
 * hit. */
enum { LOOKED_AT = 64 };

/* For each hash of an address region: the block that owns the region, that of the first thread that made calls
 * there. No other block may ever hold a call with a frame in the region (places.h), so an owner never changes. */
enum { REGION_BITS = 16, REGIONS = 4096 };
static struct np_hit_thread *regions[REGIONS];

static inline NP_PATH struct np_hit_thread **region_of(uint64_t address)
{
	return &regions[(address >> REGION_BITS) * 0x9e3779b97f4a7c15UL >> 52];
}

NP_PATH struct np_hit_thread *np_hit_owner(uint64_t address)
{
	return __atomic_load_n(region_of(address), __ATOMIC_ACQUIRE);
}

NP_PATH int np_hit_settle(struct np_hit_thread *self, uint64_t address)
{
	struct np_hit_thread *owner = np_hit_owner(address);
	if (!owner && __atomic_compare_exchange_n(region_of(address), &owner, self, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		owner = self;
	if (owner == self)
		self->home = address >> REGION_BITS;
	return owner == self;
}

/* Takes over a block whose thread has died. Yields whether the block now belongs to the calling thread. */
static NP_PATH int take(struct np_hit_thread *block, uint64_t process, uint64_t tid)
{
	uint64_t owner = __atomic_load_n(&block->tid, __ATOMIC_ACQUIRE);
	if (owner != 0 && !is_dead(process, owner))
		return 0;
	if (!__atomic_compare_exchange_n(&block->tid, &owner, tid, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		return 0;
	/* The last owner may have died inside of a handler. */
	block->current = NULL;
	block->call = NULL;
	block->recoverable = 0;
	block->calls = 0;
	block->readable = 0;
	block->life = __atomic_add_fetch(&lives, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&block->epoch, block->epoch + 1, __ATOMIC_RELEASE);
	__atomic_store_n(&block->depth, 0, __ATOMIC_RELEASE);
	return 1;
}

static NP_PATH struct np_hit_thread *take_over(uint64_t process, uint64_t tid)
{
	/* Stacks are used again, too, so the best block is that of the last thread on this stack. */
	struct np_hit_thread *before = np_hit_owner((uint64_t)__builtin_frame_address(0));
	if (before && take(before, process, tid))
		return before;
	int looked = 0;
	for (struct np_hit_thread *block = __atomic_load_n(&first, __ATOMIC_ACQUIRE); block && looked < LOOKED_AT;
	     block = block->next, looked++)
		if (take(block, process, tid))
			return block;
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
		/* An empty entry is 0. The address 1 is never looked up at this index, so the entry for 0 never matches. */
		block->returned_to[0] = 1;
		block->life = __atomic_add_fetch(&lives, 1, __ATOMIC_RELAXED);
		block->context.index = __atomic_fetch_add(&blocks, 1, __ATOMIC_RELAXED);
		block->next = __atomic_load_n(&first, __ATOMIC_ACQUIRE);
		while (!__atomic_compare_exchange_n(&first, &block->next, block, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			;
	}
	/* The C library's function that yields errno's address may be probed: a thread that is hit in it must find a whole
	 * block. To the compiler it is a constant function, so it could be called earlier, before the block is complete. A
	 * volatile pointer hides from the compiler which function this is. */
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

struct np_hit_thread *np_hit_threads(void)
{
	return __atomic_load_n(&first, __ATOMIC_ACQUIRE);
}

struct np_hit_thread **np_hit_threads_address(void)
{
	return &first;
}

void np_hit_clear_holds(uint32_t index)
{
	for (struct np_hit_thread *block = np_hit_threads(); block; block = block->next)
		for (int number = 0; number < NP_HELD_MAX; number++) {
			struct np_hit_held *held = &block->holds[index].held[number];
			/* Each slot is read before it is written, since memory that was only read takes no page. */
			if (held->call || held->frame)
				*held = (struct np_hit_held){ 0 };
		}
}

void np_hit_forked(void)
{
	for (struct np_hit_thread *block = np_hit_threads(); block; block = block->next)
		if (block != np_hit_self)
			block->tid = 0;
	if (np_hit_self)
		np_hit_self->tid = (uint64_t)np_raw_call(SYS_gettid, 0, 0, 0, 0, 0, 0);
}
