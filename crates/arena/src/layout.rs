//! The structures and constants of `agent/contract.h`, mirrored field by field under the same names.
//!
//! The contract header is the authority on what each field means; here stands what the tracer's side has to know.
//! Offsets are taken with `core::mem::offset_of!(Context, result)`: the structures are `repr(C)`. The test
//! `contract` hands every offset, size and constant below to the C compiler as a static assertion on `contract.h`, and
//! checks that no field of the header is missing here, so the two cannot drift.
//!
//! Addresses are the target's unless a field says `offset` (bytes from the start of the arena).

use crate::structure::{Structure as _, structure};

/// "NANOPROB", little endian: begins the control block and the agent image, and ends a live thread table.
pub const MAGIC: u64 = 0x424f_5250_4f4e_414e;
/// Version of everything in this module but the frozen part.
pub const VERSION: u32 = 1;

/// Bytes of the control block that every version has: `magic` up to and including `regions_offset`, and the signal
/// actions behind it, which `restore` also needs.
pub const FROZEN_BYTES: usize = core::mem::offset_of!(Control, missed_without_context);

/// [`Semaphore::state`]: its library is gone, or it was never raised.
pub const SEMAPHORE_GONE: u32 = 0;
/// [`Semaphore::state`]: about to be raised.
pub const SEMAPHORE_RAISING: u32 = 1;
/// [`Semaphore::state`]: raised.
pub const SEMAPHORE_RAISED: u32 = 2;
/// [`Semaphore::state`]: about to be lowered.
pub const SEMAPHORE_LOWERING: u32 = 3;
/// [`Semaphore::state`]: lowered.
pub const SEMAPHORE_LOWERED: u32 = 4;

/// [`Control::state`]: nothing in the text is changed yet.
pub const STATE_BUILDING: u32 = 0;
/// [`Control::state`]: the site table is published; any of its sites may be patched.
pub const STATE_ARMED: u32 = 1;
/// [`Control::state`]: every site holds its original bytes again.
pub const STATE_RESTORED: u32 = 2;
/// As [`STATE_ARMED`], and all that was placed so far is in the text.
pub const STATE_COMPLETE: u32 = 3;

/// Index into [`Control::actions`]: SIGTRAP.
pub const SLOT_TRAP: usize = 0;
/// Index into [`Control::actions`]: SIGSEGV.
pub const SLOT_SEGV: usize = 1;
/// Index into [`Control::actions`]: SIGBUS.
pub const SLOT_BUS: usize = 2;
/// Index into [`Control::actions`]: SIGILL.
pub const SLOT_ILL: usize = 3;
/// Index into [`Control::actions`]: SIGFPE.
pub const SLOT_FPE: usize = 4;

/// [`Region::kind`]: agent image, handlers, detours.
pub const REGION_CODE: u32 = 1;
/// [`Region::kind`]: the thread table.
pub const REGION_TABLE: u32 = 2;
/// [`Region::kind`]: the arena.
pub const REGION_ARENA: u32 = 3;

/// [`Region::kind`]: the instances of replaced return addresses.
pub const REGION_RETURNS: u32 = 4;

/// [`Site::tactic`]: the instruction is at least five bytes long.
pub const TACTIC_JUMP: u32 = 1;
/// [`Site::tactic`]: several whole instructions make room for the jump.
pub const TACTIC_RUN: u32 = 2;
/// [`Site::tactic`]: the jump's last bytes are the next instructions'.
pub const TACTIC_PUN: u32 = 3;
/// [`Site::tactic`]: a short jump to a springboard.
pub const TACTIC_EVICT: u32 = 4;
/// [`Site::tactic`]: `int3`.
pub const TACTIC_TRAP: u32 = 5;
/// [`Site::tactic`]: a springboard, in padding. It is put back after all others, when nobody is on it.
pub const TACTIC_SPRINGBOARD: u32 = 6;

