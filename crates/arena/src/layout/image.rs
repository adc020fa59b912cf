//! The agent's image, and the tables that its code uses: `agent/contract/image.h`.

use super::control::SignalAction;
use crate::structure::{Structure as _, structure};

/// [`Image::thread_key_mode`]: `mov %fs:0`.
pub const KEY_TLS_SELF: u64 = 0;
/// [`Image::thread_key_mode`]: `rdfsbase`.
pub const KEY_FSBASE: u64 = 1;
/// [`Image::thread_key_mode`]: a system call gives the thread's number.
pub const KEY_ASKED: u64 = 2;
/// This bit is set in the key of a thread that is identified by its thread id.
pub const KEY_OF_NUMBER: u64 = 1 << 63;
/// In a key that no thread has: tasks share the thread pointer in the rest of the key, and are identified by number.
pub const KEY_SHARED: u64 = 1 << 62;
/// [`Image::thread_key_mode`]: `mov %fs:0` in detours, `rdfsbase` in the agent.
pub const KEY_TLS_CHECKED: u64 = 3;

/// The number of instances of replaced return addresses in a process.
pub const RETURN_INSTANCES: u32 = 65536;
/// How many return instances a thread takes from the pool at a time.
pub const RETURN_CHUNK: u32 = 64;
/// Bytes of the thunk of one instance.
pub const RETURN_THUNK_BYTES: u64 = 16;
/// The greatest [`ReturnInstance::depth`]: a function that is reached by a tail call shares the stack slot of its
/// caller.
pub const RETURN_CHAIN_MAX: u32 = 255;
/// Bytes of the pool: the head, the owners of chunks, the instances, and the bounds of chunks.
pub const RETURN_POOL_BYTES: u64 = RETURN_POOL_HIGHEST + RETURN_CHUNKS * 8;
/// The number of chunks that the instances are divided into.
const RETURN_CHUNKS: u64 = (RETURN_INSTANCES / RETURN_CHUNK) as u64;
/// Offset of `chunk_lowest` in `struct np_return_pool`.
pub const RETURN_POOL_LOWEST: u64 = RETURN_POOL_INSTANCES + RETURN_INSTANCES as u64 * ReturnInstance::BYTES as u64;
/// Offset of `chunk_highest` in `struct np_return_pool`: a u64 for each chunk.
pub const RETURN_POOL_HIGHEST: u64 = RETURN_POOL_LOWEST + RETURN_CHUNKS * 8;
/// Offset of `instances` in `struct np_return_pool`.
pub const RETURN_POOL_INSTANCES: u64 = Returns::BYTES as u64 + 4 * (RETURN_INSTANCES / RETURN_CHUNK) as u64;
/// [`ReturnInstance::state`]: free.
pub const RETURN_FREE: u32 = 0;
/// [`ReturnInstance::state`]: a thread fills the instance in.
pub const RETURN_CLAIMED: u32 = 1;
/// [`ReturnInstance::state`]: the address of its thunk was written to its slot on the stack.
pub const RETURN_ARMED: u32 = 2;
/// [`ReturnInstance::state`]: never used, because it is beyond the thread's limit.
pub const RETURN_NEVER: u32 = 3;

/// log2 of the number of slots of the thread table.
pub const TABLE_BITS: u32 = 12;
/// Slots of the thread table.
pub const TABLE_SLOTS: usize = 1 << TABLE_BITS;

/// [`ThreadSlot::key`]: its thread is gone. The slot may be claimed, and a search goes on past it.
pub const SLOT_ENDED: u64 = 1;

/// Position, in an entry of the table of origins, of a number of words. The bits below are the
/// original address. The stack is deeper by these words than at a fault of the original instruction.
pub const ORIGIN_PUSHED_SHIFT: u32 = 56;

/// The most rows of [`Tables`].
pub const TABLE_ROWS: u64 = 4096;

/// A key's first slot is `key * TABLE_FACTOR >> (64 - TABLE_BITS)`.
pub const TABLE_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// The most agents that one host serves.
pub const GUESTS: usize = 15;

