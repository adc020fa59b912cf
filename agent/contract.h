/* The contract between the agent (this folder), the tracer (crates/arena mirrors every structure below, field by
 * field, and a test compares both sides), the compiled handlers (crates/codegen) and the detours (crates/patch).
 *
 * Bump NP_VERSION when any offset, size or meaning below changes: an arena of another version is only ever read for
 * what `nanoprobe restore` needs (struct np_control up to and including `regions`, struct np_site, struct np_region, and what
 * it says of semaphores), whose layout is frozen.
 *
 * Four kinds of memory in the target:
 *
 *   code      private, r-x, written by the tracer through /proc/PID/mem: the agent image (its first bytes are struct
 *             np_image), the redirect table, the handlers, and, near each module, the detours. A forked child inherits
 *             it by copy, so it keeps working there whatever becomes of the parent's tracing.
 *   table     private, rw-, MADV_WIPEONFORK: struct np_thread_table. A child finds zeros, so it never finds a context.
 *   returns   private, rw-: struct np_return_pool. A child's stack has replaced return addresses on it too, so it has a copy.
 *   arena     shared with the tracer, rw-: struct np_control, descriptors, strings, variables, one context a thread.
 *
 * Addresses are the target's unless a field says `offset` (bytes from the start of the arena).
 */
#ifndef NANOPROBE_CONTRACT_H
#define NANOPROBE_CONTRACT_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long u64;
typedef int i32;
typedef long i64;

#define NP_MAGIC 0x424f52504f4e414eUL /* "NANOPROB", little endian */
#define NP_VERSION 1

/* ---- the arena's head: control block ------------------------------------------------------------------------- */

enum np_state {
	NP_STATE_BUILDING = 0, /* nothing in the text is changed yet */
	NP_STATE_ARMED = 1,    /* the site table is published; any of its sites may be patched */
	NP_STATE_RESTORED = 2, /* every site but springboards holds its original bytes again */
	NP_STATE_COMPLETE = 3, /* as ARMED, and all that was placed so far is in the text */
};

/* A kernel sigaction (not libc's): what rt_sigaction takes on x86-64. */
struct np_sigaction {
	u64 handler;
	u64 flags;
	u64 restorer;
	u64 mask;
};

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
	u32 context_count;      /* claimed so far; atomic */
	u32 tid_offset;         /* offset of the thread's id from its thread pointer in this libc, 0: unknown */
	u32 target_pid;         /* in the target's own pid namespace */

	/* dynamic variables: struct np_dynamic_table at dynamic_offset, 0 when the program has none */
	u64 dynamic_offset;
	u64 dynamic_drops;      /* stores for which there was no room; atomic */

	/* unwinding: struct np_unwind_table at unwind_offset, 0 when no clause asks for stacks. The tracer publishes a new
	 * table by storing the new offset; the old one stays where it is. */
	u64 unwind_offset;

	/* readable memory: sorted, disjoint struct np_range[range_count] at ranges_offset, a snapshot of the target's map;
	 * published by storing ranges (offset << 24 | count) in one go. Outside of it memory is read by a system call. */
	u64 ranges;
	u32 strsize;            /* bytes of a string variable, the final NUL included */
	u32 ustackframes;

	/* A new context is made from an example: struct np_context whose addresses are offsets from the context (0: none),
	 * and, NP_EXAMPLE_AGGREGATES behind it, the head of an empty struct np_aggregate_table. */
	u64 example_offset;

	/* speculation.c: u64 at speculations_offset for each, 0 free, 1 taken; given back by the tracer */
	u64 speculations_offset;
	u64 speculation_count;  /* at most NP_SPECULATIONS_MAX */
	u64 speculation_failures; /* calls of speculation() that found none free; atomic */
	u64 sandboxed;          /* not 0: the traced process has entered seccomp; the agent makes no system call any more */

	/* Static probes' semaphores: struct np_semaphore[semaphore_count] at semaphores_offset. Read by `restore`, too: these
	 * three do not move, and are 0 in the arena of a version that has none. */
	u64 semaphores_offset;
	u32 semaphore_count;
	u32 semaphore_capacity;
	u64 reserved;
};
#define NP_SPECULATIONS_MAX 256u
#define NP_EXAMPLE_AGGREGATES 1024

enum np_signal_slot { NP_SLOT_TRAP = 0, NP_SLOT_SEGV = 1, NP_SLOT_BUS = 2, NP_SLOT_ILL = 3, NP_SLOT_FPE = 4 };

