//! The agent's image, and the tables that its code uses: `agent/contract/image.h`.

use crate::structure::{Structure as _, structure};

/// [`Image::thread_key_mode`]: `mov %fs:0`.
pub const KEY_TLS_SELF: u64 = 0;
/// [`Image::thread_key_mode`]: `rdfsbase`.
pub const KEY_FSBASE: u64 = 1;
/// [`Image::thread_key_mode`]: the kernel is asked for the thread's number.
pub const KEY_ASKED: u64 = 2;
/// Set in the key of a thread that is identified by its number.
pub const KEY_OF_NUMBER: u64 = 1 << 63;
/// [`Image::thread_key_mode`]: `mov %fs:0` in detours, `rdfsbase` in the agent.
pub const KEY_TLS_CHECKED: u64 = 3;

/// Instances of replaced return addresses.
pub const RETURN_INSTANCES: u32 = 65536;
/// How many instances a thread takes at a time.
pub const RETURN_CHUNK: u32 = 64;
/// Bytes of a thunk.
pub const RETURN_THUNK_BYTES: u64 = 16;
/// How many instances may share a slot.
pub const RETURN_CHAIN_MAX: u32 = 255;
/// Bytes of the head, the owners of chunks, and the instances.
pub const RETURN_POOL_BYTES: u64 = RETURN_POOL_HIGHEST + RETURN_CHUNKS * 8;
/// Chunks of it.
const RETURN_CHUNKS: u64 = (RETURN_INSTANCES / RETURN_CHUNK) as u64;
/// Offset of `chunk_lowest` in `struct np_return_pool`.
pub const RETURN_POOL_LOWEST: u64 = RETURN_POOL_INSTANCES + RETURN_INSTANCES as u64 * ReturnInstance::BYTES as u64;
/// Offset of `chunk_highest` in `struct np_return_pool`: a u64 for each chunk.
pub const RETURN_POOL_HIGHEST: u64 = RETURN_POOL_LOWEST + RETURN_CHUNKS * 8;
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

/// log2 of the number of slots of the thread table.
pub const TABLE_BITS: u32 = 12;
/// Slots of the thread table.
pub const TABLE_SLOTS: usize = 1 << TABLE_BITS;

/// [`ThreadSlot::key`]: its thread is gone; it may be claimed, and chains go on past it.
pub const SLOT_ENDED: u64 = 1;

/// In an entry of the table of origins. The bits of the original address above this one say by how
/// many words the stack is deeper than at the original instruction's fault.
pub const ORIGIN_PUSHED_SHIFT: u32 = 56;

/// The most tables that are published by rows.
pub const TABLE_ROWS: u64 = 4096;

/// A key's first slot is `key * TABLE_FACTOR >> (64 - TABLE_BITS)`.
pub const TABLE_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

