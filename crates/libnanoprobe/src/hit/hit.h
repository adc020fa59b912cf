/* The hit path: what runs in the program's own threads when a probe is hit.
 *
 *     detour (crates/patch, detour/function.rs)      saves all general registers as struct np_regs
 *       np_hit(site, regs, on)                       finds the thread, guards against reentry, runs the handlers
 *         simd.S                                     SIMD registers, as far as they are live
 *       0: the detour restores and goes on; 1: np_resume (resume.S) loads everything, rip and rsp, too
 *
 * The hit path takes no locks and allocates nothing. Of the C library it uses only errno, and that only inside of
 * the guard against reentry: any function of it may be probed. The Rust side, which registers and unregisters,
 * replaces a site's list by one store of a pointer. An old list is freed when all threads' epochs show that no
 * thread can still be reading it.
 *
 *     thread->depth   0, but while the thread is inside of np_hit, behind the guard: its stack pointer at the hit, or a
 *                     little less
 *     thread->epoch   how often it has left
 *
 * A hit sets its thread's depth first and reads the list after that. The Rust side stores the new pointer, then
 * has every processor that runs the process execute a full barrier (membarrier). Then it waits for each thread
 * whose depth is not 0, until the depth is 0 or the epoch has changed. So the hit path itself needs no barrier but
 * the compiler's.
 *
 * A signal handler of the program may interrupt a probe's handler and leave both by siglongjmp. If the thread is
 * hit later, and is no deeper in its stack than at the hit before, it has left that hit (left.c). Functions that a
 * handler calls, and signal handlers that interrupt it, are deeper, unless they run on an alternate stack.
 */
#ifndef NP_HIT_H
#define NP_HIT_H

#include "nanoprobe.h"

#define NP_HIDDEN __attribute__((visibility("hidden")))
/* All code of the hit path is in one section, so that no probe is ever put there. */
#define NP_PATH __attribute__((section("np_hit_path")))
#define np_likely(condition) __builtin_expect(!!(condition), 1)
#define np_unlikely(condition) __builtin_expect(!!(condition), 0)

struct np_hit_entry;
struct np_hit_call;
struct np_hit_thread;

/* The function that a hit calls for an entry, for kinds other than plain probes. 0: the instruction is executed. */
typedef int (*np_hit_function)(struct np_hit_entry *entry, struct np_regs *regs);

/* One registered probe at a site. Mirrored in src/hit/mod.rs. */
struct np_hit_entry {
	void *owner;              /* the caller's structure: np_probe, np_jprobe */
	np_pre_handler pre;       /* NULL: nothing */
	np_post_handler post;
	np_fault_handler fault;
	np_hit_function function; /* for kinds other than plain probes: called instead of `pre` */
	uint32_t index;           /* the index of its counters */
	uint32_t enabled;
	void *data;               /* the kind's own */
};

/* Never changed once it is published. */
struct np_hit_list {
	uint64_t count;
	uint64_t saved;           /* enum np_hit_saved: what some handler may use */
	uint64_t emulates;        /* post-handlers run in front of the detour's copy: the instruction is emulated */
	/* The only entry of the list, if a hit has to do nothing but call it: then the hit takes the short way
	 * (dispatch.S). NULL: a hit must do more. */
	struct np_hit_entry *only;
	int (*call)(void *argument, struct np_regs *regs); /* what is called then */
	void *argument;
	uint64_t counter;         /* offset, in a thread's block, of the counter of hits to add 1 to */
	const uint32_t *enabled;  /* whether `only` is enabled; without `only`, points at a constant 0 */
	struct np_hit_entry *entries[];
};

/* One probed instruction. It is never freed, since a thread may always be on its way here. */
struct np_hit_site {
	uint64_t address;
	struct np_hit_list *list; /* NULL: nothing is registered any more */
	uint64_t next;            /* the address of the next instruction */
	uint64_t missed_without_thread;
	void (*otherwise)(void);  /* a function of the library itself, called where handlers are left out; NULL: none */
	const void *emulation;    /* of a branch, call or return: struct np_emulation of agent/contract.h; else NULL */
	struct np_hit_site *next_with_fault; /* np_hit_sites_with_fault */
};

struct np_hit_counters {
	uint64_t hits, missed;
};

/* A place for a call of one return probe that a thread holds: places.h. */
struct np_hit_held {
	uint64_t frame;           /* as in struct np_hit_call */
	struct np_hit_call *call; /* NULL: the thread holds no place here */
};
enum { NP_HELD_MAX = 4, NP_RETURNED_TO_MAX = 8 };
/* One cache line. */
struct np_hit_holds {
	struct np_hit_held held[NP_HELD_MAX];
} __attribute__((aligned(64)));

/* Data for the agent about a thread whose return addresses are replaced. It has the layout of struct np_context of
 * agent/contract.h, of which np_return_take uses three fields. */
struct np_hit_context {
	uint64_t before[10];
	uint32_t tid, index;      /* unique for each block */
	uint64_t between[23];
	uint64_t return_cursor, returns_missed;
	uint64_t behind[28];
};

