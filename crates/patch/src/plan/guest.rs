//! A springboard in a displaced instruction: see `neighbour.rs`.

use super::shape::JUMP;
use crate::TargetAddress;

/// A springboard in the rear of a run, and the run that it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guest {
    /// Start of the run whose short jump leads there.
    pub start: TargetAddress,
    /// Where its jump lies: from there on the last displaced instruction has five bytes or more.
    pub jump: TargetAddress,
    /// Where that jump leads, once [`crate::NearSpace`] has decided it.
    pub detour: Option<TargetAddress>,
}

impl Guest {
    /// After the springboard's last byte.
    pub(crate) fn springboard_end(self) -> TargetAddress {
        TargetAddress(self.jump.0.saturating_add(u64::from(JUMP)))
    }
}
