//! Plans of code that lies elsewhere now: the same file, mapped at another address. Bytes and offsets stay the same.

use std::ops::Range;

use super::guest::Guest;
use super::run::{Displaced, RunPlan};
use super::springboard::Springboard;
use crate::{Point, TargetAddress};

/// The distance from the place for which a plan was made to the place where its code lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shift {
    from: TargetAddress,
    to: TargetAddress,
}

impl Shift {
    /// Code that lay at `from` lies at `to`.
    pub fn new(from: TargetAddress, to: TargetAddress) -> Shift {
        Shift { from, to }
    }

    /// Where the code of an address lies now.
    pub fn address(self, address: TargetAddress) -> TargetAddress {
        TargetAddress(address.0.wrapping_sub(self.from.0).wrapping_add(self.to.0))
    }

    /// The range from which the moved code reaches what the code reached from `range`. It ends where the address space
    /// does.
    pub(crate) fn reach(self, range: &Range<TargetAddress>) -> Range<TargetAddress> {
        let bound = |TargetAddress(address)| {
            let moved = i128::from(address) - i128::from(self.from.0) + i128::from(self.to.0);
            TargetAddress(moved.clamp(0, i128::from(u64::MAX)) as u64)
        };
        bound(range.start)..bound(range.end)
    }

    fn addresses(self, addresses: &[TargetAddress]) -> Vec<TargetAddress> {
        addresses.iter().map(|address| self.address(*address)).collect()
    }
}

impl RunPlan {
    /// The plan for the same code at another address.
    pub(crate) fn moved(&self, shift: Shift) -> RunPlan {
        let ranges = self.inside.iter();
        RunPlan {
            start: shift.address(self.start),
            instructions: self
                .instructions
                .iter()
                .map(|displaced| displaced.moved(shift))
                .collect(),
            springboards: self.springboards.iter().map(|place| place.moved(shift)).collect(),
            successor: self.successor.map(|address| shift.address(address)),
            guest: self.guest.map(|guest| Guest {
                start: shift.address(guest.start),
                jump: shift.address(guest.jump),
                ..guest
            }),
            padding_boundaries: shift.addresses(&self.padding_boundaries),
            reach: shift.reach(&self.reach),
            inside: ranges
                .map(|range| shift.address(range.start)..shift.address(range.end))
                .collect(),
            alternative: self.alternative.as_ref().map(|run| Box::new(run.moved(shift))),
            entered: shift.addresses(&self.entered),
            original: self.original.clone(),
            constraint: self.constraint,
            tactic: self.tactic,
            kept: self.kept,
            length: self.length,
            detour_length: self.detour_length,
            obstacle: self.obstacle,
        }
    }
}

impl Displaced {
    fn moved(&self, shift: Shift) -> Displaced {
        let points = self.points.iter().map(|point| Point {
            site: shift.address(point.site),
            ..point.clone()
        });
        Displaced {
            address: shift.address(self.address),
            bytes: self.bytes.clone(),
            points: points.collect(),
        }
    }
}

impl Springboard {
    fn moved(&self, shift: Shift) -> Springboard {
        Springboard {
            start: shift.address(self.start),
            jump: shift.address(self.jump),
            original: self.original.clone(),
            constraint: self.constraint,
            nops: shift.addresses(&self.nops),
            behind: shift.address(self.behind),
            host: self.host.map(|host| shift.address(host)),
        }
    }
}
