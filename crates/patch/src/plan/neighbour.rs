//! Neighbour eviction: a springboard in an instruction that is displaced.
//!
//! There may be no padding in reach, and the next instruction may not be displaceable either. But an instruction
//! nearby can be displaced, if it is long enough. It gets a jump of its own. Its bytes after that jump are no longer
//! executed, and no instruction starts there, so they can hold a springboard. Only our own short jump leads to it:
//!
//! ```text
//!   site   c3                   ret              eb 1c              jmp springboard (of this instruction and the next)
//!   ...
//!   N      48 b8 .. (10 bytes)  mov rax, imm64   e9 a0 a1 a2 a3     jmp detour of N
//!   N+5                                          e9 b0 b1 b2 b3     springboard: jmp detour of the site
//! ```
//!
//! An instruction of six to nine bytes has no room for two jumps. But the second jump may begin among the bytes of
//! the first, as a successor's jump does (`successor.rs`). The two displacements then share bytes:
//!
//! ```text
//!   N      48 8d 05 .. .. .. .. lea rax, [..]    e9 a0 |
//!   N+2                                             e9 b0 b1 b2 b3      the first jump's displacement is b1 b0 e9 a0
//! ```
//!
//! Any run will do whose last instruction has room at its end: the run of a site nearby, or a run of a single
//! instruction that is made for the purpose. The former costs nothing. With the latter, every thread that executes
//! the instruction pays for a jump. So this is the last tactic before a trap.
//!
//! # Why this is sound
//!
//! The host's patch, with the springboard in it, is one piece of text from the start of an instruction. It
//! keeps invariant I1 by itself: its start holds a jump, the other starts in its run trap, and the
//! springboard leaves the first byte of its last instruction alone. Where a known branch leads into the
//! middle of that instruction (around a prefix), there is no run. The short jump is a patch of its own, and
//! needs the host complete in the text: [`crate::transition`] writes all that lies inside of instructions
//! before the starts become live. The host must not go while a thread may be between the two jumps of the
//! guest, not even by the breakpoint protocol: [`crate::Built::carries`].

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::assign::Claims;
use super::displace::displace;
use super::guest::Guest;
use super::planner::Planner;
use super::run::{FunctionPlan, RunPlan};
use super::shape::{BranchTargets, JUMP, SHORT_JUMP, Shape, is_avoided, shape_at};
use super::sites::Site;
use super::springboard::{LONGEST, Springboard};
use crate::order::{gather, sort_by_numbers};
use crate::{JumpConstraint, Refusal, Tactic, TargetAddress, is_trapping_byte};

/// The offsets, counted from its end, that a short jump reaches.
const REACH: Range<i64> = -128..128;

impl RunPlan {
    /// The displaced bytes from the run's start to an address.
    pub(crate) fn bytes_up_to(&self, end: TargetAddress) -> Vec<u8> {
        let length = end.offset_from(self.start).unwrap_or(0) as usize;
        let bytes = self.instructions.iter().flat_map(|displaced| &displaced.bytes);
        bytes.take(length).copied().collect()
    }

    /// The run's constraint if the bytes of its jump from `jump` on belong to a springboard.
    pub(crate) fn constraint_over(&self, jump: TargetAddress) -> JumpConstraint {
        match jump.offset_from(self.start) {
            Some(offset @ 1..=4) => self.constraint.over(offset as usize, JumpConstraint::FREE),
            _ => self.constraint,
        }
    }

    /// The addresses at which another run's springboard may begin: in the last instruction, after its first byte. Empty
    /// if this run cannot carry a springboard.
    fn rear(&self) -> Range<u64> {
        let is_jump = matches!(self.tactic, Tactic::Jump | Tactic::Run);
        let bytes: usize = self.instructions.iter().map(|displaced| displaced.bytes.len()).sum();
        let Some(last) = self.instructions.last() else {
            return 0..0;
        };
        let jump = u64::from(JUMP);
        // Padding must not belong to the run.
        if !is_jump || self.guest.is_some() || self.kept != 0 || bytes != self.length {
            return 0..0;
        }
        let end = (self.end().0 + 1).min(self.start.0 + LONGEST + 1).saturating_sub(jump);
        last.address.0 + 1..end
    }
}

/// A place for a springboard.
struct Place {
    jump: TargetAddress,
    host: Host,
}

#[derive(Clone, Copy)]
enum Host {
    /// The start of an existing run.
    Run(TargetAddress),
    /// The index of an instruction that no run displaces.
    Instruction(usize),
}

/// The text with the runs that are planned so far.
struct Text {
    /// The runs, by start.
    runs: BTreeMap<TargetAddress, RunPlan>,
    claims: Claims,
    /// The runs whose first bytes end another jump: these bytes cannot be changed.
    successors: BTreeSet<TargetAddress>,
}

