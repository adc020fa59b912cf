//! The places where the program's signal handlers begin.

use nanoprobe_arena::layout::HANDLERS;
use nanoprobe_lang::program::DerivedProbe;
use nanoprobe_patch::TargetAddress;
use nanoprobe_symbols::ImageAddress;
use nanoprobe_text::code::{Instructions, extent_around};

use super::Known;
use crate::error::SessionError;
use crate::probes::{Place, ProbeList, means_handlers};

/// The signal handlers of a process.
#[derive(Default)]
pub(super) struct SignalHandlers {
    /// The addresses that the program has ever set, at most [`HANDLERS`]. The list is the program's memory: it could
    /// show others at each look, without end.
    known: Vec<TargetAddress>,
    /// Those among them that lie in no instruction of a file, and were told.
    told: Vec<TargetAddress>,
}

impl SignalHandlers {
    fn add(&mut self, handler: TargetAddress) {
        if self.known.len() < HANDLERS && !self.known.contains(&handler) {
            self.known.push(handler);
        }
    }
}

impl Known {
    /// Whether a clause fires where signal handlers begin.
    pub(in crate::session) fn watches_handlers(&self) -> bool {
        let place = |index| self.probes.get(index).map(|probe| &probe.place);
        let mut enablings = self.enablings.list().iter();
        enablings.any(|enabling| place(enabling.probe) == Some(&Place::Handlers))
    }

    /// Takes handlers to the known ones, and matches those that have code in a module now. Yields those for which
    /// there can be no probe, each once.
    pub(in crate::session) fn add_handlers(
        &mut self,
        handlers: &[TargetAddress],
    ) -> Result<Vec<TargetAddress>, SessionError> {
        for handler in handlers {
            self.matches.handlers.add(*handler);
        }
        for clause in 0..self.compiled.program.clauses.len() {
            let derived = self.derived(clause);
            for (number, description) in self.own_descriptions(clause) {
                if means_handlers(derived.as_ref(), &description) {
                    self.match_handlers(clause, number, derived.as_ref())?;
                }
            }
        }
        let mut nowhere = self.matches.handlers.known.clone();
        nowhere.retain(|handler| {
            !self.matches.handlers.told.contains(handler) && self.place_of_handler(*handler).is_none()
        });
        self.matches.handlers.told.extend(&nowhere);
        Ok(nowhere)
    }

    /// Matches a description that means the places where handlers begin.
    pub(super) fn match_handlers(
        &mut self,
        clause: usize,
        number: usize,
        derived: Option<&DerivedProbe>,
    ) -> Result<(), SessionError> {
        let handlers = self.matches.handlers.known.iter();
        let places: Vec<_> = handlers.filter_map(|handler| self.place_of_handler(*handler)).collect();
        let matching = |probes: &mut ProbeList| probes.match_handlers(&places);
        let mut found = self.probes.matching_for(derived, matching);
        found.retain(|index| !self.enablings.has(clause, number, *index));
        self.enable(clause, number, found)
    }

    /// The module and the place of a handler; `None`: no instruction of a module that is mapped now begins there.
    fn place_of_handler(&self, handler: TargetAddress) -> Option<(usize, ImageAddress)> {
        self.loaded_modules().find_map(|(index, module)| {
            let address = module.bias().to_image(handler);
            if !module.image_range().contains(address) {
                return None;
            }
            let (extent, _) = extent_around(module, address)?;
            let offset = handler.0.wrapping_sub(extent.start);
            Instructions::of(module, &extent).check(offset).ok()?;
            Some((index, address))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_changes_without_end_fills_no_memory() {
        let mut handlers = SignalHandlers::default();
        for address in 0..10 * HANDLERS as u64 {
            handlers.add(TargetAddress(address / 2));
        }
        let first: Vec<_> = (0..HANDLERS as u64).map(TargetAddress).collect();
        assert_eq!(handlers.known, first);
    }
}