structure! {
    /// The first bytes of the agent's image.
    Image = "np_image" {
        magic: u64,
        /// Address of the [`Control`].
        control: u64,
        /// Address of the thread table.
        table: u64,
        /// Address of [`TABLE_ROWS`] [`Tables`], or of a single one.
        tables: u64,
        /// Address of [`TABLE_ROWS`] bytes, each not 0 if its row exists; 0: there is only one row.
        rows: u64,
        /// One of `KEY_*`.
        thread_key_mode: u64,
        /// Start of the code: the image and the handlers.
        code_start: u64,
        /// The first byte after the code.
        code_end: u64,
        /// 0: the agent may make no system call except `gettid`.
        allow_syscalls: u64,
        /// Not 0: the processor has `rdpid`.
        use_rdpid: u64,
        /// Address of the pool that begins with [`Returns`].
        returns: u64,
        /// Address of the instances' thunks.
        thunks: u64,
        /// Address of the fault hook of a library in the program itself; 0: there is none.
        fault_hook: u64,
        event_hook: u64,
        /// Address of [`Readers`]; 0: no table's memory is used again.
        readers: u64,
        /// Address of the handler stacks; 0: there are none.
        stacks: u64,
        /// Not 0: system calls of code that the program has made may trap.
        made_calls: u64,
        /// Address of the host's thread table; 0: this agent is the host, or the only one.
        host_table: u64,
        /// Whether forked children record, too: [`FOLLOWS_NOT`], [`FOLLOWS`] or [`FOLLOWS_ANCESTORS`].
        follows: u64,
        /// The guests' functions for signals, the latest last; 0: free.
        guests: [u64; GUESTS],
    }
}
structure! {
    /// The redirections of trapped threads that are in force.
    Tables = "np_tables" {
        /// Address of a [`RedirectTable`] from trapping addresses to where the thread continues; 0: none.
        redirects: u64,
        /// Address of a [`RedirectTable`] from relocated to original addresses; 0: none. An entry holds up to the next.
        origins: u64,
    }
}
structure! {
    /// How many look-ups in the tables are under way.
    Readers = "np_readers" {
        /// The index of the count that new look-ups use: 0 or 1.
        phase: u32,
        reserved: u32,
        /// The counts; atomic.
        inside: [u64; 2],
    }
}
structure! {
    /// A call whose return address was replaced.
    ReturnInstance = "np_return_instance" {
        /// The real return address, or the thunk of another instance.
        address: u64,
        /// Address of the stack slot that holds the return address.
        slot: u64,
        /// Address of the code that fires the probes at the return.
        stub: u64,
        /// The low two bits are one of `RETURN_*`.
        state: u32,
        /// The number of instances below this one for the same slot.
        depth: u32,
    }
}
structure! {
    /// The head of the pool of instances (`struct np_return_pool`).
    Returns = "np_returns" {
        magic: u64,
        version: u32,
        /// The maximal number of instances of one thread.
        maxactive: u32,
        /// Address of the thunks.
        thunks: u64,
        /// The number of chunks that threads have taken so far.
        chunk_count: u32,
        /// How often the list of libraries has changed.
        events: u32,
        /// The number of the last such change after which all unwinders were hooked.
        answered: u32,
        reserved0: u32,
        reserved: [u64; 3],
    }
}
structure! {
    /// The registers that a replacement passes to an agent function.
    Registers = "np_registers" {
        /// `lahf` in ah, `seto` in al.
        flags: u64,
        r15: u64,
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
        rax: u64,
    }
}
structure! {
    /// The address where a thread continues after a trap.
    Redirect = "np_redirect" {
        /// The trapping address.
        from: u64,
        /// The address where the thread continues.
        to: u64,
    }
}
structure! {
    /// The head of a table of [`Redirect`]s, which follow it, sorted by `from`.
    RedirectTable = "np_redirect_table" {
        count: u64,
        /// Address of another table, for addresses that this one does not have; 0: there is none.
        older: u64,
    }
}
structure! {
    /// A thread and its context, in the thread table.
    ThreadSlot = "np_thread_slot" {
        /// The thread pointer; 0: the slot is free; [`SLOT_ENDED`]: the thread is gone.
        key: u64,
        /// Address of the [`Context`]; 0: none.
        context: u64,
    }
}
structure! {
    /// The single step that the thread of a slot is making.
    Step = "np_step" {
        /// Address of the [`Emulation`]; 0: nothing.
        emulation: u64,
        /// The program's own signal mask.
        mask: u64,
    }
}
structure! {
    /// A copy of a signal mask that the program passes to a system call, which waits under it. A register
    /// of the program points into this copy.
    LentMask = "np_lent_mask" {
        /// The value that the register had before.
        original: u64,
        /// The program's mask without [`SYNCHRONOUS`].
        mask: u64,
        /// Address of `mask`.
        pair: u64,
        /// Bytes of `mask`.
        pair_bytes: u64,
    }
}
structure! {
    /// The copies of signal masks of one thread.
    LentMasks = "np_lent_masks" {
        /// The copies are used in turn: a signal handler that interrupts a wait gets another copy.
        masks: [LentMask; LENT_MASKS],
        /// The index of the copy that is used next.
        next: u64,
    }
}
structure! {
    /// A system call that waits for signals, or under a mask of its own, while a thread is in it.
    Wait = "np_wait" {
        /// Address of the instruction.
        syscall: u64,
        /// Address of the [`Registers`] that were pushed before the call.
        registers: u64,
        /// One of `WAIT_*`.
        state: u32,
        /// The thread's number.
        thread: u32,
        /// The number of the system call.
        number: u32,
        /// Which signals of [`SYNCHRONOUS`] end the wait.
        takes: u16,
        /// Which signals of [`SYNCHRONOUS`] stay blocked during the wait.
        blocked: u16,
        /// Not 0: a signal was held back after the thread had last looked.
        disturbed: u32,
        reserved: u32,
    }
}
structure! {
    /// A signal of [`SYNCHRONOUS`] that was sent while the program blocked it.
    Held = "np_held" {
        /// The low two bits are one of `HELD_*`.
        state: u32,
        signal: u32,
        /// The number of the thread that the signal was sent to; 0: it was sent to the process.
        thread: u32,
        reserved: u32,
        /// The kernel's siginfo of the signal.
        information: [u64; 16],
    }
}
structure! {
    /// The effect of the instruction at a trap site. `patch::Emulation` fills in the fields.
    Emulation = "np_emulation" {
        /// One of `enum np_operation`.
        operation: u8,
        /// One of `enum np_operand`.
        operand: u8,
        /// Bytes of the operands.
        size: u8,
        /// One of `enum np_condition`.
        condition: u8,
        destination: u8,
        source: u8,
        /// Base register of the memory operand.
        base: u8,
        /// Index register of the memory operand.
        index: u8,
        /// Factor of the index register.
        scale: u8,
        /// One of `enum np_segment`.
        segment: u8,
        /// Bytes of the address.
        address_size: u8,
        /// `NP_EMULATION_*`.
        flags: u8,
        /// Bytes of the instruction.
        length: u8,
        reserved0: u8,
        /// The number of ranges after the structure.
        inside_count: u16,
        /// Displacement of the memory operand.
        displacement: u64,
        /// The immediate operand, the jump's target, or the bytes that a `ret` drops.
        immediate: u64,
        /// Address of the instruction.
        site: u64,
        /// The routine that fires at every execution of the instruction.
        fires: i32,
        /// The routine that fires when the indirect jump leaves the function.
        fires_leaving: i32,
        /// The routine that fires when the branch is taken.
        fires_taken: i32,
        /// The whole detour.
        detour: i32,
        /// The relocated instruction in the detour.
        copy: i32,
        /// The end of the relocated instruction.
        copy_end: i32,
    }
}
/// Bit of [`Redirect::to`]: the other bits are the address of an [`Emulation`].
pub const REDIRECT_EMULATION: u64 = 1 << 63;
/// Bit of [`Redirect::to`]: the trap stands for a `syscall` of code that the program has made.
pub const REDIRECT_CALL: u64 = 1 << 62;

