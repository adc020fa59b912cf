//! The points: the input of planning.

use crate::TargetAddress;

/// One place at which handlers fire. Several points may name the same site; they fire in the order in which they are
/// given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    pub site: TargetAddress,
    /// Which executions of the instruction are hits.
    pub condition: FireCondition,
    /// The memory below the stack pointer that may be live.
    pub position: Position,
    /// Whether to save all general registers in the frame (`struct np_frame_below`), for handlers that read them. Only
    /// of use with a [`Fire::Call`].
    pub full_frame: bool,
    /// The actions on a hit, in this order.
    pub fires: Vec<Fire>,
}

/// Which executions of a site's instruction are hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FireCondition {
    /// All.
    Always,
    /// Only when the conditional branch at the site is taken.
    IfTaken,
    /// Only when the indirect jump at the site leaves the function: its target is compared with the function's ranges
    /// at run time.
    IfLeaves,
    /// After the instruction, when execution continues with the next instruction. The instruction must not be a branch,
    /// a call or a return.
    Behind,
}

/// Where in a function a point lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Position {
    /// At the function's entry: the stack pointer points at the return address and nothing below it is live.
    Entry,
    /// Anywhere: the 128 bytes below the stack pointer (the red zone, System V ABI 3.2.2) may be live and are skipped.
    Inside,
    /// Anywhere on a small stack (Go's), below which other memory may lie: handlers run on the context's own stack. Go
    /// uses the 16 bytes below the stack pointer around its `duffzero` and `duffcopy`.
    Small,
    /// As `Small`, with a red zone that may be live: Go programs contain C functions, too.
    SmallInside,
}

impl Position {
    /// Whether handlers run on the context's own stack.
    pub fn is_small(self) -> bool {
        matches!(self, Position::Small | Position::SmallInside)
    }
}

/// One action on a hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fire {
    /// `inc qword [context + context_offset]`: a counter in the thread's context. It counts even while handlers are
    /// running.
    Count {
        /// Bytes from the start of the context.
        context_offset: u32,
    },
    /// `inc qword [context + table[number]]`, where the number is rax of the program: the number of a system call. Like
    /// `Count`, it counts even while handlers are running.
    CountByNumber {
        /// `u32 table[513]`: offsets from the start of the context. Numbers from 512 on share the last one.
        table: TargetAddress,
    },
    /// Call a compiled handler (Cranelift's `preserve_all`, context in r15). If handlers are running already in this
    /// thread, the hit counts as missed.
    Call {
        /// The handler's entry.
        handler: TargetAddress,
        /// Its `struct np_enabling`, stored in the context before the call.
        enabling: TargetAddress,
    },
    /// Call an ordinary function with all general registers in memory, which it may change: the library's handlers. If
    /// one fire of a condition at a site is a function, all of them are. No context is looked for.
    Function {
        /// `u32 dispatch(cookie, registers, behind)`: 0 continues, 1 resumes.
        dispatch: TargetAddress,
        /// The code that loads all registers. It is entered by a jump, with the stack pointer at the registers.
        resume: TargetAddress,
        /// The dispatcher's first argument.
        cookie: u64,
        /// A function that is called first, with fewer registers saved. It is only allowed if nothing else fires
        /// before the function's first instruction.
        quick: Option<Quick>,
    },
    /// Call a function of the agent that needs no context. It also runs in a thread without a context, in a forked
    /// child, and while handlers run. All fires of this kind come first, whatever their place in the list is.
    Unconditional {
        /// The function; it preserves all registers.
        function: TargetAddress,
    },
    /// Replace the return address, to which the stack pointer must point: at a function's first instruction, or at a
    /// jump to another function. This also happens while handlers are running.
    TakeReturn {
        /// `np_return_take_at`, or `np_return_take_at_jump_from`.
        take: TargetAddress,
        /// The stub to which the function returns: see [`crate::build_return_stub`].
        stub: TargetAddress,
    },
}

/// A function that an entry calls before all registers are saved: `u32 quick(cookie)`. It returns 0 if all is done, and
/// 1 if the dispatcher is to be called as usual. It may change rax, rcx, rdx, rsi, rdi, r8 and the arithmetic flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Quick {
    /// The stack pointer at the site is 64 bytes above the function's own.
    Inline(TargetAddress),
    /// The function may arrange that the rest of the probed function is called from elsewhere. If it returns 0, the
    /// detour jumps to the address that lies 16 bytes below the stack pointer at the site. The stack pointer is then 8
    /// bytes higher than at the site, and the stack holds the relocated run's address 8 bytes below the stack pointer
    /// of the site. The stack pointer at the site is 80 bytes above that of this function.
    Called(TargetAddress),
}
