//! What is to happen where: the input of planning.

use crate::TargetAddress;

/// One place at which handlers fire. Several points may name the same site; they fire in the order in which they are
/// given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// The probed instruction.
    pub site: TargetAddress,
    /// When reaching the site is a hit.
    pub condition: FireCondition,
    /// What may be live below the stack pointer.
    pub position: Position,
    /// Save all general registers in the frame (`struct np_frame_below`), for handlers that read them. Only of use when
    /// there is a [`Fire::Call`].
    pub full_frame: bool,
    /// What to do on a hit, in this order.
    pub fires: Vec<Fire>,
}

/// When reaching the site is a hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FireCondition {
    /// Always.
    Always,
    /// Only when the conditional branch at the site is taken.
    IfTaken,
    /// Only when the indirect jump at the site leaves the function: its target is compared with the function's ranges
    /// at run time.
    IfLeaves,
    /// After the instruction, when execution goes straight on from it: it must not be a branch, a call or a return.
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
    /// The same, where the red zone may be live: among Go's functions there are C's.
    SmallInside,
}

impl Position {
    /// Whether handlers run on the context's own stack.
    pub fn is_small(self) -> bool {
        matches!(self, Position::Small | Position::SmallInside)
    }
}

/// One thing to do on a hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fire {
    /// `inc qword [context + context_offset]`: a counter in the thread's context. Also done when handlers are running
    /// already.
    Count {
        /// Bytes from the start of the context.
        context_offset: u32,
    },
    /// Call a compiled handler (Cranelift's `preserve_all`, context in r15). It counts as missed when handlers are
    /// running already in this thread.
    Call {
        /// The handler's entry.
        handler: TargetAddress,
        /// Its `struct np_enabling`, stored in the context before the call.
        enabling: TargetAddress,
    },
    /// Call an ordinary function with all general registers in memory, which it may change: the library's handlers. All
    /// fires of one condition at a site are functions, or none is. No context is looked for.
    Function {
        /// `u32 dispatch(cookie, registers, behind)`: 0 goes on, 1 resumes.
        dispatch: TargetAddress,
        /// Jumped to with the stack pointer at the registers, to load all of them.
        resume: TargetAddress,
        /// The dispatcher's first argument.
        cookie: u64,
        /// Asked first, with less saved, where nothing else fires before a function's first instruction.
        quick: Option<Quick>,
    },
    /// Call an agent function that needs no context: in a thread that has none, in a forked child, while handlers run.
    /// All of these come first, whatever their place in the list.
    Unconditional {
        /// The function; it preserves all registers.
        function: TargetAddress,
    },
    /// Replace the return address, which must be what the stack pointer points at: at a function's first instruction,
    /// or at a jump to another function. Also done when handlers are running already.
    TakeReturn {
        /// `np_return_take_at`, or `np_return_take_at_jump_from`.
        take: TargetAddress,
        /// What the function returns to, see [`crate::build_return_stub`].
        stub: TargetAddress,
    },
}

/// What a function's entry asks before all registers are saved: `u32 quick(cookie)`. 0: all is done; 1: the dispatcher
/// is called as if it had not been asked. It may change rax, rcx, rdx, rsi, rdi, r8 and the arithmetic flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Quick {
    /// The stack pointer at the site is 64 bytes above its own.
    Inline(TargetAddress),
    /// It may have the rest of the function called from elsewhere. After 0 the detour jumps to the address that lies 16
    /// bytes below the stack pointer at the site. The stack pointer is then 8 bytes higher than at the site, and the
    /// relocated run's address lies 8 bytes below that of the site. The stack pointer at the site is 80 bytes above
    /// that of this function.
    Called(TargetAddress),
}
