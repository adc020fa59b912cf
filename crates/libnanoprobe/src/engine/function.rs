//! One function's patches: planned from the sites that are active in the function. Patches that do not change are kept.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use nanoprobe_patch::{Fire, FireCondition, FunctionMap, Point, Position, Tactic, TargetAddress};

use super::known::Known;
use super::patch::KeptPatch;
use super::site::{SiteState, Wanted, new_site};
use crate::error::Error;
use crate::hit::{self, Site};

/// A function in which a probe is, or was, registered.
pub struct Function {
    /// The function's range of addresses.
    pub extent: Range<u64>,
    /// Index of the function's module.
    pub module: usize,
    /// The function's decoded parts: the main part first, then the cold parts.
    pub parts: Vec<FunctionMap>,
    /// The probed instructions of the function, by address.
    pub sites: BTreeMap<u64, SiteState>,
    /// The patches that are in the text.
    pub patches: Vec<KeptPatch>,
    /// All patches that were ever built.
    pub known: Known,
    /// Whether `parts` know the padding of the functions around this function.
    pub sees_neighbours: bool,
    /// The sites that the function had before its module was loaded again.
    pub retired: HashMap<u64, &'static Site>,
}

/// The part of a function that is kept when its module is unloaded.
#[derive(Default)]
pub struct Retired {
    /// All patches that were ever built, see [`Function::known`].
    pub known: Known,
    /// The function's sites, by address.
    pub sites: HashMap<u64, &'static Site>,
}

impl Function {
    /// The start of the instruction after the one at `address`.
    ///
    /// # Errors
    /// No instruction starts at `address`.
    pub fn next(&self, address: u64) -> Result<u64, Error> {
        let part = self.parts.iter().find(|part| {
            let start = part.start().0;
            (start..start.saturating_add(part.size())).contains(&address)
        });
        let part = part.ok_or(Error::NotCode(TargetAddress(address)))?;
        if part.undecodable().is_some_and(|at| at.0 <= address) {
            return Err(Error::NotCode(TargetAddress(address)));
        }
        let mut before = part.start();
        for (start, length) in part.instructions() {
            if start.0 == address {
                return Ok(address.saturating_add(length as u64));
            }
            if start.0 > address {
                return Err(Error::Boundary {
                    at: TargetAddress(address),
                    before,
                    after: start,
                });
            }
            before = start;
        }
        Err(Error::NotCode(TargetAddress(address)))
    }

    /// The site at an instruction; a new one if there is none.
    ///
    /// # Errors
    /// No instruction starts at `address`.
    pub fn site(&mut self, address: u64) -> Result<&mut SiteState, Error> {
        let next = self.next(address)?;
        let retired = self.retired.get(&address).filter(|site| site.next == next);
        let transfer = || {
            self.parts
                .iter()
                .find_map(|part| part.transfer_at(TargetAddress(address)))
        };
        let make = || SiteState::of(retired.copied().unwrap_or_else(|| new_site(address, next, transfer())));
        Ok(self.sites.entry(address).or_insert_with(make))
    }

    /// The points at which the handlers of a site fire.
    pub fn points(&self, state: &SiteState) -> Vec<Point> {
        let address = state.site.address;
        // An emulated call writes its return address where the frame of an entry would be, so such an entry is
        // treated like any other instruction. That must be so from the beginning: a detour may be hit after the first
        // post-handler was registered, and before the new detour exists.
        let position = if address == self.extent.start && state.site.emulation == 0 {
            Position::Entry
        } else {
            Position::Inside
        };
        let quick = state.quick().filter(|_| position == Position::Entry);
        let point = |condition, position, dispatch| Point {
            site: TargetAddress(address),
            condition,
            position,
            full_frame: false,
            fires: vec![Fire::Function {
                dispatch: TargetAddress(dispatch),
                resume: TargetAddress(hit::resume_address()),
                cookie: std::ptr::from_ref(state.site) as u64,
                quick,
            }],
        };
        let Wanted { behind, .. } = state.wanted();
        let mut points = vec![point(FireCondition::Always, position, state.dispatch())];
        if behind {
            points.push(point(
                FireCondition::Behind,
                Position::Inside,
                hit::dispatch_behind_address(),
            ));
        }
        points
    }

    /// The tactic of the patch that serves an address.
    pub fn tactic_at(&self, address: u64) -> Option<Tactic> {
        let serves = |patch: &&KeptPatch| {
            let mut displaced = patch.run.instructions.iter();
            displaced.any(|displaced| displaced.address.0 == address && !displaced.points.is_empty())
        };
        self.patches.iter().find(serves).map(|patch| patch.run.tactic)
    }
}
