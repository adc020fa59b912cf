//! Return addresses that are replaced: the session's part. What must be hooked is hooked before the first is replaced, and
//! whenever libraries come.

use std::collections::HashSet;

use nanoprobe_agent::Function as AgentFunction;
use nanoprobe_lang::options::ReturnForm;
use nanoprobe_patch::{Fire, ReturnExits, TargetAddress};
use nanoprobe_symbols::Linking;
use nanoprobe_target::Pauses;
use nanoprobe_text::returns::{ReturnRefusal, check_module, has_shadow_stack, readers, unwinders};

use super::attaching::release_one;
use super::{Output, Session};
use crate::attachment::Attachment;
use crate::enable::Enabling;
use crate::error::SessionError;
use crate::placement::{Hook, locate};
use crate::probes::{Place, Spot};
use crate::returns::ReturnPolicy;

/// Of so many functions without a jump to another one it is likely that some function has one.
const FUNCTIONS_MAX: usize = 1024;

/// How often libraries may come while the unwinders of others are being hooked.
const ROUNDS_MAX: usize = 16;

impl Session {
    /// Why no return address of this process may be replaced.
    pub(super) fn return_refusal(&self) -> Option<ReturnRefusal> {
        if self.options.return_form == ReturnForm::Exits || !self.wants_exits() {
            return None;
        }
        if self.has_shadow_stack() {
            return Some(ReturnRefusal::ShadowStack);
        }
        if !self.is_static() && self.linker_hook().is_none() {
            return Some(ReturnRefusal::NoLinkerHook);
        }
        let modules = self.modules.list().iter().enumerate();
        let mut loaded = modules.filter(|(index, _)| self.modules.is_loaded(*index));
        loaded.find_map(|(_, module)| check_module(module).err())
    }

