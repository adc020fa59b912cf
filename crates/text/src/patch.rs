//! A patch of the text: what it changes, where its detour lies, and what fires in it.

use std::sync::Arc;

use nanoprobe_patch::{Built, Obstacle, Tactic, TargetAddress};

/// A patch with its detour, ready to be written.
#[derive(Clone, Debug)]
pub struct Patch {
    /// How.
    pub tactic: Tactic,
    /// Of a trap that was not asked for: what kept a jump from the site, as far as it was looked for.
    pub obstacle: Option<Obstacle>,
    /// Where the detour lies.
    pub detour: TargetAddress,
    /// How many bytes there are reserved for it.
    pub room: usize,
    /// The bytes: shared by all copies, of which arming makes some.
    pub built: Arc<Built>,
    /// The sites that fire in it.
    pub sites: Vec<TargetAddress>,
    /// Those to which branches lead that trap there: see [`RunPlan::entered`].
    pub entered: Vec<TargetAddress>,
    /// Start of the function for whose probes it was made.
    pub function: TargetAddress,
    /// No probe, but a call of ours in front of the program's own ([`crate::shims`]).
    pub shim: bool,
    /// Whether a return address is replaced in it.
    pub takes_return: bool,
    /// An unwinder's entry, or the linker's, where replaced return addresses are put back: it stays as long as there
    /// may be any, that is, until all threads stand still at the end.
    pub guards_returns: bool,
}

impl Patch {
    /// Whether it stays in the text until all threads stand still at the end.
    pub fn stays(&self) -> bool {
        self.shim || self.guards_returns || self.built.carries.is_some()
    }

    /// The tactic, and of a trap its form: what `-v` shows.
    pub fn how(&self) -> String {
        match self.built.form {
            Some(form) => format!("{} ({form})", self.tactic),
            None if self.entered.is_empty() => self.tactic.to_string(),
            None => {
                let entered: Vec<String> = self.entered.iter().map(TargetAddress::to_string).collect();
                format!("{} (branches to {} trap)", self.tactic, entered.join(", "))
            }
        }
    }
}
