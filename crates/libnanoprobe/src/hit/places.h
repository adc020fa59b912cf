/* Places for calls of a return probe: `maxactive` of them, each free or with one call in it,
 * whatever threads there are.
 *
 * When its call is over, a place stays with the thread that took it: the thread *holds* it, in one of its
 * NP_HELD_MAX slots for this probe. The thread uses the place again, and frees it, by plain stores. A signal
 * handler of the same thread cannot interfere, since a hit inside of a hit runs no handlers (np_hit_thread.depth).
 *
 *     thread            struct np_hit_holds              the probe's places
 *       holds[probe] ->  held[0] { frame, call } ------>  { frame: HELD, hold: HELD, holder }
 *                        held[1] { 0, NULL }              { frame: where a call is that is shared, or FREE }
 *
 * If no place is free, an idle place is taken away from the thread that holds it. Threads contend for nothing
 * else. The thread that takes the place away pays for it, with a barrier on all processors (membarrier):
 *
 *     owner                                       who takes away
 *       held->frame = BUSY                          call->hold = WANTED
 *       (no barrier: the compiler's alone)          barrier in every thread of the process
 *       call->hold == HELD: the place is mine       held->frame == FREE: the owner is not in, and will see WANTED
 *       else WANTED -> HELD, or TAKEN: it is not    WANTED -> TAKEN, or HELD again: it was in
 *
 * The last step of both threads is a compare-and-swap from the same value, so exactly one of them has the place.
 * WANTED carries a unique number, so no thread completes what another thread has begun. A place that was taken
 * away is never held again. So a probe with more threads than places finally shares all places, and each is taken
 * away only once.
 *
 * The call for a return must be found on another thread as well, since a coroutine may continue on any thread.
 * Calls that one thread holds have their frames in regions of addresses that belong to its block for ever
 * (np_hit_settle). On any other stack the thread makes shared calls. So a call that is neither among the thread's
 * own nor among the shared ones is held by the owner of its region, or does not exist. Few slots are looked at,
 * however many threads there are.
 */
#ifndef NP_PLACES_H
#define NP_PLACES_H

#include "retprobe.h"

/* np_hit_call.hold: one of these, and a number of WANTED above it. */
enum { NP_HOLD_NEVER = 0, NP_HOLD_HELD = 1, NP_HOLD_WANTED = 2, NP_HOLD_TAKEN = 3, NP_HOLD_STATES = 3, NP_HOLD_NEXT = 4 };

/* A call, and the word that holds its frame: a word of the call itself, or of the slot that holds it. */
struct np_hit_place {
	struct np_hit_call *call; /* NULL: none */
	uint64_t *frame;
};

/* Points at a word that is not 0 if the program is under seccomp. Then no place is taken away, and the kernel is
 * not asked whether a call has ended. */
extern NP_HIDDEN const uint64_t *np_hit_sandboxed;

/* Finds a call that the thread itself does not hold: the call is shared, or another thread holds it. */
NP_HIDDEN struct np_hit_place np_place_elsewhere(const struct np_hit_calls *calls, struct np_hit_thread *self,
						 uint64_t frame);
/* Claims a place when the thread holds no free one. */
NP_HIDDEN struct np_hit_place np_place_claim_slowly(struct np_hit_calls *calls, struct np_hit_thread *self, uint64_t frame);
/* Ends a call that will not return. */
NP_HIDDEN void np_place_abandon(struct np_hit_calls *calls, struct np_hit_thread *self, const struct np_hit_call *call);
/* The place with this number, which is less than `capacity`. */
NP_HIDDEN struct np_hit_place np_place_with(const struct np_hit_calls *calls, uint64_t number);
/* Whether the thread keeps its place, which another thread may want. Before this call, the thread has set the
 * place's frame to BUSY. */
NP_HIDDEN int np_place_keep(struct np_hit_held *held);

static inline NP_PATH int np_place_change(struct np_hit_place place, uint64_t from, uint64_t to)
{
	return __atomic_compare_exchange_n(place.frame, &from, to, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* Whether the address is in the thread's own region. */
static inline NP_PATH int np_place_is_home(struct np_hit_thread *self, uint64_t frame)
{
	return np_likely(frame >> 16 == self->home) || np_hit_settle(self, frame);
}

/* The call at a frame. */
static inline NP_PATH struct np_hit_place np_place_find(const struct np_hit_calls *calls, struct np_hit_thread *self,
							uint64_t frame)
{
	struct np_hit_holds *holds = &self->holds[calls->index];
#pragma GCC unroll 4
	for (int number = 0; number < NP_HELD_MAX; number++) {
		struct np_hit_held *held = &holds->held[number];
		if (__atomic_load_n(&held->frame, __ATOMIC_RELAXED) == frame)
			return (struct np_hit_place){ held->call, &held->frame };
	}
	if (np_likely(frame >> 16 == self->home && !__atomic_load_n(&calls->furthest, __ATOMIC_ACQUIRE)))
		return (struct np_hit_place){ 0 };
	return np_place_elsewhere(calls, self, frame);
}

/* Claims a free place, and makes it busy. */
static inline NP_PATH struct np_hit_place np_place_claim(struct np_hit_calls *calls, struct np_hit_thread *self,
							 uint64_t frame)
{
	struct np_hit_holds *holds = &self->holds[calls->index];
	if (np_likely(np_place_is_home(self, frame)))
		for (int number = 0; number < NP_HELD_MAX; number++) {
			struct np_hit_held *held = &holds->held[number];
			if (__atomic_load_n(&held->frame, __ATOMIC_ACQUIRE) != NP_CALL_FREE || !held->call)
				continue;
			__atomic_store_n(&held->frame, NP_CALL_BUSY, __ATOMIC_RELAXED);
			__asm__ volatile("" ::: "memory");
			uint32_t hold = __atomic_load_n(&held->call->hold, __ATOMIC_RELAXED);
			if (np_likely((hold & NP_HOLD_STATES) == NP_HOLD_HELD) || np_place_keep(held))
				return (struct np_hit_place){ held->call, &held->frame };
		}
	return np_place_claim_slowly(calls, self, frame);
}

#endif