/// [`Image::thread_key_mode`]: `mov %fs:0`.
pub const KEY_TLS_SELF: u64 = 0;
/// [`Image::thread_key_mode`]: `rdfsbase`.
pub const KEY_FSBASE: u64 = 1;

/// Instances of replaced return addresses.
pub const RETURN_INSTANCES: u32 = 65536;
/// Instances that a thread takes at a time.
pub const RETURN_CHUNK: u32 = 64;
/// Bytes of a thunk.
pub const RETURN_THUNK_BYTES: u64 = 16;
/// How many instances may share a slot.
pub const RETURN_CHAIN_MAX: u32 = 15;
/// Bytes of the head, the owners of chunks, and the instances.
pub const RETURN_POOL_BYTES: u64 = RETURN_POOL_INSTANCES + RETURN_INSTANCES as u64 * ReturnInstance::BYTES as u64;
/// Where the instances begin in it.
pub const RETURN_POOL_INSTANCES: u64 = Returns::BYTES as u64 + 4 * (RETURN_INSTANCES / RETURN_CHUNK) as u64;
/// [`ReturnInstance::state`]: free.
pub const RETURN_FREE: u32 = 0;
/// [`ReturnInstance::state`]: being filled in.
pub const RETURN_CLAIMED: u32 = 1;
/// [`ReturnInstance::state`]: its thunk is, or was, in its slot.
pub const RETURN_ARMED: u32 = 2;
/// [`ReturnInstance::state`]: beyond the thread's limit.
pub const RETURN_NEVER: u32 = 3;
/// [`Enabling::offset`] of a return probe that replaces the return address.
pub const OFFSET_RETURNED: u64 = u64::MAX;

/// log2 of the number of slots of the thread table.
pub const TABLE_BITS: u32 = 12;
/// Slots of the thread table.
pub const TABLE_SLOTS: usize = 1 << TABLE_BITS;
/// Of an entry of the table of origins: by how many words the stack is deeper than at the original instruction's fault is
/// above this bit of the original address.
pub const ORIGIN_PUSHED_SHIFT: u32 = 56;
/// A key's first slot is `key * TABLE_FACTOR >> (64 - TABLE_BITS)`.
pub const TABLE_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Offset of the static aggregation slots in a context.
pub const CONTEXT_SLOTS: u64 = 4096;

/// Where the head of an empty [`AggregateTable`] is, behind the example of a context.
pub const EXAMPLE_AGGREGATES: u64 = 1024;

/// [`Context::ring_policy`]: drop when full; the tracer drains.
pub const RING_SWITCH: u64 = 0;
/// [`Context::ring_policy`]: drop when full, for good.
pub const RING_FILL: u64 = 1;
/// [`Context::ring_policy`]: the oldest records are given up.
pub const RING_OVERWRITE: u64 = 2;

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

/// Buckets that a hash aggregation looks at before it drops.
pub const AGGREGATE_PROBES: u64 = 64;
/// Speculations of a session, at most.
pub const SPECULATIONS_MAX: u64 = 256;
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
    /// A kernel sigaction, as `rt_sigaction` takes it on x86-64.
    SignalAction = "np_sigaction" {
        /// Address of the handler; 0: default, 1: ignored.
        handler: u64,
        /// `SA_*`.
        flags: u64,
        /// Address of the code that returns from the signal.
        restorer: u64,
        /// Signals blocked meanwhile.
        mask: u64,
    }
}

