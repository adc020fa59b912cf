/* The agent's image and the tables that its code looks things up in: redirects, emulations, return
 * instances, the thread table. */
#ifndef NANOPROBE_CONTRACT_IMAGE_H
#define NANOPROBE_CONTRACT_IMAGE_H

/* ---- the agent image ----------------------------------------------------------------------------------------- */

/* The first bytes of the agent's image. The tracer fills them in before it writes the image, and
 * never writes them later. */
struct np_image {
	u64 magic;
	u64 control;            /* address of struct np_control */
	u64 table;              /* address of struct np_thread_table */
	u64 tables;             /* address of NP_TABLE_ROWS struct np_tables, or of one (redirects.c) */
	u64 rows;               /* address of as many bytes: not 0 where a row, and each before it, is there; the first one always
	                         * is. 0: there is one row */
	u64 thread_key_mode;    /* enum np_thread_key */
	u64 code_start;         /* [code_start, code_end): the image and the handlers, not the detours */
	u64 code_end;
	u64 allow_syscalls;     /* 0: the target is under seccomp; the agent makes no system call */
	u64 use_rdpid;          /* the processor has rdpid: with rdtsc it is quicker than rdtscp */
	u64 returns;            /* address of struct np_return_pool; mapped when a return address is first to be replaced */
	u64 thunks;             /* address of NP_RETURN_INSTANCES thunks of NP_RETURN_THUNK_BYTES bytes, in the code; 0: none */
	u64 fault_hook;         /* of a library in the program itself: np_fault_hook, or 0 */
	u64 event_hook;         /* likewise: np_event_hook, or 0 */
	u64 readers;            /* address of struct np_readers; 0: no table's memory is ever used again */
	u64 stacks;             /* address of the handler stacks (stacks.h); 0: there are none */
};

/* The current tables. When a table grows it is written anew elsewhere. A table has its own length
 * and never changes, so a thread that has found an old table can read it to the end. */
struct np_tables {
	u64 redirects;          /* address of a struct np_redirect_table: trapping address to where it goes on; 0: none */
	u64 origins;            /* address of a struct np_redirect_table: relocated address to original one; 0: none */
};
#define NP_TABLE_ROWS 4096u

/* Counts of the threads that are looking something up in a table. There are two counts, and a
 * thread adds to the one that `phase` names. So one of them reaches 0 even while other
 * threads begin. */
struct np_readers {
	u32 phase;              /* 0 or 1 */
	u32 reserved;
	u64 inside[2];          /* atomic */
};

enum np_thread_key {
	NP_KEY_TLS_SELF = 0,    /* mov %fs:0: the thread control block begins with its own address (glibc, musl) */
	NP_KEY_FSBASE = 1,      /* rdfsbase */
	NP_KEY_ASKED = 2,       /* the kernel is asked for the thread's number: detours find nothing by themselves */
	NP_KEY_TLS_CHECKED = 3, /* detours: as NP_KEY_TLS_SELF; the agent: rdfsbase, so that a thread whose word there is not its
	                         * own address is found all the same, by one call more */
};

/* Where a trap sends the thread, for boundaries of runs and for `trap` sites. With
 * NP_REDIRECT_EMULATION in it, `to` is the address of a struct np_emulation. */
struct np_redirect {
	u64 from;
	u64 to;
};
#define NP_REDIRECT_EMULATION 0x8000000000000000UL
/* In `origins` an entry holds up to the next one, because an instruction may be relocated as
 * several. `to` is 0 for a detour's own code. Its top byte says by how many words the stack is
 * deeper there than at a fault of the original instruction. */
#define NP_ORIGIN_PUSHED_SHIFT 56
struct np_redirect_table {
	u64 count;
	u64 older;              /* address of another one, whose entries hold where none of these does; 0: there is none. That
	                         * one has no further one */
	/* struct np_redirect entries[count], sorted by `from` */
};

/* ---- trap sites that need no copy of their instruction --------------------------------------------------------- */

/* What the instruction at a trap site does, so that the signal handler can do it (emulate.c), or
 * where the processor executes it in single steps (step.c). It lies in its site's detour, at any
 * address, and never changes.
 *
 * Registers are numbered as in the kernel's signal frame: r8 .. r15 are 0 .. 7, then rdi, rsi, rbp,
 * rbx, rdx, rax, rcx, rsp. Offsets count from the byte after their field; 0: there is none. */
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
	u16 inside_count;       /* ranges after the structure */
	u64 displacement;       /* of the memory operand */
	u64 immediate;          /* the immediate; the target of a direct branch; what a ret drops */
	u64 site;               /* the instruction's address */
	/* Routines that fire the site's probes; NP_EMULATION_CALLS: they call handlers. */
	i32 fires;              /* always */
	i32 fires_leaving;      /* when the indirect jump goes outside of all ranges */
	i32 fires_taken;        /* when the branch is taken */
	i32 detour;             /* the detour with all of that and the relocated instruction: always a way to go on */
	i32 copy;               /* in there, the relocated instruction */
	i32 copy_end;           /* the end of the copy */
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
/* 0 .. 15: the last four bits of the opcodes of jcc. The others count down rcx or ecx, according
 * to `size`. */
enum np_condition { NP_CONDITION_LOOP = 16, NP_CONDITION_LOOPE = 17, NP_CONDITION_LOOPNE = 18, NP_CONDITION_JCXZ = 19 };

/* The registers that a replacement (patch::Replacement) passes to an agent function, and loads
 * again afterwards. */
