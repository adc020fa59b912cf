//! A patch of the text: its bytes, the place of its detour, and the sites that fire in it.

use std::sync::Arc;

use nanoprobe_patch::{Built, Obstacle, Tactic, TargetAddress};

/// A patch with its detour, ready to be written.
#[derive(Clone, Debug)]
pub struct Patch {
    pub tactic: Tactic,
    /// For a trap that the user did not request: the reason why there is no jump, if that was searched.
    pub obstacle: Option<Obstacle>,
    /// The detour's address.
    pub detour: TargetAddress,
    /// The number of bytes that are reserved for the detour.
    pub room: usize,
    /// The bytes, which all copies share: arming makes some copies.
    pub built: Arc<Built>,
    /// The sites whose probes fire in this patch.
    pub sites: Vec<TargetAddress>,
    /// The sites at which a thread that comes by a branch from elsewhere traps: see [`RunPlan::entered`].
    pub entered: Vec<TargetAddress>,
    /// Start of the function for whose probes the patch was made.
    pub function: TargetAddress,
    /// Whether the patch is not a probe, but a call of the agent before a system call of the program
    /// ([`crate::shims`]).
    pub shim: bool,
    /// Whether a return address is replaced in this patch.
    pub takes_return: bool,
    /// Whether the patch lies at the entry of an unwinder or of the linker, where replaced return addresses are put
    /// back. Such a patch stays as long as there may be replaced return addresses, that is, until all threads are
    /// stopped at the end.
    pub guards_returns: bool,
}

impl Patch {
    /// Whether the patch stays in the text until all threads are stopped at the end.
    pub fn stays(&self) -> bool {
        self.shim || self.guards_returns || self.built.carries.is_some()
    }

    /// The tactic as `-v` shows it, for a trap with its form.
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
