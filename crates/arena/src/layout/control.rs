//! The arena's head: `agent/contract/control.h`.

use crate::structure::structure;

/// Bytes of the control block that every version has: `magic` up to and including `regions_offset`,
/// and the signal actions after it, which `restore` also needs.
pub const FROZEN_BYTES: usize = core::mem::offset_of!(Control, missed_without_context);

/// The most contexts.
pub const CONTEXTS_MAX: u32 = 1024;

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

/// [`Control::state`]: nothing in the text has changed yet.
pub const STATE_BUILDING: u32 = 0;
/// [`Control::state`]: the site table is published; any of its sites may be patched.
pub const STATE_ARMED: u32 = 1;
/// [`Control::state`]: every site holds its original bytes again.
pub const STATE_RESTORED: u32 = 2;
/// As [`STATE_ARMED`], and everything that attaching places is in the text.
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
/// [`Region::kind`]: the handler stacks.
pub const REGION_STACKS: u32 = 5;

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
/// [`Site::tactic`]: a springboard, in padding. It is put back after all others, when no thread is on it.
pub const TACTIC_SPRINGBOARD: u32 = 6;
/// [`Site::tactic`]: a patch whose last five bytes are the springboard of another one. It is put
/// back when no thread is on that springboard.
pub const TACTIC_HOST: u32 = 7;
/// [`Site::tactic`]: not of a probe, but for the agent's part before a system call. While these are
/// in the text, the records of the program's signal masks are true.
pub const TACTIC_SHIM: u32 = 8;

/// Where the head of an empty [`AggregateTable`] is, after the example of a context.
pub const EXAMPLE_AGGREGATES: u64 = 1024;

/// The most speculations of a session.
pub const SPECULATIONS_MAX: u64 = 256;
/// A speculation's word: it is taken; the bits above this one count the bytes of its records.
pub const SPECULATION_TAKEN: u64 = 1;
/// It was committed or discarded, and the tracer has not yet read the record of that.
pub const SPECULATION_ENDED: u64 = 2;
/// Where the bytes are.
pub const SPECULATION_SHIFT: u64 = 1;

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
        magic: u64,
        version: u32,
        /// Size of this structure.
        control_bytes: u32,
        /// The arena's address in the target.
        arena_address: u64,
        /// Bytes of the arena.
        arena_bytes: u64,
        /// The tracer's process id, in its own pid namespace.
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
        /// Bit k: `actions[k]` was replaced and must be restored.
        action_mask: u32,
        reserved0: u32,
        /// The program's own actions, by `SLOT_*`.
        actions: [SignalAction; 5],
        /// Our actions. The program's is only restored where the target still has ours.
        installed: [SignalAction; 5],
        /// Hits of threads without a context.
        missed_without_context: u64,
        /// A clause ran `exit()`.
        exit_requested: u32,
        /// With this status.
        exit_status: i32,
        /// Calls of the dynamic linker's debugger hook.
        library_event: u32,
        /// The last event that the tracer has handled.
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
        /// Contexts that were claimed for the first time so far.
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
        /// Frames of a `ustack()` that does not say how many.
        ustackframes: u32,
        /// Where the example of a new context is; its addresses are offsets from the context.
        example_offset: u64,
        /// Where the speculations' words are: `SPECULATION_*`, 0 for a free one.
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
        /// How often the program went on before its new libraries had their probes.
        library_timeouts: u64,
        /// Of errno from the thread pointer, a signed number; 0: unknown.
        errno_offset: u64,
        /// Bytes of the records of one speculation.
        speculation_bytes: u64,
        /// Records that found no room under theirs.
        speculation_drops: u64,
        /// Bit k of word n: context 64 n + k may be taken, because its thread is gone.
        contexts_ended: [u64; CONTEXTS_MAX as usize / 64],
        /// Slots of the thread table claimed since the start.
        slots_claimed: u64,
        /// Hits of threads that cannot be identified.
        missed_unknown_thread: u64,
        /// Restartable sequences that the kernel aborted because they met a trap of ours.
        aborted: u64,
        /// Where the thread of the last one continued.
        aborted_at: u64,
    }
}
structure! {
    /// One patched place. Frozen.
    Site = "np_site" {
        /// Where it begins.
        address: u64,
        /// The number of patched bytes, at most 16.
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
        bytes: u64,
        /// `REGION_*`.
        kind: u32,
        reserved: u32,
    }
}
structure! {
    /// A static probe's semaphore that was raised. Frozen.
    Semaphore = "np_semaphore" {
        /// The address of the counter, a u16.
        address: u64,
        /// The probe's first site: in the same module.
        site: u64,
        /// The value before it was raised.
        resting: u16,
        /// The value before the announced change.
        seen: u16,
        /// `SEMAPHORE_*`.
        state: u32,
    }
}
structure! {
    /// Readable memory of the target.
    Range = "np_range" {
        start: u64,
        /// First byte after it.
        end: u64,
    }
}
