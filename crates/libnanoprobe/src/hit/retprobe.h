/* Return probes on the path of a hit.
 *
 * A call that is followed has a place, a struct np_hit_call: one of `maxactive` of them that
 * belong to its probe. Two forms of finding it again, both by the address of the call's return
 * address, since no two calls that are active at a time share that word of memory, whichever
 * threads they are in:
 *
 *     held      by the thread that makes calls, a few for each probe: nobody else touches them (places.h)
 *     shared    in a hash table, whatever thread or stack the call begins on and returns on: one locked instruction
 *
 *     entry     frame = rsp             claims a free place; the entry handler; published
 *     exits     at each ret             rsp = frame again
 *     address   np_hit_returned         by the thunk, whose slot is frame (agent/returns.h)
 *
 * Where a return never comes (longjmp, an exception, the thread's end), the call stays until
 * somebody sees that it is over:
 *
 *     - a call begins at the same frame;
 *     - all places are taken, and the call is the same thread's, further down its stack, or its return address was
 *       overwritten; or its thread is gone;
 *     - the thread ends: what it leaves on its stack is over (np_retprobe_thread_ends).
 *
 * Taken for over by mistake (a coroutine's stack below the thread's own), a call's return is not
 * seen, and that is all: it is counted as abandoned. What a thunk needs is the agent's to keep.
 */
#ifndef NP_RETPROBE_H
#define NP_RETPROBE_H

#include "hit.h"

/* One call. Mirrored in src/hit/calls.rs. */
struct np_hit_call {
	uint64_t frame;                        /* where its return address is; or one of the following */
	uint64_t life;                         /* of the thread that began it */
	uint64_t word;                         /* what was there behind the entry: the address, or a thunk's */
	struct np_retprobe_instance instance;  /* what handlers see; `data` is behind this structure */
	uint32_t claims;                       /* of the thunk's instance, when it was taken */
	uint32_t hold;                         /* places.h */
	struct np_hit_held *holder;            /* once it was held, for ever */
	uint64_t reserved;
};
/* NP_CALL_HELD: the frame is in the holder's slot. */
enum { NP_CALL_FREE = 0, NP_CALL_BUSY = 1, NP_CALL_HELD = 2 };

/* A return probe's calls. */
struct np_hit_calls {
	np_retprobe_handler handler, entry_handler;
	struct np_retprobe *owner;
	char *calls;
	uint64_t capacity, stride, data_size;
	uint32_t index;     /* of its counters */
	uint32_t by_address;
	uint32_t loops;     /* a branch of the function's own leads to its entry */
	uint32_t is_long;   /* there is an entry handler, or data to clear */
	uint64_t site;      /* by address: what the instance of its thunk has as its stub */
	uint64_t abandoned; /* atomic */
	uint64_t furthest;  /* so many places from that of its hash a shared call may be; grows. 0: none was ever shared */
	uint64_t looked;    /* where the search for calls that are over goes on */
};

struct np_hit_thunks;
/* The agent's parts that a replaced return address needs. returned.S and resume.S know this layout. */
struct np_hit_returns {
	uint64_t (*take)(struct np_hit_context *context, uint64_t slot, uint64_t stub);
	uint64_t thunks, thunks_bytes;
	struct np_hit_thunks *pool;
	void (*put_back)(void);
};
extern NP_HIDDEN struct np_hit_returns np_hit_returns;

/* struct np_return_instance of agent/contract.h. */
struct np_hit_thunk {
	uint64_t address, slot, stub;
	uint32_t state, depth;
};
enum { NP_THUNK_BYTES = 16, NP_THUNK_CHAIN_MAX = 15, NP_THUNKS = 65536, NP_THUNK_CHUNK = 64 };
/* enum np_return_state, in the low two bits of `state`. */
enum { NP_THUNK_FREE = 0, NP_THUNK_ARMED = 2, NP_THUNK_STATES = 3, NP_THUNK_NEXT = 4 };

/* struct np_return_pool. */
struct np_hit_thunks {
	uint64_t before[3];
	uint32_t chunk_count, events, answered, reserved0;
	uint64_t reserved[3];
	uint32_t chunk_owners[NP_THUNKS / NP_THUNK_CHUNK];
	struct np_hit_thunk instances[NP_THUNKS];
};

/* np_hit_function of a function's entry, and of its rets; entry->data is a struct np_hit_calls. */
NP_HIDDEN int np_retprobe_entry(struct np_hit_entry *entry, struct np_regs *regs);
NP_HIDDEN int np_retprobe_exit(struct np_hit_entry *entry, struct np_regs *regs);
/* Whether return probes of a list, which may be NULL, see returns at the function's rets. */
NP_HIDDEN int np_retprobe_has_exits(const struct np_hit_list *list);
/* Runs those handlers after a replacement has returned. `regs` are as at a ret of the function. */
NP_HIDDEN void np_retprobe_hooked(struct np_hit_site *site, struct np_regs *regs);
/* From np_hit_arrive: the handlers of all return probes by address at the site. Yields the agent's context. */
NP_HIDDEN struct np_hit_context *np_hit_returned(struct np_hit_site *site, struct np_regs *regs,
						 const struct np_hit_thunk *thunk);
/* What thunks jump to (returned.S). */
NP_HIDDEN void np_hit_arrive(void);
/* Ends the calls that this thread has begun on its stack [low, high): it is ending. Not in a handler. */
NP_HIDDEN void np_retprobe_thread_ends(struct np_hit_calls *calls, uint64_t life, uint64_t low, uint64_t high);

#endif
