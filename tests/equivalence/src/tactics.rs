//! The ways in which a sequence is patched: one row each.

use std::ops::Range;

use nanoprobe_patch::{
    Built, FunctionMap, NearSpace, Origin, PlanOptions, Point, Refusal, Runtime, Tactic, TargetAddress, TrapForm,
    build, plan,
};

/// A way to patch.
pub struct Row {
    pub name: &'static str,
    force: Option<Tactic>,
    /// The form of traps. A trap that this form does not fit is boosted.
    pub trap: Option<TrapForm>,
    /// No padding is shown: an `evict` has its springboard in a displaced instruction, if anywhere.
    pub without_padding: bool,
    /// Only one out of this many sequences is patched in this way: a single step takes as long as thousands of runs.
    pub once_in: usize,
}

const fn row(name: &'static str, force: Option<Tactic>) -> Row {
    Row {
        name,
        force,
        trap: None,
        without_padding: false,
        once_in: 1,
    }
}

const fn trap(name: &'static str, form: TrapForm, once_in: usize) -> Row {
    Row {
        name,
        force: Some(Tactic::Trap),
        trap: Some(form),
        without_padding: false,
        once_in,
    }
}

/// All ways. Without a forced tactic the planner chooses, and only unmovable instructions may be refused.
pub const ROWS: [Row; 9] = [
    row("chosen", None),
    row("jump", Some(Tactic::Jump)),
    row("run", Some(Tactic::Run)),
    row("pun", Some(Tactic::Pun)),
    row("evict", Some(Tactic::Evict)),
    Row {
        without_padding: true,
        ..row("neighbour", Some(Tactic::Evict))
    },
    trap("emulated", TrapForm::Emulate, 1),
    trap("boosted", TrapForm::Boost, 1),
    trap("stepped", TrapForm::Step, 8),
];

/// The bytes to write, and the tables that belong to them.
#[derive(Clone, Debug, Default)]
pub struct Patching {
    /// The address and the bytes of each write, in the order of the writes.
    pub writes: Vec<(u64, Vec<u8>)>,
    /// The destinations of traps.
    pub redirects: Vec<[u64; 2]>,
    /// See [`Built::origins`].
    pub origins: Vec<Origin>,
    /// The points that fire.
    pub points: Vec<Point>,
    /// Starts of displaced instructions other than the first of a run.
    pub boundaries: Vec<u64>,
    /// The ranges of the detours.
    pub detours: Vec<Range<TargetAddress>>,
    /// Why a point cannot be placed, other than because of a forced tactic that does not fit.
    pub refusals: Vec<(TargetAddress, Refusal)>,
    /// The number of traps of each form: emulated, boosted, stepped.
    pub forms: [u64; 3],
    /// The tactics of the runs.
    pub tactics: Vec<Tactic>,
}

impl Row {
    /// Patches for these points, as far as this way allows them.
    pub fn patch(&self, map: &FunctionMap, points: &[Point], holes: Vec<Range<u64>>, runtime: &Runtime) -> Patching {
        let options = PlanOptions {
            force: self.force,
            ..PlanOptions::default()
        };
        let plan = plan(map, points, &options);
        let mut space = NearSpace::new(holes, 4096);
        let placed = space.place_with_fallbacks(plan.runs, &options);
        let mut patching = Patching::default();
        let refusals = plan.refusals.into_iter().chain(placed.refusals);
        patching
            .refusals
            .extend(refusals.filter(|(_, refusal)| !matches!(refusal, Refusal::TacticUnavailable { .. })));
        let mut text = Vec::new();
        for (run, place) in &placed.runs {
            let built = match build(run, *place, runtime) {
                Ok(built) => built,
                Err(refusal) => {
                    patching.refusals.push((run.start, refusal));
                    continue;
                }
            };
            patching.add(&built, *place);
            patching.tactics.push(run.tactic);
            let form = TrapForm::ALL.iter().position(|form| built.form == Some(*form));
            if let Some(count) = form.and_then(|form| patching.forms.get_mut(form)) {
                *count += 1;
            }
            let springboards = built.springboard.iter();
            text.extend(springboards.map(|range| (range.address.0, range.patched.clone())));
            text.push((built.address.0, built.patched));
            let displaced = run.instructions.iter();
            patching
                .points
                .extend(displaced.clone().flat_map(|displaced| displaced.points.iter().cloned()));
            patching
                .boundaries
                .extend(displaced.skip(1).map(|displaced| displaced.address.0));
        }
        // If two entries have the same address, the entry with an original address counts.
        patching
            .origins
            .sort_unstable_by_key(|origin| (origin.relocated, origin.original.is_none()));
        patching.origins.dedup_by_key(|origin| origin.relocated);
        patching.writes.extend(text);
        // Sorted, like the agent's table.
        patching.redirects.sort_unstable();
        patching.redirects.dedup_by_key(|redirect| redirect[0]);
        patching
    }
}

impl Patching {
    fn add(&mut self, built: &Built, place: TargetAddress) {
        self.detours
            .push(place..TargetAddress(place.0 + built.detour.len() as u64));
        self.writes.push((place.0, built.detour.clone()));
        self.redirects
            .extend(built.redirects.iter().map(|redirect| [redirect.from.0, redirect.to.0]));
        self.origins.extend(built.origins(place));
    }

    /// The original address that the agent reports for an address in a detour, and how many words deeper the stack is
    /// there.
    pub fn original_address(&self, address: u64) -> (u64, u64) {
        let behind = self.origins.partition_point(|origin| origin.relocated.0 <= address);
        let origin = behind.checked_sub(1).and_then(|index| self.origins.get(index));
        match origin {
            Some(Origin {
                original: Some(original),
                pushed,
                ..
            }) => (original.0, u64::from(*pushed)),
            _ => (address, 0),
        }
    }
}