    /// Whether the target's threads have shadow stacks.
    pub(super) fn has_shadow_stack(&self) -> bool {
        let process = self.process.as_ref();
        process.is_some_and(|process| has_shadow_stack(process.pid()))
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

    /// Whether it is certain or likely, before anything is planned, that return addresses are to be replaced.
    pub(super) fn takes_returns(&self) -> bool {
        !self.listing
            && self.wants_exits()
            && self.return_refusal().is_none()
            && match self.options.return_form {
                ReturnForm::Exits => false,
                ReturnForm::Address => true,
                ReturnForm::Auto | ReturnForm::Value => self.has_tail_calls(),
            }
    }

    /// Whether a function whose return is probed may be left by a jump to another one; as far as can be seen at once.
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
        // Of one function there are often several clauses.
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

    /// Hooks all that could meet a replaced address, with `hooks`, and lets them be replaced, before the first probe is in
    /// the text: a function that is called every few nanoseconds would otherwise miss a million returns until then.
    pub(super) fn prepare_returns(&mut self, mut hooks: Vec<Hook>) -> Result<Pauses, SessionError> {
        let mut pauses = Pauses::default();
        let attachment = self.attachment.as_mut().ok_or(SessionError::NotAttached)?;
        let mut stopped = attachment.process.clone().stop_one()?;
        let mapped = attachment.map_returns(&mut stopped);
        release_one(stopped, &mut pauses);
        mapped?;
        let returns = self.missing_return_hooks();
        hooks.extend(returns.iter().copied());
        let armed = self.place(self.enablings.list().len(), self.modules.list().len(), &hooks, None)?;
        pauses.add(&armed.pauses);
        // What could not be hooked is said by who serves libraries, in a moment and whenever some come.
        self.note_return_hooks(&returns);
        self.serve_returns()?;
        Ok(pauses)
    }

    /// What planning has to know.
    pub(super) fn return_policy<'a>(
        &self,
        attachment: &Attachment,
        refusal: Option<&'a ReturnRefusal>,
    ) -> ReturnPolicy<'a> {
        ReturnPolicy {
            form: self.options.return_form,
            refusal,
            take: attachment.agent(AgentFunction::ReturnTakeAt),
            take_at_jump: attachment.agent(AgentFunction::ReturnTakeAtJump),
            exits: ReturnExits {
                with_context: attachment.agent(AgentFunction::ReturnLeave),
                without_context: attachment.agent(AgentFunction::ReturnLeaveBare),
            },
        }
    }

    /// Lets return addresses be replaced, when all that could meet one is hooked. To be called whenever libraries may have
    /// come; until it has succeeded none is.
    pub(super) fn serve_returns(&mut self) -> Result<(), SessionError> {
        for _ in 0..ROUNDS_MAX {
            let Some(attachment) = self.attachment.as_ref().filter(|attachment| attachment.returns.mapped) else {
                return Ok(());
            };
            let event = attachment.returns.events(attachment.process.memory())?;
            let modules = self.modules.list().len();
            self.update_libraries()?;
            if let Some(refusal) = self.return_refusal() {
                self.warn_of_returns(&format!(
                    "{refusal}: returns that are seen by their return address are missed"
                ));
                return Ok(());
            }
            let missing = self.missing_return_hooks();
            if !missing.is_empty() {
                self.place(self.enablings.list().len(), self.modules.list().len(), &missing, None)?;
                if !self.note_return_hooks(&missing) {
                    self.warn_of_returns(
                        "an unwinder cannot be hooked: returns that are seen by their return address are missed",
                    );
                    return Ok(());
                }
            } else if self.modules.list().len() == modules
                && let Some(attachment) = self.attachment.as_ref()
            {
                // Nothing has come since the last hook was placed.
                return attachment.returns.answer(attachment.process.memory(), event);
            }
        }
        Ok(())
    }

    fn warn_of_returns(&mut self, text: &str) {
        if !std::mem::replace(&mut self.warned_of_returns, true) {
            self.outputs.push_back(Output::Warning(text.to_owned()));
        }
    }

    fn return_hooks(&self) -> Vec<Hook> {
        let Some(attachment) = self.attachment.as_ref() else {
            return Vec::new();
        };
        let fire = |function| Fire::Unconditional {
            function: attachment.agent(function),
        };
        let suspend = fire(AgentFunction::ReturnSuspend);
        let linker = self.hooks().into_iter().map(|hook| Hook { fire: suspend, ..hook });
        let modules = self.modules.list().iter().enumerate();
        let modules = modules.filter(|(index, _)| self.modules.is_loaded(*index));
        let entries = modules.flat_map(|(module, image)| {
            let hook = move |function| {
                move |address| Hook {
                    module,
                    address,
                    fire: fire(function),
                }
            };
            let unwinders = unwinders(image).into_iter().map(hook(AgentFunction::ReturnPutBack));
            unwinders.chain(readers(image).into_iter().map(hook(AgentFunction::ReturnGiveBack)))
        });
        linker.chain(entries).collect()
    }

    pub(super) fn missing_return_hooks(&self) -> Vec<Hook> {
        let mut hooks = self.return_hooks();
        hooks.retain(|hook| {
            self.address_of(hook)
                .is_some_and(|address| !self.return_hooks.contains(&address.0))
        });
        hooks
    }

    /// Whether no linker can bring further modules.
    pub(super) fn is_static(&self) -> bool {
        self.executable()
            .is_some_and(|module| module.linkage().linking != Linking::Dynamic)
    }

    /// Notes those that are in the text; yields whether all are.
    fn note_return_hooks(&mut self, hooks: &[Hook]) -> bool {
        let patched: HashSet<u64> = self
            .patches()
            .iter()
            .flat_map(|patch| &patch.sites)
            .map(|site| site.0)
            .collect();
        let addresses: Vec<u64> = hooks.iter().filter_map(|hook| Some(self.address_of(hook)?.0)).collect();
        let all = addresses.iter().all(|address| patched.contains(address));
        self.return_hooks
            .extend(addresses.into_iter().filter(|address| patched.contains(address)));
        all
    }

    pub(super) fn address_of(&self, hook: &Hook) -> Option<TargetAddress> {
        let module = self.modules.list().get(hook.module)?;
        Some(module.bias().to_target(hook.address))
    }
}
