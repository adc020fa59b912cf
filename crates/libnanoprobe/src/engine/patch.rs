//! A patch of this process's text.

use nanoprobe_patch::{Built, RunPlan, TargetAddress};

/// A patch of the text.
#[derive(Clone, Debug)]
pub struct Patch {
    /// From what it was built.
    pub run: RunPlan,
    /// Where its detour is.
    pub detour: TargetAddress,
    /// The bytes.
    pub built: Built,
}
