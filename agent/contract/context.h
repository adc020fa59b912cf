/* A thread's context, the frame that a detour passes to a handler, and the data that a handler records. */
#ifndef NANOPROBE_CONTRACT_CONTEXT_H
#define NANOPROBE_CONTRACT_CONTEXT_H

/* ---- enablings (DTrace's ECB: one clause at one probe) ---------------------------------------------------------- */

struct np_enabling {
	u32 epid;               /* the id in the records of this enabling */
	u32 probe_id;
	u64 site;               /* address of the probed instruction */
	u64 offset;             /* of the site in its function: arg0 of a return probe; NP_OFFSET_RETURNED */
	u64 provider, module, function, name; /* addresses of NUL-terminated strings of at most strsize bytes */
	u64 slot_base;          /* bytes from the context to this enabling's static aggregation slots */
	u64 reserved;
};

/* ---- system calls (calls.c) ---------------------------------------------------------------------------------- */

#define NP_CALL_NUMBERS 512u   /* larger numbers have one probe together */
/* No calls: a process, or a thread, that begins after the call that has made it. Tables by number have them last. */
#define NP_CALL_PROCESS_BEGINS (NP_CALL_NUMBERS + 1)
#define NP_CALL_THREAD_BEGINS (NP_CALL_NUMBERS + 2)
#define NP_CALL_ROWS (NP_CALL_NUMBERS + 3)
#define NP_CALL_NONE (~0u)
#define NP_CALLS 8u            /* calls that a thread has begun and not ended: one, and those that signals interrupted */

/* A call that a thread has begun: it returns to this site with this stack pointer. */
struct np_call {
	u64 stack;              /* 0: this entry is free */
	u64 syscall;            /* address of the instruction */
	u64 number;
};

/* One clause at one instruction `syscall`, in the code block: the `enabling` that a detour passes there. The detour
 * calls `code`, which passes the address of this structure in a register. So the address of the handler comes from
 * read-only memory, and never from the context. */
struct np_call_site {
	struct np_enabling enabling; /* only its site counts */
	/* address of NP_CALL_ROWS addresses of struct np_enabling, by the number of the call; 0: not enabled. For
	 * np_call_count_handler: of so many u32, the offsets of counters in the context */
	u64 table;
	u64 handler;            /* of the clause */
	u64 syscall;            /* address of the instruction */
	u64 agent;              /* np_call_entry_handler, np_call_return_handler or np_call_count_handler */
	u64 code[2];            /* lea rax, [this structure]; jmp [agent] */
	u64 begins;             /* not 0: with a result of 0, a process or thread begins after the call */
	u64 interrupt;          /* not 0: the instruction is int 0x80, with numbers and registers of 32-bit programs */
};

/* ---- a thread's context -------------------------------------------------------------------------------------- */

#define NP_CONTEXT_SLOTS 4096 /* offset of the static aggregation slots in a context: the fixed part has one page */

