//! Replaced return addresses: the session's part. Unwinders and the linker are hooked before the first address is
//! replaced, and whenever libraries come.

use std::collections::HashSet;

use nanoprobe_agent::Function as AgentFunction;
use nanoprobe_lang::options::ReturnForm;
use nanoprobe_patch::{Fire, ReturnExits};
use nanoprobe_target::Pauses;
use nanoprobe_text::returns::{ReturnRefusal, readers, unwinders};

use super::Presence;
use super::entering::release_one;
use crate::arming::Armed;
use crate::attachment::Attachment;
use crate::error::SessionError;
use crate::placement::Hook;
use crate::returns::ReturnPolicy;
use crate::session::known::Known;
use crate::session::tracing::Tracing;

/// How often libraries may come while the unwinders of earlier ones are being hooked.
const ROUNDS_MAX: usize = 16;

impl Presence {
    /// Places `hooks` on all code that could meet a replaced address, and then allows replacing. This happens
    /// before the first probe is in the text: otherwise a function that is called every few nanoseconds would miss
    /// a million returns.
    pub(super) fn prepare_returns(
        &mut self,
        tracing: &mut Tracing,
        mut hooks: Vec<Hook>,
    ) -> Result<Pauses, SessionError> {
        let mut pauses = Pauses::default();
        let attachment = &mut self.attachment;
        let mut stopped = attachment.process.clone().stop_one()?;
        let mapped = attachment.map_returns(&mut stopped);
        release_one(stopped, &mut pauses);
        mapped?;
        let returns = self.missing_return_hooks(&tracing.known);
        hooks.extend(returns.iter().copied());
        let armed = self.place_hooks(tracing, &hooks)?;
        pauses.add(&armed.pauses);
        // A hook that could not be placed is reported later, whenever libraries come.
        self.note_return_hooks(&tracing.known, &returns);
        self.serve_returns(tracing)?;
        Ok(pauses)
    }

    /// Allows return addresses to be replaced when all code that could meet one is hooked. Must be called whenever
    /// libraries may have come; until it has succeeded none is replaced.
    pub(super) fn serve_returns(&mut self, tracing: &mut Tracing) -> Result<(), SessionError> {
        for _ in 0..ROUNDS_MAX {
            let attachment = &self.attachment;
            if !attachment.returns.mapped {
                return Ok(());
            }
            let event = attachment.returns.events(attachment.process.memory())?;
            let modules = tracing.known.modules.list().len();
            self.update_libraries(tracing)?;
            if let Some(refusal) = tracing.known.return_refusal() {
                self.warn_of_returns(tracing, &refusal);
                return Ok(());
            }
            let missing = self.missing_return_hooks(&tracing.known);
            if !missing.is_empty() {
                self.place_hooks(tracing, &missing)?;
                if !self.note_return_hooks(&tracing.known, &missing) {
                    self.warn_of_returns(tracing, &"an unwinder cannot be hooked");
                    return Ok(());
                }
            } else if tracing.known.modules.list().len() == modules {
                let attachment = &self.attachment;
                // Nothing has come since the last hook was placed.
                return attachment.returns.answer(attachment.process.memory(), event);
            }
        }
        Ok(())
    }

    fn warn_of_returns(&mut self, tracing: &mut Tracing, why: &dyn std::fmt::Display) {
        if !std::mem::replace(&mut self.warned_of_returns, true) {
            tracing.warn(format!(
                "{why}: returns that are seen by their return address are missed"
            ));
        }
    }

    /// Whether it is certain or likely, before anything is planned, that return addresses will be replaced.
    pub(super) fn takes_returns(&self, known: &Known) -> bool {
        !self.listing && self.attachment.actions.host.is_none() && known.takes_returns()
    }

    /// Places hooks alone.
    fn place_hooks(&mut self, tracing: &mut Tracing, hooks: &[Hook]) -> Result<Armed, SessionError> {
        let known = &tracing.known;
        let (enablings, modules) = (known.enablings.list().len(), known.modules.list().len());
        self.place(tracing, enablings, modules, hooks, None)
    }

    fn return_hooks(&self, known: &Known) -> Vec<Hook> {
        let attachment = &self.attachment;
        let fire = |function| Fire::Unconditional {
            function: attachment.agent(function),
        };
        let suspend = fire(AgentFunction::ReturnSuspend);
        let linker = self.hooks(known).into_iter().map(|hook| Hook { fire: suspend, ..hook });
        let entries = known.loaded_modules().flat_map(|(module, image)| {
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

    pub(super) fn missing_return_hooks(&self, known: &Known) -> Vec<Hook> {
        let mut hooks = self.return_hooks(known);
        hooks.retain(|hook| {
            known
                .address_of(hook)
                .is_some_and(|address| !self.return_hooks.contains(&address.0))
        });
        hooks
    }

    /// Notes the hooks that are in the text; yields whether all of them are.
    fn note_return_hooks(&mut self, known: &Known, hooks: &[Hook]) -> bool {
        let patches = self.attachment.patches.iter();
        let patched: HashSet<u64> = patches.flat_map(|patch| &patch.sites).map(|site| site.0).collect();
        let addresses: Vec<u64> = hooks
            .iter()
            .filter_map(|hook| Some(known.address_of(hook)?.0))
            .collect();
        let all = addresses.iter().all(|address| patched.contains(address));
        self.return_hooks
            .extend(addresses.into_iter().filter(|address| patched.contains(address)));
        all
    }
}

/// The facts that planning needs.
pub(super) fn return_policy<'a>(
    known: &Known,
    attachment: &Attachment,
    refusal: Option<&'a ReturnRefusal>,
) -> ReturnPolicy<'a> {
    ReturnPolicy {
        // Another tracer may replace the same address, and may end before the function returns.
        form: match attachment.actions.host {
            Some(_) => ReturnForm::Exits,
            None => known.compiled.options.tracing.return_form,
        },
        refusal,
        take: attachment.agent(AgentFunction::ReturnTakeAt),
        take_at_jump: attachment.agent(AgentFunction::ReturnTakeAtJump),
        exits: ReturnExits {
            with_context: attachment.agent(AgentFunction::ReturnLeave),
            without_context: attachment.agent(AgentFunction::ReturnLeaveBare),
        },
    }
}
