//! A thread's context and its records: `agent/contract/context.h`.

use crate::structure::structure;

/// [`Enabling::offset`] of a return probe that replaces the return address.
pub const OFFSET_RETURNED: u64 = u64::MAX;

/// Offset of the static aggregation slots in a context.
pub const CONTEXT_SLOTS: u64 = 4096;

/// [`Context::ring_policy`]: drop when full; the tracer drains.
pub const RING_SWITCH: u32 = 0;
/// [`Context::ring_policy`]: drop when full, for good.
pub const RING_FILL: u32 = 1;
/// [`Context::ring_policy`]: the oldest records are given up.
pub const RING_OVERWRITE: u32 = 2;

/// Set in [`RecordHeader::epid`] when an [`ErrorRecord`] follows.
pub const RECORD_ERROR: u32 = 0x8000_0000;

/// [`ErrorRecord::fault`]: none.
pub const FAULT_NONE: u32 = 0;
/// [`ErrorRecord::fault`]: invalid address.
pub const FAULT_BAD_ADDRESS: u32 = 1;
/// [`ErrorRecord::fault`]: divide by zero.
pub const FAULT_DIVIDE: u32 = 2;
/// [`ErrorRecord::fault`]: out of scratch space.
pub const FAULT_SCRATCH: u32 = 3;
/// [`ErrorRecord::fault`]: an aggregation's or array's key does not fit.
pub const FAULT_KEY_TOO_LONG: u32 = 4;
/// [`ErrorRecord::fault`]: invalid size or alignment.
pub const FAULT_BAD_SIZE: u32 = 5;
/// [`ErrorRecord::fault`]: illegal operation.
pub const FAULT_ILLEGAL: u32 = 6;

structure! {
    /// A thread's context: its fixed part up to the tracer's cache line.
    Context = "np_context" {
        /// The stack pointer in the detour while handlers run; 0: none runs.
        busy: u64,
        /// Address of the detour's frame ([`Frame`]).
        frame: u64,
        /// The stack pointer at the site.
        target_rsp: u64,
        /// Address of the [`Enabling`] being served.
        enabling: u64,
        /// Hits that found `busy` set.
        missed: u64,
        /// Result of the last agent function.
        result: u64,
        /// `FAULT_*`.
        fault: u64,
        /// The bad address.
        fault_address: u64,
        /// Address of the [`Control`].
        control: u64,
        /// Address of a u32 that holds the id of the thread that runs here now.
        tid_address: u64,
        /// The id of the thread that this context last served.
        tid: u32,
        /// Index of this context.
        index: u32,
        /// Its thread pointer.
        thread_key: u64,
        /// Address of the scratch memory.
        scratch: u64,
        scratch_bytes: u64,
        /// How many bytes of it are taken.
        scratch_used: u64,
        /// Address of the buffer for keys.
        key: u64,
        /// How many bytes of it are in use.
        key_bytes: u64,
        key_capacity: u64,
        /// Address of the [`AggregateTable`] that the thread uses; 0: none.
        aggregates: u64,
        /// Aggregations that found no room.
        aggregate_drops: u64,
        /// Address of the ring; 0: none.
        ring: u64,
        /// Its size, a power of two.
        ring_bytes: u64,
        /// Bytes written since the start.
        ring_head: u64,
        /// Records that found no room.
        ring_drops: u64,
        /// `RING_*`.
        ring_policy: u32,
        /// 1: records carry no time.
        ring_untimed: u32,
        /// [`RING_OVERWRITE`]: where the oldest remaining record begins.
        ring_overwritten: u64,
        /// Faults of handlers.
        errors: u64,
        /// The value of `ring_head` after the commit; 0: nothing is reserved.
        ring_pending: u64,
        /// Records committed since the start.
        ring_records: u64,
        /// The snapshot of the cached range.
        range_publication: u64,
        /// The range in which the last copyin found its address.
        range_start: u64,
        /// Its end.
        range_end: u64,
        /// Pages of the stack known to be readable.
        stack_start: u64,
        /// Their end.
        stack_end: u64,
        /// Address of the instance that is tried first for a return address.
        return_cursor: u64,
        /// Returns that are not seen.
        returns_missed: u64,
        /// The end of the stack on which handlers of small stacks' probes run.
        handler_stack: u64,
        reserved0: u64,
        /// Address of the thread-local variables' storage.
        locals: u64,
        locals_bytes: u64,
        /// Address of the clause-local variables' storage.
        clause_locals: u64,
        reserved1: [u64; 23],
        /// Bytes consumed; the tracer's.
        ring_tail: u64,
        reserved2: [u64; 7],
        /// Address of the [`AggregateTable`] to which the thread switches with its next aggregation; 0: none.
        aggregates_wanted: u64,
        reserved3: [u64; 7],
    }
}
structure! {
    /// The registers of a full frame, below [`Frame`].
    FrameBelow = "np_frame_below" {
        r14: u64,
        r13: u64,
        r12: u64,
        r11: u64,
        r10: u64,
        r9: u64,
        r8: u64,
        rbp: u64,
        rdi: u64,
        rsi: u64,
        rdx: u64,
        rcx: u64,
        rbx: u64,
    }
}
structure! {
    /// What every detour pushes; [`Context::frame`] points here.
    Frame = "np_frame" {
        /// `lahf` in ah, `seto` in al.
        flags: u64,
        r15: u64,
        rax: u64,
    }
}
structure! {
    /// One clause at one probe (DTrace's ECB).
    Enabling = "np_enabling" {
        /// What records carry.
        epid: u32,
        probe_id: u32,
        /// Address of the probed instruction.
        site: u64,
        /// Its offset in its function.
        offset: u64,
        /// Address of a string.
        provider: u64,
        /// Address of a string.
        module: u64,
        /// Address of a string.
        function: u64,
        /// Address of a string.
        name: u64,
        /// From the context to this enabling's static aggregation slots.
        slot_base: u64,
        reserved: u64,
    }
}
structure! {
    /// The header of a record.
    RecordHeader = "np_record" {
        /// 0: filler; [`RECORD_ERROR`] set: an [`ErrorRecord`] follows.
        epid: u32,
        /// With the header, a multiple of 8.
        bytes: u32,
        tsc: u64,
        cpu: u32,
        tid: u32,
    }
}
structure! {
    /// The payload of an error record.
    ErrorRecord = "np_error" {
        /// `FAULT_*`.
        fault: u32,
        /// Index of the statement in the clause, from 1; 0: the predicate.
        action: u32,
        /// The address, for a bad address.
        value: u64,
    }
}

/// A context's handler stack.
pub const HANDLER_STACK_BYTES: u64 = 32768;
/// Where the contexts' stacks begin among the handler stacks: after those on which threads look
/// for their contexts.
pub const HANDLER_STACKS: u64 = 4096 + 64 * 8192;
