//! The code that a detour seldom needs; it lies after the hot path.

use crate::TargetAddress;
use crate::assemble::Label;

/// A path that lies after the hot path.
pub(crate) enum Rare {
    /// The thread is not in the table: asks the agent, and continues at `found`, or at `leave` if it has no context.
    Miss { here: Label, found: Label, leave: Label },
    /// A hit while handlers run: counts it, and continues at `behind`.
    Missed { here: Label, behind: Label },
    /// The direction flag is set: clears it, as functions expect.
    Backwards { here: Label, behind: Label },
    /// A dispatcher changed something that the block does not restore: its `resume` loads everything.
    Resume { here: Label, resume: TargetAddress },
}
