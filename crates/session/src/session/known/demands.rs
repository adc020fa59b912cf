//! The needs of a program's probes in a process: how threads are told apart, whether return addresses are replaced,
//! which IFUNCs must be resolved.

use nanoprobe_arena::layout::{RING_FILL, RING_OVERWRITE, RING_SWITCH};
use nanoprobe_lang::options::{BufferPolicy, ReturnForm};
use nanoprobe_lang::program::{Function, Stack};
use nanoprobe_patch::{TargetAddress, ThreadKey};
use nanoprobe_symbols::{FunctionKind, ImageAddress, Linking, Module, ModuleKind};
use nanoprobe_target::{Process, Seccomp};
use nanoprobe_text::returns::{ReturnRefusal, check_module, has_shadow_stack};

use super::{Known, asks};
use crate::attachment::Parameters;
use crate::enable::Enabling;
use crate::error::SessionError;
use crate::placement::{Hook, locate};
use crate::probes::{Place, Spot};
use crate::thread_key;
use crate::thread_key::Seen;

/// With this many functions it is likely that one of them jumps to another function.
const FUNCTIONS_MAX: usize = 1024;

/// The function that chooses what an IFUNC is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) struct Resolver {
    /// The index of its module.
    pub module: usize,
    pub address: TargetAddress,
}

impl Known {
    /// `seen`: what the threads of a running program have shown.
    pub(in crate::session) fn parameters(
        &self,
        process: &Process,
        seen: Option<Seen>,
    ) -> Result<Parameters, SessionError> {
        let linkage = self.executable().map(Module::linkage);
        let dynamic = linkage.is_some_and(|linkage| linkage.linking == Linking::Dynamic);
        let has_libc = thread_key::has_libc(self.modules.list());
        let thread_key = thread_key::choose(seen, has_libc, dynamic, thread_key::has_fsgsbase());
        if thread_key == ThreadKey::Asked && process.facts().seccomp != Seccomp::Disabled {
            return Err(SessionError::ThreadsAlike { pid: process.pid() });
        }
        let is_linker = |module: &&Module| module.kind() == ModuleKind::Linker;
        let libc = self
            .modules
            .list()
            .iter()
            .find(is_linker)
            .map(|linker| linker.linkage().libc);
        let libc = libc.or(linkage.map(|linkage| linkage.libc));
        let needs = self.enablings.needs();
        Ok(Parameters {
            thread_key,
            small_stacks: self.modules.list().iter().any(|module| module.linkage().go),
            trap: self
                .compiled
                .options
                .tracing
                .trap
                .as_deref()
                .map(str::parse)
                .transpose()
                .map_err(SessionError::Option)?,
            tid_offset: if process.facts().in_other_pid_namespace {
                0
            } else {
                thread_key::tid_offset(libc, dynamic)
            },
            ring_policy: match self.compiled.options.recording.buffer_policy {
                BufferPolicy::Switch => RING_SWITCH,
                BufferPolicy::Fill => RING_FILL,
                BufferPolicy::Ring => RING_OVERWRITE,
            },
            strsize: self.compiled.limits.string_limit(),
            ustackframes: self.compiled.limits.stack_frames(Stack::of_program(0)),
            reads_memory: needs.reads_memory,
            walks_stacks: needs.walks_stacks,
            stop: self.compiled.options.tracing.stop,
            active_calls: self.compiled.options.tracing.active_calls,
            follows_programs: self.compiled.options.tracing.follow.programs(),
            made_calls: self.compiled.options.tracing.made_calls,
            follows: self.compiled.options.tracing.follow.forks(),
            follows_ancestors: asks(&self.compiled, Function::ProgenyOf),
            parent: self.codegen.constants.ppid,
        })
    }

    /// The dynamic linker's debugger hook: called whenever its list of libraries changes. Its module and its place.
    pub(in crate::session) fn linker_hook(&self) -> Option<(usize, ImageAddress)> {
        let all = || self.modules.list().iter().enumerate();
        // If there is a dynamic linker, it has the hook. Otherwise the hook is looked for in all symbols of all
        // modules.
        let linkers = all().filter(|(_, module)| module.kind() == ModuleKind::Linker);
        linkers.chain(all()).find_map(|(index, module)| {
            let symbols = ["_dl_debug_state", "dl_debug_state"];
            let symbol = symbols.iter().find_map(|name| module.symbol(name))?;
            Some((index, symbol.address))
        })
    }

