//! A place on a stack that is being walked.

/// A frame of a thread, before its caller is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// The frame's return address, or the innermost frame's instruction.
    pub pc: u64,
    /// The stack pointer in the frame.
    pub rsp: u64,
    /// The frame pointer, if the frame has one.
    pub rbp: u64,
    /// `pc` is an instruction's own address, not a return address.
    pub exact: bool,
}

impl Cursor {
    /// An address of the instruction that was executed.
    pub fn at(&self) -> u64 {
        self.pc.wrapping_sub(u64::from(!self.exact))
    }
}
