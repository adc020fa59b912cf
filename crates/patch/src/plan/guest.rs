//! A springboard in a displaced instruction: see `neighbour.rs`.

use super::shape::JUMP;
use crate::TargetAddress;

/// A springboard in the rear of a run, and the run to which it belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guest {
    /// Start of the run whose short jump leads to the springboard.
    pub start: TargetAddress,
    /// The address of the springboard's jump, at least five bytes before the end of the last displaced instruction.
    pub jump: TargetAddress,
    /// The target of the springboard's jump, once [`crate::NearSpace`] has decided it.
    pub detour: Option<TargetAddress>,
}

impl Guest {
    /// The address after the springboard's last byte.
    pub(crate) fn springboard_end(self) -> TargetAddress {
        TargetAddress(self.jump.0.saturating_add(u64::from(JUMP)))
    }
}
