//! The agent's shims before the program's own calls of rt_sigaction and rt_sigprocmask (and of those that may be such
//! calls), as `nanoprobe_text::shims` finds them.
//!
//! Our traps and the agent's guarded loads raise signals anywhere, and the kernel kills a process that blocks a
//! signal which its own instruction raises. And a program that sets its own SIGSEGV handler after us must not replace
//! ours: the agent keeps the program's handler, and hands its signals on (`agent/shims.c`). So from the first patch
//! on these calls go through the agent, in every module. Each shim is a patch of its own, and is never taken back. A
//! probe that would displace a shim is refused.

use nanoprobe_agent::Function as AgentFunction;
use nanoprobe_patch::Replacement;
use nanoprobe_text::shims::{Also, find};
use patch::KeptPatch;

use super::text::ranges;
use super::{Engine, patch};
use crate::error::Error;

impl Engine {
    /// Places the shims of all modules from an index on. Where one cannot be placed, the call stays as it is.
    pub(super) fn place_shims(&mut self, first: usize) -> Result<(), Error> {
        let modules = self.own.modules();
        let loaded = modules.list().iter().enumerate().skip(first);
        let loaded = loaded.filter(|(index, module)| modules.is_loaded(*index) && !is_library(module));
        let found: Vec<Replacement> = loaded.flat_map(|(_, module)| find(module, Also::default())).collect();
        let mut patches = Vec::new();
        for shim in found {
            let run = shim.run();
            let built = self.near.place(run, run.detour_length).and_then(|detour| {
                let built = shim.build(self.agent.address(AgentFunction::ShimSyscall), detour);
                Some((detour, built.ok()?))
            });
            patches.extend(built.map(|(detour, built)| KeptPatch {
                run: run.clone(),
                detour,
                built,
            }));
        }
        // A call with another program's breakpoint or an earlier probe stays as it is.
        patches.retain(|patch| self.is_untouched(patch));
        if !self.map_near()? {
            patches.retain(|patch| self.mapped.iter().any(|region| region.contains(&patch.detour)));
        }
        self.write_detours(&patches)?;
        let written = self.write_text(&[], &ranges(&patches), &[]);
        if written.is_ok() || self.torn.is_some() {
            self.signals.shims.extend(patches);
        }
        written
    }

    fn is_untouched(&self, patch: &KeptPatch) -> bool {
        let taken = self.functions.values().flat_map(|function| &function.patches);
        let mut bytes = vec![0; patch.built.original.len()];
        let read = self.own.memory().read(patch.built.address, &mut bytes);
        read.is_ok() && bytes == patch.built.original && !taken.into_iter().any(|other| overlap(other, patch))
    }

    /// Checks that no patch would displace a shim.
    pub(super) fn check_shims(&self, patches: &[KeptPatch]) -> Result<(), Error> {
        let taken = |patch: &&KeptPatch| self.signals.shims.iter().any(|shim| overlap(shim, patch));
        match patches.iter().find(taken) {
            Some(patch) => Err(Error::Forbidden(patch.built.address)),
            None => Ok(()),
        }
    }
}

fn is_library(module: &nanoprobe_symbols::Module) -> bool {
    module.name().starts_with("libnanoprobe.so")
}

fn overlap(left: &KeptPatch, right: &KeptPatch) -> bool {
    let range = |patch: &KeptPatch| {
        let start = patch.built.address.0;
        start..start.saturating_add(patch.built.original.len() as u64)
    };
    let (left, right) = (range(left), range(right));
    left.start < right.end && right.start < left.end
}
