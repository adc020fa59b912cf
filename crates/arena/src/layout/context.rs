//! A thread's context and its records: `agent/contract/context.h`.

use crate::structure::structure;

/// [`Enabling::offset`] of a return probe that replaces the return address.
pub const OFFSET_RETURNED: u64 = u64::MAX;

/// Offset of the static aggregation slots in a context.
pub const CONTEXT_SLOTS: u64 = 4096;

/// System calls with a number from here on have one probe together.
pub const CALL_NUMBERS: u32 = 512;
/// The row of a process that begins after the call that has made it, in tables by the number of a call.
pub const CALL_PROCESS_BEGINS: u32 = CALL_NUMBERS + 1;
/// The row of a thread that begins after the call that has made it.
pub const CALL_THREAD_BEGINS: u32 = CALL_NUMBERS + 2;
/// The rows of a table by the number of a call.
pub const CALL_ROWS: u32 = CALL_NUMBERS + 3;
/// How many system calls a thread can have begun and not ended.
pub const CALLS: usize = 8;

/// [`Context::ring_policy`]: drop when full; the tracer drains.
pub const RING_SWITCH: u32 = 0;
/// [`Context::ring_policy`]: once the ring is full, all further records are dropped.
pub const RING_FILL: u32 = 1;
/// [`Context::ring_policy`]: new records overwrite the oldest ones.
pub const RING_OVERWRITE: u32 = 2;

/// Set in [`RecordHeader::epid`] when an [`ErrorRecord`] follows.
pub const RECORD_ERROR: u32 = 0x8000_0000;