struct np_context {
	/* 0: written by the detours */
	u64 busy;               /* not 0 while handlers run: a hit meanwhile is missed. The stack pointer in the detour */
	u64 frame;              /* address of the detour's frame (struct np_frame's `flags`) */
	u64 target_rsp;         /* the stack pointer at the site */
	u64 enabling;           /* address of the struct np_enabling being served */
	u64 missed;             /* number of hits that found `busy` set */
	/* 40: results of agent functions (these have no return value, so that a call changes no register) */
	u64 result;
	u64 fault;              /* enum np_fault; 0: no fault */
	u64 fault_address;
	/* 64: identity */
	u64 control;            /* address of struct np_control */
	/* address of a u32 that holds the id of the thread that uses this context now; if unknown, the address of `tid` */
	u64 tid_address;
	u32 tid;
	u32 index;
	u64 thread_key;
	/* 96: scratch: bump-allocated by copyin and copyinstr, reset by every clause */
	u64 scratch;            /* address */
	u64 scratch_bytes;
	u64 scratch_used;
	/* 120: aggregation keys are built here */
	u64 key;                /* address of a buffer of key_capacity bytes */
	u64 key_bytes;
	u64 key_capacity;
	/* 144: the hash aggregation of this thread: the struct np_aggregate_table in use;
	 * see `aggregates_wanted` */
	u64 aggregates;         /* address, 0: none */
	u64 aggregate_drops;
	/* 160: the ring */
	u64 ring;               /* address of ring_bytes bytes, 0: none */
	u64 ring_bytes;         /* a power of two */
	u64 ring_head;          /* bytes written since the beginning; the owner's */
	u64 ring_drops;         /* number of records that found no room */
	u32 ring_policy;        /* enum np_ring_policy */
	u32 ring_untimed;       /* 1: records carry no time, and the clock is not read for them */
	u64 ring_overwritten;   /* NP_RING_OVERWRITE: bytes given up at the tail; the owner's */
	u64 errors;             /* faults of handlers */
	u64 ring_pending;       /* the value that ring_head gets at np_commit; 0: nothing is reserved */
	u64 ring_records;       /* records committed since the beginning */
	/* 232: memory that is known to be readable, so that a copyin need not search: one range of the snapshot (valid
	 * while control->ranges is still range_publication), and pages of this thread's stack that the snapshot lacks */
	u64 range_publication;
	u64 range_start, range_end;
	u64 stack_start, stack_end;
	/* 272: replaced return addresses */
	u64 return_cursor;      /* address of the instance that is tried first; 0: none */
	/* number of returns that are not seen: no instance, left without returning, put back for an unwinder */
	u64 returns_missed;
	u64 handler_stack;      /* the end of the stack on which handlers of small stacks' probes run; 0: there is none */
	u32 pid;                /* the process of the thread, and its parent when it began */
	u32 parent;
	u64 locals;             /* 304: address of the thread-local variables' storage */
	u64 locals_bytes;
	u64 clause_locals;      /* 320: address of the clause-local variables' storage */
	u64 process_began;      /* of a followed child: `began` of its table; 0: the traced process */
	u64 ancestors;          /* address of NP_ANCESTORS numbers of np_inherited; they are 0 in the traced process */
	u64 reserved1[21];
	/* 512: a cache line that only the tracer writes */
	u64 ring_tail;          /* bytes consumed; the tracer's */
	u64 reserved2[7];
	/* 576: another cache line that only the tracer writes */
	u64 aggregates_wanted;  /* address of the table that the thread moves to with its next aggregation; 0: none */
	u64 reserved3[7];
	/* 640: system calls */
	struct np_call calls[NP_CALLS];
	struct np_enabling called; /* 832: the enabling for the present system call's number and site */
	u32 call_number;        /* of the call that has returned, less than NP_CALL_ROWS; NP_CALL_NONE: it is not known */
	u32 call_next;          /* the entry that a new call takes if none is free */
	u64 call_scrap;         /* counts of numbers that no probe counts */
	/* 920 .. 4095: free, but for NP_EXAMPLE_AGGREGATES in the example; static slots (u64 each) from NP_CONTEXT_SLOTS */
};

/* Stacks for handlers that were called on a small stack (Go's): private memory, of which a child has a copy.
 *
 *     0       u64: a bit for each of the NP_ENTRY_STACKS that is in use
 *     4096    NP_ENTRY_STACKS stacks on which a thread looks for its context
 *     then    one stack for each context
 */
#define NP_ENTRY_STACKS 64u
#define NP_ENTRY_STACK_BYTES 8192u
#define NP_HANDLER_STACK_BYTES 32768u
#define NP_HANDLER_STACKS (4096u + NP_ENTRY_STACKS * NP_ENTRY_STACK_BYTES) /* offset of the contexts' stacks */

enum np_ring_policy { NP_RING_SWITCH = 0, NP_RING_FILL = 1, NP_RING_OVERWRITE = 2 };

/* The words that a detour pushes, from the lowest address up. context->frame points at `flags`. A light frame has only
 * the last three words; a full one has all. The stack pointer at the site is context->target_rsp. */
struct np_frame_below {
	u64 r14, r13, r12, r11, r10, r9, r8, rbp, rdi, rsi, rdx, rcx, rbx; /* frame - 104 .. frame - 8 */
};
struct np_frame {
	u64 flags;              /* lahf in ah, seto in al */
	u64 r15;
	u64 rax;
};

/* The offset for a return probe that replaces the return address: the function has already
 * returned, and the returning instruction is unknown. Its site is the function's entry, its stack
 * pointer is the slot. */
#define NP_OFFSET_RETURNED (~0UL)

/* ---- records --------------------------------------------------------------------------------------------------- */

struct np_record {
	u32 epid;               /* 0: filler up to the end of the ring; bit 31 set: struct np_error follows */
	u32 bytes;              /* header included, a multiple of 8 */
	u64 tsc;                /* 0: the ring is untimed */
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
	u64 value;              /* the faulting address, if there is one */
};

#endif
