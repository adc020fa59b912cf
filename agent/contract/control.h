/* The arena's head: its contents, its state, and everything that `restore` must know. */
#ifndef NANOPROBE_CONTRACT_CONTROL_H
#define NANOPROBE_CONTRACT_CONTROL_H

enum np_state {
	NP_STATE_BUILDING = 0, /* nothing in the text is changed yet */
	NP_STATE_ARMED = 1,    /* the site table is published; any of its sites may be patched */
	NP_STATE_RESTORED = 2, /* every site but springboards and hosts holds its original bytes again */
	NP_STATE_COMPLETE = 3, /* as ARMED, and all that attaching places is in the text */
};

/* A kernel sigaction (not libc's), as rt_sigaction takes it on x86-64. */
struct np_sigaction {
	u64 handler;
	u64 flags;
	u64 restorer;
	u64 mask;
};

/* The most contexts. */
#define NP_CONTEXTS_MAX 1024u

struct np_control {
	/* 0: frozen part, read by `restore` of any version */
	u64 magic;
	u32 version;
	u32 control_bytes;      /* sizeof(struct np_control) */
	u64 arena_address;      /* where the target has the arena */
	u64 arena_bytes;
	u32 tracer_pid;         /* as the tracer sees itself */
	u32 state;              /* enum np_state */
	u32 site_count;
	u32 site_capacity;
	u64 sites_offset;       /* struct np_site[site_capacity] */
	u32 region_count;
	u32 region_capacity;
	u64 regions_offset;     /* struct np_region[region_capacity]: every mapping that we made in the target */
	u32 action_mask;        /* bit k set: actions[k] was replaced and must be put back */
	u32 reserved0;
	struct np_sigaction actions[5]; /* the program's own, in the order of enum np_signal_slot */
	struct np_sigaction installed[5]; /* ours; put back only where the target still has this one */

	/* counters and switches */
	u64 missed_without_context; /* hits of threads for which there was no context; atomic */
	u32 exit_requested;     /* a clause ran exit() */
	i32 exit_status;
	u32 library_event;      /* counts calls of the dynamic linker's debugger hook */
	u32 library_ack;        /* the tracer's answer: the last event that it has dealt with */
	u64 tracer_heartbeat;   /* TSC of the tracer's last sign of life; 0: do not wait for it */
	u64 heartbeat_limit;    /* TSC ticks after which the tracer counts as gone */

	/* clock: ns = clock_ns + (((tsc - clock_tsc) * clock_mult) >> 32), 128-bit product, since boot */
	u64 clock_tsc;
	u64 clock_ns;
	u64 clock_mult;         /* ns per tick, 32.32 fixed point */
	u64 wall_ns;            /* add to the above for ns since the epoch */

	/* contexts */
	u64 contexts_offset;
	u64 context_stride;     /* bytes a context, a multiple of 4096 */
	u32 context_capacity;
	u32 context_count;      /* claimed so far for the first time; atomic */
	u32 tid_offset;         /* offset of the thread's id from its thread pointer in this libc, 0: unknown */
	u32 target_pid;         /* in the target's own pid namespace */

	/* dynamic variables: struct np_dynamic_table at dynamic_offset, 0 when the program has none */
	u64 dynamic_offset;
	u64 dynamic_drops;      /* stores for which there was no room; atomic */

	/* unwinding: struct np_unwind_table at unwind_offset, 0 when no clause asks for stacks. The
	 * tracer publishes a new table by storing the new offset; the old table stays where it is. */
	u64 unwind_offset;

	/* readable memory: sorted, disjoint struct np_range[range_count] at ranges_offset, a snapshot
	 * of the target's map. One store of `ranges` (offset << 24 | count) publishes it. Outside of
	 * the snapshot, memory is read by a system call. */
	u64 ranges;
	u32 strsize;            /* bytes of a string variable, the final NUL included */
	u32 ustackframes;

	/* A new context is made from an example: a struct np_context whose addresses are offsets
	 * from the context (0: none). At NP_EXAMPLE_AGGREGATES after it lies the head of an empty
	 * struct np_aggregate_table. */
	u64 example_offset;

