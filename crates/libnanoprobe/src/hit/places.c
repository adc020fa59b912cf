/* See places.h. This file is the part that needs more than plain stores. */
#include "places.h"
#include "raw.h"

#include <sys/syscall.h>
#include <sys/uio.h>

/* When all places are taken, at most this many calls are checked for one that has ended. */
enum { LOOKED_AT = 16 };
/* A frame further below a stack pointer than this is on another stack. */
#define STACK_BYTES (64UL << 20)

static inline NP_PATH struct np_hit_call *call_at(const struct np_hit_calls *calls, uint64_t place)
{
	return (struct np_hit_call *)(calls->calls + place * calls->stride);
}

/* The hash: a multiplication, whose upper half is scaled to the capacity. */
static inline NP_PATH uint64_t place_of(const struct np_hit_calls *calls, uint64_t frame)
{
	return (((frame >> 3) * 0x9e3779b97f4a7c15UL) >> 32) * calls->capacity >> 32;
}

static inline NP_PATH uint64_t behind(const struct np_hit_calls *calls, uint64_t place)
{
	return place + 1 == calls->capacity ? 0 : place + 1;
}

/* Called before a shared call is published, so that searches in the table go far enough to find it. */
static inline NP_PATH void reach(struct np_hit_calls *calls, uint64_t frame, uint64_t place)
{
	uint64_t home = place_of(calls, frame);
	uint64_t distance = 1 + (place >= home ? place - home : place + calls->capacity - home);
	uint64_t furthest = __atomic_load_n(&calls->furthest, __ATOMIC_RELAXED);
	while (np_unlikely(distance > furthest) &&
	       !__atomic_compare_exchange_n(&calls->furthest, &furthest, distance, 0, __ATOMIC_ACQ_REL,
					    __ATOMIC_RELAXED))
		;
}

