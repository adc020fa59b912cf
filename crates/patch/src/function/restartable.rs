//! What must stay as it is in a function: see `fixed.rs`.

use std::ops::Range;

use crate::TargetAddress;

/// Bytes of the signature before the address to which an aborted sequence goes.
const SIGNATURE_BYTES: u64 = 4;

/// A restartable sequence, as its descriptor says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Restartable {
    /// The addresses that the kernel compares with.
    pub sequence: Range<TargetAddress>,
    /// Where a thread goes on that was interrupted.
    pub abort: TargetAddress,
}

impl Restartable {
    /// What must stay as it is: the sequence with the last byte before it, and the signature.
    pub(super) fn kept(&self) -> [Range<u64>; 2] {
        let Range { start, end } = &self.sequence;
        let abort = self.abort.0;
        [
            start.0.saturating_sub(1)..end.0,
            abort.saturating_sub(SIGNATURE_BYTES)..abort,
        ]
    }
}

/// What must stay as it is in a function.
#[derive(Clone, Debug, Default)]
pub(super) struct Fixed {
    /// Sequences near the function.
    pub restartable: Vec<Restartable>,
    /// Offsets of instructions before which the stack pointer is no stack's, ascending.
    pub stackless: Vec<u32>,
}
