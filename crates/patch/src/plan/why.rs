//! Why a site has a trap: what would have to change so that a jump fits.
//!
//! A site traps if every tactic fails, and each tactic fails for a reason of its own. To name the first reason that
//! was met would be a guess. So this site alone is planned again with one thing changed. The first change that makes
//! room is the reason:
//!
//! ```text
//!   no other sites             the patches around it leave no room
//!   no springboards of others  all padding in reach is taken
//!   memory everywhere          no free memory lies where its jump can lead
//!   no known branches          a branch leads to where its jump would lie
//!   padding after              the function ends where its jump would lie
//! ```
//!
//! If no single change makes room, all of them together may. If not even all changes help, the instruction cannot be
//! moved together with its neighbours. An obstacle that appears when several plans are combined
//! ([`crate::reconcile`], [`crate::NearSpace`]) is written into [`RunPlan::obstacle`] there.

use super::obstacle::Obstacle;
use super::pass::plan;
use super::run::{PlanOptions, RunPlan};
use crate::{Fire, FireCondition, FunctionMap, Point, Position, Tactic, TargetAddress};

/// The reason why a site has no jump. The site must be one to which [`crate::plan`] gave a trap, with the same map.
pub fn why_trap(map: &FunctionMap, site: TargetAddress) -> Obstacle {
    why_not(map, site, &PlanOptions::default())
}

/// The reason why a forced tactic does not fit at a site: for sites that [`crate::plan`] refused because of the forced
/// tactic.
pub fn why_not(map: &FunctionMap, site: TargetAddress, options: &PlanOptions) -> Obstacle {
    let has_jump = |map: &FunctionMap, site: TargetAddress| has_patch(map, site, options);
    if has_jump(map, site) {
        return Obstacle::Neighbours;
    }
    type Change = fn(&mut FunctionMap);
    let changes: [(Obstacle, Change); 4] = [
        (Obstacle::Springboards, FunctionMap::forget_taken),
        (Obstacle::Address, FunctionMap::forget_near_memory),
        (Obstacle::Branch, FunctionMap::forget_branches),
        (Obstacle::End, FunctionMap::pad),
    ];
    let single = changes.iter().find(|(_, change)| {
        let mut changed = map.clone();
        change(&mut changed);
        has_jump(&changed, site)
    });
    if let Some((obstacle, _)) = single {
        return *obstacle;
    }
    let mut changed = map.clone();
    changes.iter().for_each(|(_, change)| change(&mut changed));
    if has_jump(&changed, site) {
        Obstacle::Several
    } else if options.force.is_some() && has_patch(&changed, site, &PlanOptions::default()) {
        Obstacle::Length
    } else {
        Obstacle::Unmovable
    }
}

/// Whether a site that is alone in its function gets a jump, or the forced tactic.
fn has_patch(map: &FunctionMap, site: TargetAddress, options: &PlanOptions) -> bool {
    let planned = plan(map, &[point_at(site)], options);
    let holds = |run: &RunPlan| (options.force.is_some() || run.tactic != Tactic::Trap) && !run.is_silent();
    planned.runs.iter().any(holds)
}

/// A point with something that fires at a site.
fn point_at(site: TargetAddress) -> Point {
    Point {
        site,
        condition: FireCondition::Always,
        position: Position::Inside,
        full_frame: false,
        fires: vec![Fire::Count { context_offset: 0 }],
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{CodeView, FunctionExtent, Refusal, analyze};

    const START: TargetAddress = TargetAddress(0x40_1000);

    /// A function of `size` bytes, with a branch to each of `targets`.
    fn map(bytes: &[u8], size: u64, targets: &[u64]) -> FunctionMap {
        let extent = FunctionExtent {
            start: START,
            size,
            fragments: Vec::new(),
        };
        let mut map = analyze(&CodeView { start: START, bytes }, &extent);
        map.add_branch_targets(targets.iter().map(|target| TargetAddress(START.0 + target)));
        map
    }

    /// push rax; pop rax; push rcx; pop rcx; nop; pop rdx; ret. A pun at the start would lead to an address below 0.
    const SHORT: [u8; 7] = [0x50, 0x58, 0x51, 0x59, 0x90, 0x5a, 0xc3];

    #[test]
    fn the_reason_is_what_would_make_room() {
        let nothing_free = |mut map: FunctionMap| {
            map.show_near_memory(Arc::new([]));
            map
        };
        assert_eq!(why_trap(&map(&SHORT, 7, &[]), START), Obstacle::Neighbours);
        assert_eq!(why_trap(&map(&SHORT, 7, &[1, 2, 3, 4, 5, 6]), START), Obstacle::Branch);
        // The same code, ending in a pun that leads to an address at which memory can be mapped.
        let punned = [&SHORT[..4], &[0x52, 0x5a, 0xc3]].concat();
        let entered = nothing_free(map(&punned, 7, &[1, 2, 3, 4, 5, 6]));
        assert_eq!(why_trap(&entered, START), Obstacle::Address);
        let short = [0x50, 0x58, 0xc3];
        assert_eq!(why_trap(&map(&short, 3, &[]), START), Obstacle::End);
        assert_eq!(
            why_trap(&nothing_free(map(&short, 3, &[1, 2])), START),
            Obstacle::Several
        );
        // A function that consists of one breakpoint cannot be patched.
        assert_eq!(why_trap(&map(&[0xcc], 1, &[]), START), Obstacle::Unmovable);
    }

    #[test]
    fn a_forced_tactic_has_its_own_reasons() {
        let why = |bytes: &[u8], targets: &[u64], tactic| {
            let size = bytes.len() as u64;
            let options = PlanOptions {
                force: Some(tactic),
                ..PlanOptions::default()
            };
            let map = map(bytes, size, targets);
            let planned = plan(&map, &[point_at(START)], &options);
            assert!(planned.runs.is_empty(), "{planned:?}");
            assert_eq!(planned.refusals.len(), 1);
            why_not(&map, START, &options)
        };
        // push rax; pop rax; mov eax, 1; ret
        let code = [0x50, 0x58, 0xb8, 1, 0, 0, 0, 0xc3];
        assert_eq!(why(&code, &[], Tactic::Jump), Obstacle::Length);
        assert_eq!(why(&code[2..], &[], Tactic::Run), Obstacle::Length);
        assert_eq!(why(&code, &[2], Tactic::Run), Obstacle::Branch);
        assert_eq!(why(&[0x50, 0x58, 0xc3], &[], Tactic::Run), Obstacle::End);
        let refusal = Refusal::TacticUnavailable {
            site: START,
            tactic: Tactic::Run,
            obstacle: Some(Obstacle::End),
        };
        let said = "the tactic `run` does not fit at 0x401000: the function ends where its jump would lie";
        assert_eq!(refusal.to_string(), said);
    }

    #[test]
    fn taken_springboards_are_a_reason() {
        // xor eax, eax; the target of a branch; ret; int3.
        let bytes = [&[0x31, 0xc0, 0x31, 0xc9, 0x31, 0xd2, 0xc3][..], &[0xcc; 12]].concat();
        let mut map = map(&bytes, 7, &[2]);
        map.show_near_memory(Arc::new([]));
        map.show_padding(map.padding());
        assert_eq!(why_trap(&map, START), Obstacle::Neighbours, "there is room for it now");
        map.show_taken([TargetAddress(START.0 + 7)..TargetAddress(START.0 + 19)]);
        assert_eq!(why_trap(&map, START), Obstacle::Springboards);
    }
}