static inline NP_PATH int hold_change(struct np_hit_call *call, uint32_t from, uint32_t to)
{
	return __atomic_compare_exchange_n(&call->hold, &from, to, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* The slot that holds the place, or is about to lose the place; NULL: there is no such slot. */
static inline NP_PATH struct np_hit_held *holder_of(const struct np_hit_call *call)
{
	uint32_t state = __atomic_load_n(&call->hold, __ATOMIC_ACQUIRE) & NP_HOLD_STATES;
	return state == NP_HOLD_HELD || state == NP_HOLD_WANTED ? call->holder : NULL;
}

NP_PATH struct np_hit_place np_place_with(const struct np_hit_calls *calls, uint64_t number)
{
	struct np_hit_call *call = call_at(calls, number);
	struct np_hit_held *held = holder_of(call);
	return (struct np_hit_place){ call, held ? &held->frame : &call->frame };
}

NP_PATH struct np_hit_place np_place_elsewhere(const struct np_hit_calls *calls, struct np_hit_thread *self, uint64_t frame)
{
	uint64_t place = place_of(calls, frame), furthest = __atomic_load_n(&calls->furthest, __ATOMIC_ACQUIRE);
	for (uint64_t distance = 0; distance < furthest; distance++, place = behind(calls, place)) {
		struct np_hit_call *call = call_at(calls, place);
		if (__atomic_load_n(&call->frame, __ATOMIC_ACQUIRE) == frame)
			return (struct np_hit_place){ call, &call->frame };
	}
	struct np_hit_thread *owner = np_hit_owner(frame);
	if (!owner || owner == self)
		return (struct np_hit_place){ 0 };
	for (int number = 0; number < NP_HELD_MAX; number++) {
		struct np_hit_held *held = &owner->holds[calls->index].held[number];
		if (__atomic_load_n(&held->frame, __ATOMIC_ACQUIRE) == frame)
			return (struct np_hit_place){ held->call, &held->frame };
	}
	return (struct np_hit_place){ 0 };
}

NP_PATH int np_place_keep(struct np_hit_held *held)
{
	uint32_t hold = __atomic_load_n(&held->call->hold, __ATOMIC_ACQUIRE);
	/* Meanwhile the thread that wants the place may give up, and another thread may want it. */
	while ((hold & NP_HOLD_STATES) != NP_HOLD_TAKEN)
		if ((hold & NP_HOLD_STATES) == NP_HOLD_HELD ||
		    hold_change(held->call, hold, (hold & ~(uint32_t)NP_HOLD_STATES) | NP_HOLD_HELD))
			return 1;
		else
			hold = __atomic_load_n(&held->call->hold, __ATOMIC_ACQUIRE);
	held->call = NULL;
	__atomic_store_n(&held->frame, NP_CALL_FREE, __ATOMIC_RELEASE);
	return 0;
}

const uint64_t *np_hit_sandboxed NP_HIDDEN;

/* Whether system calls may be made. A seccomp filter may kill the program for a call that the program never makes
 * itself. */
static inline NP_PATH int may_call(void)
{
	return !np_hit_sandboxed || !__atomic_load_n(np_hit_sandboxed, __ATOMIC_RELAXED);
}

static NP_PATH int barrier_in_every_thread(void)
{
	enum { PRIVATE_EXPEDITED = 1 << 3 };
	return may_call() && np_raw_call(SYS_membarrier, PRIVATE_EXPEDITED, 0, 0, 0, 0, 0) == 0;
}

/* Takes away an idle place from another thread, or from this thread on another stack. The place is shared then. */
static NP_PATH int take_away(struct np_hit_call *call)
{
	struct np_hit_held *held = holder_of(call);
	uint32_t hold = __atomic_load_n(&call->hold, __ATOMIC_ACQUIRE), state = hold & NP_HOLD_STATES;
	if (!held || __atomic_load_n(&held->frame, __ATOMIC_ACQUIRE) != NP_CALL_FREE)
		return 0;
	if (state == NP_HOLD_HELD) {
		uint32_t wanted = (hold & ~(uint32_t)NP_HOLD_STATES) + NP_HOLD_NEXT + NP_HOLD_WANTED;
		if (!hold_change(call, hold, wanted))
			return 0;
		hold = wanted;
	} else if (state != NP_HOLD_WANTED) {
		return 0;
	}
	/* In a child of fork the thread that wanted it may not exist any more, so this thread may finish its work. */
	if (barrier_in_every_thread() && __atomic_load_n(&held->frame, __ATOMIC_ACQUIRE) == NP_CALL_FREE)
		return hold_change(call, hold, hold | NP_HOLD_TAKEN);
	hold_change(call, hold, (hold & ~(uint32_t)NP_HOLD_STATES) | NP_HOLD_HELD);
	return 0;
}

/* The word at an address; `otherwise` if nothing is mapped there. */
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
	if (call->life == self->life && frame < stack_pointer && stack_pointer - frame < STACK_BYTES)
		return 1;
	if (!may_call())
		return 0;
	if (call->life != self->life)
		return np_hit_is_over(call->life);
	uint64_t word = peek(frame, 0);
	return word != call->word && word != (uint64_t)call->instance.return_address;
}

NP_PATH void np_place_abandon(struct np_hit_calls *calls, struct np_hit_thread *self, const struct np_hit_call *call)
{
	if (call->life == self->life && self->calls)
		self->calls--;
	__atomic_fetch_add(&calls->abandoned, 1, __ATOMIC_RELAXED);
}

static NP_PATH int is_own(const struct np_hit_calls *calls, const struct np_hit_thread *self, const uint64_t *frame)
{
	const struct np_hit_holds *holds = &self->holds[calls->index];
	return (const char *)frame >= (const char *)holds && (const char *)frame < (const char *)(holds + 1);
}

/* Used when all places are taken: finds a place whose call has ended, and makes it busy. */
static NP_PATH struct np_hit_place recycle(struct np_hit_calls *calls, struct np_hit_thread *self, uint64_t frame)
{
	uint64_t first = __atomic_fetch_add(&calls->looked, LOOKED_AT, __ATOMIC_RELAXED) % calls->capacity;
	uint64_t count = calls->capacity < LOOKED_AT ? calls->capacity : LOOKED_AT;
	for (uint64_t number = first; count; count--, number = behind(calls, number)) {
		struct np_hit_place place = np_place_with(calls, number);
		struct np_hit_call *call = place.call;
		uint64_t other = __atomic_load_n(place.frame, __ATOMIC_ACQUIRE);
		if (other <= NP_CALL_HELD || !is_over(self, call, other, frame))
			continue;
		/* By now the slot may hold another call. */
		if (place.frame != &call->frame && __atomic_load_n(&call->holder->call, __ATOMIC_ACQUIRE) != call)
			continue;
		if (!np_place_change(place, other, NP_CALL_BUSY))
			continue;
		np_place_abandon(calls, self, call);
		if (place.frame == &call->frame) {
			reach(calls, frame, number);
			return place;
		}
		if (is_own(calls, self, place.frame) && np_place_is_home(self, frame))
			return place;
		/* While the slot is busy, no thread takes the place away. */
		uint32_t hold = __atomic_load_n(&call->hold, __ATOMIC_ACQUIRE);
		while (!hold_change(call, hold, hold | NP_HOLD_TAKEN))
			hold = __atomic_load_n(&call->hold, __ATOMIC_ACQUIRE);
		__atomic_store_n(place.frame, NP_CALL_FREE, __ATOMIC_RELEASE);
		reach(calls, frame, number);
		return (struct np_hit_place){ call, &call->frame };
	}
	return (struct np_hit_place){ 0 };
}

/* A slot of the thread that holds no place; NULL: there is none, or the frame is not in the thread's own region. */
static NP_PATH struct np_hit_held *slot_for(const struct np_hit_calls *calls, struct np_hit_thread *self, uint64_t frame)
{
	for (int number = 0; np_place_is_home(self, frame) && number < NP_HELD_MAX; number++) {
		struct np_hit_held *held = &self->holds[calls->index].held[number];
		if (!held->call)
			return held;
	}
	return NULL;
}

NP_PATH struct np_hit_place np_place_claim_slowly(struct np_hit_calls *calls, struct np_hit_thread *self, uint64_t frame)
{
	struct np_hit_held *slot = slot_for(calls, self, frame);
	uint64_t number = place_of(calls, frame);
	for (uint64_t distance = 0; distance < calls->capacity; distance++, number = behind(calls, number)) {
		struct np_hit_call *call = call_at(calls, number);
		struct np_hit_place place = { call, &call->frame };
		if (__atomic_load_n(&call->frame, __ATOMIC_RELAXED) != NP_CALL_FREE ||
		    !np_place_change(place, NP_CALL_FREE, NP_CALL_BUSY))
			continue;
		if (!slot || call->hold != NP_HOLD_NEVER) {
			reach(calls, frame, number);
			return place;
		}
		__atomic_store_n(&slot->frame, NP_CALL_BUSY, __ATOMIC_RELAXED);
		__atomic_store_n(&slot->call, call, __ATOMIC_RELAXED);
		call->holder = slot;
		__atomic_store_n(&call->frame, NP_CALL_HELD, __ATOMIC_RELAXED);
		__atomic_store_n(&call->hold, NP_HOLD_HELD, __ATOMIC_RELEASE);
		return (struct np_hit_place){ call, &slot->frame };
	}
	for (uint64_t distance = 0; distance < calls->capacity; distance++, number = behind(calls, number)) {
		struct np_hit_call *call = call_at(calls, number);
		if (take_away(call)) {
			__atomic_store_n(&call->frame, NP_CALL_BUSY, __ATOMIC_RELAXED);
			reach(calls, frame, number);
			return (struct np_hit_place){ call, &call->frame };
		}
	}
	return recycle(calls, self, frame);
}
