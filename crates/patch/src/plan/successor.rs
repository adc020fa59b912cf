//! Successor eviction: a jump whose last bytes are another jump's first ones.
//!
//! A pun's target is fixed by the bytes of the next instruction, and often no memory is free there. But if the next
//! instruction is displaced as well, a jump takes the place of its bytes. All bytes of that jump but the first can be
//! chosen:
//!
//! ```text
//!   start    c3              ret               e9 |            jmp detour of the ret:    displacement d2 d1 d0 e9
//!   start+1  31 c0           xor eax, eax         e9 d0 d1 d2 d3     jmp detour of the xor: displacement d3 d2 d1 d0
//!   start+3  0f b6 17        movzx edx, [rdi]        (d1: a trapping byte)
//! ```
//!
//! This helps where a branch leads to the instruction after a short one: the branch finds a whole jump there, as every
//! other thread does. The successor's run is planned like any other, with the points that it has or without any. If its
//! jump puns, or ends with a successor's jump in turn, those bytes matter, too. The detours of such a chain are placed
//! together (`near/chain.rs`).
//!
//! # Why this is sound
//!
//! In the text these are two patches, and each by itself keeps invariant I1. The starts of instructions within the
//! first patch trap, as in every run. The successor's start holds a jump, and the boundaries of the successor's run
//! trap. A thread that stands at the successor's start while the patch is written executes the successor's jump next.
//! So does a thread with a signal frame or a return address that points there. A thread that leaves the first detour
//! at its end comes to the successor's jump, and so to the successor's points.
//!
//! But a change of the successor's jump alone would tear the first jump. So the first jump must not be live while the
//! successor's patch comes, goes or changes. [`crate::transition`] keeps this order if it is given both patches: the
//! first jump becomes a trap before the successor's jump changes, and is written after it. A caller that takes
//! patches back must take both, or only the first ([`crate::Built::successor`]). The first patch consists of the
//! bytes before the successor, so taking it back alone changes nothing else.

use std::cell::Cell;
use std::collections::BTreeSet;

use super::planner::{Choice, Planner, Quality};
use super::shape::{JUMP, Shape, is_avoided};
use super::sites::Site;
use crate::function::{FunctionMap, Kind};
use crate::order::sort_by_number;
use crate::{RunPlan, Tactic};

/// The limit of runs that are tried for one site. There may be very many chains: for example, each of dozens of cases
/// of a switch may return in three bytes.
const TRIES_MAX: u32 = 64;

/// A run and its sites, as a member of a chain.
pub(super) struct Member {
    pub choice: Choice,
    pub sites: Vec<Site>,
}

