//! Probes where another tracer has a patch already.
//!
//! ```text
//!   before     the first tracer's patch          the second one's, stacked on it
//!   f: push    f: e9 .. .. .. ..  jmp detour 1   f: e9 .. .. .. ..  jmp detour 2
//!      mov                                                               fires
//!                                                                        jmp detour 1
//! ```
//!
//! The first tracer's jump is an instruction like any other: the second one displaces it. Its detour fires, and ends
//! with the jump. The bytes of the new jump obey the rules of the old one ([`JumpConstraint`]). Where the old one has a
//! byte that traps, because an instruction of the program used to start there, the new one has such a byte, too. A
//! thread that meets it is sent on by the first tracer's tables. Where the old one shares a byte with the program, the
//! new one has the same byte.
//!
//! Where the first byte is not that of a five-byte jump (a trap, a short jump), or no detour can be reached, the second
//! tracer traps there, and its detour, too, ends with a jump to the first one's.
//!
//! Other sites inside of a patch have no place in the text: their instructions are in the first tracer's detour. They
//! are trapped there ([`Occupied::homes`]).

use std::borrow::Cow;

use nanoprobe_patch::{
    CodeView, FireCondition, FunctionExtent, FunctionPlan, JumpConstraint, PlanOptions, Point, RunPlan, Tactic,
    TargetAddress, analyze, is_trapping_byte, plan,
};

use crate::occupied::{JUMP_BYTES, Occupant, Occupied, jump_to};

/// The points of a part of a function.
pub(super) struct Sorted<'a> {
    /// Those in the program's own text.
    pub own: Cow<'a, [Point]>,
    /// The runs at jumps of other tracers.
    pub stacked: Vec<RunPlan>,
    /// The sites without a place.
    pub refused: Vec<TargetAddress>,
}

/// Sorts points by what is in the text at their sites.
pub(super) fn sorted<'a>(points: &'a [Point], occupied: &Occupied, force: Option<Tactic>) -> Sorted<'a> {
    let mut sorted = Sorted {
        own: Cow::Borrowed(points),
        stacked: Vec::new(),
        refused: Vec::new(),
    };
    if occupied.is_empty() || points.iter().all(|point| occupied.at(point.site).is_none()) {
        return sorted;
    }
    let (own, others): (Vec<Point>, Vec<Point>) = points
        .iter()
        .cloned()
        .partition(|point| occupied.at(point.site).is_none());
    sorted.own = Cow::Owned(own);
    let mut sites: Vec<TargetAddress> = others.iter().map(|point| point.site).collect();
    sites.sort_unstable();
    sites.dedup();
    for site in sites {
        let here: Vec<Point> = others.iter().filter(|point| point.site == site).cloned().collect();
        match occupied
            .at(site)
            .and_then(|occupant| stacked(&here, site, &occupant, force))
        {
            Some(run) => sorted.stacked.push(run),
            None => sorted.refused.push(site),
        }
    }
    sorted
}

/// The run of these points; `None`: they do not fit there.
fn stacked(points: &[Point], site: TargetAddress, occupant: &Occupant, force: Option<Tactic>) -> Option<RunPlan> {
    let is_plain = points.iter().all(|point| point.condition == FireCondition::Always);
    match occupant {
        Occupant::Jump { jump, .. } if is_plain && force == Some(Tactic::Trap) => trap(points, site, jump),
        Occupant::Jump { jump, replaced } if is_plain => {
            let mut run = planned(points, site, jump, Tactic::Jump)?;
            run.constraint = constraint(jump, replaced);
            Some(run)
        }
        Occupant::Other { first, detour } if is_plain => {
            let mut run = trap(points, site, &jump_to(site, (*detour)?)?)?;
            run.original = vec![*first];
            Some(run)
        }
        // Of the displaced instruction itself, nothing is known there.
        Occupant::Jump { .. } | Occupant::Other { .. } => None,
        Occupant::Displaced { home } => {
            let home = home.as_ref()?;
            let moved = |point: &Point| Point {
                site: home.address,
                ..point.clone()
            };
            let points: Vec<Point> = points.iter().map(moved).collect();
            let mut run = trap(&points, home.address, &home.code)?;
            run.original = vec![home.first];
            Some(run)
        }
    }
}

/// A trap in the place of the first byte. The other bytes may belong to instructions of the program.
fn trap(points: &[Point], site: TargetAddress, code: &[u8]) -> Option<RunPlan> {
    let mut run = planned(points, site, code, Tactic::Trap)?;
    run.original.truncate(1);
    Some(run)
}

/// The run of points at the first instruction of this code.
fn planned(points: &[Point], site: TargetAddress, code: &[u8], tactic: Tactic) -> Option<RunPlan> {
    let extent = |size: usize| FunctionExtent {
        start: site,
        size: size as u64,
        fragments: Vec::new(),
    };
    let all = CodeView {
        start: site,
        bytes: code,
    };
    let (_, length) = analyze(&all, &extent(code.len())).instructions().next()?;
    let code = CodeView {
        start: site,
        bytes: code.get(..length)?,
    };
    let options = PlanOptions {
        force: Some(tactic),
        ..PlanOptions::default()
    };
    let mut runs = plan(&analyze(&code, &extent(length)), points, &options).runs;
    runs.pop().filter(|_| runs.is_empty())
}

