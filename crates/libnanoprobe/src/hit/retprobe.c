/* See retprobe.h. */
#include "places.h"

struct np_hit_returns np_hit_returns NP_HIDDEN;

/* returned.S */
_Static_assert(offsetof(struct np_hit_returns, thunks) == 8, "THUNKS");
_Static_assert(offsetof(struct np_hit_returns, thunks_bytes) == 16, "THUNKS_BYTES");
_Static_assert(offsetof(struct np_hit_returns, pool) == 24, "POOL");
_Static_assert(offsetof(struct np_hit_thunks, instances) == 4160, "INSTANCES");
_Static_assert(sizeof(struct np_hit_thunk) == 32 && offsetof(struct np_hit_thunk, address) == 0, "THUNK_ADDRESS");
_Static_assert(offsetof(struct np_hit_thunk, stub) == 16, "THUNK_STUB");
_Static_assert(offsetof(struct np_hit_thunk, state) == 24, "THUNK_STATE");
_Static_assert(offsetof(struct np_hit_context, return_cursor) == 272, "CONTEXT_CURSOR");

/* The agent's instance for a word that is a thunk's address; NULL: the word is no thunk's address. */
static inline NP_PATH const struct np_hit_thunk *thunk_of(uint64_t word)
{
	uint64_t offset = word - np_hit_returns.thunks;
	if (np_likely(offset >= np_hit_returns.thunks_bytes))
		return NULL;
	return &np_hit_returns.pool->instances[offset / NP_THUNK_BYTES];
}

/* The real return address of a call. */
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

/* Whether the site's thunk is in the slot already. Another return probe of the same function has put it there, or
 * the function has jumped to its own entry. */
