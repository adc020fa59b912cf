/* See retprobe.h. */
#include "retprobe.h"
#include "raw.h"

#include <sys/syscall.h>
#include <sys/uio.h>

struct np_hit_returns np_hit_returns NP_HIDDEN;

/* How many calls are looked at for one that is over, at most, when the table is full. */
enum { LOOKED_AT = 16 };
/* Further down than this from a stack pointer is another stack. */
#define STACK_BYTES (64UL << 20)

static inline NP_PATH struct np_hit_call *call_at(const struct np_hit_calls *calls, uint64_t place)
{
	return (struct np_hit_call *)(calls->calls + place * calls->stride);
}

/* Multiplied, and the product's upper half scaled to the capacity. */
static inline NP_PATH uint64_t place_of(const struct np_hit_calls *calls, uint64_t frame)
{
	return (((frame >> 3) * 0x9e3779b97f4a7c15UL) >> 32) * calls->capacity >> 32;
}

static inline NP_PATH uint64_t behind(const struct np_hit_calls *calls, uint64_t place)
{
	return place + 1 == calls->capacity ? 0 : place + 1;
}

/* The call at a frame; NULL: none is followed there. */
static inline NP_PATH struct np_hit_call *find(const struct np_hit_calls *calls, uint64_t frame)
{
	uint64_t place = place_of(calls, frame), furthest = __atomic_load_n(&calls->furthest, __ATOMIC_ACQUIRE);
	for (uint64_t distance = 0; distance <= furthest; distance++, place = behind(calls, place)) {
		struct np_hit_call *call = call_at(calls, place);
		if (__atomic_load_n(&call->frame, __ATOMIC_ACQUIRE) == frame)
			return call;
	}
	return NULL;
}