	/* speculation.c: u64 at speculations_offset for each, enum np_speculation_word */
	u64 speculations_offset;
	u64 speculation_count;  /* at most NP_SPECULATIONS_MAX */
	u64 speculation_failures; /* calls of speculation() that found none free; atomic */
	u64 sandboxed;          /* not 0: the traced process has entered seccomp; the agent makes no system call any more */

	/* Static probes' semaphores: struct np_semaphore[semaphore_count] at semaphores_offset.
	 * `restore` reads these, too, so the three fields do not move, and are 0 in the arena of a
	 * version without semaphores. */
	u64 semaphores_offset;
	u32 semaphore_count;
	u32 semaphore_capacity;
	u64 library_timeouts;   /* library.c: the program went on before the tracer had answered; atomic */
	u64 errno_offset;       /* of errno from the thread pointer, a signed number; 0: unknown */
	u64 speculation_bytes;  /* of the records of one speculation */
	u64 speculation_drops;  /* records that found no room under theirs; atomic */

	/* threads that are gone (docs/design/threads.md) */
	u64 contexts_ended[NP_CONTEXTS_MAX / 64]; /* bit k of word n: context 64 n + k may be taken: its thread is gone; atomic */
	u64 slots_claimed;      /* slots of the thread table claimed since the beginning; atomic */
	u64 missed_unknown_thread; /* hits of threads that cannot be told from others; atomic */
	u64 aborted;            /* trap.c: restartable sequences that the kernel aborted since they met a trap of ours; atomic */
	u64 aborted_at;         /* where the thread of the last one went on */
};
/* The word of a speculation: free (0), taken (with the bytes of its records above the bit), or
 * ended. Nothing may be added to an ended speculation. The tracer frees it when it reads the record
 * of its end. */
enum np_speculation_word { NP_SPECULATION_TAKEN = 1, NP_SPECULATION_ENDED = 2, NP_SPECULATION_SHIFT = 1 };
#define NP_SPECULATIONS_MAX 256u
#define NP_EXAMPLE_AGGREGATES 1024

enum np_signal_slot { NP_SLOT_TRAP = 0, NP_SLOT_SEGV = 1, NP_SLOT_BUS = 2, NP_SLOT_ILL = 3, NP_SLOT_FPE = 4 };

/* One patched place: `length` bytes at `address`. Published before the text is touched. Frozen.
 * While a patch is put in or taken out (crates/patch/src/transition.rs), or when its tracer was
 * killed then, each of its bytes is the original one, the patched one, or int3. Where several sites
 * overlap and one patch has replaced another, the byte may be that of any of them. */
struct np_site {
	u64 address;
	u32 length;
	u32 tactic;             /* arena::TACTIC_*: springboards are put back last, hosts before them; with a shim gone, masks are the program's */
	u8 original[16];
	u8 patched[16];
};

/* One mapping that we made. Frozen. */
struct np_region {
	u64 address;
	u64 bytes;
	u32 kind;               /* enum np_region_kind */
	u32 reserved;
};
enum np_region_kind { NP_REGION_CODE = 1, NP_REGION_TABLE = 2, NP_REGION_ARENA = 3, NP_REGION_RETURNS = 4, NP_REGION_STACKS = 5 };

/* A static probe's semaphore that we have raised: a u16 at `address` in the program's data. It
 * counts tracers, and we have added 1. Published before the program's memory is touched. Frozen.
 *
 * The program, and other kinds of tracers, count in the same word. So an old value is never
 * restored: 1 is subtracted. A tracer may be killed between announcing a change and making it; then
 * the value that it had seen shows whether the change was made. A forked child has a copy of the
 * word and shares this entry; `resting` says whether the copy was raised. */
struct np_semaphore {
	u64 address;
	u64 site;               /* the probe's first: of the same module, which shows later whether the module is still there */
	u16 resting;            /* the value before we raised it */
	u16 seen;               /* the value before the change that is announced */
	u32 state;              /* enum np_semaphore_state */
};
enum np_semaphore_state {
	NP_SEMAPHORE_GONE = 0,     /* its library is, or it was never raised */
	NP_SEMAPHORE_RAISING = 1,  /* announced */
	NP_SEMAPHORE_RAISED = 2,
	NP_SEMAPHORE_LOWERING = 3, /* announced */
	NP_SEMAPHORE_LOWERED = 4,
};

struct np_range {
	u64 start;
	u64 end;
};

#endif
