//! The target side of a session: its modules, the linker's hook, libraries that come, IFUNCs.

use nanoprobe_agent::Function as AgentFunction;
use nanoprobe_arena::layout::{RING_FILL, RING_OVERWRITE, RING_SWITCH};
use nanoprobe_lang::options::BufferPolicy;
use nanoprobe_patch::{Fire, TargetAddress, ThreadKey};
use nanoprobe_symbols::{FunctionKind, ImageAddress, Linking, Module, ModuleKind};
use nanoprobe_target::{Process, Seccomp, Stopped};

use super::unseen::Unseen;
use super::{Output, Session};
use crate::attachment::Parameters;
use crate::error::SessionError;
use crate::placement::Hook;
use crate::probes::Place;
use crate::pulse::Pulse;
use crate::thread_key;
use crate::thread_key::Seen;

impl Session {
    pub(super) fn update_modules(&mut self) -> Result<usize, SessionError> {
        let Some(process) = self.process.clone() else {
            return Ok(0);
        };
        let map = process.map()?;
        let executable = process.facts().executable.clone();
        let changes = self
            .modules
            .update(process.living_thread(), &map, process.memory(), &executable);
        for index in changes.gone {
            // Its patches went with it; what comes to lie there is somebody else's.
            if let Some(range) = self.modules.range(index) {
                self.placed.retain(|start, _| !range.contains(start));
                self.return_hooks.retain(|address| !range.contains(address));
                if let Some(attachment) = self.attachment.as_mut() {
                    attachment.forget(&range);
                }
            }
        }
        let warnings = changes.unreadable.into_iter().map(Output::Warning);
        self.outputs.extend(warnings);
        Ok(changes.first_new)
    }

    pub(super) fn executable(&self) -> Option<&Module> {
        self.modules
            .list()
            .iter()
            .find(|module| module.kind() == ModuleKind::Executable)
    }

