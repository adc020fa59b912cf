/* The arena's head: its contents, its state, and everything that `restore` must know. */
#ifndef NANOPROBE_CONTRACT_CONTROL_H
#define NANOPROBE_CONTRACT_CONTROL_H

enum np_state {
	NP_STATE_BUILDING = 0, /* the text has not been changed yet */
	NP_STATE_ARMED = 1,    /* the site table is published; any of its sites may be patched */
	NP_STATE_RESTORED = 2, /* every site but springboards and hosts holds its original bytes again */
	NP_STATE_COMPLETE = 3, /* as ARMED, and all patches of the attach are in the text */
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

/* A thread that is about to execute another program. */
struct np_exec {
	u32 state;              /* enum np_exec_state; a futex of the thread */
	u32 tid;                /* in its own pid namespace */
	u32 pid;
	i32 folder;             /* the descriptor from which `path` begins */
	u64 path;               /* address of the path */
	u64 flags;              /* AT_* of execveat */
};
/* FREE and BUSY are changed by the process, or by the tracer that cleans up; ASKED by both, atomically. */
enum np_exec_state {
	NP_EXEC_FREE = 0,
	NP_EXEC_BUSY = 1,      /* being filled in */
	NP_EXEC_ASKED = 2,     /* the thread waits */
	NP_EXEC_HELD = 3,      /* answer: the tracer holds the thread, which makes the call in the agent */
	NP_EXEC_ALONE = 4,     /* answer: the tracer does not take the program; the program makes the call itself */
	NP_EXEC_FAILED = 5,    /* the call of a held thread has failed; the tracer frees the entry */
};
/* How many threads may be about to execute programs at a time. */
#define NP_EXECS 32u

struct np_control {
	/* 0: frozen part, read by `restore` of any version */
	u64 magic;
	u32 version;
	u32 control_bytes;      /* sizeof(struct np_control) */
	u64 arena_address;      /* the address of the arena in the target */
	u64 arena_bytes;
	u32 tracer_pid;         /* in the tracer's own pid namespace */
	u32 state;              /* enum np_state */
	u32 site_count;
	u32 site_capacity;
	u64 sites_offset;       /* struct np_site[site_capacity] */
	u32 region_count;
	u32 region_capacity;
	u64 regions_offset;     /* struct np_region[region_capacity]: every mapping that we made in the target */
	u32 action_mask;        /* bit k set: actions[k] was replaced and must be restored */
	u32 reserved0;
	struct np_sigaction actions[5]; /* the program's own, in the order of enum np_signal_slot */
	struct np_sigaction installed[5]; /* our actions; actions[k] is restored only if the target still has installed[k] */

	/* counters and switches */
	u64 missed_without_context; /* number of hits of threads for which there was no context; atomic */
	u32 exit_requested;     /* a clause ran exit() */
	i32 exit_status;
	u32 library_event;      /* counts calls of the dynamic linker's hook for debuggers */
	u32 library_ack;        /* the tracer's answer: the last event that it has handled */
	u64 tracer_heartbeat;   /* TSC of the tracer's last sign of life; 0: do not wait for the tracer */
	u64 heartbeat_limit;    /* TSC ticks after which the tracer counts as gone */

	/* clock: ns = clock_ns + (((tsc - clock_tsc) * clock_mult) >> 32), 128-bit product, since boot */
	u64 clock_tsc;
	u64 clock_ns;
	u64 clock_mult;         /* ns per tick, 32.32 fixed point */
	u64 wall_ns;            /* what is added to ns since boot to get ns since the epoch */

	/* contexts */
	u64 contexts_offset;
	u64 context_stride;     /* bytes a context, a multiple of 4096 */
	u32 context_capacity;
	u32 context_count;      /* number of contexts that were ever claimed; atomic */
	u32 tid_offset;         /* offset of the thread's id from its thread pointer in this libc, 0: unknown */
	u32 target_pid;         /* in the target's own pid namespace */

	/* dynamic variables: struct np_dynamic_table at dynamic_offset, 0 when the program has none */
	u64 dynamic_offset;
	u64 dynamic_drops;      /* number of stores that found no room; atomic */

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
	u64 speculation_failures; /* number of calls of speculation() that found no free speculation; atomic */
	u64 sandboxed;          /* not 0: the traced process has entered seccomp; the agent makes no more system calls */

	/* Static probes' semaphores: struct np_semaphore[semaphore_count] at semaphores_offset. `restore` reads these, too, so
	 * the three fields never move, and are 0 in the arena of a version without semaphores. */
	u64 semaphores_offset;
	u32 semaphore_count;
	u32 semaphore_capacity;
	u64 library_timeouts;   /* library.c: how often the program went on before the tracer had answered; atomic */
	u64 errno_offset;       /* of errno from the thread pointer, a signed number; 0: unknown */
	u64 speculation_bytes;  /* the most bytes of the records of one speculation */
	u64 speculation_drops;  /* number of records that found no room in their speculation; atomic */