structure! {
    /// The arena's head. The part up to `missed_without_context` is frozen.
    Control = "np_control" {
        /// [`MAGIC`].
        magic: u64,
        /// [`VERSION`].
        version: u32,
        /// Size of this structure.
        control_bytes: u32,
        /// Where the target has the arena.
        arena_address: u64,
        /// Bytes of the arena.
        arena_bytes: u64,
        /// As the tracer sees itself.
        tracer_pid: u32,
        /// `STATE_*`.
        state: u32,
        /// Entries of the site table in use.
        site_count: u32,
        /// Entries of the site table.
        site_capacity: u32,
        /// Where the [`Site`]s are.
        sites_offset: u64,
        /// Entries of the region table in use.
        region_count: u32,
        /// Entries of the region table.
        region_capacity: u32,
        /// Where the [`Region`]s are.
        regions_offset: u64,
        /// Bit k: `actions[k]` was replaced and must be put back.
        action_mask: u32,
        /// Zero.
        reserved0: u32,
        /// The program's own actions, by `SLOT_*`.
        actions: [SignalAction; 5],
        /// Ours; put back only where the target still has this one.
        installed: [SignalAction; 5],
        /// Hits of threads for which there was no context.
        missed_without_context: u64,
        /// A clause ran `exit()`.
        exit_requested: u32,
        /// With this status.
        exit_status: i32,
        /// Calls of the dynamic linker's debugger hook.
        library_event: u32,
        /// The last event that the tracer has dealt with.
        library_ack: u32,
        /// TSC of the tracer's last sign of life; 0: do not wait for it.
        tracer_heartbeat: u64,
        /// TSC ticks after which the tracer counts as gone.
        heartbeat_limit: u64,
        /// TSC at `clock_ns`.
        clock_tsc: u64,
        /// ns since boot at `clock_tsc`.
        clock_ns: u64,
        /// ns per tick, 32.32 fixed point.
        clock_mult: u64,
        /// Added to ns since boot for ns since the epoch.
        wall_ns: u64,
        /// Where the contexts are.
        contexts_offset: u64,
        /// Bytes a context, a multiple of 4096.
        context_stride: u64,
        /// Contexts there are.
        context_capacity: u32,
        /// Contexts claimed so far.
        context_count: u32,
        /// Offset of the thread's id from its thread pointer; 0: unknown.
        tid_offset: u32,
        /// In the target's own pid namespace.
        target_pid: u32,
        /// Where the [`DynamicTable`] is; 0: none.
        dynamic_offset: u64,
        /// Stores for which there was no room.
        dynamic_drops: u64,
        /// Where the [`UnwindTable`] is; 0: none.
        unwind_offset: u64,
        /// Readable memory: offset of the [`Range`]s << 24 | their number.
        ranges: u64,
        /// Bytes of a string variable, the NUL included.
        strsize: u32,
        /// Frames of a `ustack()` that does not say.
        ustackframes: u32,
        /// Where the example of a new context is; its addresses are offsets from the context.
        example_offset: u64,
        /// Where the speculations' words are: 0 free, 1 taken.
        speculations_offset: u64,
        /// How many there are; at most [`SPECULATIONS_MAX`].
        speculation_count: u64,
        /// Calls of `speculation()` that found none free.
        speculation_failures: u64,
        /// Not 0: the traced process has entered seccomp while it was traced.
        sandboxed: u64,
        /// Where the [`Semaphore`]s are.
        semaphores_offset: u64,
        /// How many are published.
        semaphore_count: u32,
        /// How many there is room for.
        semaphore_capacity: u32,
        /// Zero.
        reserved: u64,
    }
}

structure! {
    /// One patched place. Frozen.
    Site = "np_site" {
        /// Where it begins.
        address: u64,
        /// Bytes that are patched, at most 16.
        length: u32,
        /// `TACTIC_*`, for people.
        tactic: u32,
        /// The bytes before.
        original: [u8; 16],
        /// The bytes after.
        patched: [u8; 16],
    }
}

structure! {
    /// One mapping that we made. Frozen.
    Region = "np_region" {
        /// Where it begins.
        address: u64,
        /// Its size.
        bytes: u64,
        /// `REGION_*`.
        kind: u32,
        /// Zero.
        reserved: u32,
    }
}

