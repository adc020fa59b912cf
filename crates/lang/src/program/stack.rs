//! Stacks of the thread that a clause fires for.

/// Whose frames a stack has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// Those of the program: `ustack()`.
    Program,
    /// Those of the kernel, at a sample: `stack()`.
    Kernel,
}

impl Side {
    /// The action that shows it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Side::Program => "ustack",
            Side::Kernel => "stack",
        }
    }
}

/// A stack that a clause records, or that is a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stack {
    pub side: Side,
    /// The most frames; 0 and [`crate::layout::JSTACK_FRAMES`]: an option decides.
    pub frames: u32,
}

impl Stack {
    /// `ustack(frames)`.
    #[must_use]
    pub const fn of_program(frames: u32) -> Stack {
        Stack {
            side: Side::Program,
            frames,
        }
    }

    /// `stack(frames)`.
    #[must_use]
    pub const fn of_kernel(frames: u32) -> Stack {
        Stack {
            side: Side::Kernel,
            frames,
        }
    }
}