/// What the bytes of the new jump must be.
fn constraint(jump: &[u8; JUMP_BYTES], replaced: &[u8; JUMP_BYTES]) -> JumpConstraint {
    let bytes = jump.iter().zip(replaced).enumerate().skip(1);
    bytes.fold(JumpConstraint::FREE, |constraint, (offset, (byte, replaced))| {
        if byte == replaced {
            constraint.with_punned(offset, *byte)
        } else if is_trapping_byte(*byte) {
            constraint.with_boundary_at(offset)
        } else {
            constraint
        }
    })
}

/// Replaces runs that reach into another tracer's patch by smaller ones.
pub(super) fn keep_clear(plan: &mut FunctionPlan, occupied: &Occupied) {
    if occupied.is_empty() {
        return;
    }
    let touches = |run: &RunPlan| {
        let end = run.end().0.max(run.start.0.saturating_add(run.original.len() as u64));
        occupied.touches(&(run.start.0..end))
    };
    let mut runs = std::mem::take(&mut plan.runs);
    while let Some(run) = runs.pop() {
        // A trap changes one byte, in the program's own text.
        if run.tactic == Tactic::Trap || !touches(&run) {
            plan.runs.push(run);
            continue;
        }
        let fallback = run.fallback();
        runs.extend(fallback.runs);
        plan.refusals.extend(fallback.refusals);
    }
}

#[cfg(test)]
mod tests {
    use nanoprobe_patch::{Fire, NearSpace, Position, Runtime, ThreadKey, build};

    use super::*;
    use crate::occupied::Home;

    fn point(site: u64, condition: FireCondition) -> Point {
        Point {
            site: TargetAddress(site),
            condition,
            position: Position::Entry,
            full_frame: false,
            fires: vec![Fire::Count { context_offset: 8 }],
        }
    }

    #[test]
    fn a_stacked_jump_obeys_the_rules_of_the_jump_below() {
        // The second byte traps, the last one is the program's.
        let occupant = Occupant::Jump {
            jump: [0xe9, 0x10, 0x06, 0x20, 0xff],
            replaced: [0x55, 0x48, 0x89, 0xe5, 0xff],
        };
        let site = TargetAddress(0x5000_0000);
        let run = stacked(&[point(site.0, FireCondition::Always)], site, &occupant, None).unwrap();
        assert_eq!((run.start, run.length, run.tactic), (site, JUMP_BYTES, Tactic::Jump));
        assert_eq!(run.original, [0xe9, 0x10, 0x06, 0x20, 0xff]);
        let mut near = NearSpace::new(std::iter::once(0x1000_0000..0x9000_0000).collect(), 4096);
        let detour = near.place(&run, run.detour_length).unwrap();
        let displacement = detour.0.wrapping_sub(site.0 + 5) as u32;
        let [_, second, _, last] = displacement.to_le_bytes();
        assert!(is_trapping_byte(second), "{displacement:#x}");
        assert_eq!(last, 0xff);
        assert!(stacked(&[point(site.0, FireCondition::IfTaken)], site, &occupant, None).is_none());
        let trap = run.fallback().runs.pop().unwrap();
        assert_eq!(
            (trap.tactic, trap.original.as_slice()),
            (Tactic::Trap, [0xe9].as_slice())
        );
        assert!(
            stacked(
                &[point(site.0, FireCondition::Always)],
                site,
                &Occupant::Displaced { home: None },
                None
            )
            .is_none()
        );
    }

    /// The trap below stays: the second tracer is asked first, and leads to the first one's detour.
    #[test]
    fn over_a_trap_nothing_changes_in_the_text() {
        let site = TargetAddress(0x5000_0000);
        let occupant = Occupant::Other {
            first: 0xcc,
            detour: Some(TargetAddress(0x5200_0000)),
        };
        let run = stacked(&[point(site.0, FireCondition::Always)], site, &occupant, None).unwrap();
        let runtime = Runtime {
            enter: TargetAddress(0x4000_0000),
            table: TargetAddress(0x4100_0000),
            thread_key: ThreadKey::TlsSelf,
            trap: None,
        };
        let built = build(&run, TargetAddress(0x5100_0000), &runtime).unwrap();
        assert_eq!(
            (built.original.as_slice(), built.patched.as_slice()),
            ([0xcc].as_slice(), [0xcc].as_slice())
        );
        assert!(built.moves.iter().any(|entry| entry.original == site));
    }

    #[test]
    fn a_displaced_instruction_is_trapped_where_it_is_now() {
        let (site, home) = (TargetAddress(0x5000_0003), TargetAddress(0x6000_0040));
        // ret, and the rest of the detour.
        let occupant = Occupant::Displaced {
            home: Some(Home {
                address: home,
                code: vec![0xc3, 0xe9, 0, 0, 0, 0],
                first: 0xc3,
                is_asked_before: false,
            }),
        };
        let run = stacked(&[point(site.0, FireCondition::Always)], site, &occupant, None).unwrap();
        assert_eq!(
            (run.start, run.tactic, run.original.as_slice()),
            (home, Tactic::Trap, [0xc3].as_slice())
        );
    }
}
