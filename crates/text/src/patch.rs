//! A patch of the text: what it changes, where its detour lies, and what fires in it.

use std::sync::Arc;

use nanoprobe_patch::{Built, Obstacle, Tactic, TargetAddress};

/// A patch with its detour, ready to be written.
#[derive(Clone, Debug)]
pub struct Patch {
    /// How.
    pub tactic: Tactic,
    /// For a trap that was not asked for: what made a jump impossible, if that was looked for.
    pub obstacle: Option<Obstacle>,
    /// Where the detour lies.
    pub detour: TargetAddress,
    /// How many bytes are reserved for it.
    pub room: usize,
    /// The bytes: shared by all copies, of which arming makes some.
    pub built: Arc<Built>,
    /// The sites that fire in it.
    pub sites: Vec<TargetAddress>,
    /// The sites at which branches from elsewhere trap: see [`RunPlan::entered`].
    pub entered: Vec<TargetAddress>,
    /// Start of the function for whose probes it was made.
    pub function: TargetAddress,
    /// This is no probe, but a call of the agent before the program's own system call ([`crate::shims`]).
    pub shim: bool,
    /// Whether a return address is replaced in it.
    pub takes_return: bool,
    /// The entry of an unwinder or of the linker, where replaced return addresses are put back. It stays as long as
    /// there may be any, that is, until all threads are stopped at the end.
    pub guards_returns: bool,
}

impl Patch {
    /// Whether it stays in the text until all threads are stopped at the end.
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
