//! Programs under seccomp: who may be traced. (One that puts itself under it is noticed by [`crate::shims`].)

use std::mem::offset_of;

use nanoprobe_arena::Memory as _;
use nanoprobe_arena::layout::Control;
use nanoprobe_target::Seccomp;

use super::Session;
use crate::error::SessionError;

impl Session {
    /// A filter may have come between the first look and the shims: from now on none comes unseen.
    pub(super) fn look_for_sandbox(&self) -> Result<(), SessionError> {
        let Some(process) = self.process.as_ref().filter(|process| process.has_seccomp()) else {
            return Ok(());
        };
        if process.facts().seccomp != Seccomp::Disabled {
            return Ok(());
        }
        let memory = self.memory().ok_or(SessionError::NotAttached)?;
        Ok(memory.store_u64(offset_of!(Control, sandboxed) as u64, 1)?)
    }
}
