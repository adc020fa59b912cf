//! A patch of this process's text.

use nanoprobe_patch::{Built, RunPlan, TargetAddress};

/// A patch of the text.
#[derive(Clone, Debug)]
pub struct KeptPatch {
    /// The run from which it was built.
    pub run: RunPlan,
    /// Where its detour is.
    pub detour: TargetAddress,
    /// The bytes.
    pub built: Built,
}