structure! {
    /// A static probe's semaphore that was raised. Frozen.
    Semaphore = "np_semaphore" {
        /// Of the counter, a u16.
        address: u64,
        /// The probe's first site: in the same module.
        site: u64,
        /// The value before it was raised.
        resting: u16,
        /// The value before the change that is announced.
        seen: u16,
        /// `SEMAPHORE_*`.
        state: u32,
    }
}

structure! {
    /// Readable memory of the target.
    Range = "np_range" {
        /// First byte.
        start: u64,
        /// First byte behind it.
        end: u64,
    }
}

structure! {
    /// The first bytes of the agent's image.
    Image = "np_image" {
        /// [`MAGIC`].
        magic: u64,
        /// Address of the [`Control`].
        control: u64,
        /// Address of the thread table.
        table: u64,
        /// Address of a [`RedirectTable`]: trapping address to where it goes on.
        redirects: u64,
        /// Address of a [`RedirectTable`]: relocated address to original one; an entry holds up to the next.
        origins: u64,
        /// `KEY_*`.
        thread_key_mode: u64,
        /// Where image and handlers begin.
        code_start: u64,
        /// First byte behind them.
        code_end: u64,
        /// 0: the agent makes no system call but `gettid`.
        allow_syscalls: u64,
        /// Whether the processor has `rdpid`.
        use_rdpid: u64,
        /// Address of the pool that begins with [`Returns`].
        returns: u64,
        /// Address of their thunks.
        thunks: u64,
        /// Of a library in the program itself; 0: there is none.
        fault_hook: u64,
        /// Likewise.
        event_hook: u64,
        /// Zero.
        reserved: [u64; 2],
    }
}

structure! {
    /// A call whose return address was replaced.
    ReturnInstance = "np_return_instance" {
        /// The real return address, or another's thunk.
        address: u64,
        /// Where the return address is on the stack.
        slot: u64,
        /// What fires at the return.
        stub: u64,
        /// `RETURN_*` in the low two bits.
        state: u32,
        /// Instances below this one in its slot.
        depth: u32,
    }
}

structure! {
    /// The head of the pool of instances (`struct np_return_pool`).
    Returns = "np_returns" {
        /// [`MAGIC`].
        magic: u64,
        /// [`VERSION`].
        version: u32,
        /// Instances of a thread.
        maxactive: u32,
        /// Address of the thunks.
        thunks: u64,
        /// Chunks taken so far.
        chunk_count: u32,
        /// Changes of the list of libraries.
        events: u32,
        /// The last of them for which all unwinders are hooked.
        answered: u32,
        /// Zero.
        reserved0: u32,
        /// Zero.
        reserved: [u64; 3],
    }
}

structure! {
    /// What a replacement hands to an agent function.
    Registers = "np_registers" {
        /// `lahf` in ah, `seto` in al.
        flags: u64,
        /// Register.
        r15: u64,
        /// Register.
        r14: u64,
        /// Register.
        r13: u64,
        /// Register.
        r12: u64,
        /// Register.
        r11: u64,
        /// Register.
        r10: u64,
        /// Register.
        r9: u64,
        /// Register.
        r8: u64,
        /// Register.
        rbp: u64,
        /// Register.
        rdi: u64,
        /// Register.
        rsi: u64,
        /// Register.
        rdx: u64,
        /// Register.
        rcx: u64,
        /// Register.
        rbx: u64,
        /// Register.
        rax: u64,
    }
}

structure! {
    /// Where a trap sends the thread.
    Redirect = "np_redirect" {
        /// The trapping address.
        from: u64,
        /// Where the thread goes on.
        to: u64,
    }
}

structure! {
    /// Head of a table of [`Redirect`]s, which follow it, sorted by `from`.
    RedirectTable = "np_redirect_table" {
        /// Entries.
        count: u64,
        /// Zero.
        reserved: u64,
    }
}

structure! {
    /// A thread and its context, in the thread table.
    ThreadSlot = "np_thread_slot" {
        /// The thread pointer; 0: free.
        key: u64,
        /// Address of the [`Context`]; 0: none.
        context: u64,
    }
}