static inline NP_PATH const struct np_hit_thunk *taken(const struct np_hit_calls *calls, uint64_t slot)
{
	const struct np_hit_thunk *thunk = thunk_of(*(volatile uint64_t *)slot);
	return thunk && thunk->slot == slot && thunk->stub == calls->site ? thunk : NULL;
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

/* short.S */
_Static_assert(offsetof(struct np_hit_list, only) == 24, "LIST_ONLY");
_Static_assert(offsetof(struct np_hit_entry, enabled) == 44, "ENTRY_ENABLED");
_Static_assert(offsetof(struct np_hit_entry, data) == 48, "ENTRY_DATA");
_Static_assert(offsetof(struct np_hit_calls, handler) == 0, "CALLS_HANDLER");
_Static_assert(offsetof(struct np_hit_calls, owner) == 16, "CALLS_OWNER");
_Static_assert(offsetof(struct np_hit_calls, index) == 56, "CALLS_INDEX");
_Static_assert(offsetof(struct np_hit_calls, furthest) == 88, "CALLS_FURTHEST");
_Static_assert(offsetof(struct np_hit_thread, calls) == 116, "THREAD_CALLS");
_Static_assert(offsetof(struct np_hit_thread, life) == 128, "THREAD_LIFE");
_Static_assert(offsetof(struct np_hit_thread, counters) == 144, "THREAD_COUNTERS");
_Static_assert(offsetof(struct np_hit_thread, context.index) == 0x400e4, "THREAD_INDEX");
_Static_assert(offsetof(struct np_hit_thread, context.return_cursor) == 0x401a0, "THREAD_CURSOR");
_Static_assert(offsetof(struct np_hit_thread, home) == 0x40338, "THREAD_HOME");
_Static_assert(offsetof(struct np_hit_thread, returned_to) == 0x40348 && NP_RETURNED_TO_MAX == 8, "THREAD_RETURNED_TO");
_Static_assert(offsetof(struct np_hit_thread, holds) == 0x403c0, "THREAD_HOLDS");
_Static_assert(sizeof(struct np_hit_holds) == 64 && sizeof(struct np_hit_counters) == 16, "<< 6, << 4");
_Static_assert(sizeof(struct np_hit_held) == 16 && offsetof(struct np_hit_held, call) == 8, "HELD_BYTES, HELD_CALL");
_Static_assert(offsetof(struct np_hit_call, life) == 8 && offsetof(struct np_hit_call, word) == 16, "CALL_LIFE, CALL_WORD");
_Static_assert(offsetof(struct np_hit_call, instance) == 24, "CALL_INSTANCE");
_Static_assert(offsetof(struct np_hit_call, instance.return_address) == 32, "CALL_RETURN_ADDRESS");
_Static_assert(offsetof(struct np_hit_call, instance.frame) == 40, "CALL_INSTANCE_FRAME");
_Static_assert(offsetof(struct np_hit_call, instance.data) == 48, "CALL_DATA");
_Static_assert(offsetof(struct np_hit_call, claims) == 56, "CALL_CLAIMS");
_Static_assert(offsetof(struct np_hit_calls, site) == 72, "CALLS_SITE");
_Static_assert(offsetof(struct np_hit_thunks, events) == 28 && offsetof(struct np_hit_thunks, answered) == 32, "POOL_EVENTS");
_Static_assert(offsetof(struct np_hit_thunks, chunk_owners) == 64 && NP_THUNKS == 65536, "POOL_OWNERS, INSTANCES_BYTES");
_Static_assert(offsetof(struct np_hit_thunk, slot) == 8 && offsetof(struct np_hit_thunk, depth) == 28, "THUNK_SLOT, THUNK_DEPTH");
_Static_assert(NP_THUNK_CHUNK == 64 && NP_THUNK_BYTES == 16, "CHUNK_BYTES, half as far");
_Static_assert(NP_THUNK_FREE == 0 && NP_THUNK_NEXT + NP_THUNK_ARMED == 6 && NP_THUNK_STATES == 3, "CLAIM_AND_ARM");
_Static_assert(offsetof(struct np_hit_call, hold) == 60 && sizeof(struct np_hit_call) == 80, "CALL_HOLD, CALL_BYTES");
_Static_assert(NP_CALL_BUSY == 1 && NP_HOLD_HELD == 1 && NP_HOLD_WANTED == 2 && NP_HOLD_TAKEN == 3 && NP_HOLD_NEXT == 4,
	       "BUSY, HOLD_LOST");

static inline NP_PATH uint64_t *returned_to(struct np_hit_thread *self, uint64_t address)
{
	return &self->returned_to[(address ^ address >> 6) % NP_RETURNED_TO_MAX];
}

/* Does what np_return_take does, without its locked instruction and its look at the call before the return
 * address. This works if the instance at the thread's cursor is free, and if the agent has seen the return address
 * before. No other thread claims from the thread's chunk, and the thread itself is in no other handler.
 * NULL: np_return_take must be called. */
static inline NP_PATH const struct np_hit_thunk *take_quickly(const struct np_hit_calls *calls, struct np_hit_thread *self,
							      uint64_t slot)
{
	struct np_hit_thunks *pool = np_hit_returns.pool;
	uint64_t address = *(volatile uint64_t *)slot;
	uint64_t offset = self->context.return_cursor - (uint64_t)pool->instances, index = offset / sizeof(*pool->instances);
	if (np_unlikely(index >= NP_THUNKS || offset % sizeof(*pool->instances) != 0 ||
			pool->chunk_owners[index / NP_THUNK_CHUNK] != self->context.index + 1))
		return NULL;
	struct np_hit_thunk *thunk = &pool->instances[index];
	uint32_t state = __atomic_load_n(&thunk->state, __ATOMIC_RELAXED);
	if (np_unlikely((state & NP_THUNK_STATES) != NP_THUNK_FREE || *returned_to(self, address) != address || thunk_of(address) ||
			__atomic_load_n(&pool->events, __ATOMIC_ACQUIRE) != __atomic_load_n(&pool->answered, __ATOMIC_ACQUIRE)))
		return NULL;
	thunk->address = address;
	thunk->slot = slot;
	thunk->stub = calls->site;
	thunk->depth = 0;
	/* The state is written first: a signal handler that interrupts this and unwinds must see which return address it
	 * has to put back. */
	__atomic_store_n(&thunk->state, state + NP_THUNK_NEXT + NP_THUNK_ARMED, __ATOMIC_RELEASE);
	__atomic_store_n((uint64_t *)slot, np_hit_returns.thunks + index * NP_THUNK_BYTES, __ATOMIC_RELEASE);
	self->context.return_cursor = (index + 1) % NP_THUNK_CHUNK ? (uint64_t)(thunk + 1) : 0;
	return thunk;
}

static NP_PATH __attribute__((noinline)) const struct np_hit_thunk *take_slowly(const struct np_hit_calls *calls,
										 struct np_hit_thread *self, uint64_t slot)
{
	uint64_t address = *(volatile uint64_t *)slot;
	const struct np_hit_thunk *thunk = taken(calls, slot);
	if (thunk)
		return thunk;
	np_hit_returns.take(&self->context, slot, calls->site);
	thunk = taken(calls, slot);
	if (thunk && !thunk_of(address))
		*returned_to(self, address) = address;
	return thunk;
}

static inline NP_PATH int replace(const struct np_hit_calls *calls, struct np_hit_thread *self, struct np_hit_call *call,
				  uint64_t frame)
{
	const struct np_hit_thunk *thunk = take_quickly(calls, self, frame);
	if (np_unlikely(!thunk))
		thunk = take_slowly(calls, self, frame);
	if (np_unlikely(!thunk))
		return 0;
	call->claims = thunk->state >> 2;
	return 1;
}

static inline NP_PATH void set_free(struct np_hit_place place)
{
	__atomic_store_n(place.frame, NP_CALL_FREE, __ATOMIC_RELEASE);
}

/* Notes the call whose handler is about to run. If the handler is abandoned, the note says which call it had. */
static inline NP_PATH void give(struct np_hit_thread *self, struct np_hit_place place)
{
	self->call_frame = place.frame;
	self->call = place.call;
}

static NP_PATH __attribute__((noinline)) int entry_in_full(struct np_hit_entry *entry, struct np_regs *regs)
{
	struct np_hit_thread *self = np_hit_self;
	struct np_hit_calls *calls = entry->data;
	uint64_t frame = regs->rsp;
	struct np_hit_place place = np_place_find(calls, self, frame);
	if (np_unlikely(place.call != NULL)) {
		if (is_same(calls, place.call, frame))
			return 0;
		if (np_place_change(place, frame, NP_CALL_BUSY)) {
			np_place_abandon(calls, self, place.call);
			set_free(place);
		}
	}
	place = np_place_claim(calls, self, frame);
	struct np_hit_call *call = place.call;
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
		give(self, place);
		int left_out = calls->entry_handler(&call->instance, regs);
		self->call = NULL;
		if (left_out) {
			set_free(place);
			return 0;
		}
	}
	if (calls->by_address && np_unlikely(!replace(calls, self, call, frame))) {
		self->counters[calls->index].missed++;
		set_free(place);
		return 0;
	}
	call->word = *(volatile uint64_t *)frame; /* the return address, or the address of the thunk that has replaced it */
	self->calls++;
	__atomic_store_n(place.frame, frame, __ATOMIC_RELEASE);
	return calls->by_address ? NP_HIT_PAIR : 0;
}

