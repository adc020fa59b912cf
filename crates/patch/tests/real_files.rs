//! Plans for every function of real files. Every plan, once built, keeps invariant I1.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use nanoprobe_patch::*;
use support::{Text, check_invariant, real_files, share_padding};

const RUNTIME: Runtime = Runtime {
    enter: TargetAddress(0x7fff_f000_1000),
    table: TargetAddress(0x7fff_f100_0000),
    thread_key: ThreadKey::TlsSelf,
    // The emulated form is tested together with the agent's emulator: agent/tests/emulate.rs.
    trap: Some(TrapForm::Boost),
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

/// Plans, places and builds all functions of a file. Returns for how many points each tactic was chosen.
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
    }
    share_padding(&mut maps);
    for map in &maps {
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
            assert!(
                pair[0].claimed_end() <= pair[1].start,
                "{} {}",
                pair[0].start,
                pair[1].start
            );
        }
        for (site, refusal) in &plan.refusals {
            let expected = matches!(refusal, Refusal::Breakpoint { .. } | Refusal::Undecodable { .. });
            assert!(expected, "{site}: {refusal}");
        }
        *tactics.entry("refused").or_default() += plan.refusals.len();
        plans.push(plan);
    }
    let separate: Vec<RunPlan> = plans.into_iter().flat_map(|plan| plan.runs).collect();
    let asked = separate.len();
    let merged = reconcile(separate, &[], &PlanOptions::default());
    assert!(merged.refusals.is_empty());
    for pair in merged.runs.windows(2) {
        assert!(
            pair[0].claimed_end() <= pair[1].start,
            "{} {}",
            pair[0].start,
            pair[1].start
        );
    }
    let map_of = |run: &RunPlan| &maps[maps.partition_point(|map| map.start() <= run.start) - 1];
    let mut space = NearSpace::new(text.holes(), 4096);
    let begin = std::time::Instant::now();
    let placed = space.place_with_fallbacks(merged.runs, &PlanOptions::default());
    let elapsed = begin.elapsed();
    let mut pages = std::collections::BTreeSet::new();
    let (mut detour_bytes, mut partly_trapping) = (0, 0);
    assert!(placed.refusals.is_empty());
    for pair in placed.runs.windows(2) {
        assert!(pair[0].0.claimed_end() <= pair[1].0.start, "{}", pair[0].0.start);
    }
    for (run, place) in &placed.runs {
        let points: usize = run
            .instructions
            .iter()
            .map(|instruction| instruction.points.len())
            .sum();
        let built = build(run, *place, &RUNTIME).unwrap();
        check_invariant(&|range| text.bytes_at(range), map_of(run), run, &built);
        pages.extend(place.0 / 4096..=(place.0 + built.detour.len() as u64 - 1) / 4096);
        detour_bytes += built.detour.len();
        let known = |displaced: &Displaced| map_of(run).is_branch_target(displaced.address);
        partly_trapping += usize::from(run.instructions.iter().skip(1).any(known));
        let is_call =
            |last: &Displaced| matches!(last.bytes.as_slice(), [0xe8, ..] | [0xff, 0xd0..=0xd7 | 0x10..=0x17, ..]);
        let with_call = run.tactic == Tactic::Run && run.instructions.last().is_some_and(is_call);
        *tactics
            .entry(if with_call { "run with call" } else { run.tactic.name() })
            .or_default() += points;
    }
    let (regions, touched) = (space.regions().len(), pages.len() * 4);
    println!(
        "{}: {} functions, {tactics:?}; {} of {asked} runs placed in {elapsed:?}, {} KiB of detours in {touched} KiB, {regions} regions; {partly_trapping} runs trap for a known branch",
        path.display(),
        maps.len(),
        placed.runs.len(),
        detour_bytes >> 10,
    );
    tactics
}

#[test]
fn i1_no_torn_instruction_at_entries() {
    for file in real_files() {
        let tactics = exercise(&file, entry);
        let of = |name| tactics.get(name).copied().unwrap_or(0);
        let jumps = of("jump") + of("run") + of("run with call") + of("pun");
        assert!(
            jumps * 20 >= (jumps + of("trap")) * 19,
            "fewer than 95 % jumps in {}",
            file.display()
        );
    }
}

#[test]
fn i1_no_torn_instruction_at_returns() {
    for file in real_files() {
        assert_ne!(exercise(&file, returns).get("run"), None);
    }
}

#[test]
fn i1_no_torn_instruction_at_every_instruction() {
    for file in real_files() {
        assert_ne!(exercise(&file, every_instruction).get("run"), None);
    }
}

/// Entries and returns together, for the comparison of tactics; any more files in `NANOPROBE_REAL_FILES`.
#[test]
fn i1_no_torn_instruction_at_entries_and_returns() {
    let more = std::env::var("NANOPROBE_REAL_FILES").unwrap_or_default();
    for file in real_files()
        .into_iter()
        .chain(more.split_whitespace().map(PathBuf::from))
    {
        let tactics = exercise(&file, |map| entry(map).into_iter().chain(returns(map)).collect());
        let traps = tactics.get("trap").copied().unwrap_or(0);
        let points: usize = tactics.values().sum();
        println!("  traps: {:.2} % of {points}", 100.0 * traps as f64 / points as f64);
        assert!(traps * 33 < points, "3 % traps or more in {}", file.display());
    }
}