structure! {
    /// What the thread of a slot is stepping.
    Step = "np_step" {
        /// Address of the [`Emulation`]; 0: nothing.
        emulation: u64,
        /// The program's own signal mask.
        mask: u64,
    }
}

structure! {
    /// What the instruction at a trap site does. Its fields are filled in by `patch::Emulation`.
    Emulation = "np_emulation" {
        /// One of `enum np_operation`.
        operation: u8,
        /// One of `enum np_operand`.
        operand: u8,
        /// Bytes of the operands.
        size: u8,
        /// One of `enum np_condition`.
        condition: u8,
        /// Register.
        destination: u8,
        /// Register.
        source: u8,
        /// Register of the memory operand.
        base: u8,
        /// Register of the memory operand.
        index: u8,
        /// Factor of the index.
        scale: u8,
        /// One of `enum np_segment`.
        segment: u8,
        /// Bytes of the address.
        address_size: u8,
        /// `NP_EMULATION_*`.
        flags: u8,
        /// Bytes of the instruction.
        length: u8,
        /// Zero.
        reserved0: u8,
        /// Ranges behind the structure.
        inside_count: u16,
        /// Of the memory operand.
        displacement: u64,
        /// The immediate, the target, or what a ret drops.
        immediate: u64,
        /// The instruction's address.
        site: u64,
        /// Routine of what fires always.
        fires: i32,
        /// Routine of what fires when the jump leaves the function.
        fires_leaving: i32,
        /// Routine of what fires when the branch is taken.
        fires_taken: i32,
        /// The whole detour.
        detour: i32,
        /// The relocated instruction in it.
        copy: i32,
        /// Behind that.
        copy_end: i32,
    }
}

/// In [`Redirect::to`]: the rest is the address of an [`Emulation`].
pub const REDIRECT_EMULATION: u64 = 1 << 63;

/// Bytes of `struct np_thread_table`.
pub const TABLE_BYTES: usize = TABLE_STEPS + TABLE_SLOTS * size_of::<Step>();
/// Offset of `steps` in `struct np_thread_table`: a [`Step`] for each slot.
pub const TABLE_STEPS: usize = TABLE_ACTION_MASKS + 64 * size_of::<u16>();
/// Offset of `blocked` in `struct np_thread_table`: a u16 for each slot, of [`SYNCHRONOUS`] what the thread believes it
/// blocks.
pub const TABLE_BLOCKED: usize = TABLE_MAGIC + 64;
/// Offset of `action_masks` in `struct np_thread_table`: a u16 for each signal from 1 on, of [`SYNCHRONOUS`] what the
/// program's action would block.
pub const TABLE_ACTION_MASKS: usize = TABLE_BLOCKED + TABLE_SLOTS * size_of::<u16>();
/// SIGILL, SIGTRAP, SIGBUS and SIGSEGV, as bits of a signal mask: no thread may block them while we rely on them.
pub const SYNCHRONOUS: u64 = 0x458;
/// Offset of `magic` in `struct np_thread_table`, behind the slots.
pub const TABLE_MAGIC: usize = TABLE_SLOTS * size_of::<ThreadSlot>();
/// Offset of `lent` in `struct np_thread_table`.
pub const TABLE_LENT: usize = TABLE_MAGIC + 8;