static inline NP_PATH int change(struct np_hit_call *call, uint64_t from, uint64_t to)
{
	return __atomic_compare_exchange_n(&call->frame, &from, to, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* Before the call is published: whoever looks for it looks far enough. */
static inline NP_PATH void reach(struct np_hit_calls *calls, uint64_t distance)
{
	uint64_t furthest = __atomic_load_n(&calls->furthest, __ATOMIC_RELAXED);
	while (np_unlikely(distance > furthest) &&
	       !__atomic_compare_exchange_n(&calls->furthest, &furthest, distance, 0, __ATOMIC_ACQ_REL,
					    __ATOMIC_RELAXED))
		;
}

/* The word at an address; `otherwise` where there is no memory. */
static NP_PATH uint64_t peek(uint64_t address, uint64_t otherwise)
{
	uint64_t word = otherwise;
	struct iovec local = { &word, 8 }, remote = { (void *)address, 8 };
	np_raw_call(SYS_process_vm_readv, np_raw_call(SYS_getpid, 0, 0, 0, 0, 0, 0), (long)&local, 1, (long)&remote, 1,
		    0);
	return word;
}

static NP_PATH int is_over(const struct np_hit_thread *self, const struct np_hit_call *call, uint64_t frame,
			   uint64_t stack_pointer)
{
	if (call->life != self->life)
		return np_hit_is_over(call->life);
	if (frame < stack_pointer && stack_pointer - frame < STACK_BYTES)
		return 1;
	uint64_t word = peek(frame, 0);
	return word != call->word && word != (uint64_t)call->instance.return_address;
}

static inline NP_PATH void abandon(struct np_hit_calls *calls, struct np_hit_thread *self, const struct np_hit_call *call)
{
	if (call->life == self->life && self->calls)
		self->calls--;
	__atomic_fetch_add(&calls->abandoned, 1, __ATOMIC_RELAXED);
}

/* One that is over, where all are taken; it is busy then. */
static NP_PATH __attribute__((noinline)) struct np_hit_call *recycle(struct np_hit_calls *calls,
								     struct np_hit_thread *self, uint64_t frame)
{
	uint64_t first = __atomic_fetch_add(&calls->looked, LOOKED_AT, __ATOMIC_RELAXED) % calls->capacity;
	uint64_t count = calls->capacity < LOOKED_AT ? calls->capacity : LOOKED_AT;
	for (uint64_t place = first; count; count--, place = behind(calls, place)) {
		struct np_hit_call *call = call_at(calls, place);
		uint64_t other = __atomic_load_n(&call->frame, __ATOMIC_ACQUIRE), home = place_of(calls, frame);
		if (other <= NP_CALL_BUSY || !is_over(self, call, other, frame) || !change(call, other, NP_CALL_BUSY))
			continue;
		abandon(calls, self, call);
		reach(calls, place >= home ? place - home : place + calls->capacity - home);
		return call;
	}
	return NULL;
}

static NP_PATH struct np_hit_call *claim(struct np_hit_calls *calls, struct np_hit_thread *self, uint64_t frame)
{
	uint64_t place = place_of(calls, frame);
	for (uint64_t distance = 0; distance < calls->capacity; distance++, place = behind(calls, place)) {
		struct np_hit_call *call = call_at(calls, place);
		if (__atomic_load_n(&call->frame, __ATOMIC_RELAXED) == NP_CALL_FREE &&
		    change(call, NP_CALL_FREE, NP_CALL_BUSY)) {
			reach(calls, distance);
			return call;
		}
	}
	return recycle(calls, self, frame);
}

/* The agent's instance of a word that is a thunk's address; NULL: it is none. */
static inline NP_PATH const struct np_hit_thunk *thunk_of(uint64_t word)
{
	uint64_t offset = word - np_hit_returns.thunks;
	if (np_likely(offset >= np_hit_returns.thunks_bytes))
		return NULL;
	return (const struct np_hit_thunk *)np_hit_returns.instances + offset / NP_THUNK_BYTES;
}

/* Where a call returns to, whatever has been put in front of it. */
static inline NP_PATH uint64_t real_address(uint64_t word)
{
	for (int link = 0; link <= NP_THUNK_CHAIN_MAX; link++) {
		const struct np_hit_thunk *thunk = thunk_of(word);
		if (np_likely(!thunk))
			break;
		word = thunk->address;
	}
	return word;
}

/* Whether the site's thunk is in the slot already: another return probe of the same function has put it there, or the
 * function has jumped to its own entry. */
static inline NP_PATH const struct np_hit_thunk *taken(const struct np_hit_calls *calls, uint64_t slot)
{
	const struct np_hit_thunk *thunk = thunk_of(*(volatile uint64_t *)slot);
	return thunk && thunk->slot == slot && thunk->stub == calls->stub ? thunk : NULL;
}

/* The function has jumped to its own entry: this is the same call. */
static inline NP_PATH int is_same(const struct np_hit_calls *calls, const struct np_hit_call *call, uint64_t frame)
{
	if (*(volatile uint64_t *)frame != call->word)
		return 0;
	if (!calls->by_address)
		return calls->loops;
	const struct np_hit_thunk *thunk = taken(calls, frame);
	return thunk && thunk->state >> 2 == call->claims;
}

static NP_PATH int replace(const struct np_hit_calls *calls, struct np_hit_thread *self, struct np_hit_call *call,
			   uint64_t frame)
{
	if (!taken(calls, frame))
		np_hit_returns.take(&self->context, frame, calls->stub);
	const struct np_hit_thunk *thunk = taken(calls, frame);
	if (!thunk)
		return 0;
	call->claims = thunk->state >> 2;
	return 1;
}

NP_PATH int np_retprobe_entry(struct np_hit_entry *entry, struct np_regs *regs)
{
	struct np_hit_thread *self = np_hit_self;
	struct np_hit_calls *calls = entry->data;
	uint64_t frame = regs->rsp;
	struct np_hit_call *call = find(calls, frame);
	if (np_unlikely(call != NULL)) {
		if (is_same(calls, call, frame))
			return 0;
		if (change(call, frame, NP_CALL_BUSY))
			abandon(calls, self, call);
		else
			call = NULL;
	}
	if (!call)
		call = claim(calls, self, frame);
	if (np_unlikely(!call)) {
		self->counters[calls->index].missed++;
		return 0;
	}
	call->life = self->life;
	call->instance.retprobe = calls->owner;
	call->instance.return_address = (void *)real_address(*(volatile uint64_t *)frame);
	call->instance.frame = (void *)frame;
	call->instance.data = call + 1;
	for (uint64_t word = 0; word < (calls->data_size + 7) / 8; word++)
		((volatile uint64_t *)(call + 1))[word] = 0;
	if (calls->entry_handler) {
		self->call = call;
		int left_out = calls->entry_handler(&call->instance, regs);
		self->call = NULL;
		if (left_out) {
			__atomic_store_n(&call->frame, NP_CALL_FREE, __ATOMIC_RELEASE);
			return 0;
		}
	}
	if (calls->by_address && np_unlikely(!replace(calls, self, call, frame))) {
		self->counters[calls->index].missed++;
		__atomic_store_n(&call->frame, NP_CALL_FREE, __ATOMIC_RELEASE);
		return 0;
	}
	call->word = *(volatile uint64_t *)frame;
	self->calls++;
	__atomic_store_n(&call->frame, frame, __ATOMIC_RELEASE);
	return 0;
}

/* Nobody else may take the call from here on. Not 0: it is ours. */
static inline NP_PATH int end(struct np_hit_thread *self, struct np_hit_call *call, uint64_t frame)
{
	/* While its thread lives, nobody but that takes a call for over. */
	if (np_likely(call->life == self->life)) {
		self->calls--;
		__atomic_store_n(&call->frame, NP_CALL_BUSY, __ATOMIC_RELAXED);
		return 1;
	}
	return change(call, frame, NP_CALL_BUSY);
}

static inline NP_PATH void hand_over(const struct np_hit_calls *calls, struct np_hit_call *call, struct np_regs *regs,
				     uint64_t frame)
{
	regs->rip = (uint64_t)call->instance.return_address;
	regs->rsp = frame + 8;
	calls->handler(&call->instance, regs);
}

/* The handler sees the function left, whatever form the probe has. Where the thread goes on is not its to change. */
static inline NP_PATH void returned(struct np_hit_thread *self, const struct np_hit_calls *calls, struct np_regs *regs,
				    uint64_t frame)
{
	struct np_hit_call *call = find(calls, frame);
	if (!call || !end(self, call, frame))
		return;
	self->counters[calls->index].hits++;
	if (calls->handler) {
		uint64_t rip = regs->rip, rsp = regs->rsp;
		self->call = call;
		if (np_unlikely(self->recoverable)) {
			/* A copy: should the handler be abandoned, nothing of this is to be undone. */
			struct np_regs seen = *regs;
			hand_over(calls, call, &seen, frame);
			*regs = seen;
		} else {
			hand_over(calls, call, regs, frame);
		}
		self->call = NULL;
		regs->rip = rip;
		regs->rsp = rsp;
	}
	__atomic_store_n(&call->frame, NP_CALL_FREE, __ATOMIC_RELEASE);
}

/* The call of the entry handler is left out, that of the handler is over. */
NP_PATH void np_retprobe_abandoned_handler(struct np_hit_thread *self)
{
	if (self->call)
		__atomic_store_n(&self->call->frame, NP_CALL_FREE, __ATOMIC_RELEASE);
	self->call = NULL;
}

NP_PATH int np_retprobe_exit(struct np_hit_entry *entry, struct np_regs *regs)
{
	returned(np_hit_self, entry->data, regs, regs->rsp);
	return 0;
}

/* np_hit_function-like, with a way out for faults. */
static NP_PATH __attribute__((noinline)) void returned_guarded(struct np_hit_thread *self, struct np_hit_entry *entry,
								struct np_regs *regs, uint64_t frame)
{
	if (!__builtin_setjmp(self->recover)) {
		self->recoverable = 1;
		returned(self, entry->data, regs, frame);
	} else {
		self = np_hit_self;
		np_retprobe_abandoned_handler(self);
	}
	self->recoverable = 0;
}

static NP_PATH void run_returned(struct np_hit_thread *self, const struct np_hit_list *list, struct np_regs *regs,
				 uint64_t frame)
{
	int saved = *self->error;
	for (uint64_t index = 0; index < list->count; index++) {
		struct np_hit_entry *entry = list->entries[index];
		if (entry->function != np_retprobe_entry || !((struct np_hit_calls *)entry->data)->by_address)
			continue;
		self->current = entry;
		if (np_unlikely(entry->fault != NULL))
			returned_guarded(self, entry, regs, frame);
		else
			returned(self, entry->data, regs, frame);
	}
	*self->error = saved;
}

extern NP_HIDDEN uint32_t np_simd_features, np_simd_live;

static NP_PATH __attribute__((noinline)) void run_returned_with_simd(struct np_hit_thread *self,
								     const struct np_hit_list *list,
								     struct np_regs *regs, uint64_t frame)
{
	__attribute__((aligned(64))) char area[NP_SIMD_BYTES];
	np_simd_save(area, np_simd_features, np_simd_live);
	run_returned(self, list, regs, frame);
	np_simd_restore(area, np_simd_features);
}

NP_PATH struct np_hit_context *np_hit_returned(struct np_hit_site *site, struct np_regs *regs,
					       const struct np_hit_thunk *thunk)
{
	struct np_hit_thread *self = np_hit_self;
	uint64_t frame = thunk->slot;
	if (np_unlikely(!self))
		self = np_hit_join();
	/* Within a handler: the call began outside, so the handler has been left in a way that it may not. */
	if (np_unlikely(!self) || np_unlikely(self->depth))
		return NULL;
	__atomic_store_n(&self->depth, 1, __ATOMIC_RELEASE);
	__asm__ volatile("" ::: "memory");
	const struct np_hit_list *list = __atomic_load_n(&site->list, __ATOMIC_ACQUIRE);
	if (list && list->simd)
		run_returned_with_simd(self, list, regs, frame);
	else if (list)
		run_returned(self, list, regs, frame);
	__atomic_store_n(&self->epoch, self->epoch + 1, __ATOMIC_RELEASE);
	__atomic_store_n(&self->depth, 0, __ATOMIC_RELEASE);
	return &self->context;
}

NP_PATH int np_unwinder_hit(struct np_hit_entry *entry, struct np_regs *regs)
{
	(void)entry;
	(void)regs;
	np_hit_returns.put_back();
	return 0;
}

void np_retprobe_thread_ends(struct np_hit_calls *calls, uint64_t life, uint64_t low, uint64_t high)
{
	uint64_t here = (uint64_t)__builtin_frame_address(0);
	for (uint64_t place = 0; place < calls->capacity; place++) {
		struct np_hit_call *call = call_at(calls, place);
		uint64_t frame = __atomic_load_n(&call->frame, __ATOMIC_ACQUIRE);
		if (frame <= NP_CALL_BUSY || call->life != life || frame < low || frame >= high)
			continue;
		/* A thunk in a slot is needed, as the agent sees it. Below us nothing is there any more; above us it may be
		 * one of ours. */
		if (frame < here && taken(calls, frame))
			*(volatile uint64_t *)frame = 0;
		__atomic_fetch_add(&calls->abandoned, 1, __ATOMIC_RELAXED);
		__atomic_store_n(&call->frame, NP_CALL_FREE, __ATOMIC_RELEASE);
	}
}