impl Planner<'_> {
    /// Gives sites that would trap (or, if `evict` is forced, be refused) a short jump to a springboard in a displaced
    /// instruction, where possible.
    pub(super) fn evict_neighbours(&self, sites: &[Site], plan: &mut FunctionPlan) {
        let map = self.map;
        if !map.evicts_neighbours() || !matches!(self.force, None | Some(Tactic::Evict)) {
            return;
        }
        let refused: BTreeSet<TargetAddress> = gather(plan.refusals.iter().filter_map(unavailable));
        let (trapped, runs): (Vec<RunPlan>, Vec<RunPlan>) = std::mem::take(&mut plan.runs)
            .into_iter()
            .partition(|run| run.tactic == Tactic::Trap);
        let mut traps: BTreeMap<TargetAddress, RunPlan> = gather(trapped.into_iter().map(|run| (run.start, run)));
        let address_of = |site: &Site| map.code().get(site.index).map(|code| map.address(code.offset));
        let unserved = sites.iter().filter_map(|site| {
            let address = address_of(site)?;
            (traps.contains_key(&address) || refused.contains(&address)).then_some((site.index, site))
        });
        let mut unserved: BTreeMap<usize, &Site> = gather(unserved);
        let mut text = Text::of(runs);
        let waiting: Vec<usize> = unserved.keys().copied().collect();
        for index in waiting {
            let Some((run, place)) = self.guest(index, &unserved, &text) else {
                continue;
            };
            for served in &run.instructions {
                traps.remove(&served.address);
                plan.refusals
                    .retain(|refused| unavailable(refused) != Some(served.address));
                unserved.retain(|_, site| address_of(site) != Some(served.address));
            }
            text.add(self, run, &place);
        }
        plan.runs.extend(text.runs.into_values());
        plan.runs.extend(traps.into_values());
    }

    /// A run over a site that has no run yet, with its springboard in a neighbour.
    fn guest(&self, index: usize, unserved: &BTreeMap<usize, &Site>, text: &Text) -> Option<(RunPlan, Place)> {
        let map = self.map;
        let site_offset = unserved.get(&index).and_then(|site| map.code().get(site.index))?.offset;
        for first in (0..=index).rev() {
            let start = map.code().get(first)?.offset;
            let is_shared = first == 0 && map.is_successor();
            if start + JUMP <= site_offset || is_shared {
                return None;
            }
            let Some(shape) = shape_at(map, first, index, SHORT_JUMP, BranchTargets::Refuse) else {
                continue;
            };
            let own = map.address(start)..map.address(shape.claimed_end());
            if !text.claims.is_free(&own) || map.is_taken(&own) {
                continue;
            }
            let sites: Vec<&Site> = unserved.range(first..shape.behind).map(|(_, site)| *site).collect();
            if let Some(found) = self.guest_of(&shape, &own, &sites, unserved, text) {
                return Some(found);
            }
        }
        None
    }

    fn guest_of(
        &self,
        shape: &Shape,
        own: &Range<TargetAddress>,
        sites: &[&Site],
        unserved: &BTreeMap<usize, &Site>,
        text: &Text,
    ) -> Option<(RunPlan, Place)> {
        let boundary = shape.constraint.has_boundary_at(1);
        let reaches = |jump: u64| {
            let distance = i64::try_from(jump)
                .ok()?
                .checked_sub(own.start.0 as i64 + i64::from(SHORT_JUMP))?;
            let byte = REACH.contains(&distance).then_some(distance as u8)?;
            (!boundary || is_trapping_byte(byte)).then_some(())
        };
        let mut places: Vec<(u32, u64, Place)> = Vec::new();
        let mut add = |rear: Range<u64>, start: u64, host: Host| {
            for jump in rear.filter(|jump| reaches(*jump).is_some()) {
                let rank = rank(jump - start) + if matches!(host, Host::Run(_)) { 0 } else { 10 };
                let jump = TargetAddress(jump);
                places.push((rank, jump.0.abs_diff(own.start.0), Place { jump, host }));
            }
        };
        let low = TargetAddress(own.start.0.saturating_sub(128 + LONGEST));
        let high = TargetAddress(own.start.0.saturating_add(130));
        for (start, run) in text.runs.range(low..high) {
            if !text.successors.contains(start) && !(map_begins_shared(self, *start)) {
                add(run.rear(), start.0, Host::Run(*start));
            }
        }
        for index in self.instructions_within(&(low..high)) {
            let rear = self
                .spare_instruction(index, own, unserved, text)
                .map(|run| (run.rear(), run.start));
            if let Some((rear, start)) = rear {
                add(rear, start.0, Host::Instruction(index));
            }
        }
        sort_by_numbers(&mut places, |(rank, distance, _)| (u64::from(*rank), *distance));
        places.into_iter().find_map(|(_, _, place)| {
            let made;
            let host = match place.host {
                Host::Run(start) => text.runs.get(&start)?,
                Host::Instruction(index) => {
                    made = self.made_for_another(index)?;
                    &made
                }
            };
            if !self.has_place(host, host.constraint_over(place.jump)) {
                return None;
            }
            let springboard = springboard_in(host, place.jump);
            let run = displace(self.map, shape, sites, vec![springboard]).ok()?;
            Some((run, place))
        })
    }

    fn instructions_within(&self, range: &Range<TargetAddress>) -> Range<usize> {
        let code = self.map.code();
        let index = |address: TargetAddress| code.partition_point(|code| self.map.address(code.offset) < address);
        index(range.start)..index(range.end)
    }

    /// A run of a single instruction, which may be displaced to make room for a springboard.
    fn spare_instruction(
        &self,
        index: usize,
        own: &Range<TargetAddress>,
        unserved: &BTreeMap<usize, &Site>,
        text: &Text,
    ) -> Option<RunPlan> {
        let map = self.map;
        let instruction = *map.code().get(index)?;
        let is_long = u32::from(instruction.length) > JUMP;
        if !is_long || unserved.contains_key(&index) || map_begins_shared(self, map.address(instruction.offset)) {
            return None;
        }
        let range = map.address(instruction.offset)..map.address(instruction.end());
        let apart = range.end <= own.start || own.end <= range.start;
        if !apart || !text.claims.is_free(&range) || map.is_taken(&range) {
            return None;
        }
        self.made_for_another(index)
    }

    /// The run of a single instruction without fires.
    fn made_for_another(&self, index: usize) -> Option<RunPlan> {
        let map = self.map;
        let instruction = *map.code().get(index)?;
        let is_code = instruction.offset < map.code_size() && !instruction.padding;
        if !is_code || is_avoided(instruction.kind) {
            return None;
        }
        let shape = shape_at(map, index, index, JUMP, BranchTargets::Refuse)?;
        let run = displace(map, &shape, &[], Vec::new()).ok()?;
        (run.tactic == Tactic::Jump).then_some(run)
    }
}

