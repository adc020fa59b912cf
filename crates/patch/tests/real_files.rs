//! Plans for every function of real files: every plan, once built, keeps the invariant that the text needs.

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use nanoprobe_patch::*;
use support::Text;

const RUNTIME: Runtime = Runtime {
    enter: TargetAddress(0x7fff_f000_1000),
    table: TargetAddress(0x7fff_f100_0000),
    thread_key: ThreadKey::TlsSelf,
};

fn count(site: TargetAddress, condition: FireCondition, position: Position) -> Point {
    Point {
        site,
        condition,
        position,
        full_frame: false,
        fires: vec![Fire::Count { context_offset: 4096 }],
    }
}

fn entry(map: &FunctionMap) -> Vec<Point> {
    vec![count(map.start(), FireCondition::Always, Position::Entry)]
}

fn returns(map: &FunctionMap) -> Vec<Point> {
    map.exits()
        .into_iter()
        .map(|exit| count(exit.site, exit.condition, Position::Inside))
        .collect()
}

fn every_instruction(map: &FunctionMap) -> Vec<Point> {
    map.instructions()
        .map(|(site, _)| count(site, FireCondition::Always, Position::Inside))
        .collect()
}

/// I1: every original instruction's start in a patch is the patch's start or traps and is redirected; nothing else of
/// the text changes.
fn check(text: &Text, map: &FunctionMap, run: &RunPlan, built: &Built) {
    let name = run.start;
    assert_eq!(built.address, run.start);
    assert_eq!(
        built.original,
        text.bytes_at(run.start.0..run.start.0 + built.original.len() as u64),
        "{name}"
    );
    assert_eq!(built.patched.len(), built.original.len());
    assert!(built.patched.len() <= 16);
    assert_eq!(built.detour.len(), run.detour_length, "{name}");
    let end = run.start.0 + built.patched.len() as u64;
    let jump = if run.tactic == Tactic::Trap { 1 } else { 5 };
    let int3_here = |address: TargetAddress| text.bytes_at(address.0..address.0 + 1) == [0xcc];
    let mut changed = jump;
    for (start, _) in map
        .instructions()
        .filter(|(start, _)| (run.start.0..end).contains(&start.0))
    {
        let offset = (start.0 - run.start.0) as usize;
        if offset == 0 && run.tactic != Tactic::Trap || int3_here(start) {
            continue;
        }
        let byte = built.patched[offset];
        let redirected = built.redirects.iter().any(|redirect| redirect.from == start);
        if offset >= jump && !redirected {
            assert_eq!(byte, built.original[offset], "{name}");
            continue;
        }
        changed += usize::from(offset >= jump);
        assert!(is_trapping_byte(byte) && redirected, "{name}: {start} in {built:x?}");
    }
    // Nothing else is changed: the jump, and a byte at each site behind it.
    let differing = built
        .original
        .iter()
        .zip(&built.patched)
        .skip(jump)
        .filter(|(old, new)| old != new)
        .count();
    assert_eq!(differing, changed - jump, "{name}");
    for redirect in &built.redirects {
        assert!(is_trapping_byte(
            built.patched[(redirect.from.0 - run.start.0) as usize]
        ));
    }
    assert_eq!(built.moves.len(), run.instructions.len());
}

/// Plans, places and builds all of it; returns how often each tactic was chosen, by point.
fn exercise(path: &Path, points: fn(&FunctionMap) -> Vec<Point>) -> BTreeMap<&'static str, usize> {
    let mut tactics = BTreeMap::new();
    let Some(text) = Text::read(path) else { return tactics };
    let mut maps: Vec<FunctionMap> = text.functions.iter().map(|function| text.analyze(function)).collect();
    let outgoing: Vec<TargetAddress> = maps
        .iter()
        .flat_map(|map| map.outgoing_branch_targets().to_vec())
        .collect();
    let mut plans = Vec::new();
    for map in &mut maps {
        map.add_branch_targets(outgoing.iter().copied());
        let asked = points(map);
        let plan = plan(map, &asked, &PlanOptions::default());
        let covered: usize = plan
            .runs
            .iter()
            .flat_map(|run| &run.instructions)
            .map(|i| i.points.len())
            .sum();
        assert_eq!(covered + plan.refusals.len(), asked.len(), "{}", map.start());
        for pair in plan.runs.windows(2) {
            assert!(pair[0].end() <= pair[1].start, "{} {}", pair[0].start, pair[1].start);
        }
        for (site, refusal) in &plan.refusals {
            let expected = matches!(refusal, Refusal::Breakpoint { .. } | Refusal::Undecodable { .. });
            assert!(expected, "{site}: {refusal}");
        }
        *tactics.entry("refused").or_default() += plan.refusals.len();
        plans.push(plan);
    }
    let with_map: Vec<(&FunctionMap, &RunPlan)> = maps
        .iter()
        .zip(&plans)
        .flat_map(|(map, plan)| plan.runs.iter().map(move |run| (map, run)))
        .collect();
    let runs: Vec<&RunPlan> = with_map.iter().map(|(_, run)| *run).collect();
    let mut space = NearSpace::new(text.holes(), 4096);
    let begin = std::time::Instant::now();
    let places = space.place_all(&runs);
    let elapsed = begin.elapsed();
    let mut pages = std::collections::BTreeSet::new();
    let mut detour_bytes = 0;
    for ((map, run), place) in with_map.iter().zip(places) {
        let points: usize = run
            .instructions
            .iter()
            .map(|instruction| instruction.points.len())
            .sum();
        let Some(place) = place else {
            *tactics.entry("unplaced").or_default() += points;
            continue;
        };
        let built = build(run, place, &RUNTIME).unwrap();
        check(&text, map, run, &built);
        pages.extend(place.0 / 4096..=(place.0 + built.detour.len() as u64 - 1) / 4096);
        detour_bytes += built.detour.len();
        *tactics.entry(run.tactic.name()).or_default() += points;
    }
    let (regions, touched) = (space.regions().len(), pages.len() * 4);
    println!(
        "{}: {} functions, {tactics:?}; {} runs placed in {elapsed:?}, {} KiB of detours in {touched} KiB, {regions} regions",
        path.display(),
        maps.len(),
        runs.len(),
        detour_bytes >> 10,
    );
    tactics
}

fn files() -> Vec<PathBuf> {
    let mut files = vec![std::env::current_exe().unwrap()];
    files.extend(["/bin/bash", "/lib/x86_64-linux-gnu/libc.so.6"].map(PathBuf::from));
    files
}

#[test]
fn i1_no_torn_instruction_at_entries() {
    for file in files() {
        let tactics = exercise(&file, entry);
        let of = |name| tactics.get(name).copied().unwrap_or(0);
        let jumps = of("jump") + of("run");
        assert!(
            jumps * 20 >= (jumps + of("trap")) * 19,
            "fewer than 95 % jumps in {}",
            file.display()
        );
        assert_eq!(of("unplaced"), 0);
    }
}

#[test]
fn i1_no_torn_instruction_at_returns() {
    for file in files() {
        assert_eq!(exercise(&file, returns).get("unplaced"), None);
    }
}

#[test]
fn i1_no_torn_instruction_at_every_instruction() {
    for file in files() {
        assert_eq!(exercise(&file, every_instruction).get("unplaced"), None);
    }
}