	/* threads that are gone (docs/design/threads.md) */
	u64 contexts_ended[NP_CONTEXTS_MAX / 64]; /* bit k of word n: context 64 n + k may be taken: its thread is gone; atomic */
	u64 slots_claimed;      /* slots of the thread table claimed since the beginning; atomic */
	u64 missed_unknown_thread; /* number of hits of threads that cannot be told apart; atomic */
	/* trap.c: number of restartable sequences that the kernel aborted because of a trap of ours; atomic */
	u64 aborted;
	u64 aborted_at;         /* where the thread continued after the last such abort */

	/* children (docs/design/trees.md) */
	u32 follows;            /* not 0: forked children also record in this arena; 0: they record nothing */
	u32 shown_pid;          /* of the traced process, in the tracer's pid namespace */
	u32 shown_parent;       /* the number of its parent, in the tracer's pid namespace */
	u32 child_libraries;    /* changes of the list of libraries in children; atomic */

	/* programs that are executed (exec.c) */
	u32 follows_programs;   /* not 0: the tracer takes the programs that the process and its children execute */
	u32 exec_requests;      /* how often the tracer was asked; atomic, a futex of the tracer */
	u32 execs_alone;        /* programs that were executed without an answer of the tracer; atomic */
	u32 execs_sandboxed;    /* programs that were executed under a seccomp filter, without a question; atomic */
	struct np_exec execs[NP_EXECS];

	/* several tracers (docs/design/several-tracers.md) */
	u64 host;               /* address of the arena whose agent handles this one's signals; 0: its own agent */

	u64 copies_mended;      /* made.c: copies of patched calls that were executed, and made whole again; atomic */

	/* the program's signal handlers (handlers.c) */
	u32 watches_handlers;   /* not 0: clauses fire where handlers begin, so the tracer must know them */
	u32 handlers_unseen;    /* how often a handler was installed that has no probe: in a child, or without room; atomic */

	u64 dispatch_waits;     /* not 0: a thread waits for the end of tracing (dispatch.c) */
};
/* The word of a speculation: free (0), taken (with the bytes of its records above the bit), or
 * ended. Nothing may be added to an ended speculation. The tracer frees it when it reads the record
 * of its end. */
enum np_speculation_word { NP_SPECULATION_TAKEN = 1, NP_SPECULATION_ENDED = 2, NP_SPECULATION_SHIFT = 1 };
#define NP_SPECULATIONS_MAX 256u
#define NP_EXAMPLE_AGGREGATES 1024

enum np_signal_slot { NP_SLOT_TRAP = 0, NP_SLOT_SEGV = 1, NP_SLOT_BUS = 2, NP_SLOT_ILL = 3, NP_SLOT_FPE = 4 };

/* One patched place: `length` bytes at `address`. Published before the text is touched. Frozen. While a patch is
 * written or taken back (crates/patch/src/transition.rs), and if the tracer was killed meanwhile, each byte is the
 * original byte, the patched byte, or int3. If several sites overlap and one patch has replaced another, the byte
 * may belong to any of them. */
struct np_site {
	u64 address;
	u32 length;
	u32 tactic;             /* arena::TACTIC_*; `restore` takes springboards last, hosts before them */
	u8 original[16];
	u8 patched[16];
};

/* One mapping that we made in the target. Frozen: the same in every version. */
struct np_region {
	u64 address;
	u64 bytes;
	u32 kind;               /* enum np_region_kind */
	u32 reserved;
};
enum np_region_kind {
	NP_REGION_CODE = 1,
	NP_REGION_TABLE = 2,
	NP_REGION_ARENA = 3,
	NP_REGION_RETURNS = 4,
	NP_REGION_STACKS = 5,
	NP_REGION_TEXT = 6,     /* the program's text, in mappings of its own by madvise */
};

/* A static probe's semaphore that we have raised: a u16 at `address` in the program's data. It counts tracers, and
 * we have added 1. The entry is published before the program's memory is touched. Frozen.
 *
 * The program, and other kinds of tracers, count in the same word. So an old value is never restored; instead, 1
 * is subtracted. A tracer may be killed between the announcement of a change and the change. The value that it had
 * seen then shows whether the change was made. A forked child has a copy of the word and shares this entry;
 * `resting` says whether the copy was raised. */
struct np_semaphore {
	u64 address;
	u64 site;               /* the probe's first site, in the same module; shows later whether the module still exists */
	u16 resting;            /* the value before we raised it */
	u16 seen;               /* the value before the change that `state` announces */
	u32 state;              /* enum np_semaphore_state */
};
enum np_semaphore_state {
	NP_SEMAPHORE_GONE = 0,     /* the semaphore's library is unmapped, or the semaphore was never raised */
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