/* This begins with the short way: no entry handler, no other active call of the probe in the thread, and the
 * thread's first place is free. It is written so that the compiler saves no registers. */
NP_PATH int np_retprobe_entry(struct np_hit_entry *entry, struct np_regs *regs)
{
	struct np_hit_thread *self = np_hit_self;
	struct np_hit_calls *calls = entry->data;
	struct np_hit_held *held = self->holds[calls->index].held;
	struct np_hit_call *call = held->call;
	uint64_t frame = regs->rsp, word = *(volatile uint64_t *)frame;
	if (np_unlikely(calls->is_long || frame >> 16 != self->home || __atomic_load_n(&calls->furthest, __ATOMIC_ACQUIRE) ||
			!call || held[0].frame | held[1].frame | held[2].frame | held[3].frame || thunk_of(word)))
		return entry_in_full(entry, regs);
	__atomic_store_n(&held->frame, NP_CALL_BUSY, __ATOMIC_RELAXED);
	__asm__ volatile("" ::: "memory");
	const struct np_hit_thunk *thunk = NULL;
	if (np_unlikely((__atomic_load_n(&call->hold, __ATOMIC_RELAXED) & NP_HOLD_STATES) != NP_HOLD_HELD ||
			(calls->by_address && !(thunk = take_quickly(calls, self, frame))))) {
		__atomic_store_n(&held->frame, NP_CALL_FREE, __ATOMIC_RELEASE);
		return entry_in_full(entry, regs);
	}
	call->life = self->life;
	call->instance.retprobe = calls->owner;
	call->instance.data = call + 1;
	call->instance.return_address = (void *)word;
	call->instance.frame = (void *)frame;
	call->word = word;
	self->calls++;
	if (thunk) {
		call->claims = thunk->state >> 2;
		call->word = *(volatile uint64_t *)frame;
	}
	__atomic_store_n(&held->frame, frame, __ATOMIC_RELEASE);
	return thunk ? NP_HIT_PAIR : 0;
}