struct np_registers {
	u64 flags;              /* as in struct np_frame */
	u64 r15, r14, r13, r12, r11, r10, r9, r8, rbp, rdi, rsi, rdx, rcx, rbx, rax;
};

/* ---- return addresses (returns.h) --------------------------------------------------------------------------- */

#define NP_RETURN_INSTANCES 65536u /* of a process */
#define NP_RETURN_CHUNK 64u        /* instances that a thread takes at a time */
#define NP_RETURN_CHUNKS (NP_RETURN_INSTANCES / NP_RETURN_CHUNK)
#define NP_RETURN_THUNK_BYTES 16u
#define NP_RETURN_CHAIN_MAX 255u   /* tail calls of replaced functions into others that share one return address */

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
	/* For each chunk, the lowest and the highest slot that its instances have had; 0: none
	 * yet. Code that takes instances without updating this sets the highest to the end of
	 * all addresses. */
	u64 chunk_lowest[NP_RETURN_CHUNKS];
	u64 chunk_highest[NP_RETURN_CHUNKS];
};

/* ---- finding a thread's context ------------------------------------------------------------------------------ */

#define NP_TABLE_BITS 12
#define NP_TABLE_SLOTS (1u << NP_TABLE_BITS)
#define NP_TABLE_FACTOR 0x9e3779b97f4a7c15UL /* slot = (key * factor) >> (64 - NP_TABLE_BITS) */

#define NP_KEY_OF_NUMBER (1UL << 63) /* in the key of a thread that is told by its number; no thread pointer has it */
#define NP_SLOT_ENDED 1UL    /* the key of a slot whose thread is gone: it may be claimed, and chains go on past it */
struct np_thread_slot {
	u64 key;                /* thread pointer; 0: free; NP_SLOT_ENDED */
	u64 context;            /* 0: no context (hits are missed) */
};
/* A thread that steps through a copy, with all signals blocked that can be blocked. */
struct np_step {
	u64 emulation;          /* address of its struct np_emulation; 0: it steps nothing */
	u64 mask;               /* the program's own */
};
/* A mask that the program has passed to a call that waits under it (rt_sigsuspend, ppoll, ...),
 * without NP_SYNCHRONOUS. A register of the program holds the address of `mask`, or of `pair`, from
 * before the call until it is overwritten. */
#define NP_LENT_MASKS 4
struct np_lent_mask {
	u64 original;           /* what the register held */
	u64 mask;
	u64 pair;               /* address of `mask` ... */
	u64 pair_bytes;         /* ... and its bytes, as pselect6 has them */
};
struct np_lent_masks {
	struct np_lent_mask masks[NP_LENT_MASKS];
	u64 next;               /* is taken next */
};
/* A call that waits for signals, or under its own mask, and that the thread of this slot is about
 * to make: see waits.c. It has no meaning once the thread is elsewhere. */
struct np_wait {
	u64 syscall;            /* address of the instruction */
	u64 registers;          /* address of the struct np_registers that the thread finds there */
	u32 state;              /* enum np_wait_state */
	u32 thread;             /* its number */
	u32 number;             /* of the system call */
	u16 takes;              /* of NP_SYNCHRONOUS: what ends the wait */
	u16 blocked;            /* of NP_SYNCHRONOUS: what stays blocked meanwhile */
	u32 disturbed;          /* not 0: something is held since the thread has looked */
	u32 reserved;
};
enum np_wait_state {
	NP_WAIT_NONE = 0,
	NP_WAIT_LOOKING = 1,    /* the shim looks at what is held */
	NP_WAIT_BEGUN = 2,      /* it has looked */
	NP_WAIT_LETTING_GO = 3, /* it sends the thread what the wait's mask opens */
};
/* One of the four signals, sent while the program blocked it: see held.c. */
struct np_held {
	u32 state;              /* enum np_held_state in the low two bits; counted up above them by every claim */
	u32 signal;
	u32 thread;             /* number of the one that it was sent to; 0: the process */
	u32 reserved;
	u64 information[16];    /* the kernel's siginfo */
};
enum np_held_state { NP_HELD_FREE = 0, NP_HELD_CLAIMED = 1, NP_HELD_THERE = 2 };
#define NP_HELD 64u
struct np_thread_table {
	struct np_thread_slot slots[NP_TABLE_SLOTS]; /* first, so that a detour indexes it from the table's address */
	u64 magic;              /* NP_MAGIC; 0 in a forked child: no tracing there */
	u64 lent;               /* its own address: the thread pointer of threads that have none yet */
	u64 sandboxed;          /* not 0: this process has entered seccomp */
	u64 held_count;         /* entries of `held` that are not free; atomic */
	u64 waited;             /* not 0: there is, or was, an entry of `waits` */
	u64 reserved[3];
	u16 blocked[NP_TABLE_SLOTS]; /* of NP_SYNCHRONOUS: what the thread of this slot believes it blocks */
	u16 action_masks[64];   /* of NP_SYNCHRONOUS: what the program's action for signal k + 1 would block */
	struct np_step steps[NP_TABLE_SLOTS]; /* what the thread of this slot is stepping */
	struct np_lent_masks lent_masks[NP_TABLE_SLOTS];
	struct np_wait waits[NP_TABLE_SLOTS];
	struct np_held held[NP_HELD];
};

/* SIGILL, SIGTRAP, SIGBUS and SIGSEGV, as bits of a signal mask. While we rely on them no thread
 * may block them: the kernel kills a process when an instruction raises a signal that it blocks. */
#define NP_SYNCHRONOUS 0x458UL

#endif
