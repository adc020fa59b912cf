//! Programs under seccomp: who may be traced. (One that puts itself under it is noticed by [`crate::shims`].)

use super::*;

/// Whether the process's filters, if it has any, let pass what attaching does in it.
pub(super) fn check(process: &Process) -> Result<(), SessionError> {
    let pid = process.pid();
    if process.facts().seccomp == Seccomp::Disabled {
        return Ok(());
    }
    let stopped = process.stop()?;
    let sandbox = stopped.sandbox();
    stopped.release();
    match sandbox {
        Sandbox::None | Sandbox::Permits => Ok(()),
        sandbox => Err(SessionError::Sandboxed { pid, sandbox }),
    }
}

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