/* The block of one thread, found through np_hit_self. It is never freed: after its thread has died, another thread
 * takes it over. */
struct np_hit_thread {
	uint64_t depth;               /* not 0 while handlers run */
	uint64_t epoch;               /* counted up each time that handlers have ended */
	int *error;                   /* the thread's errno */
	struct np_hit_thread *next;
	uint64_t tid;
	struct np_hit_entry *current; /* the entry whose handler runs; needed for faults */
	uint64_t uncounted;           /* np_hit_list.counter of entries that count for themselves */
	void *recover[5];             /* __builtin_setjmp: where the thread continues after an abandoned handler */
	uint64_t recoverable;
	uint64_t jprobe;              /* stack pointer for np_jprobe_return; 0: in no mirror */
	int fallback;                 /* the word to which `error` points until errno is found */
	uint32_t calls;               /* calls with return probes that this thread has begun and not ended */
	struct np_hit_call *call;     /* the call of a return probe whose handler runs */
	uint64_t life;                /* differs for every thread that ever had a block */
	uint64_t readable;            /* of a jumper probe: the last page after a return address that existed; or 0 */
	struct np_hit_counters counters[NP_PROBES_MAX];
	struct np_hit_context context;
	const struct np_hit_watch *watch; /* watch.c: the watchpoint whose handler is about to run, and the registers */
	struct np_regs watched;
	uint64_t watched_original, watched_pushed;
	uint64_t home;                /* a region of addresses in which only this block's thread holds calls; or 0 */
	uint64_t *call_frame;         /* the word in which the frame of `call` is published */
	uint64_t returned_to[NP_RETURNED_TO_MAX]; /* addresses that the agent has found to be calls' */
	/* the places that the thread holds, by the index of the return probe's counters */
	struct np_hit_holds holds[NP_PROBES_MAX];
};

/* A third answer of an np_hit_function, besides 0 and 1: the instruction is executed, and a return address was
 * replaced (returned.S). */
enum { NP_HIT_PAIR = 0x70616972 };
/* Called when the answer would be 0, but the thread must enter the rest of the function through the thunk in the
 * function's slot. Yields the answer. */
NP_HIDDEN uint32_t np_hit_pair(struct np_regs *regs, uint64_t on);

/* The number of bytes that np_simd_save may write. */
#define NP_SIMD_BYTES 2816
/* Features of the processor, as bits. */
#define NP_SIMD_XGETBV1 1
#define NP_SIMD_AVX 2
#define NP_SIMD_AVX512 4
/* Given instead of the features: handlers touch only xmm0-15 and mxcsr (enum np_hit_saved). */
#define NP_SIMD_XMM 8
enum np_hit_saved { NP_HIT_SAVED_NOTHING = 0, NP_HIT_SAVED_ERRNO = 1, NP_HIT_SAVED_XMM = NP_SIMD_XMM, NP_HIT_SAVED_ALL = 16 };
extern NP_HIDDEN uint32_t np_simd_features, np_simd_live;

/* Stores every live register. `live` says which registers are live if the processor cannot tell. */
NP_HIDDEN void np_simd_save(void *area, uint32_t features, uint32_t live);
NP_HIDDEN void np_simd_restore(const void *area, uint32_t features);

/* Called before and after the handlers of a list. */
static inline NP_PATH uint32_t np_hit_save(void *area, const struct np_hit_list *list)
{
	uint32_t features = np_likely(list->saved != NP_HIT_SAVED_XMM) ? np_simd_features : NP_SIMD_XMM;
	np_simd_save(area, features, features == NP_SIMD_XMM ? 0 : np_simd_live);
	return features;
}

/* The detours' entry (dispatch.S): keeps only rbx and rsp, and expects `regs` in rbx, too. */
NP_HIDDEN uint32_t np_hit(struct np_hit_site *site, struct np_regs *regs, uint64_t on);
/* np_hit for every kind of site, in C. */
NP_HIDDEN uint32_t np_hit_in_full(struct np_hit_site *site, struct np_regs *regs, uint64_t on);
/* Detours call this function after the instruction, for post-handlers. */
NP_HIDDEN uint32_t np_hit_behind(struct np_hit_site *site, struct np_regs *regs, uint64_t behind);
/* Three functions for jumper probes: their np_hit_function; the stack pointer with which the calling thread leaves its
 * mirror, or 0 outside of a mirror; and the code that leaves the mirror (mirror.S). */
