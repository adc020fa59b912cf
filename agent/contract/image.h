/* The agent's image and the tables that its code reads: redirects, emulations, return instances, the thread table. */
#ifndef NANOPROBE_CONTRACT_IMAGE_H
#define NANOPROBE_CONTRACT_IMAGE_H

/* ---- the agent image ----------------------------------------------------------------------------------------- */

/* The first bytes of the agent's image. The tracer fills them in before it writes the image, and
 * never writes them later. */
/* The most agents that one host serves. */
#define NP_GUESTS 15u

struct np_image {
	u64 magic;
	u64 control;            /* address of struct np_control */
	u64 table;              /* address of struct np_thread_table */
	u64 tables;             /* address of NP_TABLE_ROWS struct np_tables, or of one (redirects.c) */
	/* address of a byte for each row of `tables`: the byte is not 0 if the row and all rows before it exist (the first
	   row always exists). 0: there is only one row */
	u64 rows;
	u64 thread_key_mode;    /* enum np_thread_key */
	u64 code_start;         /* [code_start, code_end): the image and the handlers, not the detours */
	u64 code_end;
	u64 allow_syscalls;     /* 0: the target is under seccomp; the agent makes no system call */
	u64 use_rdpid;          /* the processor has rdpid: with rdtsc it is quicker than rdtscp */
	/* address of struct np_return_pool, which is mapped before the first return address is replaced */
	u64 returns;
	u64 thunks;             /* address of NP_RETURN_INSTANCES thunks of NP_RETURN_THUNK_BYTES bytes, in the code; 0: none */
	u64 fault_hook;         /* hook of a library in the program itself: np_fault_hook, or 0 */
	u64 event_hook;         /* hook of a library in the program itself: np_event_hook, or 0 */
	u64 readers;            /* address of struct np_readers; 0: no table's memory is ever used again */
	u64 stacks;             /* address of the handler stacks (stacks.h); 0: there are none */
	u64 made_calls;         /* not 0: system calls of code that the program has made may trap (made.c) */
	/* Several tracers (docs/design/several-tracers.md). The first one's agent is the host: it handles the signals and
	   the shims for all. */
	u64 host_table;         /* address of the host's struct np_thread_table; 0: this is the host, or the only agent */
	/* enum np_follows. It is here, and not in the arena, because a child that is not followed asks at each hit, and the
	   arena's page would be one more that a fork has to make for it */
	u64 follows;
	u64 guests[NP_GUESTS];  /* np_on_signal_of_host of each other agent, the latest last; 0: free */
};

enum np_follows {
	NP_FOLLOWS_NOT = 0,       /* forked children record nothing */
	NP_FOLLOWS = 1,           /* forked children record in the arena, too */
	NP_FOLLOWS_ANCESTORS = 2, /* and keep a list of the processes from which they were forked */
};

/* The current tables. When a table grows it is written anew elsewhere. A table has its own length
 * and never changes, so a thread that has found an old table can read it to the end. */
struct np_tables {
	u64 redirects;          /* struct np_redirect_table's address: from traps to where threads continue; 0: none */
	u64 origins;            /* address of a struct np_redirect_table, from traps to where threads continue; 0: none */
};
#define NP_TABLE_ROWS 4096u

/* Counts of the threads that are reading a table. There are two counts, and a thread adds to the one that `phase`
 * names. So one of them reaches 0 even while other threads begin. */
struct np_readers {
	u32 phase;              /* 0 or 1 */
	u32 reserved;
	u64 inside[2];          /* atomic */
};

enum np_thread_key {
	NP_KEY_TLS_SELF = 0,    /* mov %fs:0: the thread control block begins with its own address (glibc, musl) */
	NP_KEY_FSBASE = 1,      /* rdfsbase */
	NP_KEY_ASKED = 2,       /* the kernel is asked for the thread's number; detours find no thread by themselves */
	NP_KEY_TLS_CHECKED = 3, /* detours: as NP_KEY_TLS_SELF; the agent: rdfsbase, so that a thread whose word there is not its
	                         * own address is found all the same, by one call more */
};

/* The place to which a trap sends the thread, for boundaries of runs and for `trap` sites. If `to` contains
 * NP_REDIRECT_EMULATION, it is the address of a struct np_emulation. */
struct np_redirect {
	u64 from;
	u64 to;
};
#define NP_REDIRECT_EMULATION 0x8000000000000000UL
/* The trap stands for a `syscall` (made.c); the rest of `to` is where the thread continues. */
#define NP_REDIRECT_CALL 0x4000000000000000UL
/* In `origins` an entry is valid up to the next one, because an instruction may be relocated as several. `to` is 0
 * for a detour's own code. The top byte of `to` is the number of words that the relocated code has pushed by then,
 * beyond what the original instruction pushes. */
#define NP_ORIGIN_PUSHED_SHIFT 56
struct np_redirect_table {
	u64 count;
	/* address of another table, for addresses that this one lacks; 0: there is none. The other table has no link */
	u64 older;
	/* struct np_redirect entries[count], sorted by `from` */
};