/// [`ErrorRecord::fault`]: there was no fault.
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
        /// The number of hits that found `busy` set, so their handler did not run.
        missed: u64,
        /// The result of the last agent function that was called.
        result: u64,
        /// `FAULT_*`.
        fault: u64,
        /// The bad address.
        fault_address: u64,
        /// Address of the [`Control`].
        control: u64,
        /// Address of a u32 that holds the id of the thread that uses this context now.
        tid_address: u64,
        /// The id of the thread that this context last served.
        tid: u32,
        /// The index of this context in the arena.
        index: u32,
        /// The thread pointer of that thread.
        thread_key: u64,
        /// Address of the scratch memory.
        scratch: u64,
        scratch_bytes: u64,
        /// How many bytes of the scratch memory are taken.
        scratch_used: u64,
        /// Address of the buffer for keys.
        key: u64,
        /// How many bytes of the key buffer are in use.
        key_bytes: u64,
        key_capacity: u64,
        /// Address of the [`AggregateTable`] that the thread uses; 0: none.
        aggregates: u64,
        /// The number of values that found no room in the aggregation table.
        aggregate_drops: u64,
        /// Address of the ring; 0: none.
        ring: u64,
        /// The size of the ring in bytes, a power of two.
        ring_bytes: u64,
        /// Bytes written to the ring since the start.
        ring_head: u64,
        /// The number of records that found no room in the ring.
        ring_drops: u64,
        /// One of `RING_*`.
        ring_policy: u32,
        /// 1: records carry no time.
        ring_untimed: u32,
        /// [`RING_OVERWRITE`]: where the oldest remaining record begins.
        ring_overwritten: u64,
        /// Faults of handlers.
        errors: u64,
        /// The value that `ring_head` gets when the reserved record is committed; 0: nothing is reserved.
        ring_pending: u64,
        /// Records committed since the start.
        ring_records: u64,
        /// The snapshot of readable ranges that `range_start` and `range_end` are from.
        range_publication: u64,
        /// The start of the readable range in which the last copyin found its address.
        range_start: u64,
        /// The end of the range that begins at `range_start`.
        range_end: u64,
        /// The start of the pages of the stack that are known to be readable.
        stack_start: u64,
        /// The end of the pages that begin at `stack_start`.
        stack_end: u64,
        /// Address of the return instance that is looked at first when a return address is searched.
        return_cursor: u64,
        /// The number of returns that no probe sees, because the call found no free instance.
        returns_missed: u64,
        /// The upper end of the stack on which the handlers of probes with small stacks run.
        handler_stack: u64,
        /// The id of the thread's process, as D shows it.
        pid: u32,
        /// The id of that process's parent at the time when the process began.
        parent: u32,
        /// Address of the thread-local variables' storage.
        locals: u64,
        locals_bytes: u64,
        /// Address of the clause-local variables' storage.
        clause_locals: u64,
        /// For a followed child: the TSC value when the child took its table. 0: this is the traced process itself.
        process_began: u64,
        /// Address of the ids of the followed children from which the thread's process descends.
        ancestors: u64,
        reserved1: [u64; 21],
        /// Bytes that the tracer has consumed; only the tracer writes this field.
        ring_tail: u64,
        reserved2: [u64; 7],
        /// Address of the [`AggregateTable`] to which the thread switches with its next aggregation; 0: none.
        aggregates_wanted: u64,
        reserved3: [u64; 7],
        /// The system calls that the thread has begun: [`Call`]s, three words each.
        calls: [u64; 3 * CALLS],
        /// The [`Enabling`] being served at a system call, nine words.
        called: [u64; 9],
        /// The number of the system call that has returned.
        call_number: u32,
        /// Index of the [`Call`] that a new call takes if none is free.
        call_next: u32,
        /// The counter that a detour increments for a call that no probe counts. No code reads it.
        call_scrap: u64,
    }
}
structure! {
    /// A system call that a thread has begun.
    Call = "np_call" {
        /// The stack pointer; 0: this entry is free.
        stack: u64,
        /// Address of the instruction.
        syscall: u64,
        number: u64,
    }
}
structure! {
    /// One clause at one `syscall`, in the code block.
    CallSite = "np_call_site" {
        /// An [`Enabling`], of which only the site counts: nine words.
        enabling: [u64; 9],
        /// Address of [`CALL_ROWS`] addresses of [`Enabling`]s, by the number of the call; 0: not enabled.
        table: u64,
        /// Address of the clause's handler.
        handler: u64,
        /// Address of the instruction.
        syscall: u64,
        /// Address of the agent's function that [`CALL_SITE_CODE`] calls.
        agent: u64,
        /// [`CALL_SITE_CODE`].
        code: [u64; 2],
        /// Not 0: the code shows that the call makes a process or a thread. With a result of 0 it begins there.
        begins: u64,
        /// Not 0: the instruction is `int 0x80`.
        interrupt: u64,
    }
}
/// The code of a [`CallSite`], which has no addresses in it: `lea rax, [rip - 111]; jmp [rip - 21]; int3`s.
pub const CALL_SITE_CODE: [u64; 2] = [
    u64::from_le_bytes([0x48, 0x8d, 0x05, 0x91, 0xff, 0xff, 0xff, 0xff]),
    u64::from_le_bytes([0x25, 0xeb, 0xff, 0xff, 0xff, 0xcc, 0xcc, 0xcc]),
];
structure! {
    /// The registers that a full frame has below [`Frame`].
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
    /// The registers that every detour pushes; [`Context::frame`] points here.
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
        /// The id of the enabling, which its records carry.
        epid: u32,
        probe_id: u32,
        /// Address of the probed instruction.
        site: u64,
        /// The offset of the probed instruction in its function.
        offset: u64,
        /// Address of the provider's name, a string.
        provider: u64,
        /// Address of the module's name, a string.
        module: u64,
        /// Address of the function's name, a string.
        function: u64,
        /// Address of the probe's name, a string.
        name: u64,
        /// Offset, in the context, of this enabling's static aggregation slots.
        slot_base: u64,
        reserved: u64,
    }
}
structure! {
    /// The header of a record.
    RecordHeader = "np_record" {
        /// 0: filler; with the bit [`RECORD_ERROR`]: an [`ErrorRecord`] follows.
        epid: u32,
        /// Size of the record with its header, a multiple of 8.
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
        /// The address, for [`FAULT_BAD_ADDRESS`].
        value: u64,
    }
}

/// Bytes of the handler stack of one context.
pub const HANDLER_STACK_BYTES: u64 = 32768;
/// Offset of the contexts' stacks in the mapping of handler stacks. Before them are the stacks on
/// which threads look for their contexts.
pub const HANDLER_STACKS: u64 = 4096 + 64 * 8192;
