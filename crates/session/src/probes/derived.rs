//! Derived probes: what is shown of a probe that fires at the places of others. Pure.
//!
//! Each place is an entry of the list of its own. All entries of a derived probe have the same id and the same names.

use std::collections::HashMap;
use std::sync::Arc;

use nanoprobe_lang::program::DerivedProbe;

use super::{Labels, Place, Probe, ProbeIndex, ProbeList};

/// The derived probes of a list.
#[derive(Default)]
pub(super) struct DerivedProbes {
    /// The probe for whose places descriptions are being matched.
    at_hand: Option<(DerivedProbe, Arc<str>)>,
    known: HashMap<(Place, Arc<str>), ProbeIndex>,
    ids: HashMap<String, u32>,
}

impl DerivedProbes {
    /// Whether the places of a derived probe are being matched.
    pub fn is_at_hand(&self) -> bool {
        self.at_hand.is_some()
    }
}

impl ProbeList {
    /// Matches descriptions that are the places of a derived probe.
    pub fn matching_for<T>(&mut self, derived: Option<&DerivedProbe>, matching: impl FnOnce(&mut ProbeList) -> T) -> T {
        self.derived.at_hand = derived.map(|derived| {
            let key = format!("{}:{}:{}", derived.provider, derived.name, derived.is_hidden);
            (derived.clone(), key.into())
        });
        let matched = matching(self);
        self.derived.at_hand = None;
        matched
    }

    /// The entry of the derived probe at hand, if there is one.
    pub(super) fn add_derived(&mut self, labels: &Labels, place: &Place) -> Option<ProbeIndex> {
        let (derived, key) = self.derived.at_hand.clone()?;
        let known = (place.clone(), key);
        if let Some(index) = self.derived.known.get(&known) {
            return Some(*index);
        }
        let (module, function) = match derived.place {
            Some((module, function)) => (module.into(), function.into()),
            None => (labels.module.clone(), labels.function.clone()),
        };
        let shown = format!("{}:{module}:{function}:{}", derived.provider, derived.name);
        let (id, is_new) = match self.derived.ids.get(&shown) {
            Some(id) => (*id, false),
            None => (self.take_id(), true),
        };
        self.derived.ids.insert(shown, id);
        let index = self.push(Probe {
            id,
            provider: derived.provider.into(),
            module,
            function,
            place: place.clone(),
            is_listed: is_new && !derived.is_hidden,
            own_name: derived.name.into(),
        });
        self.derived.known.insert(known, index);
        Some(index)
    }
}