    /// `seen`: what the threads of a running program have shown.
    pub(super) fn parameters(&self, process: &Process, seen: Option<Seen>) -> Result<Parameters, SessionError> {
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
                .options
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
            ring_policy: match self.options.buffer_policy {
                BufferPolicy::Switch => RING_SWITCH,
                BufferPolicy::Fill => RING_FILL,
                BufferPolicy::Ring => RING_OVERWRITE,
            },
            strsize: self.limits.string_limit(),
            ustackframes: self.limits.stack_frames(0),
            reads_memory: needs.reads_memory,
            walks_stacks: needs.walks_stacks,
            stop: self.options.stop,
            active_calls: self.options.active_calls,
        })
    }

    /// The dynamic linker's debugger hook: called whenever its list of libraries changes. Its module and its place.
    pub(super) fn linker_hook(&self) -> Option<(usize, ImageAddress)> {
        let mut modules = self.modules.list().iter().enumerate();
        modules.find_map(|(index, module)| {
            let symbols = ["_dl_debug_state", "dl_debug_state"];
            let symbol = symbols.iter().find_map(|name| module.symbol(name))?;
            Some((index, symbol.address))
        })
    }

    /// What fires at the linker's hook.
    pub(super) fn hooks(&self) -> Vec<Hook> {
        let (Some(attachment), Some((module, address))) = (self.attachment.as_ref(), self.linker_hook()) else {
            return Vec::new();
        };
        let fire = Fire::Call {
            handler: attachment.agent(AgentFunction::LibraryEventHandler),
            enabling: TargetAddress(0),
        };
        vec![Hook { module, address, fire }]
    }

    /// The target has announced a change of its libraries, and waits for our answer.
    pub(super) fn take_libraries(&mut self) -> Result<(), SessionError> {
        let Some(memory) = self.memory() else { return Ok(()) };
        let control = nanoprobe_arena::ControlBlock::open(memory)?;
        let (event, answered) = control.library_events()?;
        let is_gone = self
            .attachment
            .as_ref()
            .is_none_or(|attachment| attachment.regions.is_empty());
        if event == answered || self.exited.is_some() || is_gone {
            return Ok(());
        }
        let pulse = self.pulse();
        let result = self.update_libraries().and_then(|()| self.serve_returns());
        drop(pulse);
        if let (Err(SessionError::AtDescription { .. }), Some(process)) = (&result, &self.process)
            && process.is_child()
            && !process.has_executed()
        {
            // The command was started to be traced, and cannot be: it waits for our answer, and gets none.
            process.kill();
        }
        if let Some(memory) = self.memory() {
            nanoprobe_arena::ControlBlock::open(memory)?.acknowledge_library(event)?;
        }
        match result {
            Err(SessionError::Memory(_) | SessionError::Stop(_) | SessionError::Remote(_)) if self.target_is_gone() => {
                Ok(())
            }
            // The next look tells of it.
            Err(_) if self.has_executed() => Ok(()),
            other => other,
        }
    }

    pub(super) fn has_executed(&self) -> bool {
        self.process.as_ref().is_some_and(Process::has_executed)
    }

    /// Signs of life for as long as the value lives.
    pub(super) fn pulse(&self) -> Option<Pulse> {
        self.attachment.as_ref()?.pulse()
    }

    /// Whoever executes another program has a new address space: our patches went with the old one, and there is nothing
    /// to be taken back. What was recorded is kept; the process is followed to its end.
    pub(super) fn look_for_exec(&mut self) {
        let (Some(process), Some(attachment)) = (&self.process, &mut self.attachment) else {
            return;
        };
        let arena = attachment.addresses.arena;
        let is_gone = || {
            matches!(
                process.memory().read_u64(arena),
                Err(nanoprobe_target::MemoryError::Gone { .. })
            )
        };
        // One that has ended has no map either.
        if self.exited.is_some() || attachment.regions.is_empty() || !is_gone() || process.map().is_err() {
            return;
        }
        attachment.leave_behind();
        let program = std::fs::read_link(format!("/proc/{}/exe", process.living_thread())).unwrap_or_default();
        self.outputs.push_back(Output::Warning(format!(
            "process {} executed {}: its probes are gone",
            process.pid(),
            program.display()
        )));
        self.sample_another_program();
    }

    pub(super) fn target_is_gone(&self) -> bool {
        self.process.as_ref().is_none_or(|process| process.map().is_err())
    }

    pub(super) fn update_libraries(&mut self) -> Result<(), SessionError> {
        let module = self.update_modules()?;
        let first = self.enablings.list().len();
        let first_time = !self.loaded && self.modules.list().len() > module;
        let came = self.modules.list().len() > module;
        if came {
            self.match_target(module)?;
        }
        if self.listing {
            self.loaded |= came;
            return Ok(());
        }
        let shims = self
            .attachment
            .as_ref()
            .is_some_and(|attachment| attachment.shimmed.is_some());
        if self.enablings.list().len() > first
            || !self.later.is_empty()
            || came && (self.enablings.needs().walks_stacks || shims)
        {
            let process = self.process.clone().ok_or(SessionError::NotAttached)?;
            if self.has_ifuncs(first) {
                let mut stopped = process.stop_one()?;
                self.resolve_ifuncs(&mut stopped, first)?;
                stopped.release();
                self.match_choices()?;
            }
            if let Some(attachment) = self.attachment.as_mut() {
                attachment.look_for_holes()?;
            }
            let armed = self.place(first, module, &[], None)?;
            self.outputs.push_back(Output::Library {
                sites: armed.patches,
                pauses: armed.pauses,
            });
        }
        if first_time {
            self.loaded = true;
            self.check_matches()?;
        }
        Ok(())
    }

    pub(super) fn has_ifuncs(&self, first: usize) -> bool {
        !self.unresolved(first).is_empty()
    }

    /// Resolvers that matter and are not resolved yet.
    pub(super) fn unresolved(&self, first: usize) -> Vec<TargetAddress> {
        let enabled = self.enablings.list().iter().skip(first);
        let functions = enabled.filter_map(|enabling| match self.probes.get(enabling.probe)?.place {
            Place::Function { module, function, .. } => Some((module, function)),
            _ => None,
        });
        let later = self.later.iter().map(|(.., later)| (later.module, later.function));
        let mut list = Vec::new();
        let mut last = None;
        for (module, function) in functions.chain(later) {
            // Neighbours are mostly probes on one function.
            if last.replace((module, function)) == Some((module, function)) {
                continue;
            }
            let Some(module) = self.modules.list().get(module) else {
                continue;
            };
            let Some(function) = module.functions().get(function) else {
                continue;
            };
            if let FunctionKind::Ifunc { resolver } = function.kind {
                let resolver = module.bias().to_target(resolver);
                if !self.choices.contains_key(&resolver) && !list.contains(&resolver) {
                    list.push(resolver);
                }
            }
        }
        list
    }

    /// Asks each IFUNC's resolver, in the target, for its choice, as the dynamic linker has. Resolvers are pure
    /// functions of the processor's features.
    pub(super) fn resolve_ifuncs(&mut self, stopped: &mut Stopped, first: usize) -> Result<(), SessionError> {
        const STACK_BYTES: u64 = 64 << 10;
        let resolvers = self.unresolved(first);
        if resolvers.is_empty() {
            return Ok(());
        }
        let attachment = self.attachment_mut()?;
        // Once: libraries may come again and again.
        let stack = match attachment.resolvers_stack {
            Some(stack) => stack,
            None => *attachment
                .resolvers_stack
                .insert(attachment.growth.reserve(STACK_BYTES, 64)?),
        };
        let tid = stopped.best_thread()?;
        let mut remote = stopped.remote(tid)?;
        let slot_bytes = self.enablings.slots_used();
        let thread_key = match self.attachment_mut()?.parameters.thread_key {
            ThreadKey::Asked => thread_key::of_number(remote.process(), tid),
            ThreadKey::TlsSelf | ThreadKey::FsBase => {
                thread_key::of_pointer(remote.process(), tid, remote.saved_registers().fs_base)
            }
        };
        let unseen = match self.memory() {
            Some(memory) => Some(Unseen::begin(memory, &self.layout, thread_key, slot_bytes)?),
            None => None,
        };
        for resolver in resolvers {
            match remote.call(resolver, [0; 6], stack..TargetAddress(stack.0 + STACK_BYTES)) {
                Ok(choice) => {
                    self.choices.insert(resolver, TargetAddress(choice));
                }
                Err(error) => self
                    .outputs
                    .push_back(Output::Warning(format!("the IFUNC at {resolver}: {error}"))),
            }
        }
        if let (Some(unseen), Some(memory)) = (unseen, self.memory()) {
            unseen.end(memory, &self.layout)?;
        }
        Ok(remote.finish()?)
    }
}
