//! A patch of this process's text.

use nanoprobe_patch::{Built, RunPlan, TargetAddress};

/// A patch of the text.
#[derive(Clone, Debug)]
pub struct KeptPatch {
    /// The run from which it was built.
    pub run: RunPlan,
    /// The address of its detour.
    pub detour: TargetAddress,
    /// The bytes of the patch and its detour.
    pub built: Built,
}