    /// Resolvers that matter and are not resolved yet.
    pub(in crate::session) fn unresolved(&self, first: usize) -> Vec<Resolver> {
        let enabled = self.enablings.list().iter().skip(first);
        let functions = enabled.filter_map(|enabling| match self.probes.get(enabling.probe)?.place {
            Place::Function { module, function, .. } => Some((module, function)),
            _ => None,
        });
        let later = self
            .matches
            .later
            .iter()
            .map(|(.., later)| (later.module, later.function));
        let mut list = Vec::new();
        let mut last = None;
        for (index, function) in functions.chain(later) {
            // Neighbours in the list are mostly probes on one function.
            if last.replace((index, function)) == Some((index, function)) {
                continue;
            }
            let Some(module) = self.modules.list().get(index) else {
                continue;
            };
            let Some(function) = module.functions().get(function) else {
                continue;
            };
            if let FunctionKind::Ifunc { resolver } = function.kind {
                let address = module.bias().to_target(resolver);
                let resolver = Resolver { module: index, address };
                if !self.choices.contains_key(&address) && !list.contains(&resolver) {
                    list.push(resolver);
                }
            }
        }
        list
    }

    /// Why no return address of this process may be replaced.
    pub(in crate::session) fn return_refusal(&self) -> Option<ReturnRefusal> {
        if self.compiled.options.tracing.return_form == ReturnForm::Exits || !self.wants_exits() {
            return None;
        }
        if self.has_shadow_stack() {
            return Some(ReturnRefusal::ShadowStack);
        }
        if !self.is_static() && self.linker_hook().is_none() {
            return Some(ReturnRefusal::NoLinkerHook);
        }
        self.loaded_modules().find_map(|(_, module)| check_module(module).err())
    }

    /// Whether the target's threads have shadow stacks.
    pub(in crate::session) fn has_shadow_stack(&self) -> bool {
        let process = self.process.as_ref();
        process.is_some_and(|process| has_shadow_stack(process.pid()))
    }

    /// Whether a clause fires at system calls.
    pub(in crate::session) fn traces_calls(&self) -> bool {
        let place = |enabling: &Enabling| self.probes.get(enabling.probe).map(|probe| &probe.place);
        let mut enablings = self.enablings.list().iter();
        enablings.any(|enabling| matches!(place(enabling), Some(Place::CallSites { .. })))
    }

    /// Whether a clause fires at a function's return.
    fn wants_exits(&self) -> bool {
        let spot = |enabling: &Enabling| match self.probes.get(enabling.probe)?.place {
            Place::Function { spot, .. } => Some(spot),
            _ => None,
        };
        let mut enablings = self.enablings.list().iter();
        enablings.any(|enabling| spot(enabling) == Some(Spot::Exits))
    }

    /// Whether it is certain or likely, before anything is planned, that return addresses will be replaced.
    pub(in crate::session) fn takes_returns(&self) -> bool {
        self.wants_exits()
            && self.return_refusal().is_none()
            && match self.compiled.options.tracing.return_form {
                ReturnForm::Exits => false,
                ReturnForm::Address => true,
                ReturnForm::Auto | ReturnForm::Value => self.has_tail_calls(),
            }
    }

    /// Whether a function whose return is probed may jump to another one at its end, as far as can be seen quickly.
    fn has_tail_calls(&self) -> bool {
        let returns = |enabling: &Enabling| match self.probes.get(enabling.probe)?.place {
            Place::Function {
                module,
                function,
                spot: Spot::Exits,
            } => Some((module, function)),
            _ => None,
        };
        let mut last = None;
        let functions = self.enablings.list().iter().filter_map(returns);
        // Several clauses often have the same function.
        let mut functions = functions.filter(|function| last.replace(*function) != Some(*function));
        let looked_at = functions.by_ref().take(FUNCTIONS_MAX);
        let jumps = |(module, function): (usize, usize)| {
            let (module, extent) = locate(self.modules.list(), &self.choices, module, function).ok()?;
            let parts = nanoprobe_text::code::parts(self.modules.list().get(module)?, &extent)?;
            let mut parts = parts.iter();
            Some(parts.any(|part| !part.tail_jumps().is_empty() || part.undecodable().is_some()))
        };
        looked_at.filter_map(jumps).any(|jumps| jumps) || functions.next().is_some()
    }

    /// Whether the program has no linker that could load further modules.
    pub(in crate::session) fn is_static(&self) -> bool {
        self.executable()
            .is_some_and(|module| module.linkage().linking != Linking::Dynamic)
    }

    pub(in crate::session) fn address_of(&self, hook: &Hook) -> Option<TargetAddress> {
        let module = self.modules.list().get(hook.module)?;
        Some(module.bias().to_target(hook.address))
    }
}