impl Planner<'_> {
    /// A run over a site that is shorter than a jump, and the next runs, whose bytes end its jump; ascending. `rest`:
    /// the later sites, the next site last. The longer the run, the more of its jump's bytes are free.
    pub(super) fn choose_with_successor(&self, site: &Site, rest: &[Site], floor: u32) -> Option<Vec<Member>> {
        let map = self.map;
        if !map.evicts_successors() || self.force.is_some() {
            return None;
        }
        let code = map.code();
        let site_end = code.get(site.index)?.end();
        let firsts = (0..=site.index).rev().take_while(|first| {
            let start = code.get(*first).map_or(0, |first| first.offset);
            start >= floor && start + JUMP > site_end
        });
        let tries = Cell::new(TRIES_MAX);
        let mut shapes: Vec<Shape> = firsts.flat_map(|first| shorts_at(map, first, site.index)).collect();
        sort_by_number(&mut shapes, |shape| !u64::from(shape.length_from(map)));
        let chain = |shape: &Shape| self.chain(shape, std::slice::from_ref(site), rest, &tries);
        shapes.iter().find_map(chain)
    }

    fn chain(&self, shape: &Shape, sites: &[Site], rest: &[Site], tries: &Cell<u32>) -> Option<Vec<Member>> {
        let map = self.map;
        tries.set(tries.get().checked_sub(1)?);
        let first = self.member(Quality::OnSuccessor, shape, sites, rest)?;
        if shape.end >= map.code_size() {
            let start = map.address(shape.end);
            let begins = |next: &&FunctionMap| next.start() == start && next.starts_instruction(start);
            let planner = Planner {
                map: map.next().filter(begins)?,
                force: None,
                padding: &[],
                near: self.near,
                barred: BTreeSet::new(),
            };
            return planner.behind(first, 0, &[], &[], tries);
        }
        map.code().get(shape.behind).filter(|next| next.offset == shape.end)?;
        let rest = rest.get(..rest.len().checked_sub(first.choice.covered)?)?;
        match rest.split_last() {
            Some((site, rest)) if site.index == shape.behind => {
                self.behind(first, shape.behind, std::slice::from_ref(site), rest, tries)
            }
            _ => self.behind(first, shape.behind, &[], rest, tries),
        }
    }

    /// The chain of `first`, a run whose jump ends with the bytes of a second run, and of that second run. The second
    /// run starts at instruction `next` of this planner's function, which has the sites `own`; it may begin a chain
    /// itself.
    fn behind(
        &self,
        first: Member,
        next: usize,
        own: &[Site],
        rest: &[Site],
        tries: &Cell<u32>,
    ) -> Option<Vec<Member>> {
        let run = &first.choice.run;
        let fits = |second: &RunPlan| self.has_place(run, run.constraint.over(run.length, second.constraint));
        let shapes = self.shapes(next, next).into_iter();
        let jumps =
            shapes.filter(|(quality, shape)| shape.tactic() != Tactic::Evict && *quality < Quality::PartlyTrapping);
        for (quality, shape) in jumps {
            let second = self.member(quality, &shape, own, rest);
            if let Some(second) = second.filter(|second| fits(&second.choice.run)) {
                return Some(vec![first, second]);
            }
        }
        let shapes = shorts_at(self.map, next, next);
        let mut behind = shapes.iter().find_map(|shape| self.chain(shape, own, rest, tries))?;
        behind.insert(0, first);
        Some(behind)
    }

    fn member(&self, quality: Quality, shape: &Shape, sites: &[Site], rest: &[Site]) -> Option<Member> {
        let (run, covered) = self.cover(shape, sites, rest)?;
        let further = rest.iter().rev().take(covered);
        Some(Member {
            sites: sites.iter().chain(further).cloned().collect(),
            choice: Choice {
                quality,
                first: shape.first,
                run,
                covered,
            },
        })
    }
}

/// All runs of less than a jump's length that start with instruction `first` and contain instruction `site`, the
/// longest first. A run may include the padding after an unconditional transfer, so that its successor is code. Nops
/// are displaced like other instructions. `int3` and zeros after the function are never executed.
fn shorts_at(map: &FunctionMap, first: usize, site: usize) -> Vec<Shape> {
    let code = map.code();
    let mut found = Vec::new();
    let Some(start) = code.get(first).map(|instruction| instruction.offset) else {
        return found;
    };
    let mut shape = Shape::new(first, start, JUMP);
    shape.on_successor = true;
    let mut ended = false;
    let mut displaces_nops = false;
    while shape.end < start + JUMP - 1 {
        let next = code.get(shape.behind).filter(|next| next.offset == shape.end);
        let Some(instruction) = next.filter(|next| ended || next.offset < map.code_size()) else {
            let is_dead = (map.code_size()..map.usable()).contains(&shape.end)
                && !map.is_target_at(shape.end)
                && !map.is_restartable(&(shape.end..shape.end + 1));
            if !ended || displaces_nops || !is_dead {
                break;
            }
            shape.end += 1;
            found.push(shape.clone().all_displaced());
            continue;
        };
        let inner = instruction.offset != start;
        let targeted = inner && map.is_target_from_outside(instruction.offset, start);
        let is_padding = instruction.kind == Kind::Nop && !map.is_target_at(instruction.offset);
        let unmovable = map.is_fixed(*instruction);
        let unfit = unmovable || targeted || map.is_entered_inside(*instruction);
        if unfit || instruction.end() >= start + JUMP || ended && !is_padding {
            break;
        }
        if inner {
            shape.constraint = shape.constraint.with_boundary_at((instruction.offset - start) as usize);
        }
        displaces_nops |= ended;
        shape.avoided |= is_avoided(instruction.kind);
        shape.behind += 1;
        shape.end = instruction.end();
        if shape.behind > site {
            found.push(shape.clone().all_displaced());
        }
        if instruction.kind.is_last() && !instruction.kind.is_transfer() {
            break;
        }
        ended |= instruction.kind.is_transfer();
    }
    found.reverse();
    found
}
