//! What a detour seldom needs: it lies after the hot path.

use crate::TargetAddress;
use crate::assemble::Label;

/// Something to be laid out after the hot path.
pub(crate) enum Rare {
    /// A thread that was not found in the table: ask the agent, go on at `found`, or at `leave` without a context.
    Miss { here: Label, found: Label, leave: Label },
    /// A hit while handlers run: counted, goes on at `behind`.
    Missed { here: Label, behind: Label },
    /// The direction flag is set, and functions want it clear.
    Backwards { here: Label, behind: Label },
    /// A dispatcher changed what the block does not restore: everything is loaded by its `resume`.
    Resume { here: Label, resume: TargetAddress },
}
