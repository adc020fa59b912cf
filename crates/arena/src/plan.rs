//! The offsets in a thread's context.
//!
//! ```text
//! 0        struct np_context (640 bytes), rest of the page unused
//! 4096     static aggregation slots
//!          thread-local variables
//!          clause-local variables
//!          key buffer, and eight more bytes that a copy by words may touch
//!          scratch memory, and eight more bytes
//!          (next page) its second table, likewise
//!          (next page) ring
//! stride   the next context
//! ```
//!
//! The plan is the tracer's own. Readers never take the address of a ring or a table from the context itself, because
//! the target could have overwritten it.

use core::mem::offset_of;

use crate::layout::{AggregateEntry, AggregateTable, CONTEXT_SLOTS, Context, EXAMPLE_AGGREGATES};
use crate::memory::{Memory, OutOfBounds};
use crate::structure::Structure;

const PAGE: u64 = 4096;

/// No context can have the requested sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A context would be larger than 16 GiB, which its u32 offsets cannot address.
    #[error("a context of {0} bytes is too large")]
    TooLarge(u64),
    /// The size of the ring is not a power of two of at least 4096 bytes.
    #[error("a ring of {0} bytes: must be a power of two, at least 4096")]
    BadRing(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The table that a new context uses first.
    First,
    /// The table that a new context uses second.
    Second,
}

impl Turn {
    pub fn other(self) -> Turn {
        match self {
            Turn::First => Turn::Second,
            Turn::Second => Turn::First,
        }
    }

    /// The table's index: 0 or 1.
    pub fn index(self) -> usize {
        match self {
            Turn::First => 0,
            Turn::Second => 1,
        }
    }
}

/// Offsets in every context, in bytes from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextPlan {
    /// Static slots: always [`CONTEXT_SLOTS`].
    pub slots: u64,
    /// Bytes of the static slots.
    pub slots_bytes: u64,
    /// Thread-local variables.
    pub locals: u64,
    /// Bytes of the thread-local variables.
    pub locals_bytes: u64,
    /// Clause-local variables.
    pub clause_locals: u64,
    /// Bytes of the clause-local variables.
    pub clause_locals_bytes: u64,
    /// Key buffer.
    pub key: u64,
    pub key_bytes: u64,
    /// Scratch memory.
    pub scratch: u64,
    pub scratch_bytes: u64,
    /// The two tables of the hash aggregation, which are used in turn; 0: none.
    pub aggregates: [u64; 2],
    /// Bytes of one of the two tables, with header and buckets.
    pub aggregate_bytes: u64,
    /// The number of buckets of a table, a power of two.
    pub aggregate_buckets: u64,
    /// Offset of the ring; 0: none.
    pub ring: u64,
    /// Bytes of the ring, a power of two.
    pub ring_bytes: u64,
    /// Whether the ring's records carry no time. Then the clock is not read for them, and records of
    /// different threads have no order.
    pub untimed: bool,
    /// Bytes from one context to the next, a multiple of 4096.
    pub stride: u64,
}

impl ContextPlan {
    /// Lays a context out. All sizes are in bytes and are rounded up to a multiple of 8.
    /// `aggregate_bytes` (of each of the two tables) and `ring_bytes` may be 0 (none). The ring's
    /// size must be a power of two, at least a page.
    pub fn new(
        slots_bytes: u64,
        locals: u64,
        clause_locals: u64,
        scratch: u64,
        key: u64,
        aggregate_bytes: u64,
        ring_bytes: u64,
    ) -> Result<Self, PlanError> {
        if ring_bytes != 0 && (!ring_bytes.is_power_of_two() || ring_bytes < PAGE) {
            return Err(PlanError::BadRing(ring_bytes));
        }
        let sizes = [
            slots_bytes,
            locals,
            clause_locals,
            scratch,
            key,
            aggregate_bytes,
            aggregate_bytes,
            ring_bytes,
        ];
        let total = sizes.iter().fold(0_u64, |sum, size| sum.saturating_add(*size));
        if total >= 16 << 30 {
            return Err(PlanError::TooLarge(total));
        }
        // From here on no sum overflows, because every size is below 2^35.
        let [slots_bytes, locals_bytes, clause_locals_bytes, scratch_bytes, key_bytes] =
            [slots_bytes, locals, clause_locals, scratch, key].map(|size| size.next_multiple_of(8));
        let locals = CONTEXT_SLOTS + slots_bytes;
        let clause_locals = locals + locals_bytes;
        let key = clause_locals + clause_locals_bytes;
        let scratch = key + key_bytes + 8;
        let mut end = (scratch + scratch_bytes + 8).next_multiple_of(PAGE);
        let mut place = |bytes: u64| {
            let at = end;
            end += bytes.next_multiple_of(PAGE);
            if bytes == 0 { 0 } else { at }
        };
        let aggregate_bytes = if aggregate_bytes == 0 {
            0
        } else {
            aggregate_bytes.next_multiple_of(8).max(Self::SMALLEST_AGGREGATE)
        };
        let aggregates = [place(aggregate_bytes), place(aggregate_bytes)];
        let ring = place(ring_bytes);
        Ok(Self {
            slots: CONTEXT_SLOTS,
            slots_bytes,
            locals,
            locals_bytes,
            clause_locals,
            clause_locals_bytes,
            key,
            key_bytes,
            scratch,
            scratch_bytes,
            aggregates,
            aggregate_bytes,
            aggregate_buckets: Self::buckets(aggregate_bytes),
            ring,
            ring_bytes,
            untimed: false,
            stride: end,
        })
    }