structure! {
    /// A thread's context: its fixed part up to the tracer's cache line.
    Context = "np_context" {
        /// 1 while handlers run.
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
        /// The address that was bad.
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
        /// Its size.
        scratch_bytes: u64,
        /// How much of it is taken.
        scratch_used: u64,
        /// Address of the buffer for keys.
        key: u64,
        /// How much of it is in use.
        key_bytes: u64,
        /// Its size.
        key_capacity: u64,
        /// Address of the [`AggregateTable`]; 0: none.
        aggregates: u64,
        /// Aggregations that found no room.
        aggregate_drops: u64,
        /// Address of the ring; 0: none.
        ring: u64,
        /// Its size, a power of two.
        ring_bytes: u64,
        /// Bytes written since the beginning.
        ring_head: u64,
        /// Records that found no room.
        ring_drops: u64,
        /// `RING_*`.
        ring_policy: u64,
        /// [`RING_OVERWRITE`]: where the oldest record that is left begins.
        ring_overwritten: u64,
        /// Faults of handlers.
        errors: u64,
        /// What `ring_head` becomes at the commit; 0: nothing is reserved.
        ring_pending: u64,
        /// Records committed since the beginning.
        ring_records: u64,
        /// The snapshot that the cached range is from.
        range_publication: u64,
        /// The range in which the last copyin found its address.
        range_start: u64,
        /// Its end.
        range_end: u64,
        /// Pages of the stack known to be readable.
        stack_start: u64,
        /// Their end.
        stack_end: u64,
        /// Address of the instance for a return address that is tried first.
        return_cursor: u64,
        /// Returns that are not seen.
        returns_missed: u64,
        /// Zero.
        reserved0: [u64; 2],
        /// Address of the thread-local variables' storage.
        locals: u64,
        /// Its size.
        locals_bytes: u64,
        /// Address of the clause-local variables' storage.
        clause_locals: u64,
        /// Zero.
        reserved1: [u64; 23],
        /// Bytes consumed; the tracer's.
        ring_tail: u64,
        /// Zero.
        reserved2: [u64; 7],
    }
}

structure! {
    /// The registers of a full frame, below [`Frame`].
    FrameBelow = "np_frame_below" {
        /// Register.
        r14: u64,
        /// Register.
        r13: u64,
        /// Register.
        r12: u64,
        /// Register.
        r11: u64,
        /// Register.
        r10: u64,
        /// Register.
        r9: u64,
        /// Register.
        r8: u64,
        /// Register.
        rbp: u64,
        /// Register.
        rdi: u64,
        /// Register.
        rsi: u64,
        /// Register.
        rdx: u64,
        /// Register.
        rcx: u64,
        /// Register.
        rbx: u64,
    }
}

structure! {
    /// What every detour pushes; [`Context::frame`] points here.
    Frame = "np_frame" {
        /// `lahf` in ah, `seto` in al.
        flags: u64,
        /// Register.
        r15: u64,
        /// Register.
        rax: u64,
    }
}

structure! {
    /// One clause at one probe (DTrace's ECB).
    Enabling = "np_enabling" {
        /// What records carry.
        epid: u32,
        /// The probe.
        probe_id: u32,
        /// Address of the probed instruction.
        site: u64,
        /// Of the site in its function.
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
        /// Zero.
        reserved: u64,
    }
}

structure! {
    /// What a record begins with.
    RecordHeader = "np_record" {
        /// 0: filler; [`RECORD_ERROR`] set: an [`ErrorRecord`] follows.
        epid: u32,
        /// Header included, a multiple of 8.
        bytes: u32,
        /// When.
        tsc: u64,
        /// Where.
        cpu: u32,
        /// Who.
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
        /// The address, where there is one.
        value: u64,
    }
}

structure! {
    /// Head of a thread's hash aggregation.
    AggregateTable = "np_aggregate_table" {
        /// Of the whole table with this header.
        bytes: u64,
        /// Used so far, from the start of the table: every entry below is complete.
        used: u64,
        /// Number of buckets - 1.
        bucket_mask: u64,
        /// Zero.
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
        /// Zero.
        reserved: u64,
    }
}

structure! {
    /// A bucket of the dynamic variables.
    DynamicBucket = "np_dynamic_bucket" {
        /// 1 while somebody is in it.
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
        /// Zero.
        reserved: u64,
    }
}

structure! {
    /// An executable mapping and its rows.
    UnwindModule = "np_unwind_module" {
        /// First byte.
        start: u64,
        /// First byte behind it.
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