/// Bytes of `struct np_thread_table`.
pub const TABLE_BYTES: usize = (TABLE_INHERITANCE + size_of::<Inherited>()).next_multiple_of(INHERITED_ALIGNMENT);
/// Offset of `held` in `struct np_thread_table`: an array of [`HELD`] signals.
pub const TABLE_HELD: usize = TABLE_WAITS + TABLE_SLOTS * size_of::<Wait>();
/// Offset of `waits` in `struct np_thread_table`: a [`Wait`] for each slot.
pub const TABLE_WAITS: usize = TABLE_LENT_MASKS + TABLE_SLOTS * LENT_MASKS_BYTES;
/// The maximal number of signals that can be held.
pub const HELD: usize = 64;
/// [`Held::state`]: the entry holds a signal.
pub const HELD_THERE: u32 = 2;
/// Offset of `lent_masks` in `struct np_thread_table`: [`LENT_MASKS_BYTES`] for each slot.
pub const TABLE_LENT_MASKS: usize = TABLE_STEPS + TABLE_SLOTS * size_of::<Step>();
/// Bytes of `struct np_lent_masks`.
pub const LENT_MASKS_BYTES: usize = LentMasks::BYTES;
/// The number of copies of masks that a thread has.
pub const LENT_MASKS: usize = 4;
/// Offset of `steps` in `struct np_thread_table`: a [`Step`] for each slot.
pub const TABLE_STEPS: usize = TABLE_MAGIC + 64;
/// Offset of `blocked` in `struct np_thread_table`: a u16 for each slot. It holds those signals of
/// [`SYNCHRONOUS`] that the thread believes it blocks.
pub const TABLE_BLOCKED: usize = TABLE_INHERITED;
/// Offset of `action_masks` in `struct np_thread_table`: a u16 for each signal from 1 on. It holds those signals of
/// [`SYNCHRONOUS`] that the program's action would block.
pub const TABLE_ACTION_MASKS: usize = TABLE_BLOCKED + TABLE_SLOTS * size_of::<u16>();