    /// Bytes for the header, a few buckets, and one `quantize`.
    const SMALLEST_AGGREGATE: u64 = 4096;

    /// One bucket for 24 bytes of table, rounded up to a power of two. The usual entry has 32 bytes or
    /// more. So a full table uses less than two thirds of its buckets, and seldom rejects a key before
    /// it is full. The buckets take a third of the table at most.
    fn buckets(aggregate_bytes: u64) -> u64 {
        if aggregate_bytes == 0 {
            0
        } else {
            (aggregate_bytes / 24).next_power_of_two()
        }
    }

    /// Offset of the first entry in the hash aggregation's table.
    pub fn first_entry(&self) -> u64 {
        (AggregateTable::BYTES as u64 + self.aggregate_buckets * 4).next_multiple_of(8)
    }

    /// The size of an entry of the hash aggregation.
    pub fn entry_bytes(key_bytes: u64, value_words: u64) -> u64 {
        AggregateEntry::BYTES as u64 + key_bytes + value_words * 8
    }

    /// The fixed part of the context at target address `address`, as the tracer writes it before
    /// the target sees it. `control` is the target's address of the control block; `policy` is
    /// one of `RING_*`.
    pub fn initial_context(&self, address: u64, index: u32, control: u64, policy: u32) -> Context {
        let absolute = |offset: u64| if offset == 0 { 0 } else { address.wrapping_add(offset) };
        Context {
            control,
            tid_address: address.wrapping_add(offset_of!(Context, tid) as u64),
            index,
            scratch: absolute(self.scratch),
            scratch_bytes: self.scratch_bytes,
            key: absolute(self.key),
            key_capacity: self.key_bytes,
            aggregates: absolute(self.aggregates[0]),
            aggregates_wanted: absolute(self.aggregates[0]),
            ring: absolute(self.ring),
            ring_bytes: self.ring_bytes,
            ring_policy: policy,
            ring_untimed: u32::from(self.untimed),
            locals: absolute(self.locals),
            locals_bytes: self.locals_bytes,
            clause_locals: absolute(self.clause_locals),
            ..Context::default()
        }
    }

    /// The head of an empty hash aggregation.
    pub fn initial_aggregates(&self) -> AggregateTable {
        AggregateTable {
            bytes: self.aggregate_bytes,
            used: self.first_entry(),
            bucket_mask: self.aggregate_buckets.wrapping_sub(1),
            reserved: 0,
        }
    }

    /// Writes the example from which the agent makes contexts, [`Self::EXAMPLE_BYTES`] at `offset`.
    pub fn write_example<M: Memory>(&self, memory: &M, offset: u64, policy: u32) -> Result<(), OutOfBounds> {
        memory.write_structure(offset, &self.initial_context(0, 0, 0, policy))?;
        memory.write_structure(offset.wrapping_add(EXAMPLE_AGGREGATES), &self.initial_aggregates())
    }

    /// Bytes of the example.
    pub const EXAMPLE_BYTES: u64 = 2048;

    /// Writes a context's initial fields into an arena that the target has at `arena_address`, with its control block
    /// at the start. The context's other bytes must be zero already. `offset` is that of the context in the arena.
    pub fn initialise<M: Memory>(
        &self,
        memory: &M,
        arena_address: u64,
        offset: u64,
        index: u32,
        policy: u32,
    ) -> Result<(), OutOfBounds> {
        let context = self.initial_context(arena_address.wrapping_add(offset), index, arena_address, policy);
        memory.write_structure(offset, &context)?;
        let [first, _] = self.aggregates;
        if first != 0 {
            memory.write_structure(offset.wrapping_add(first), &self.initial_aggregates())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_lie_one_after_another() {
        let plan = ContextPlan::new(20, 16, 8, 4096, 300, 65536, 8192).unwrap();
        assert_eq!((plan.slots, plan.locals, plan.clause_locals), (4096, 4120, 4136));
        assert_eq!((plan.key, plan.key_bytes), (4144, 304));
        assert_eq!(plan.scratch, 4144 + 304 + 8);
        assert_eq!(plan.aggregates, [12288, 12288 + 65536]);
        assert_eq!(plan.ring, 12288 + 2 * 65536);
        assert_eq!(plan.stride, 12288 + 2 * 65536 + 8192);
        assert_eq!(plan.aggregate_buckets, 4096);
        assert_eq!(plan.first_entry(), 32 + 16384);
    }

    #[test]
    fn unrequested_parts_take_no_room() {
        let plan = ContextPlan::new(0, 0, 0, 0, 0, 0, 0).unwrap();
        assert_eq!((plan.aggregates, plan.ring, plan.stride), ([0; 2], 0, 8192));
        let context = plan.initial_context(0x10000, 3, 0x1000, 0);
        assert_eq!((context.aggregates, context.ring, context.index), (0, 0, 3));
    }

    #[test]
    fn bad_sizes_are_refused() {
        assert_eq!(ContextPlan::new(0, 0, 0, 0, 0, 0, 5000), Err(PlanError::BadRing(5000)));
        assert!(matches!(
            ContextPlan::new(u64::MAX, 0, 0, 9, 0, 0, 0),
            Err(PlanError::TooLarge(_))
        ));
    }
}