NP_HIDDEN int np_jprobe_hit(struct np_hit_entry *entry, struct np_regs *regs);
NP_HIDDEN uint64_t np_jprobe_end(void);
NP_HIDDEN void np_jprobe_leave(uint64_t left) __attribute__((noreturn));
/* The only instruction of mirror.S that may fault, and the code that runs after such a fault. */
extern NP_HIDDEN const char np_jprobe_copy[], np_jprobe_cut[];
/* The agent's np_emulate. */
extern NP_HIDDEN int (*np_hit_emulate)(const void *emulation, void *ucontext);
/* A watchpoint that is registered. Mirrored in src/hit/watch.rs. */
struct np_hit_watch {
	uint64_t key;             /* perf_event_attr.sig_data of its events */
	struct np_watchpoint *owner;
	np_watch_handler handler; /* NULL: accesses are only counted, by the kernel */
	uint32_t index;           /* the index of its counters */
	uint32_t enabled;
	uint32_t executes;        /* NP_WATCH_EXECUTE */
	uint64_t lost;            /* accesses that the kernel has not counted */
};
enum { NP_HIT_WATCHES = 16 };
extern NP_HIDDEN struct np_hit_watch *np_hit_watches[NP_HIT_WATCHES];
/* The part that all keys have in common: all but their last three bytes. */
extern NP_HIDDEN uint64_t np_hit_watch_cookie;
/* np_event_hook of agent/contract.h. */
NP_HIDDEN int np_hit_event(const void *siginfo, void *ucontext, uint64_t original, uint64_t pushed);
/* Sites that have, or had, a fault handler. */
extern NP_HIDDEN struct np_hit_site *np_hit_sites_with_fault;
/* np_fault_hook of agent/contract.h. */
NP_HIDDEN int np_hit_fault(int signal, void *ucontext, uint64_t original, uint64_t pushed);
/* Gives back what an abandoned handler held. */
NP_HIDDEN void np_retprobe_abandoned_handler(struct np_hit_thread *self);
/* np_hit_function of unwinders' entries. */
NP_HIDDEN int np_unwinder_hit(struct np_hit_entry *entry, struct np_regs *regs);
/* A hook. It is never freed, since a thread may be in its replacement at any time. Mirrored in src/hit/hook.rs. */
struct np_hit_hook {
	void *replacement;
	void (*call)(void);       /* np_hook_call */
	void *stub;               /* leads there */
	struct np_hit_site *site;
	uint32_t is_called;       /* whatever the stack is, and the return probes are */
	uint32_t keeps;           /* enum np_hit_keeps */
};
/* The registers that the function provably does not change, so it returns nothing in them. */
enum np_hit_keeps { NP_KEEPS_RAX = 1, NP_KEEPS_RDX = 2, NP_KEEPS_VECTORS = 4 };
/* np_hit_function of hooks, the last of their sites; entry->data is a struct np_hit_hook; NULL:
 * there is no replacement yet. */
NP_HIDDEN int np_hook_hit(struct np_hit_entry *entry, struct np_regs *regs);
/* The np_hit_function of the dynamic linker's debugger hook; entry->data is the code that replaces it. */
NP_HIDDEN int np_replaced_hit(struct np_hit_entry *entry, struct np_regs *regs);
/* Loads everything from the struct np_regs at rsp. */
NP_HIDDEN void np_resume(void);

/* Whether the thread has left its last hit by siglongjmp, judging by its present stack pointer `rsp`. If so, that
 * hit is over. `alternate`: where the thread's alternate stack is, if that is known; NULL: the kernel is asked
 * about the stack in use. */
struct np_hit_stack {
	uint64_t start, bytes;
};
NP_HIDDEN int np_hit_is_left(struct np_hit_thread *self, uint64_t rsp, const struct np_hit_stack *alternate);

/* The calling thread's block; NULL: the thread has no block yet. The variable is in the static block of
 * thread-local storage (initial-exec). So reading it makes no call, and the dynamic linker allocates nothing in the
 * middle of a hit. */
extern NP_HIDDEN __thread struct np_hit_thread *np_hit_self __attribute__((tls_model("initial-exec")));
/* Takes over or maps a block for the calling thread; NULL: no memory. Async-signal-safe. */
NP_HIDDEN struct np_hit_thread *np_hit_join(void);
/* Whether the calling thread is inside of a handler. */
NP_HIDDEN int np_hit_is_inside(void);
/* The block that owns the region of this address; NULL: none does. */
NP_HIDDEN struct np_hit_thread *np_hit_owner(uint64_t address);
/* Claims the region of this address for `self` if the region has no owner. Yields whether `self` is the owner,
 * which makes the region its home. */
NP_HIDDEN int np_hit_settle(struct np_hit_thread *self, uint64_t address);
/* Frees all places that threads hold for a removed probe, before another gets this index. */
NP_HIDDEN void np_hit_clear_holds(uint32_t index);
/* The first block in the list of all threads' blocks. */
NP_HIDDEN struct np_hit_thread *np_hit_threads(void);
/* The address of the variable that holds the first block, for readers in other processes. */
NP_HIDDEN struct np_hit_thread **np_hit_threads_address(void);
/* Arranges that every ending thread calls `ends` with its block from now on. 0, or an errno. */
NP_HIDDEN int np_hit_watch_threads(void (*ends)(void *));
/* Whether the thread with this life has ended. */
NP_HIDDEN int np_hit_is_over(uint64_t life);
/* Frees all blocks but the calling thread's, in a child of fork, which has one thread. */
NP_HIDDEN void np_hit_forked(void);

#endif
