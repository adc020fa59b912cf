//! Springboards: the targets of an `evict`'s short jump.
//!
//! ```text
//!   48 83 ec 08     sub rsp, 8     eb d       jmp springboard       (ec, 08: as before, not needed)
//!   e8 ..           call x         e8 ..      stays in place, as does the prediction of its return
//!   ...
//!   c3              ret
//!   0f 1f 80 ..     nop (7 bytes)  cc         an arrival here goes on after the nops
//!                                  e9 ..      jmp detour
//! ```
//!
//! A springboard lies in padding, from 126 bytes before the site to 129 after it. None of its bytes may be executed in
//! place of an instruction that was there before (invariant I1):
//!
//! - its jump never begins at the start of a nop: a thread that comes by an unknown branch to the nop would
//!   count as a hit;
//! - a nop that begins before it, and into which it reaches, gets an `int3` for its first byte;
//! - a nop that begins in it begins with a trapping byte, by choice of where the detour lies ([`JumpConstraint`]).
//!
//! Both traps lead after the padding nops that are touched. Where the run's second byte is a boundary, the distance to
//! the springboard is a trapping byte as well.
//!
//! Padding is scarce, and several functions may need the same bytes. So a plan carries all springboards that it could
//! use, and [`assign`] gives each plan one of its own. Runs that reach into padding have precedence.

use std::ops::Range;

use super::shape::{JUMP, SHORT_JUMP};
use crate::function::Padding;
use crate::order::sort_by_numbers;
use crate::{JumpConstraint, TargetAddress, is_trapping_byte};

/// The longest patch: what `struct np_site` of the agent's contract holds.
pub(super) const LONGEST: u64 = 16;
/// The largest number of springboards that a plan carries.
const CANDIDATES_MAX: usize = 16;

/// A jump to a detour, in padding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Springboard {
    /// The address of the first byte that is written.
    pub start: TargetAddress,
    /// The address of the jump: `start`, or inside of the nop that begins at `start`.
    pub jump: TargetAddress,
    /// The padding that the springboard replaces, from `start` to the jump's end.
    pub original: Vec<u8>,
    /// Which bytes of the jump must be trapping bytes.
    pub constraint: JumpConstraint,
    /// The starts of the padding nops that the springboard overwrites.
    pub nops: Vec<TargetAddress>,
    /// The address at which a thread continues that arrives at one of these nops.
    pub behind: TargetAddress,
    /// For a springboard in the rear of a displaced instruction instead of padding: the start of the run to which
    /// that instruction belongs as its last ([`crate::RunPlan::guest`]). The patch of that run contains the
    /// springboard's bytes.
    pub host: Option<TargetAddress>,
}

impl Springboard {
    /// The text that the springboard needs for itself.
    pub fn range(&self) -> Range<TargetAddress> {
        self.start..TargetAddress(self.jump.0.saturating_add(u64::from(JUMP)))
    }

    /// The displacement of a short jump at `site`, if it reaches the springboard.
    pub fn short_displacement(&self, site: TargetAddress) -> Option<i8> {
        let behind = site.checked_add(u64::from(SHORT_JUMP))?;
        i8::try_from(self.jump.distance_from(behind)?).ok()
    }
}

/// All springboards for a short jump at `site`, the best first. `boundary`: the jump's second byte must trap.
pub(super) fn candidates(site: TargetAddress, boundary: bool, padding: &[Padding]) -> Vec<Springboard> {
    let reaches = |springboard: &Springboard| {
        let displacement = springboard.short_displacement(site);
        displacement.is_some_and(|byte| !boundary || is_trapping_byte(byte as u8))
    };
    let lowest = TargetAddress(site.0.saturating_sub(126));
    let highest = TargetAddress(site.0.saturating_add(129 + u64::from(JUMP)));
    let first = padding.partition_point(|padding| padding.start.0 + 4096 < lowest.0);
    let near = padding.get(first..).unwrap_or_default().iter();
    let near = near
        .take_while(|padding| padding.start < highest)
        .filter(|padding| padding.end() > lowest);
    let all = near.flat_map(|padding| {
        places(padding)
            .filter(reaches)
            .map(|place| (place.start < kept_free(padding), place))
    });
    let mut all: Vec<(bool, Springboard)> = all.collect();
    let distance = |springboard: &Springboard| springboard.jump.0.abs_diff(site.0);
    sort_by_numbers(&mut all, |(in_the_way, springboard)| {
        let rank = u64::from(*in_the_way) << 32 | u64::from(springboard.constraint.rank());
        (rank, distance(springboard))
    });
    // First come springboards that do not overlap a better one. A springboard that overlaps a better one helps only if
    // the better one is taken.
    let mut disjoint: Vec<Springboard> = Vec::new();
    let overlaps = |kept: &[Springboard], range: &Range<TargetAddress>| {
        let mut kept = kept.iter().map(Springboard::range);
        kept.any(|kept| kept.start < range.end && range.start < kept.end)
    };
    let mut others = Vec::new();
    for (_, springboard) in all {
        if disjoint.len() >= CANDIDATES_MAX || overlaps(&disjoint, &springboard.range()) {
            others.push(springboard);
        } else {
            disjoint.push(springboard);
        }
    }
    disjoint.extend(others);
    disjoint.truncate(CANDIDATES_MAX);
    disjoint
}

/// The address after the first four bytes of the padding. A `ret` before the padding needs these for its jump: if a
/// branch leads to the `ret`, no other tactic fits.
fn kept_free(padding: &Padding) -> TargetAddress {
    TargetAddress(padding.start.0.saturating_add(u64::from(JUMP) - 1))
}

/// Every place for a springboard in some padding. Its jump never begins at the first byte: a call before the padding
/// that never returns leaves that address on the stack. The search for threads on springboards would then find such a
/// thread by mistake.
fn places(padding: &Padding) -> impl Iterator<Item = Springboard> + '_ {
    let start = padding.start.0;
    let last = padding.bytes.len().saturating_sub(JUMP as usize);
    (1..=last as u64).filter_map(move |offset| at(padding, TargetAddress(start + offset)))
}

fn at(padding: &Padding, jump: TargetAddress) -> Option<Springboard> {
    let end = jump.checked_add(u64::from(JUMP))?;
    let touched = |(nop, length): &&(TargetAddress, usize)| *nop < end && nop.0 + *length as u64 > jump.0;
    let nops: Vec<(TargetAddress, usize)> = padding.nops.iter().filter(touched).copied().collect();
    if nops.iter().any(|(nop, _)| *nop == jump) {
        return None;
    }
    let start = nops.first().map_or(jump, |(nop, _)| jump.min(*nop));
    if end.0 - start.0 > LONGEST {
        return None;
    }
    let inside = nops.iter().filter_map(|(nop, _)| nop.offset_from(jump));
    let constraint = inside.fold(JumpConstraint::FREE, |constraint, offset| {
        constraint.with_boundary_at(offset as usize)
    });
    let behind = nops
        .last()
        .map_or(end, |(nop, length)| TargetAddress(nop.0 + *length as u64));
    let bytes = (start.0 - padding.start.0) as usize..(end.0 - padding.start.0) as usize;
    Some(Springboard {
        start,
        jump,
        original: padding.bytes.get(bytes)?.to_vec(),
        constraint,
        nops: nops.into_iter().map(|(nop, _)| nop).collect(),
        behind,
        host: None,
    })
}
