/* Return probes on the path of a hit.
 *
 * Each call that is followed has a place, a struct np_hit_call: one of the `maxactive` places of its probe. The
 * place is found again by the call's frame, the address of its return address: no two active calls share that
 * word, in whatever threads they are. There are two kinds of calls:
 *
 *     held      by the thread that makes calls, a few for each probe: nobody else touches them (places.h)
 *     shared    in a hash table, whatever thread or stack the call begins on and returns on: one locked instruction
 *
 *     entry     frame = rsp             claims a free place; the entry handler; published
 *     exits     at each ret             rsp = frame again
 *     address   np_hit_returned         by the thunk, whose slot is frame (agent/returns.h)
 *
 * If a call never returns (longjmp, an exception, the thread's end), its place stays taken until the library
 * notices, in one of these cases:
 *
 *     - a call begins at the same frame;
 *     - all places are taken, and the call is the same thread's, further down its stack, or its return address was
 *       overwritten; or its thread is gone;
 *     - the thread ends: the calls on its stack are over (np_retprobe_thread_ends).
 *
 * The library may wrongly take a call for over, for example on a coroutine's stack below the thread's own. Then
 * its return is not seen, and it is counted as abandoned. Nothing else happens, since the agent keeps what a thunk
 * needs.
 */
#ifndef NP_RETPROBE_H
#define NP_RETPROBE_H

#include "hit.h"

/* One call. Mirrored in src/hit/calls.rs. */
struct np_hit_call {
	uint64_t frame;                        /* where the call's return address is; or one of the constants below */
	uint64_t life;                         /* the life of the thread that began the call */
	uint64_t word;                         /* the word at the frame after the entry: the return address, or a thunk's */
	struct np_retprobe_instance instance;  /* what handlers see; `data` follows this structure */
	uint32_t claims;                       /* the claims of the thunk's instance when it was taken */
	uint32_t hold;                         /* places.h */
	/* the slot that holds the call, or has held it; once set, it is never cleared */
	struct np_hit_held *holder;
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
	uint32_t index;     /* the index of its counters */
	uint32_t by_address;
	uint32_t loops;     /* whether a branch of the function itself leads to its entry */
	uint32_t is_long;   /* whether there is an entry handler, or data to clear */
	uint64_t site;      /* for the form by address: the stub of its thunk's instance */
	uint64_t abandoned; /* atomic */
	/* how far from the place of its hash a shared call may be; grows only. 0: no call was ever shared */
	uint64_t furthest;
	uint64_t looked;    /* the place at which the next search for ended calls begins */
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
/* Whether some return probe of a list sees returns at the function's rets. The list may be NULL. */
NP_HIDDEN int np_retprobe_has_exits(const struct np_hit_list *list);
/* Runs the handlers of such return probes after a replacement has returned. `regs` are as at a ret of the
 * function. */
NP_HIDDEN void np_retprobe_hooked(struct np_hit_site *site, struct np_regs *regs);
/* Called by np_hit_arrive: runs the handlers of all return probes of the site that replace its return address.
 * Yields the agent's context. */
NP_HIDDEN struct np_hit_context *np_hit_returned(struct np_hit_site *site, struct np_regs *regs,
						 const struct np_hit_thunk *thunk);
/* The code that thunks jump to (returned.S). */
NP_HIDDEN void np_hit_arrive(void);
/* Ends the calls that this thread, which is ending, has begun on its stack [low, high). Not called in a handler. */
NP_HIDDEN void np_retprobe_thread_ends(struct np_hit_calls *calls, uint64_t life, uint64_t low, uint64_t high);

#endif
