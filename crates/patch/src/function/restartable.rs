//! The parts of a function that must stay as they are: see `fixed.rs`.

use std::ops::Range;

use crate::TargetAddress;

/// The size of the signature before the address to which an aborted sequence goes.
const SIGNATURE_BYTES: u64 = 4;

/// A restartable sequence, as its descriptor says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Restartable {
    /// The addresses with which the kernel compares the instruction pointer.
    pub sequence: Range<TargetAddress>,
    /// The address at which an interrupted thread continues.
    pub abort: TargetAddress,
}

impl Restartable {
    /// The ranges that must stay as they are: the sequence with the last byte before it, and the signature.
    pub(super) fn kept(&self) -> [Range<u64>; 2] {
        let Range { start, end } = &self.sequence;
        let abort = self.abort.0;
        [
            start.0.saturating_sub(1)..end.0,
            abort.saturating_sub(SIGNATURE_BYTES)..abort,
        ]
    }
}

/// The parts of a function that must stay as they are.
#[derive(Clone, Debug, Default)]
pub(super) struct Fixed {
    /// Sequences in or near the function.
    pub restartable: Vec<Restartable>,
    /// Offsets of the instructions before which rsp points to no stack, ascending.
    pub stackless: Vec<u32>,
}
