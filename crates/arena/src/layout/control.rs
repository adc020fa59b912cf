//! The arena's head: `agent/contract/control.h`.

use crate::structure::structure;

/// Bytes of the control block that every version has: `magic` up to and including `regions_offset`,
/// and the signal actions after it, which `restore` also needs.
pub const FROZEN_BYTES: usize = core::mem::offset_of!(Control, missed_without_context);

/// The most contexts that an arena can have.
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

/// [`Control::state`]: the target's text has not been changed yet.
pub const STATE_BUILDING: u32 = 0;
/// [`Control::state`]: the site table is published; any of its sites may be patched.
pub const STATE_ARMED: u32 = 1;
/// [`Control::state`]: every site holds its original bytes again.
pub const STATE_RESTORED: u32 = 2;
/// As [`STATE_ARMED`], and every patch of the attach is in the text.
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
/// [`Region::kind`]: pages of the program's text that have mappings of their own. They are not ours to unmap.
pub const REGION_TEXT: u32 = 6;

/// [`Site::tactic`]: the instruction is at least five bytes long.
pub const TACTIC_JUMP: u32 = 1;
/// [`Site::tactic`]: several whole instructions make room for the jump.
pub const TACTIC_RUN: u32 = 2;
/// [`Site::tactic`]: the jump's last bytes are those of the next instructions.
pub const TACTIC_PUN: u32 = 3;
/// [`Site::tactic`]: a short jump to a springboard.
pub const TACTIC_EVICT: u32 = 4;
/// [`Site::tactic`]: `int3`.
pub const TACTIC_TRAP: u32 = 5;
/// [`Site::tactic`]: a springboard, in padding. It is restored after all other sites, when no thread executes it.
pub const TACTIC_SPRINGBOARD: u32 = 6;
/// [`Site::tactic`]: a patch whose last five bytes are the springboard of another one. It is restored when no
/// thread executes that springboard.
pub const TACTIC_HOST: u32 = 7;
/// [`Site::tactic`]: no probe, but a detour to the agent before a system call. While these patches
/// are in the text, the agent's records of the program's signal masks are true.
pub const TACTIC_SHIM: u32 = 8;
/// [`Site::tactic`]: a `syscall` of code that the program has made. The program may change this code at any time, so
/// only these very bytes are taken back. Copies of them may lie anywhere.
pub const TACTIC_MADE: u32 = 9;

/// Offset of the head of an empty [`AggregateTable`] from the example of a context.
pub const EXAMPLE_AGGREGATES: u64 = 1024;

/// The most speculations of a session.
pub const SPECULATIONS_MAX: u64 = 256;
/// Bit 0 of a speculation's word: the speculation is in use. The bits above bit 0 count the bytes of its records.
pub const SPECULATION_TAKEN: u64 = 1;
/// Value of a speculation's word: committed or discarded, and the tracer has not yet read the record that says so.
pub const SPECULATION_ENDED: u64 = 2;
/// The position of the count of recorded bytes in a speculation's word.
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
        /// Signals that are blocked while the handler runs.
        mask: u64,
    }
}
structure! {
    /// A thread that is about to execute another program.
    Exec = "np_exec" {
        /// `EXEC_*`.
        state: u32,
        /// The thread, in its own pid namespace.
        tid: u32,
        /// Its process.
        pid: u32,
        /// The descriptor from which the path begins.
        folder: i32,
        /// The address of the path.
        path: u64,
        /// `AT_*`.
        flags: u64,
    }
}
/// [`Exec::state`]: free.
pub const EXEC_FREE: u32 = 0;
/// [`Exec::state`]: the thread waits for an answer.
pub const EXEC_ASKED: u32 = 2;
/// [`Exec::state`]: the tracer holds the thread.
pub const EXEC_HELD: u32 = 3;
/// [`Exec::state`]: the tracer does not take the program.
pub const EXEC_ALONE: u32 = 4;
/// [`Exec::state`]: the call of a held thread has failed.
pub const EXEC_FAILED: u32 = 5;
/// The number of [`Exec`]s in the control block.
pub const EXECS: usize = 32;

