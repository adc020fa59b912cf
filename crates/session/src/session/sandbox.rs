//! Programs under seccomp: who may be traced, and where a program that puts itself under it is noticed.

use super::*;

/// What programs call to get there, and the agent's function that looks at the arguments (`agent/sandbox.c`).
const ENTRIES: [(&str, AgentFunction); 2] = [
    ("prctl", AgentFunction::WatchPrctl),
    ("syscall", AgentFunction::WatchSyscall),
];

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
    /// Hooks for the modules that have come since this was last asked.
    pub(super) fn sandbox_hooks(&mut self) -> Vec<Hook> {
        let Some(attachment) = self.attachment.as_ref() else {
            return Vec::new();
        };
        let first = std::mem::replace(&mut self.watched, self.modules.list().len());
        let modules = self.modules.list().iter().enumerate().skip(first);
        let modules = modules.filter(|(index, _)| self.modules.is_loaded(*index));
        let hook = |(index, module): (usize, &Module), (name, function): &(&str, AgentFunction)| {
            Some(Hook {
                module: index,
                address: module.symbol(name)?.address,
                fire: Fire::Unconditional {
                    function: attachment.agent(*function),
                },
            })
        };
        modules
            .flat_map(|module| ENTRIES.iter().filter_map(move |entry| hook(module, entry)))
            .collect()
    }

    /// A filter may have come between the first look and the hooks: from now on none comes unseen.
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
