//! The tables that grow while the tracer reads them, and the unwind table: `agent/contract/tables.h`.

use crate::structure::structure;

/// How many buckets a hash aggregation searches before it drops the value.
pub const AGGREGATE_PROBES: u64 = 64;

/// Attempts at a bucket lock of the dynamic variables before the access is dropped.
pub const DYNAMIC_SPINS: u32 = 1000;

/// [`UnwindRow::cfa`]: the stack ends here.
pub const CFA_END: u8 = 0;
/// [`UnwindRow::cfa`]: `rsp + cfa_offset`.
pub const CFA_RSP: u8 = 1;
/// [`UnwindRow::cfa`]: `rbp + cfa_offset`.
pub const CFA_RBP: u8 = 2;
/// [`UnwindRow::cfa`]: `rsp + 8 + ((rip & 15) >= 11 ? 8 : 0)`.
pub const CFA_PLT: u8 = 3;
/// [`UnwindRow::cfa`]: a signal frame at `rsp`.
pub const CFA_SIGNAL: u8 = 4;
/// [`UnwindRow::cfa`]: `*(rbp + cfa_offset)`.
pub const CFA_RBP_DEREF: u8 = 5;
/// [`UnwindRow::cfa`]: the CFA is not known, so unwinding follows the rbp chain.
pub const CFA_UNKNOWN: u8 = 6;

structure! {
    /// Head of a thread's hash aggregation.
    AggregateTable = "np_aggregate_table" {
        /// Size of the whole table with this header.
        bytes: u64,
        /// Offset in the table where the used part ends; every entry before it is complete.
        used: u64,
        /// Number of buckets - 1.
        bucket_mask: u64,
        reserved: u64,
    }
}
structure! {
    /// The head of an entry of a hash aggregation.
    AggregateEntry = "np_aggregate_entry" {
        /// The hash of the aggregation's id and the key.
        hash: u32,
        /// Id of the aggregation variable.
        aggregation: u32,
        /// Bytes of the key, a multiple of 8.
        key_bytes: u32,
        /// The number of u64 words of the value.
        value_words: u32,
    }
}
structure! {
    /// Head of the dynamic variables.
    DynamicTable = "np_dynamic_table" {
        /// Size of the whole table with this header.
        bytes: u64,
        /// Offset in the table where the used part ends.
        used: u64,
        /// Number of buckets - 1.
        bucket_mask: u64,
        reserved: u64,
    }
}
structure! {
    /// A bucket of the dynamic variables.
    DynamicBucket = "np_dynamic_bucket" {
        /// 1 while a thread holds the lock of the bucket.
        lock: u32,
        /// Offset of the first entry in the table / 8; 0: none.
        first: u32,
    }
}
structure! {
    /// The head of a dynamic variable's entry.
    DynamicEntry = "np_dynamic_entry" {
        /// Offset of the next entry in the table / 8; 0: end.
        next: u32,
        /// The hash of the variable's id and the key.
        hash: u32,
        /// The variable's id; bit 31: thread-local.
        variable: u32,
        /// Bytes of the key, a multiple of 8.
        key_bytes: u32,
        /// Bytes of the value, a multiple of 8.
        value_bytes: u32,
        /// 0: zero was assigned, so the entry may be used again.
        live: u32,
    }
}
structure! {
    /// Head of the unwind table.
    UnwindTable = "np_unwind_table" {
        /// The number of [`UnwindModule`]s that follow, sorted by start.
        module_count: u64,
        /// Offset of the [`Runtimes`] in the arena; 0: no code is interpreted.
        runtimes_offset: u64,
    }
}
structure! {
    /// An executable mapping and its rows.
    UnwindModule = "np_unwind_module" {
        start: u64,
        /// The address after the mapping's last byte.
        end: u64,
        /// The address that [`UnwindRow::pc`] counts from.
        base: u64,
        /// Offset of the rows, which are sorted by `pc`.
        rows_offset: u64,
        /// The number of rows.
        row_count: u64,
    }
}
structure! {
    /// How to unwind from `base + pc` on, up to the next row.
    UnwindRow = "np_unwind_row" {
        /// Offset from [`UnwindModule::base`].
        pc: u32,
        /// One of `CFA_*`.
        cfa: u8,
        /// 0: unchanged; 1: at cfa + rbp_offset; 2: undefined; 3: at rbp + rbp_offset.
        rbp: u8,
        /// The offset that the rule in `rbp` uses.
        rbp_offset: i16,
        /// The offset that the rule in `cfa` uses.
        cfa_offset: i32,
    }
}