structure! {
    /// The first bytes of the agent's image.
    Image = "np_image" {
        magic: u64,
        /// Address of the [`Control`].
        control: u64,
        /// Address of the thread table.
        table: u64,
        /// Address of [`TABLE_ROWS`] [`Tables`], or of one.
        tables: u64,
        /// Address of as many bytes, each not 0 if its row is there; 0: there is one row.
        rows: u64,
        /// `KEY_*`.
        thread_key_mode: u64,
        /// Where image and handlers begin.
        code_start: u64,
        /// First byte after them.
        code_end: u64,
        /// 0: the agent makes no system call except `gettid`.
        allow_syscalls: u64,
        /// Whether the processor has `rdpid`.
        use_rdpid: u64,
        /// Address of the pool that begins with [`Returns`].
        returns: u64,
        /// Address of their thunks.
        thunks: u64,
        /// Of a library in the program itself; 0: there is none.
        fault_hook: u64,
        event_hook: u64,
        /// Address of [`Readers`]; 0: no table's memory is used again.
        readers: u64,
        /// Address of the handler stacks; 0: there are none.
        stacks: u64,
    }
}
structure! {
    /// The tables that hold.
    Tables = "np_tables" {
        /// Address of a [`RedirectTable`]: trapping address to where it goes on; 0: none.
        redirects: u64,
        /// Address of a [`RedirectTable`]: relocated address to original one, an entry holds up to the next; 0: none.
        origins: u64,
    }
}
structure! {
    /// Counts of the look-ups in a table.
    Readers = "np_readers" {
        /// To which count those add that begin: 0 or 1.
        phase: u32,
        reserved: u32,
        /// How many are in the midst of it; atomic.
        inside: [u64; 2],
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
        magic: u64,
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
        reserved0: u32,
        reserved: [u64; 3],
    }
}
structure! {
    /// What a replacement hands to an agent function.
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
        count: u64,
        /// Address of another table, whose entries hold where none of these does; 0: there is none.
        older: u64,
    }
}
structure! {
    /// A thread and its context, in the thread table.
    ThreadSlot = "np_thread_slot" {
        /// The thread pointer; 0: free; [`SLOT_ENDED`].
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
    /// What a register of the program's points into while it waits under a mask of its own.
    LentMask = "np_lent_mask" {
        /// What the register held.
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
    /// Those of a thread.
    LentMasks = "np_lent_masks" {
        /// In turn, so that a handler in front of a wait has another.
        masks: [LentMask; LENT_MASKS],
        /// Is taken next.
        next: u64,
    }
}
structure! {
    /// A call that waits for signals, or under a mask of its own, and that a thread has begun.
    Wait = "np_wait" {
        /// Address of the instruction.
        syscall: u64,
        /// Address of the [`Registers`] in front of it.
        registers: u64,
        /// `WAIT_*`.
        state: u32,
        /// The thread's number.
        thread: u32,
        /// The system call's.
        number: u32,
        /// The signals of [`SYNCHRONOUS`] that end the wait.
        takes: u16,
        /// The signals of [`SYNCHRONOUS`] that stay blocked.
        blocked: u16,
        /// Whether a signal was held back since the thread has looked.
        disturbed: u32,
        reserved: u32,
    }
}
structure! {
    /// A signal of [`SYNCHRONOUS`] that was sent while the program blocked it.
    Held = "np_held" {
        /// `HELD_*` in the low two bits.
        state: u32,
        signal: u32,
        /// The thread that it was sent to; 0: the process.
        thread: u32,
        reserved: u32,
        /// The kernel's siginfo.
        information: [u64; 16],
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
        destination: u8,
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
        reserved0: u8,
        /// Ranges after the structure.
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
pub const TABLE_BYTES: usize = TABLE_HELD + HELD * size_of::<Held>();
/// Offset of `held` in `struct np_thread_table`: [`HELD`] times a [`Held`].
pub const TABLE_HELD: usize = TABLE_WAITS + TABLE_SLOTS * size_of::<Wait>();
/// Offset of `waits` in `struct np_thread_table`: a [`Wait`] for each slot.
pub const TABLE_WAITS: usize = TABLE_LENT_MASKS + TABLE_SLOTS * LENT_MASKS_BYTES;
/// How many signals can be held.
pub const HELD: usize = 64;
/// [`Held::state`]: holds a signal.
pub const HELD_THERE: u32 = 2;
/// Offset of `lent_masks` in `struct np_thread_table`: [`LENT_MASKS_BYTES`] for each slot, which begin with as many
/// [`LentMask`]s as fit.
pub const TABLE_LENT_MASKS: usize = TABLE_STEPS + TABLE_SLOTS * size_of::<Step>();
/// Bytes of `struct np_lent_masks`.
pub const LENT_MASKS_BYTES: usize = LentMasks::BYTES;
/// Copies of masks that a thread has.
pub const LENT_MASKS: usize = 4;
/// Offset of `steps` in `struct np_thread_table`: a [`Step`] for each slot.
pub const TABLE_STEPS: usize = TABLE_ACTION_MASKS + 64 * size_of::<u16>();
/// Offset of `blocked` in `struct np_thread_table`: a u16 for each slot, of [`SYNCHRONOUS`] what
/// the thread believes it blocks.
pub const TABLE_BLOCKED: usize = TABLE_MAGIC + 64;
/// Offset of `action_masks` in `struct np_thread_table`: a u16 for each signal from 1 on, of [`SYNCHRONOUS`] what the
/// program's action would block.
pub const TABLE_ACTION_MASKS: usize = TABLE_BLOCKED + TABLE_SLOTS * size_of::<u16>();

/// SIGILL, SIGTRAP, SIGBUS and SIGSEGV, as bits of a signal mask: no thread may block them while we rely on them.
pub const SYNCHRONOUS: u64 = 0x458;

/// Offset of `magic` in `struct np_thread_table`, after the slots.
pub const TABLE_MAGIC: usize = TABLE_SLOTS * size_of::<ThreadSlot>();
/// Offset of `held_count` in `struct np_thread_table`.
pub const TABLE_HELD_COUNT: usize = TABLE_MAGIC + 24;
/// Offset of `lent` in `struct np_thread_table`.
pub const TABLE_LENT: usize = TABLE_MAGIC + 8;