/* ---- trap sites that need no copy of their instruction --------------------------------------------------------- */

/* A description of the instruction at a trap site, by which the signal handler executes it (emulate.c), or finds
 * the place where the processor executes it in single steps (step.c). It lies in its site's detour, at any
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
	i32 copy;               /* in the detour: the relocated instruction */
	i32 copy_end;           /* the end of the copy */
	/* struct np_range inside[inside_count] */
};
#define NP_NO_REGISTER 255
enum np_emulation_flags {
	NP_EMULATION_CALLS = 1,
	NP_EMULATION_TOUCHES_MEMORY = 2,  /* the instruction may fault */
	NP_EMULATION_STACK_OF_CALLS = 4,  /* call or ret: not emulated if there is a shadow stack */
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
	NP_OPERATION_OTHER = 17, /* the instruction is only stepped */
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
#define NP_RETURN_CHUNK 64u        /* how many instances a thread takes at a time */
#define NP_RETURN_CHUNKS (NP_RETURN_INSTANCES / NP_RETURN_CHUNK)
#define NP_RETURN_THUNK_BYTES 16u
#define NP_RETURN_CHAIN_MAX 255u   /* how many tail calls of replaced functions may share one slot */

enum np_return_state {
	NP_RETURN_FREE = 0,
	NP_RETURN_CLAIMED = 1,  /* the instance is being filled in */
	NP_RETURN_ARMED = 2,    /* the instance's thunk is, or was, in its slot */
	NP_RETURN_NEVER = 3,    /* beyond the thread's maxactive */
};
struct np_return_instance {
	u64 address;            /* the real return address, or the thunk of the function that made the tail call */
	u64 slot;               /* address of the stack slot with the return address */
	u64 stub;               /* np_return_arrive jumps here: the function's handlers, then np_return_leave */
	u32 state;              /* the low two bits: enum np_return_state; the bits above them count the claims */
	u32 depth;              /* number of instances below this one for the same slot */
};
struct np_returns {
	u64 magic;
	u32 version;            /* NP_VERSION */
	u32 maxactive;          /* instances of a thread */
	u64 thunks;             /* as in struct np_image */
	u32 chunk_count;        /* chunks taken so far; atomic */
	u32 events;             /* changes of the list of libraries; atomic */
	/* the last change after which all unwinders were hooked; only the tracer writes this. While it differs from
	   `events` no instance is taken */
	u32 answered;
	u32 reserved0;
	u64 reserved[3];
};
struct np_return_pool {
	struct np_returns head;
	u32 chunk_owners[NP_RETURN_CHUNKS]; /* index of the thread's context + 1; 0: none */
	struct np_return_instance instances[NP_RETURN_INSTANCES];
	/* For each chunk, the lowest and the highest slot that its instances have ever had; 0: none yet. Code that takes
	 * instances without updating these sets the highest to the end of all addresses. */
	u64 chunk_lowest[NP_RETURN_CHUNKS];
	u64 chunk_highest[NP_RETURN_CHUNKS];
};

/* ---- finding a thread's context ------------------------------------------------------------------------------ */

#define NP_TABLE_BITS 12
#define NP_TABLE_SLOTS (1u << NP_TABLE_BITS)
#define NP_TABLE_FACTOR 0x9e3779b97f4a7c15UL /* slot = (key * factor) >> (64 - NP_TABLE_BITS) */

#define NP_KEY_OF_NUMBER (1UL << 63) /* in the key of a thread that is identified by its number; no thread pointer has it */
/* In a key that no thread has: tasks share the thread pointer in the rest of the key, and are identified by number. */
#define NP_KEY_SHARED (1UL << 62)
/* the key of a slot whose thread is gone: the slot may be claimed, and searches go on past it */
#define NP_SLOT_ENDED 1UL
struct np_thread_slot {
	u64 key;                /* thread pointer; 0: free; NP_SLOT_ENDED */
	u64 context;            /* 0: no context (hits are missed) */
};
/* The step of a thread through a copy. Meanwhile all signals are blocked that can be blocked. */
struct np_step {
	u64 emulation;          /* address of its struct np_emulation; 0: it steps nothing */
	u64 mask;               /* the program's own */
};
/* A copy of a mask that the program passes to a call that waits under it (rt_sigsuspend, ppoll, ...), without
 * NP_SYNCHRONOUS. From before the call until it is overwritten, a register of the program holds the address of
 * `mask`, or of `pair`. */
#define NP_LENT_MASKS 4
struct np_lent_mask {
	u64 original;           /* the register's value before */
	u64 mask;
	u64 pair;               /* address of `mask` ... */
	u64 pair_bytes;         /* ... and its bytes, as pselect6 has them */
};
struct np_lent_masks {
	struct np_lent_mask masks[NP_LENT_MASKS];
	u64 next;               /* the index of the mask that is used next */
};
/* A call that waits for signals, or under a mask of its own, and that the thread of this slot is about to make:
 * see waits.c. The entry has no meaning once the thread is elsewhere. */
struct np_wait {
	u64 syscall;            /* address of the instruction */
	u64 registers;          /* address of the struct np_registers that was pushed before the call */
	u32 state;              /* enum np_wait_state */
	u32 thread;             /* its number */
	u32 number;             /* number of the system call */
	u16 takes;              /* which signals of NP_SYNCHRONOUS end the wait */
	u16 blocked;            /* which signals of NP_SYNCHRONOUS stay blocked meanwhile */
	u32 disturbed;          /* not 0: a signal was held after the thread had last looked */
	u32 reserved;
};
enum np_wait_state {
	NP_WAIT_NONE = 0,
	NP_WAIT_LOOKING = 1,    /* the shim is looking at the held signals */
	NP_WAIT_BEGUN = 2,      /* the thread has looked at the held signals */
	NP_WAIT_LETTING_GO = 3, /* it sends the thread the held signals that the wait's mask unblocks */
};
/* One of the four signals, sent while the program blocked it: see held.c. */
struct np_held {
	u32 state;              /* the low two bits: enum np_held_state; the bits above them count the claims */
	u32 signal;
	u32 thread;             /* number of the thread to which the signal was sent; 0: to the process */
	u32 reserved;
	u64 information[16];    /* the kernel's siginfo */
};
enum np_held_state { NP_HELD_FREE = 0, NP_HELD_CLAIMED = 1, NP_HELD_THERE = 2 };
#define NP_HELD 64u
/* The data that a forked child inherits besides its parent's masks. */
#define NP_TAKING 1UL
#define NP_NESTED 1UL        /* bit of `began`: see np_inherited.nested */
#define NP_INHERITED_ALIGNMENT 4096
#define NP_ANCESTORS 31u
#define NP_DISPATCH_BUSY 1
#define NP_HANDLERS 128u     /* how many signal handlers the tracer can know */
struct np_inherited {
	struct np_sigaction actions[5]; /* the program's own; control->actions is a copy of the traced process's */
	u64 sandboxed;          /* not 0: this process, or one from which it was forked, has entered seccomp (sandbox.h) */
	u64 nested;             /* not 0: a followed child that is in a pid namespace below the traced process's */
	/* the followed children from which this child was forked, and this child, the oldest first */
	u32 ancestor_count;
	u32 ancestors[NP_ANCESTORS];
	/* not 0: an element of `blocked` is, or was, not 0. It is set before the element, and a child sets it anew */
	u64 blocks;
	/* handlers.c */
	u64 handlers[64];       /* the last handler that the program has set for signal k + 1, also if it was reset since */
	u64 with_information;   /* bit k: it was set with SA_SIGINFO */
	u32 handler_count;      /* how many places of `places` are taken; atomic */
	u32 handlers_placed;    /* written by the tracer: it has seen to the probes of so many, from the first on */
	u64 places[NP_HANDLERS]; /* the addresses of all handlers that were ever set; 0: it is just being written */
	/* dispatch.c: the struct np_registers of the thread that waits for the end of tracing, and its `syscall`. 0: none
	 * waits; NP_DISPATCH_BUSY: they are being written */
	u64 dispatch_registers;
	u64 dispatch_syscall;
};
struct np_thread_table {
	/* this field comes first, so that a detour indexes it from the table's address */
	struct np_thread_slot slots[NP_TABLE_SLOTS];
	u64 magic;              /* NP_MAGIC; 0 in a forked child that has not taken its table (follow.c); else NP_TAKING */
	/* the address of this field: the thread pointer that is lent to threads that have none yet */
	u64 lent;
	u64 held_count;         /* number of entries of `held` that are not free; atomic */
	u64 waited;             /* not 0: an entry of `waits` is, or was, in use */
	u64 began;              /* for a followed child: TSC when it took its table, with NP_NESTED; 0: this is the target */
	u32 pid, parent;        /* for a followed child: its number and its parent's, as the child sees them */
	u64 shared_pointers;    /* not 0: a slot may have a key with NP_KEY_SHARED */
	u64 early_keys;         /* not 0: a context was found by a key that its thread may lose: take_earlier in enter.c */
	struct np_step steps[NP_TABLE_SLOTS]; /* the instruction that the thread of this slot is stepping */
	struct np_lent_masks lent_masks[NP_TABLE_SLOTS];
	struct np_wait waits[NP_TABLE_SLOTS];
	struct np_held held[NP_HELD];
	/* From this field on, a forked child has a copy of the table. */
	u16 blocked[NP_TABLE_SLOTS] __attribute__((aligned(NP_INHERITED_ALIGNMENT))); /* of NP_SYNCHRONOUS: the signals
	                         * that the thread of this slot believes it blocks */
	u16 action_masks[64];   /* of NP_SYNCHRONOUS: the signals that the program's action for signal k + 1 would block */
	u64 keys[NP_TABLE_SLOTS]; /* the key that each slot had last */
	struct np_inherited inherited;
};

/* SIGILL, SIGTRAP, SIGBUS and SIGSEGV, as bits of a signal mask. While the agent relies on them no thread may
 * block them: if an instruction raises a signal that its thread blocks, the kernel kills the process. */
#define NP_SYNCHRONOUS 0x458UL

#endif