/* One patched place. Published before the text is touched; `length` bytes at `address`. Frozen. While a patch comes or
 * goes (crates/patch/src/transition.rs), or when its tracer was killed then, each of its bytes is the original one, the
 * patched one, or int3; where several sites overlap, a patch was replaced by another, and it may be that of any of them. */
struct np_site {
	u64 address;
	u32 length;
	u32 tactic;             /* arena::TACTIC_*: springboards are put back last */
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
enum np_region_kind { NP_REGION_CODE = 1, NP_REGION_TABLE = 2, NP_REGION_ARENA = 3, NP_REGION_RETURNS = 4 };

/* A static probe's semaphore that we have raised: u16 at `address` in the program's data, a count of tracers, to which we
 * have added 1. Published before the program's memory is touched. Frozen.
 *
 * The program, and tracers of other kinds, count in the same word, so nothing is ever put back: 1 is taken off. A tracer
 * may be killed between the announcement of a change and the change; then the value that it has seen tells. A forked child
 * has a copy of the word and shares this entry; whether the copy was raised, `resting` tells. */
struct np_semaphore {
	u64 address;
	u64 site;               /* the probe's first: of the same module, so that who comes later sees whether it is still there */
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

/* ---- the agent image ----------------------------------------------------------------------------------------- */

/* The first bytes of the agent's image; the tracer fills it in before writing the image. Never written later, but for
 * `redirects` and `origins`: when they grow, new tables are written elsewhere and published by one write of both
 * pointers. A table tells its own length and never changes, so whoever reads an old pointer reads an old table. */
struct np_image {
	u64 magic;
	u64 control;            /* address of struct np_control */
	u64 table;              /* address of struct np_thread_table */
	u64 redirects;          /* address of a struct np_redirect_table: trapping address to where it goes on */
	u64 origins;            /* address of a struct np_redirect_table: relocated address to original one */
	u64 thread_key_mode;    /* enum np_thread_key */
	u64 code_start;         /* [code_start, code_end): the image and the handlers, not the detours */
	u64 code_end;
	u64 allow_syscalls;     /* 0: the target is under seccomp; the agent makes no system call */
	u64 use_rdpid;          /* the processor has rdpid: with rdtsc it is quicker than rdtscp */
	u64 returns;            /* address of struct np_return_pool; mapped when a return address is first to be replaced */
	u64 thunks;             /* address of NP_RETURN_INSTANCES thunks of NP_RETURN_THUNK_BYTES bytes, in the code; 0: none */
	u64 fault_hook;         /* of a library in the program itself: np_fault_hook, or 0 */
	u64 event_hook;         /* likewise: np_event_hook, or 0 */
	u64 reserved[2];
};

enum np_thread_key {
	NP_KEY_TLS_SELF = 0,    /* mov %fs:0: the thread control block begins with its own address (glibc, musl) */
	NP_KEY_FSBASE = 1,      /* rdfsbase */
};

/* Where a trap sends the thread: boundaries of runs, and `trap` sites. With NP_REDIRECT_EMULATION in it, `to` is the
 * address of a struct np_emulation. */
struct np_redirect {
	u64 from;
	u64 to;
};
#define NP_REDIRECT_EMULATION 0x8000000000000000UL
/* In `origins` an entry holds up to the next one: an instruction may be relocated as several. `to` is 0 where a detour
 * does something of its own. Its top byte is by how many words the stack is deeper there than at a fault of the original
 * instruction. */
#define NP_ORIGIN_PUSHED_SHIFT 56
struct np_redirect_table {
	u64 count;
	u64 reserved;
	/* struct np_redirect entries[count], sorted by `from` */
};

/* ---- trap sites that need no copy of their instruction --------------------------------------------------------- */

/* What the instruction at a trap site does, so that the signal handler can do it (emulate.c), or where the processor is to
 * do it step by step (step.c). It lies in its site's detour, at any address, and never changes.
 *
 * Registers are numbered as the kernel's signal frame has them: r8 .. r15 are 0 .. 7, then rdi, rsi, rbp, rbx, rdx, rax,
 * rcx, rsp. Offsets count from the byte behind their field; 0: there is none. */
struct np_emulation {
	u8 operation;           /* enum np_operation */
	u8 operand;             /* enum np_operand: where the source is */
	u8 size;                /* bytes of the operands: 2, 4 or 8 */
	u8 condition;           /* of NP_OPERATION_BRANCH: enum np_condition */
	u8 destination;         /* register */
	u8 source;              /* register */
	u8 base, index;         /* of the memory operand: registers, or NP_NO_REGISTER */
	u8 scale;               /* 1, 2, 4 or 8 */
	u8 segment;             /* enum np_segment */
	u8 address_size;        /* bytes of the address: 4 or 8 */
	u8 flags;               /* NP_EMULATION_* */
	u8 length;              /* bytes of the instruction */
	u8 reserved0;
	u16 inside_count;       /* ranges behind the structure */
	u64 displacement;       /* of the memory operand */
	u64 immediate;          /* the immediate; the target of a direct branch; what a ret drops */
	u64 site;               /* the instruction's address */
	/* Routines that fire what is at the site; NP_EMULATION_CALLS: they call handlers. */
	i32 fires;              /* always */
	i32 fires_leaving;      /* when the indirect jump goes outside of all ranges */
	i32 fires_taken;        /* when the branch is taken */
	i32 detour;             /* the detour with all of that and the relocated instruction: always a way to go on */
	i32 copy;               /* in there, the relocated instruction */
	i32 copy_end;           /* behind that */
	/* struct np_range inside[inside_count] */
};
#define NP_NO_REGISTER 255
enum np_emulation_flags {
	NP_EMULATION_CALLS = 1,
	NP_EMULATION_TOUCHES_MEMORY = 2,  /* the instruction may fault */
	NP_EMULATION_STACK_OF_CALLS = 4,  /* call or ret: a shadow stack would have to follow */
	NP_EMULATION_STEPS = 8,           /* the copy is single-stepped, nothing is emulated */
};
enum np_operation {
	NP_OPERATION_NOP = 0,
	NP_OPERATION_PUSH = 1,
	NP_OPERATION_POP = 2,
	NP_OPERATION_LEAVE = 3,
	NP_OPERATION_CALL = 4,
	NP_OPERATION_JUMP = 5,
	NP_OPERATION_BRANCH = 6,
	NP_OPERATION_RETURN = 7,
	NP_OPERATION_MOVE = 8,
	NP_OPERATION_LEA = 9,
	NP_OPERATION_ADD = 10,
	NP_OPERATION_SUB = 11,
	NP_OPERATION_AND = 12,
	NP_OPERATION_OR = 13,
	NP_OPERATION_XOR = 14,
	NP_OPERATION_CMP = 15,
	NP_OPERATION_TEST = 16,
	NP_OPERATION_OTHER = 17, /* is only stepped */
};
enum np_operand { NP_OPERAND_REGISTER = 0, NP_OPERAND_IMMEDIATE = 1, NP_OPERAND_MEMORY = 2 };
enum np_segment { NP_SEGMENT_NONE = 0, NP_SEGMENT_FS = 1, NP_SEGMENT_GS = 2 };
/* 0 .. 15: the last four bits of the opcodes of jcc. The others count down rcx, or ecx, by `size`. */
enum np_condition { NP_CONDITION_LOOP = 16, NP_CONDITION_LOOPE = 17, NP_CONDITION_LOOPNE = 18, NP_CONDITION_JCXZ = 19 };

/* What a replacement (patch::Replacement) hands to an agent function, and loads from it again. */
struct np_registers {
	u64 flags;              /* as in struct np_frame */
	u64 r15, r14, r13, r12, r11, r10, r9, r8, rbp, rdi, rsi, rdx, rcx, rbx, rax;
};

/* ---- return addresses (returns.h) --------------------------------------------------------------------------- */

#define NP_RETURN_INSTANCES 65536u /* of a process */
#define NP_RETURN_CHUNK 64u        /* instances that a thread takes at a time */
#define NP_RETURN_CHUNKS (NP_RETURN_INSTANCES / NP_RETURN_CHUNK)
#define NP_RETURN_THUNK_BYTES 16u
#define NP_RETURN_CHAIN_MAX 15u    /* tail calls of replaced functions into others that share one return address */

enum np_return_state {
	NP_RETURN_FREE = 0,
	NP_RETURN_CLAIMED = 1,  /* being filled in */
	NP_RETURN_ARMED = 2,    /* its thunk is, or was, in its slot */
	NP_RETURN_NEVER = 3,    /* beyond the thread's maxactive */
};
struct np_return_instance {
	u64 address;            /* the real return address, or the thunk of the function that made the tail call */
	u64 slot;               /* where the return address is on the stack */
	u64 stub;               /* what np_return_arrive jumps to: the function's handlers, then np_return_leave */
	u32 state;              /* enum np_return_state in the low two bits; counted up above them by every claim */
	u32 depth;              /* instances below this one in its slot */
};
struct np_returns {
	u64 magic;
	u32 version;            /* NP_VERSION */
	u32 maxactive;          /* instances of a thread */
	u64 thunks;             /* as in struct np_image */
	u32 chunk_count;        /* chunks taken so far; atomic */
	u32 events;             /* changes of the list of libraries; atomic */
	u32 answered;           /* the last of them for which all unwinders are hooked: nothing is taken before; the tracer's */
	u32 reserved0;
	u64 reserved[3];
};
struct np_return_pool {
	struct np_returns head;
	u32 chunk_owners[NP_RETURN_CHUNKS]; /* index of the thread's context + 1; 0: none */
	struct np_return_instance instances[NP_RETURN_INSTANCES];
};

/* ---- finding a thread's context ------------------------------------------------------------------------------ */

#define NP_TABLE_BITS 12
#define NP_TABLE_SLOTS (1u << NP_TABLE_BITS)
#define NP_TABLE_FACTOR 0x9e3779b97f4a7c15UL /* slot = (key * factor) >> (64 - NP_TABLE_BITS) */

struct np_thread_slot {
	u64 key;                /* thread pointer; 0: free */
	u64 context;            /* 0: no context (hits are missed) */
};
/* A thread that steps through a copy, with all signals blocked that can be. */
struct np_step {
	u64 emulation;          /* address of its struct np_emulation; 0: it steps nothing */
	u64 mask;               /* the program's own */
};
struct np_thread_table {
	struct np_thread_slot slots[NP_TABLE_SLOTS]; /* first, so that a detour indexes it from the table's address */
	u64 magic;              /* NP_MAGIC; 0 in a forked child: no tracing there */
	u64 lent;               /* its own address: the thread pointer of threads that have none yet */
	u64 sandboxed;          /* not 0: this process has entered seccomp */
	u64 reserved[5];
	u16 blocked[NP_TABLE_SLOTS]; /* of NP_SYNCHRONOUS: what the thread of this slot believes it blocks */
	u16 action_masks[64];   /* of NP_SYNCHRONOUS: what the program's action for signal k + 1 would block */
	struct np_step steps[NP_TABLE_SLOTS]; /* what the thread of this slot is stepping */
};

/* SIGILL, SIGTRAP, SIGBUS and SIGSEGV, as bits of a signal mask. While we rely on them no thread may block them: the
 * kernel kills a process that blocks a signal which one of its instructions raises. */
#define NP_SYNCHRONOUS 0x458UL

/* ---- a thread's context -------------------------------------------------------------------------------------- */

#define NP_CONTEXT_SLOTS 4096 /* offset of the static aggregation slots in a context: the fixed part has one page */

struct np_context {
	/* 0: written by the detours */
	u64 busy;               /* 1 while handlers run: a hit meanwhile is missed */
	u64 frame;              /* address of the detour's frame (struct np_frame's `flags`) */
	u64 target_rsp;         /* the stack pointer at the site */
	u64 enabling;           /* address of the struct np_enabling being served */
	u64 missed;             /* hits that found `busy` set */
	/* 40: results of agent functions (they return nothing, so that a call clobbers nothing) */
	u64 result;
	u64 fault;              /* enum np_fault, 0: none */
	u64 fault_address;
	/* 64: identity */
	u64 control;            /* address of struct np_control */
	u64 tid_address;        /* of a u32 that holds the id of the thread that runs here now; own `tid` when unknown */
	u32 tid;
	u32 index;
	u64 thread_key;
	/* 96: scratch: bump-allocated by copyin and copyinstr, reset by every clause */
	u64 scratch;            /* address */
	u64 scratch_bytes;
	u64 scratch_used;
	/* 120: aggregation keys are put together here */
	u64 key;                /* address of a buffer of key_capacity bytes */
	u64 key_bytes;
	u64 key_capacity;
	/* 144: the hash aggregation of this thread: struct np_aggregate_table */
	u64 aggregates;         /* address, 0: none */
	u64 aggregate_drops;
	/* 160: the ring */
	u64 ring;               /* address of ring_bytes bytes, 0: none */
	u64 ring_bytes;         /* a power of two */
	u64 ring_head;          /* bytes written since the beginning; the owner's */
	u64 ring_drops;         /* records that found no room */
	u64 ring_policy;        /* enum np_ring_policy */
	u64 ring_overwritten;   /* NP_RING_OVERWRITE: bytes given up at the tail; the owner's */
	u64 errors;             /* faults of handlers */
	u64 ring_pending;       /* what ring_head becomes at np_commit; 0: nothing is reserved */
	u64 ring_records;       /* records committed since the beginning */
	/* 232: what is known to be readable, so that a copyin need not search: one range of the snapshot (good while
	 * control->ranges is still range_publication), and pages of this thread's stack that the snapshot lacks */
	u64 range_publication;
	u64 range_start, range_end;
	u64 stack_start, stack_end;
	/* 272: return addresses that are replaced */
	u64 return_cursor;      /* address of the instance that is tried first; 0: none */
	u64 returns_missed;     /* returns that are not seen: no instance, left without returning, put back for an unwinder */
	u64 reserved0[2];
	u64 locals;             /* 304: address of the thread-local variables' storage */
	u64 locals_bytes;
	u64 clause_locals;      /* 320: address of the clause-local variables' storage */
	u64 reserved1[23];
	/* 512: a cache line of the tracer's */
	u64 ring_tail;          /* bytes consumed; the tracer's */
	u64 reserved2[7];
	/* 576 .. 4095: free; static slots (u64 each) from NP_CONTEXT_SLOTS */
};

enum np_ring_policy { NP_RING_SWITCH = 0, NP_RING_FILL = 1, NP_RING_OVERWRITE = 2 };

/* What a detour pushes, from the lowest address up. `flags` is what context->frame points at. A light frame has only
 * the last three words; a full one has all. The stack pointer at the site is context->target_rsp. */
struct np_frame_below {
	u64 r14, r13, r12, r11, r10, r9, r8, rbp, rdi, rsi, rdx, rcx, rbx; /* frame - 104 .. frame - 8 */
};
struct np_frame {
	u64 flags;              /* lahf in ah, seto in al */
	u64 r15;
	u64 rax;
};

/* ---- enablings (DTrace's ECB: one clause at one probe) ---------------------------------------------------------- */

struct np_enabling {
	u32 epid;               /* what records carry */
	u32 probe_id;
	u64 site;               /* address of the probed instruction */
	u64 offset;             /* of the site in its function: arg0 of a return probe; NP_OFFSET_RETURNED */
	u64 provider, module, function, name; /* addresses of NUL-terminated strings of at most strsize bytes */
	u64 slot_base;          /* bytes from the context to this enabling's static aggregation slots */
	u64 reserved;
};

/* The offset of a return probe that replaces the return address: the function is left already, nobody knows by which
 * instruction. Its site is the function's entry, its stack pointer is the slot. */
#define NP_OFFSET_RETURNED (~0UL)

/* ---- records --------------------------------------------------------------------------------------------------- */

struct np_record {
	u32 epid;               /* 0: filler up to the end of the ring; bit 31 set: struct np_error follows */
	u32 bytes;              /* header included, a multiple of 8 */
	u64 tsc;
	u32 cpu;
	u32 tid;
	/* payload: laid out by lang::layout */
};
#define NP_RECORD_ERROR 0x80000000u

enum np_fault {
	NP_FAULT_NONE = 0,
	NP_FAULT_BAD_ADDRESS = 1,   /* invalid address */
	NP_FAULT_DIVIDE = 2,        /* divide by zero */
	NP_FAULT_SCRATCH = 3,       /* out of scratch space */
	NP_FAULT_KEY_TOO_LONG = 4,
	NP_FAULT_BAD_SIZE = 5,      /* invalid size or alignment */
	NP_FAULT_ILLEGAL = 6,       /* illegal operation */
};
struct np_error {
	u32 fault;
	u32 action;             /* index of the statement in the clause, from 1; 0: the predicate */
	u64 value;              /* the address, where there is one */
};

/* ---- hash aggregations: one table a thread, never shrinks; the tracer reads it while it grows -------------------- */

/* Open addressing over u32 indices (byte offset of the entry / 8, 0: free); entries are bump-allocated behind it and
 * published by the store of their index. Linear probing, at most NP_AGGREGATE_PROBES, then a drop. */
#define NP_AGGREGATE_PROBES 64
struct np_aggregate_table {
	u64 bytes;              /* of the whole table with this header */
	u64 used;               /* bytes used so far, from the start of the table */
	u64 bucket_mask;        /* number of buckets - 1 */
	u64 reserved;
	/* u32 buckets[bucket_mask + 1]; then entries, each aligned to 8 */
};
struct np_aggregate_entry {
	u32 hash;
	u32 aggregation;        /* id of the aggregation variable */
	u32 key_bytes;          /* a multiple of 8 */
	u32 value_words;        /* u64 words of value */
	/* key, then value words */
};
/* Key elements, each padded with zeros to a multiple of 8: integer: 8 bytes (sign- or zero-extended by its type);
 * string: its bytes with the NUL; stack: u64 number of frames, then the frames, innermost first.
 *
 * Value words: count: 1 [count]; sum: 2 [sum, updates]; min, max: 4 [value, updates, epoch, wanted]; avg: 2 [count, sum];
 * stddev: 4 [count, sum, sum of squares low, high]; quantize: 128 buckets, index as arena::quantize_bucket says;
 * lquantize: levels + 2; llquantize: as arena::llquantize_buckets says. Buckets hold signed weights.
 * An update of min or max whose epoch is not the wanted one takes its value as it is, and makes it so: the tracer alone
 * writes `wanted`, one more for each clear( ), and nothing else in a table. */

/* ---- dynamic variables: associative arrays, and self-> arrays (the tid is then the first key element) ------------- */

#define NP_DYNAMIC_SPINS 1000
struct np_dynamic_table {
	u64 bytes;
	u64 used;               /* atomic */
	u64 bucket_mask;
	u64 reserved;
	/* struct np_dynamic_bucket buckets[bucket_mask + 1]; entries, each aligned to 8 */
};
struct np_dynamic_bucket {
	u32 lock;               /* 1 while somebody is in it */
	u32 first;              /* offset of the first entry in the table / 8, 0: none */
};
struct np_dynamic_entry {
	u32 next;               /* offset in the table / 8, 0: end */
	u32 hash;
	u32 variable;           /* id; bit 31: thread-local */
	u32 key_bytes;
	u32 value_bytes;        /* 8, or strsize rounded up to 8 */
	u32 live;               /* 0: was assigned zero; the entry is reused by the same key or one of the same sizes */
	/* key, then value */
};

/* ---- unwinding ------------------------------------------------------------------------------------------------- */

struct np_unwind_table {
	u64 module_count;
	u64 reserved;
	/* struct np_unwind_module modules[module_count], sorted by start */
};
struct np_unwind_module {
	u64 start, end;         /* of the executable mapping in the target */
	u64 base;               /* what row.pc counts from */
	u64 rows_offset;        /* in the arena: struct np_unwind_row[row_count], sorted by pc */
	u64 row_count;
};
struct np_unwind_row {
	u32 pc;                 /* the row holds from base + pc to the next row */
	u8 cfa;                 /* enum np_cfa */
	u8 rbp;                 /* enum np_rbp: where the caller's rbp is */
	short rbp_offset;
	i32 cfa_offset;
};
enum np_cfa {
	NP_CFA_END = 0,         /* no unwinding beyond here: _start, clone */
	NP_CFA_RSP = 1,         /* cfa = rsp + cfa_offset; the return address is at cfa - 8 */
	NP_CFA_RBP = 2,         /* cfa = rbp + cfa_offset */
	NP_CFA_PLT = 3,         /* cfa = rsp + 8 + ((rip & 15) >= 11 ? 8 : 0) */
	NP_CFA_SIGNAL = 4,      /* a signal frame: rip, rsp, rbp from the ucontext at rsp */
	NP_CFA_RBP_DEREF = 5,   /* cfa = *(rbp + cfa_offset): main with a realigned stack */
	NP_CFA_UNKNOWN = 6,     /* nothing is said about this code, or nothing that fits a row: follow the rbp chain */
};
enum np_rbp {
	NP_RBP_SAME = 0,        /* unchanged */
	NP_RBP_AT_CFA = 1,      /* at cfa + rbp_offset */
	NP_RBP_LOST = 2,        /* overwritten and nowhere saved */
	NP_RBP_AT_RBP = 3,      /* at rbp + rbp_offset */
};

/* ---- the agent's functions -------------------------------------------------------------------------------------
 *
 * All but np_enter return nothing and clobber no register and no SIMD state (no_caller_saved_registers,
 * -mgeneral-regs-only). All may be called only from a handler, with `context` the calling thread's. Those that may
 * fail set context->fault (never cleared by them: a clause starts with 0) and leave a harmless result. */
struct np_context;

/* rax = the calling thread's context, or 0 (a forked child, no room, stopped). Called by detours on a table miss. */
u64 np_enter(void);
/* The thread behind this context changed: its id is read again, thread-local variables are zeroed. */
void np_thread_changed(struct np_context *context);
/* result = address of a scratch copy of `bytes` bytes at `address`. */
void np_copyin(struct np_context *context, u64 address, u64 bytes);
/* result = address of a NUL-terminated scratch copy of at most `limit` bytes, the NUL included; limit 0: strsize. */
void np_copyinstr(struct np_context *context, u64 address, u64 limit);
/* result = the integer of 1, 2, 4 or 8 bytes at `address`, zero-extended. */
void np_load(struct np_context *context, u64 address, u64 bytes);
/* result = length of the string at `string` (arena or scratch memory), at most strsize. */
void np_strlen(struct np_context *context, u64 string);
/* result = <0, 0, >0, as strcmp over at most strsize bytes. */
void np_strcmp(struct np_context *context, u64 left, u64 right);
/* Copies a string into a variable of `capacity` bytes, cut there, NUL-terminated, the rest zeroed. */
void np_strcpy(struct np_context *context, u64 destination, u64 source, u64 capacity);
/* alloca: result = address of `bytes` zero bytes of scratch memory. */
void np_alloca(struct np_context *context, u64 bytes);
/* copyinto and bcopy: `bytes` bytes at `address` to `destination`, which must be scratch memory that the clause has taken. */
void np_copyinto(struct np_context *context, u64 address, u64 bytes, u64 destination);
/* Stores the low `bytes` bytes of a value into scratch memory that the clause has taken; anywhere else: a bad address. */
void np_store_scratch(struct np_context *context, u64 address, u64 bytes, u64 value);
/* Copies `bytes` bytes at `address` to memory of ours (a reserved record, a variable), aligned to 8. */
void np_fetch_into(struct np_context *context, u64 destination, u64 address, u64 bytes);
/* The subroutines of D on strings and numbers, by their names there. Strings are ours; a string result is a copy in
 * scratch memory. np_strchr with `last` is strrchr, np_strcase with `upper` toupper, else tolower; np_strtok takes the
 * token off the string variable `state`; np_inet_ntop is also inet_ntoa and (short_form) inet_ntoa6. */
void np_strjoin(struct np_context *context, u64 left, u64 right);
void np_strchr(struct np_context *context, u64 string, u64 wanted, u64 last);
void np_strstr(struct np_context *context, u64 string, u64 wanted);
void np_strtok(struct np_context *context, u64 state, u64 separators);
void np_substr(struct np_context *context, u64 string, u64 index, u64 count);
void np_index(struct np_context *context, u64 string, u64 wanted, u64 position);
void np_rindex(struct np_context *context, u64 string, u64 wanted, u64 position);
void np_strcase(struct np_context *context, u64 string, u64 upper);
void np_basename(struct np_context *context, u64 string);
void np_dirname(struct np_context *context, u64 string);
void np_cleanpath(struct np_context *context, u64 string);
void np_lltostr(struct np_context *context, u64 value, u64 base);
void np_strtoll(struct np_context *context, u64 string, u64 base);
void np_inet_ntop(struct np_context *context, u64 family, u64 address, u64 short_form);
void np_rand(struct np_context *context);
void np_json(struct np_context *context, u64 text, u64 path);
/* copyout: `bytes` bytes of scratch memory that the clause has taken to the program's memory; copyoutstr: a string of ours
 * with its NUL, at most `bytes` bytes of it. */
void np_copyout(struct np_context *context, u64 buffer, u64 address, u64 bytes);
void np_copyoutstr(struct np_context *context, u64 string, u64 address, u64 bytes);
/* result = the number of a speculation that was free and is taken now, 0: none; whether this one is taken. */
void np_speculation(struct np_context *context);
void np_speculate(struct np_context *context, u64 id);
/* Key building: key_bytes is reset by the clause (a store of 0) and advanced by these. */
void np_key_integer(struct np_context *context, u64 value);
void np_key_string(struct np_context *context, u64 string);
void np_key_stack(struct np_context *context, u64 frames);
/* result = address of the value words of (aggregation, key), made zero when new; 0 when there is no room (counted). */
void np_aggregate(struct np_context *context, u64 aggregation, u64 value_words);
/* Updates at the value words found before (context->result of np_aggregate, or a static slot). */
void np_quantize(struct np_context *context, u64 words, u64 value, u64 weight);
void np_lquantize(struct np_context *context, u64 words, u64 value, u64 weight, u64 parameters);
void np_llquantize(struct np_context *context, u64 words, u64 value, u64 weight, u64 parameters);
void np_stddev(struct np_context *context, u64 words, u64 value);
/* Dynamic variables; the key is in context->key. get: result = address of the value or 0; value_bytes as declared.
 * store: writes `value` (an integer, or the address of a string when value_bytes > 8); zero or NULL deletes. */
void np_dynamic_get(struct np_context *context, u64 variable, u64 value_bytes);
void np_dynamic_store(struct np_context *context, u64 variable, u64 value_bytes, u64 value);
/* result = address of the header of a record of `bytes` bytes in the ring, header filled in (epid, bytes, tsc, cpu,
 * tid), or 0 when there is no room (a drop, counted). np_commit publishes it; a clause that fails just does not. */
void np_reserve(struct np_context *context, u64 epid, u64 bytes);
void np_commit(struct np_context *context);
/* Writes at `destination` (in a reserved record): u64 number of frames, then at most `frames` frames. */
void np_ustack(struct np_context *context, u64 destination, u64 frames);
/* result = the caller's address, by the same unwinding. */
void np_ucaller(struct np_context *context);
/* result = ns since boot; CPU time of the thread in ns; ns since the epoch; the number of the CPU. `tsc` is the counter
 * that the clause has read already, for its record; 0: it is read now. */
void np_timestamp(struct np_context *context, u64 tsc);
void np_vtimestamp(struct np_context *context);
void np_walltimestamp(struct np_context *context, u64 tsc);
void np_cpu(struct np_context *context);
/* Ends a clause that failed: an error record with context->fault; busy stays as it is. */
void np_error(struct np_context *context, u64 action);
/* exit(status): no handler runs any more, in any thread. */
void np_exit(struct np_context *context, u64 status);
/* The dynamic linker changed its list: counts the event and waits, at most a minute and only for a living tracer. Called
 * by an internal detour as a handler. */
void np_library_event(struct np_context *context);
/* The same as a handler's entry: the context is in r15. */
void np_library_event_handler(void);
/* Replaces the return address at `slot`. Yields the address of the instance, or 0: missed, counted. May be called at a
 * function's first instruction only, whatever else runs in this thread. */
u64 np_return_take(struct np_context *context, u64 slot, u64 stub);
/* For detours: slot in rsi, stub in rax, context in r15; changes rax and flags only. */
void np_return_take_at(void);
/* Where thunks lead; np_frame on the stack and the real address above it: see returns.h. Not to be called. */
void np_return_arrive(void);
/* Where stubs lead: with the context in r15, and without. Not to be called. */
void np_return_leave(void);
void np_return_leave_bare(void);
/* Puts the real return addresses back on the calling thread's stack. No context is needed, nor the parent process. */
void np_return_put_back(void);
/* Puts all of them back, on all stacks; nothing is taken until the tracer answers. */
void np_return_suspend(void);
/* At the entries of prctl(3) and syscall(3), whose arguments these are. No context is needed, nor the parent process. */
void np_watch_prctl(u64 option);
void np_watch_syscall(u64 number, u64 option);
/* Signal handlers (SA_SIGINFO), and their restorer. */
void np_on_trap(i32 signal, void *information, void *ucontext);
void np_on_fault(i32 signal, void *information, void *ucontext);
void np_restorer(void);
/* Carries out what a struct np_emulation says of an instruction, on the registers r8 .. flags of a struct np_ucontext.
 * Ordinary calling convention. 0: the processor must do that, nothing is changed. */
int np_emulate(const struct np_emulation *emulation, void *ucontext);
/* np_image.fault_hook: a signal that an instruction has raised, before the program is told of it. `original` is the
 * instruction as the program knows it, `pushed` by how many words the stack is deeper than at its fault. Not 0: the thread
 * goes on as `ucontext` says now. */
typedef int (*np_fault_hook)(i32 signal, void *ucontext, u64 original, u64 pushed);
/* np_image.event_hook: a SIGTRAP that a perf event has raised (si_code TRAP_PERF; TRAP_BRKPT: perhaps, or int1), its siginfo. `original` is where the
 * thread goes on, as the program knows it, where that is known. Not 0: the event was the library's, and the thread goes on
 * as `ucontext` says now. */
typedef int (*np_event_hook)(const void *siginfo, void *ucontext, u64 original, u64 pushed);
/* In front of the program's own system calls rt_sigprocmask and rt_sigaction; ordinary calling convention, any thread, any
 * process. 0: make the system call, which is none of our business. 1: it was made, rax is its result. */
u64 np_shim_sigprocmask(struct np_registers *registers);
u64 np_shim_sigaction(struct np_registers *registers);

#endif