/// Offset of what a forked child inherits in `struct np_thread_table`. At a fork, the kernel wipes everything
/// before this offset.
pub const TABLE_INHERITED: usize = (TABLE_HELD + HELD * size_of::<Held>()).next_multiple_of(INHERITED_ALIGNMENT);
/// The alignment of the inherited part, and of the whole table.
pub const INHERITED_ALIGNMENT: usize = 4096;
/// Offset of `keys` in `struct np_thread_table`: the key that each slot had last.
pub const TABLE_KEYS: usize = TABLE_ACTION_MASKS + 64 * size_of::<u16>();
/// Offset of `inherited` in `struct np_thread_table`: an [`Inherited`].
pub const TABLE_INHERITANCE: usize = TABLE_KEYS + TABLE_SLOTS * size_of::<u64>();
/// Offset of `began` in `struct np_thread_table`: for a followed child, the TSC value when the child took its
/// table.
pub const TABLE_BEGAN: usize = TABLE_MAGIC + 32;
/// Offset of `pid` in `struct np_thread_table`: the number of a followed child.
pub const TABLE_PID: usize = TABLE_MAGIC + 40;
/// Offset of `shared_pointers` in `struct np_thread_table`: a u64, not 0 if a slot may have a key with [`KEY_SHARED`].
pub const TABLE_SHARED_POINTERS: usize = TABLE_MAGIC + 48;
/// Offset of `early_keys` in `struct np_thread_table`: a u64, not 0 if a context was found by a key that its thread may
/// lose.
pub const TABLE_EARLY_KEYS: usize = TABLE_MAGIC + 56;
/// Bit of [`Context::process_began`](super::context::Context::process_began): see [`Inherited::nested`].
pub const NESTED: u64 = 1;
/// The maximal number of ancestors of a followed child that are known.
pub const ANCESTORS: usize = 31;
/// The greatest value of [`Inherited::dispatch_registers`] that is no address.
pub const DISPATCH_BUSY: u64 = 1;
/// The maximal number of signal handlers that the tracer can know.
pub const HANDLERS: usize = 128;

structure! {
    /// The data that a forked child inherits besides its parent's masks.
    Inherited = "np_inherited" {
        /// The program's own actions, by `SLOT_*`.
        actions: [SignalAction; 5],
        /// Not 0: the process, or one from which it was forked, has entered seccomp.
        sandboxed: u64,
        /// Not 0: this is a followed child in a pid namespace below that of the traced process.
        nested: u64,
        /// The number of used elements of `ancestors`.
        ancestor_count: u32,
        /// The followed children from which this process descends, and at last this process; the oldest comes
        /// first.
        ancestors: [u32; ANCESTORS],
        /// Not 0: an element of `blocked` is, or was, not 0.
        blocks: u64,
        /// The last handler that the program has set for each signal from 1 on, in two rows of 32; 0: none.
        handlers: [[u64; 32]; 2],
        /// Bit k: the last handler for signal k + 1 was set with `SA_SIGINFO`.
        with_information: u64,
        /// How many elements of `places` are taken.
        handler_count: u32,
        /// The tracer has seen to the probes of so many of them.
        handlers_placed: u32,
        /// The addresses of all handlers that were ever set, in rows of 32; 0: it is just being written.
        places: [[u64; 32]; HANDLERS / 32],
        /// The registers of the thread that waits for the end of tracing; at most [`DISPATCH_BUSY`]: none waits.
        dispatch_registers: u64,
        /// The call that the thread is about to make.
        dispatch_syscall: u64,
    }
}

/// Offset of [`Inherited::blocks`] in `struct np_thread_table`.
pub const TABLE_BLOCKS: usize = TABLE_INHERITANCE + core::mem::offset_of!(Inherited, blocks);

/// [`Image::follows`]: forked children record nothing.
pub const FOLLOWS_NOT: u64 = 0;
/// [`Image::follows`]: forked children record in the arena, too.
pub const FOLLOWS: u64 = 1;
/// [`Image::follows`]: and keep a list of the processes from which they were forked.
pub const FOLLOWS_ANCESTORS: u64 = 2;

/// SIGILL, SIGTRAP, SIGBUS and SIGSEGV, as bits of a signal mask: no thread may block them while we rely on them.
pub const SYNCHRONOUS: u64 = 0x458;

/// Offset of `magic` in `struct np_thread_table`, after the slots.
pub const TABLE_MAGIC: usize = TABLE_SLOTS * size_of::<ThreadSlot>();
/// Offset of `held_count` in `struct np_thread_table`.
pub const TABLE_HELD_COUNT: usize = TABLE_MAGIC + 16;
/// Offset of `lent` in `struct np_thread_table`.
pub const TABLE_LENT: usize = TABLE_MAGIC + 8;
