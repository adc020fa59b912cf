//! What grows while it is read, and the unwind table: `agent/contract/tables.h`.

use crate::structure::structure;

/// Buckets that a hash aggregation looks at before it drops.
pub const AGGREGATE_PROBES: u64 = 64;

/// Attempts at a bucket lock of the dynamic variables before the access is dropped.
pub const DYNAMIC_SPINS: u32 = 1000;

/// [`UnwindRow::cfa`]: no unwinding beyond here.
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
/// [`UnwindRow::cfa`]: nothing is known: follow the rbp chain.
pub const CFA_UNKNOWN: u8 = 6;

structure! {
    /// Head of a thread's hash aggregation.
    AggregateTable = "np_aggregate_table" {
        /// Of the whole table with this header.
        bytes: u64,
        /// Used so far, from the start of the table: every entry below is complete.
        used: u64,
        /// Number of buckets - 1.
        bucket_mask: u64,
        reserved: u64,
    }
}
structure! {
    /// What an entry of a hash aggregation begins with.
    AggregateEntry = "np_aggregate_entry" {
        /// Of aggregation and key.
        hash: u32,
        /// Id of the aggregation variable.
        aggregation: u32,
        /// A multiple of 8.
        key_bytes: u32,
        /// u64 words of value.
        value_words: u32,
    }
}
structure! {
    /// Head of the dynamic variables.
    DynamicTable = "np_dynamic_table" {
        /// Of the whole table with this header.
        bytes: u64,
        /// Used so far, from the start of the table.
        used: u64,
        /// Number of buckets - 1.
        bucket_mask: u64,
        reserved: u64,
    }
}
structure! {
    /// A bucket of the dynamic variables.
    DynamicBucket = "np_dynamic_bucket" {
        /// 1 while a thread holds it.
        lock: u32,
        /// Offset of the first entry in the table / 8; 0: none.
        first: u32,
    }
}
structure! {
    /// What a dynamic variable begins with.
    DynamicEntry = "np_dynamic_entry" {
        /// Offset of the next entry in the table / 8; 0: end.
        next: u32,
        /// Of variable and key.
        hash: u32,
        /// Id; bit 31: thread-local.
        variable: u32,
        /// A multiple of 8.
        key_bytes: u32,
        /// A multiple of 8.
        value_bytes: u32,
        /// 0: was assigned zero.
        live: u32,
    }
}
structure! {
    /// Head of the unwind table.
    UnwindTable = "np_unwind_table" {
        /// [`UnwindModule`]s that follow, sorted by start.
        module_count: u64,
        reserved: u64,
    }
}
structure! {
    /// An executable mapping and its rows.
    UnwindModule = "np_unwind_module" {
        start: u64,
        /// First byte after it.
        end: u64,
        /// What [`UnwindRow::pc`] counts from.
        base: u64,
        /// Where the rows are, sorted by `pc`.
        rows_offset: u64,
        /// Their number.
        row_count: u64,
    }
}
structure! {
    /// How to unwind from `base + pc` to the next row.
    UnwindRow = "np_unwind_row" {
        /// From [`UnwindModule::base`].
        pc: u32,
        /// `CFA_*`.
        cfa: u8,
        /// 0: unchanged; 1: at cfa + rbp_offset; 2: undefined; 3: at rbp + rbp_offset.
        rbp: u8,
        /// See `rbp`.
        rbp_offset: i16,
        /// See `cfa`.
        cfa_offset: i32,
    }
}
