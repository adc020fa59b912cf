/* Tables that are read while they grow: aggregations, dynamic variables; and the unwind table. */
#ifndef NANOPROBE_CONTRACT_TABLES_H
#define NANOPROBE_CONTRACT_TABLES_H

/* ---- hash aggregations: two tables a thread, in turn; the tracer reads them while they grow ---------------------- */

/* Open addressing over u32 indices (byte offset of the entry / 8, 0: free). Entries are
 * bump-allocated after them, and published by the store of their index. Linear probing, at most
 * NP_AGGREGATE_PROBES, then a drop.
 *
 * A thread adds to one table until the tracer wants the other one (context->aggregates_wanted), which is empty.
 * The thread switches at the start of its next aggregation, and says so (context->aggregates). From then on it
 * neither adds to the first table nor holds an address in it. So the tracer can copy its contents, and then empty
 * it. */
#define NP_AGGREGATE_PROBES 64
struct np_aggregate_table {
	u64 bytes;              /* the size of the whole table with this header */
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
/* Key elements, each padded with zeros to a multiple of 8. Integer: 8 bytes (sign- or
 * zero-extended by its type). String: its bytes with the NUL. Stack: u64 number of frames, then
 * the frames, innermost first.
 *
 * Value words: count: 1 [count]; sum: 2 [sum, updates]; min, max: 4 [value, updates, epoch, wanted]; avg: 2
 * [count, sum]; stddev: 4 [count, sum, sum of squares low, high]; quantize: 128 buckets, indexed as in
 * arena::quantize_bucket; lquantize: levels + 2; llquantize: as in arena::llquantize_buckets. Buckets hold signed
 * weights. If an update of min or max finds that the epoch is not the wanted one, it stores its value whatever the
 * old value was, and sets the epoch to the wanted one. The tracer adds one to `wanted` for each clear( ). It
 * writes nothing else in a table that a thread may use. */

/* ---- dynamic variables: associative arrays, and self-> arrays (the tid is then the first key element) ------------ */

#define NP_DYNAMIC_SPINS 1000
struct np_dynamic_table {
	u64 bytes;
	u64 used;               /* atomic */
	u64 bucket_mask;
	u64 reserved;
	/* struct np_dynamic_bucket buckets[bucket_mask + 1]; entries, each aligned to 8 */
};
struct np_dynamic_bucket {
	u32 lock;               /* 1 while a thread holds the lock */
	u32 first;              /* offset of the first entry in the table / 8; 0: no entry */
};
struct np_dynamic_entry {
	u32 next;               /* offset in the table / 8, 0: end */
	u32 hash;
	u32 variable;           /* id; bit 31: thread-local */
	u32 key_bytes;
	u32 value_bytes;        /* 8, or strsize rounded up to 8 */
	/* 0: the element was deleted; the same key, or a key with the same sizes, may use the entry */
	u32 live;
	/* key, then value */
};

/* ---- unwinding ------------------------------------------------------------------------------------------------- */

struct np_unwind_table {
	u64 module_count;
	u64 runtimes_offset;    /* in the arena: struct np_runtimes; 0: no code is interpreted */
	/* struct np_unwind_module modules[module_count], sorted by start */
};
struct np_unwind_module {
	u64 start, end;         /* of the executable mapping in the target */
	u64 base;               /* the address from which row.pc counts */
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
	NP_CFA_UNKNOWN = 6,     /* the code is not described, or does not fit a row: the walk follows the chain of rbp */
};
enum np_rbp {
	NP_RBP_SAME = 0,        /* unchanged */
	NP_RBP_AT_CFA = 1,      /* at cfa + rbp_offset */
	NP_RBP_LOST = 2,        /* overwritten and nowhere saved */
	NP_RBP_AT_RBP = 3,      /* at rbp + rbp_offset */
};

#endif