/// Whether the jump of the function before this one ends with the bytes of a run that starts here.
fn map_begins_shared(planner: &Planner<'_>, start: TargetAddress) -> bool {
    planner.map.is_successor() && start == planner.map.start()
}

/// Rates a springboard that begins this far after its host's start. Best is a springboard that shares no bytes with
/// the host's jump; next, one that leaves many places for both detours. Last is one that leaves a window of 16 MiB
/// for one detour, or one place in every 16 MiB.
fn rank(offset: u64) -> u32 {
    match offset {
        3 => 1,
        2 => 2,
        4 => 3,
        1 => 4,
        _ => 0,
    }
}

fn springboard_in(host: &RunPlan, jump: TargetAddress) -> Springboard {
    let end = TargetAddress(jump.0.saturating_add(u64::from(JUMP)));
    let in_front = jump.offset_from(host.start).unwrap_or(0) as usize;
    Springboard {
        start: jump,
        jump,
        original: host.bytes_up_to(end).split_off(in_front.min(host.length)),
        constraint: JumpConstraint::FREE,
        nops: Vec::new(),
        behind: end,
        host: Some(host.start),
    }
}

fn unavailable((site, refusal): &(TargetAddress, Refusal)) -> Option<TargetAddress> {
    matches!(refusal, Refusal::TacticUnavailable { .. }).then_some(*site)
}

impl Text {
    fn of(runs: Vec<RunPlan>) -> Text {
        let mut claims = Claims::default();
        for run in &runs {
            claims.add(run.start..run.claimed_end());
            run.springboard()
                .into_iter()
                .for_each(|springboard| claims.add(springboard.range()));
        }
        Text {
            successors: gather(runs.iter().filter_map(|run| run.successor)),
            runs: gather(runs.into_iter().map(|run| (run.start, run))),
            claims,
        }
    }

    /// Adds a run and its host.
    fn add(&mut self, planner: &Planner<'_>, run: RunPlan, place: &Place) {
        let host = match place.host {
            Host::Run(start) => self.runs.remove(&start),
            Host::Instruction(index) => planner.made_for_another(index),
        };
        if let Some(mut host) = host {
            host.guest = Some(Guest {
                start: run.start,
                jump: place.jump,
                detour: None,
            });
            self.claims.add(host.start..host.claimed_end());
            self.runs.insert(host.start, host);
        }
        self.claims.add(run.start..run.claimed_end());
        self.runs.insert(run.start, run);
    }
}