structure! {
    /// The arena's head. The part up to `missed_without_context` is frozen.
    Control = "np_control" {
        magic: u64,
        version: u32,
        /// Size of this structure.
        control_bytes: u32,
        /// Address of the arena in the target.
        arena_address: u64,
        /// Size of the arena in bytes.
        arena_bytes: u64,
        /// The tracer's process id, in its own pid namespace.
        tracer_pid: u32,
        /// `STATE_*`.
        state: u32,
        /// How many entries of the site table are in use.
        site_count: u32,
        /// How many entries the site table has room for.
        site_capacity: u32,
        /// Offset of the [`Site`]s.
        sites_offset: u64,
        /// How many entries of the region table are in use.
        region_count: u32,
        /// How many entries the region table has room for.
        region_capacity: u32,
        /// Offset of the [`Region`]s.
        regions_offset: u64,
        /// Bit k: `actions[k]` was replaced and must be restored.
        action_mask: u32,
        reserved0: u32,
        /// The program's own actions, by `SLOT_*`.
        actions: [SignalAction; 5],
        /// The tracer's actions. A program's action is only restored if the tracer's action is still installed.
        installed: [SignalAction; 5],
        /// Hits of threads without a context.
        missed_without_context: u64,
        /// 1 after a clause has called `exit()`.
        exit_requested: u32,
        /// The status that the clause passed to `exit()`.
        exit_status: i32,
        /// Calls of the dynamic linker's debugger hook.
        library_event: u32,
        /// The number of the last event of libraries that the tracer has handled.
        library_ack: u32,
        /// TSC value at the tracer's last sign of life; 0: the target does not wait for the tracer.
        tracer_heartbeat: u64,
        /// TSC ticks after which the tracer counts as gone.
        heartbeat_limit: u64,
        /// TSC at `clock_ns`.
        clock_tsc: u64,
        /// ns since boot at `clock_tsc`.
        clock_ns: u64,
        /// ns per tick, as a 32.32 fixed-point number.
        clock_mult: u64,
        /// The ns since the epoch are the ns since boot plus this number.
        wall_ns: u64,
        /// Offset of the contexts.
        contexts_offset: u64,
        /// Bytes from one context to the next, a multiple of 4096.
        context_stride: u64,
        /// The number of contexts in the arena.
        context_capacity: u32,
        /// The number of contexts that have ever been claimed.
        context_count: u32,
        /// Offset of the thread's id from its thread pointer; 0: unknown.
        tid_offset: u32,
        /// The target's process id, in its own pid namespace.
        target_pid: u32,
        /// Offset of the [`DynamicTable`]; 0: none.
        dynamic_offset: u64,
        /// The number of stores to dynamic variables that found no room.
        dynamic_drops: u64,
        /// Offset of the [`UnwindTable`]; 0: none.
        unwind_offset: u64,
        /// Readable memory: offset of the [`Range`]s << 24 | their number.
        ranges: u64,
        /// Bytes of a string variable, the NUL included.
        strsize: u32,
        /// The number of frames of a `ustack()` without an argument.
        ustackframes: u32,
        /// Offset of the example of a new context. The addresses in the example are offsets from the context.
        example_offset: u64,
        /// Offset of the speculations' words: `SPECULATION_*`; 0: a free speculation.
        speculations_offset: u64,
        /// The number of speculations, at most [`SPECULATIONS_MAX`].
        speculation_count: u64,
        /// The number of calls of `speculation()` that found no free speculation.
        speculation_failures: u64,
        /// Not 0: the traced process has entered seccomp while it was traced.
        sandboxed: u64,
        /// Offset of the [`Semaphore`]s.
        semaphores_offset: u64,
        /// The number of semaphores that are published.
        semaphore_count: u32,
        /// The number of semaphores for which the table has room.
        semaphore_capacity: u32,
        /// How often the program continued before its new libraries had their probes.
        library_timeouts: u64,
        /// Offset of errno from the thread pointer, a signed number; 0: unknown.
        errno_offset: u64,
        /// Bytes that the records of one speculation may take.
        speculation_bytes: u64,
        /// The number of records that found no room in their speculation.
        speculation_drops: u64,
        /// Bit k of word n: context 64 n + k may be claimed again, because its thread is gone.
        contexts_ended: [u64; CONTEXTS_MAX as usize / 64],
        /// Slots of the thread table claimed since the start.
        slots_claimed: u64,
        /// The number of hits of threads that cannot be told apart from other threads.
        missed_unknown_thread: u64,
        /// The number of restartable sequences that the kernel aborted because they met one of our traps.
        aborted: u64,
        /// The address at which the kernel continued the thread after the last such abort.
        aborted_at: u64,
        /// Not 0: forked children record in this arena, too.
        follows: u32,
        /// The traced process's number in the tracer's pid namespace.
        shown_pid: u32,
        /// The id of the traced process's parent, as D shows it.
        shown_parent: u32,
        /// Changes of the list of libraries in followed children.
        child_libraries: u32,
        /// Not 0: the tracer takes the programs that the process and its children execute.
        follows_programs: u32,
        /// How often the tracer was asked for that.
        exec_requests: u32,
        /// Programs that were executed without the tracer's answer.
        execs_alone: u32,
        /// Programs that were executed under a seccomp filter, without a question.
        execs_sandboxed: u32,
        /// The threads that are about to execute programs.
        execs: [Exec; EXECS],
        /// Address of the arena whose agent handles the signals of this arena's agent; 0: its own agent does.
        host: u64,
        /// How many copies of patched system calls were executed, and made whole again.
        copies_mended: u64,
        /// Not 0: clauses fire where the program's signal handlers begin.
        watches_handlers: u32,
        /// How often a handler was installed that has no probe: in a child, or beside [`HANDLERS`] others.
        handlers_unseen: u32,
        /// Not 0: a thread waits for the end of tracing, to turn Syscall User Dispatch on.
        dispatch_waits: u64,
    }
}
structure! {
    /// One patched place in the text. The layout is frozen: the same in every version.
    Site = "np_site" {
        /// Address of the first patched byte.
        address: u64,
        /// The number of patched bytes, at most 16.
        length: u32,
        /// One of `TACTIC_*`, for people who read the table.
        tactic: u32,
        /// The bytes before the patch.
        original: [u8; 16],
        /// The bytes of the patch.
        patched: [u8; 16],
    }
}
structure! {
    /// One mapping that the tracer made in the target. The layout is frozen: the same in every version.
    Region = "np_region" {
        /// Address of the mapping's first byte.
        address: u64,
        bytes: u64,
        /// One of `REGION_*`.
        kind: u32,
        reserved: u32,
    }
}
structure! {
    /// A static probe's semaphore that was raised. The layout is frozen: the same in every version.
    Semaphore = "np_semaphore" {
        /// The address of the counter, a u16.
        address: u64,
        /// Address of the probe's first site, which is in the same module.
        site: u64,
        /// The value before it was raised.
        resting: u16,
        /// The value that was read just before the change that `state` announces.
        seen: u16,
        /// One of `SEMAPHORE_*`.
        state: u32,
    }
}
structure! {
    /// Readable memory of the target.
    Range = "np_range" {
        start: u64,
        /// The first byte after the range.
        end: u64,
    }
}