/* Ends a call, so that no other thread can end it any more. Not 0: this thread has ended the call. */
static inline NP_PATH int end(struct np_hit_thread *self, struct np_hit_place place, uint64_t frame)
{
	/* While the call's thread lives, only that thread may treat the call as ended. */
	if (np_likely(place.call->life == self->life)) {
		self->calls--;
		__atomic_store_n(place.frame, NP_CALL_BUSY, __ATOMIC_RELAXED);
		return 1;
	}
	return np_place_change(place, frame, NP_CALL_BUSY);
}

static inline NP_PATH void hand_over(const struct np_hit_calls *calls, struct np_hit_call *call, struct np_regs *regs,
				     uint64_t frame)
{
	regs->rip = (uint64_t)call->instance.return_address;
	regs->rsp = frame + 8;
	calls->handler(&call->instance, regs);
}

/* The handler sees the function left, whatever form the probe has. It cannot change where the thread continues. */
static inline NP_PATH void returned(struct np_hit_thread *self, const struct np_hit_calls *calls, struct np_regs *regs,
				    uint64_t frame)
{
	struct np_hit_place place = np_place_find(calls, self, frame);
	struct np_hit_call *call = place.call;
	if (!call || !end(self, place, frame))
		return;
	self->counters[calls->index].hits++;
	if (calls->handler) {
		uint64_t rip = regs->rip, rsp = regs->rsp;
		give(self, place);
		if (np_unlikely(self->recoverable)) {
			/* The handler gets a copy, so that nothing must be undone if the handler is abandoned. */
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
	set_free(place);
}

/* Frees the call of an abandoned handler. An abandoned entry handler has left its call out, and after an abandoned
 * return handler the call has ended. */
NP_PATH void np_retprobe_abandoned_handler(struct np_hit_thread *self)
{
	if (self->call)
		__atomic_store_n(self->call_frame, NP_CALL_FREE, __ATOMIC_RELEASE);
	self->call = NULL;
}

NP_PATH int np_retprobe_exit(struct np_hit_entry *entry, struct np_regs *regs)
{
	returned(np_hit_self, entry->data, regs, regs->rsp);
	return 0;
}

/* Like an np_hit_function, with a way out for faults. */
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
	const struct np_hit_calls *only = list->only ? list->only->data : NULL;
	if (np_likely(only && list->only->function == np_retprobe_entry && only->by_address)) {
		returned(self, only, regs, frame);
		*self->error = saved;
		return;
	}
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

static NP_PATH __attribute__((noinline)) void run_returned_with_simd(struct np_hit_thread *self,
								     const struct np_hit_list *list,
								     struct np_regs *regs, uint64_t frame)
{
	__attribute__((aligned(64))) char area[NP_SIMD_BYTES];
	uint32_t features = np_hit_save(area, list);
	run_returned(self, list, regs, frame);
	np_simd_restore(area, features);
}

NP_PATH struct np_hit_context *np_hit_returned(struct np_hit_site *site, struct np_regs *regs,
					       const struct np_hit_thunk *thunk)
{
	struct np_hit_thread *self = np_hit_self;
	uint64_t frame = thunk->slot;
	if (np_unlikely(!self))
		self = np_hit_join();
	/* This thread counts as inside of a handler, but the call began outside. So the handler was left in a forbidden
	 * way. */
	if (np_unlikely(!self) || (np_unlikely(self->depth) && !np_hit_is_left(self, regs->rsp, NULL)))
		return NULL;
	__atomic_store_n(&self->depth, regs->rsp, __ATOMIC_RELEASE);
	__asm__ volatile("" ::: "memory");
	const struct np_hit_list *list = __atomic_load_n(&site->list, __ATOMIC_ACQUIRE);
	if (list && list->saved >= NP_HIT_SAVED_XMM)
		run_returned_with_simd(self, list, regs, frame);
	else if (list)
		run_returned(self, list, regs, frame);
	__atomic_store_n(&self->epoch, self->epoch + 1, __ATOMIC_RELEASE);
	__atomic_store_n(&self->depth, 0, __ATOMIC_RELEASE);
	return &self->context;
}

static NP_PATH int is_by_exits(const struct np_hit_entry *entry)
{
	return entry->function == np_retprobe_entry && !((const struct np_hit_calls *)entry->data)->by_address;
}

NP_PATH int np_retprobe_has_exits(const struct np_hit_list *list)
{
	for (uint64_t index = 0; list && index < list->count; index++)
		if (is_by_exits(list->entries[index]))
			return 1;
	return 0;
}

static NP_PATH __attribute__((noinline)) void run_hooked(struct np_hit_thread *self, const struct np_hit_list *list,
							  struct np_regs *regs, uint64_t frame)
{
	int saved = *self->error;
	for (uint64_t index = 0; index < list->count; index++) {
		struct np_hit_entry *entry = list->entries[index];
		if (!is_by_exits(entry))
			continue;
		self->current = entry;
		if (np_unlikely(entry->fault != NULL))
			returned_guarded(self, entry, regs, frame);
		else
			returned(self, entry->data, regs, frame);
	}
	*self->error = saved;
}

static NP_PATH __attribute__((noinline)) void run_hooked_with_simd(struct np_hit_thread *self, const struct np_hit_list *list,
								    struct np_regs *regs, uint64_t frame)
{
	__attribute__((aligned(64))) char area[NP_SIMD_BYTES];
	uint32_t features = np_hit_save(area, list);
	run_hooked(self, list, regs, frame);
	np_simd_restore(area, features);
}

NP_PATH void np_retprobe_hooked(struct np_hit_site *site, struct np_regs *regs)
{
	struct np_hit_thread *self = np_hit_self;
	uint64_t frame = regs->rsp;
	if (!self || (self->depth && !np_hit_is_left(self, frame, NULL)))
		return;
	__atomic_store_n(&self->depth, frame, __ATOMIC_RELEASE);
	__asm__ volatile("" ::: "memory");
	const struct np_hit_list *list = __atomic_load_n(&site->list, __ATOMIC_ACQUIRE);
	int has_exits = np_retprobe_has_exits(list);
	if (has_exits && list->saved >= NP_HIT_SAVED_XMM)
		run_hooked_with_simd(self, list, regs, frame);
	else if (has_exits)
		run_hooked(self, list, regs, frame);
	__atomic_store_n(&self->epoch, self->epoch + 1, __ATOMIC_RELEASE);
	__atomic_store_n(&self->depth, 0, __ATOMIC_RELEASE);
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
	for (uint64_t number = 0; number < calls->capacity; number++) {
		struct np_hit_place place = np_place_with(calls, number);
		uint64_t frame = __atomic_load_n(place.frame, __ATOMIC_ACQUIRE);
		if (frame <= NP_CALL_HELD || place.call->life != life || frame < low || frame >= high)
			continue;
		/* The agent keeps a thunk that a slot may still need. Slots below this frame are out of use, but a slot above
		 * may hold one of our thunks. */
		if (frame < here && taken(calls, frame))
			*(volatile uint64_t *)frame = 0;
		__atomic_fetch_add(&calls->abandoned, 1, __ATOMIC_RELAXED);
		set_free(place);
	}
}
