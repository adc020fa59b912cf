//! Plans over made-up functions: pieces of code in random order, random points, random branch targets.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod support;

use iced_x86::{Decoder, DecoderOptions};
use nanoprobe_patch::*;
use proptest::prelude::*;
use support::{check_invariant, check_together};

const START: u64 = 0x5555_5555_5000;

const RUNTIME: Runtime = Runtime {
    enter: TargetAddress(0x7fff_f000_1000),
    table: TargetAddress(0x7fff_f100_0000),
    thread_key: ThreadKey::FsBase,
    // The emulated form is tested together with the agent's emulator: agent/tests/emulate.rs.
    trap: Some(TrapForm::Boost),
};

/// Instructions of every length and family, and some bytes that are no instruction.
const PIECES: [&[u8]; 32] = [
    &[0x55],
    &[0x5b],
    &[0x90],
    &[0xc3],
    &[0xcc],
    &[0xf3, 0xc3],
    &[0x31, 0xc0],
    &[0x41, 0x54],
    &[0xff, 0xd0],
    &[0xff, 0xe0],
    &[0x74, 0x03],
    &[0xeb, 0xfc],
    &[0xe2, 0xf8],
    &[0x67, 0xe3, 0x02],
    &[0x0f, 0x05],
    &[0x0f, 0x0b],
    &[0x48, 0x89, 0xe5],
    &[0x0f, 0x1f, 0x00],
    &[0xc2, 0x08, 0x00],
    &[0xf3, 0x0f, 0x1e, 0xfa],
    &[0x48, 0x83, 0xec, 0x08],
    &[0x0f, 0x1f, 0x44, 0x00, 0x00],
    &[0xe8, 0x10, 0x00, 0x00, 0x00],
    &[0xe9, 0x00, 0x10, 0x00, 0x00],
    &[0xff, 0x15, 0x00, 0x20, 0x00, 0x00],
    &[0xff, 0x25, 0x00, 0x20, 0x00, 0x00],
    &[0x0f, 0x84, 0x00, 0x10, 0x00, 0x00],
    &[0x48, 0x8d, 0x05, 0xf0, 0xff, 0xff, 0xff],
    &[0x83, 0x3d, 0x00, 0x10, 0x00, 0x00, 0x07],
    &[0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0x00, 0x00, 0x00],
    &[0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8],
    &[0x06],
];

fn fires() -> impl Strategy<Value = Vec<Fire>> {
    let count = (0_u32..0x10000).prop_map(|context_offset| Fire::Count { context_offset });
    let call = any::<[u32; 2]>().prop_map(|[handler, enabling]| Fire::Call {
        handler: TargetAddress(u64::from(handler)),
        enabling: TargetAddress(u64::from(enabling)),
    });
    prop::collection::vec(prop_oneof![count, call], 0..4)
}

fn point() -> impl Strategy<Value = Point> {
    let condition = prop_oneof![
        4 => Just(FireCondition::Always),
        1 => Just(FireCondition::IfTaken),
        1 => Just(FireCondition::IfLeaves)
    ];
    let position = prop_oneof![Just(Position::Entry), Just(Position::Inside)];
    (0_u64..120, condition, position, any::<bool>(), fires()).prop_map(
        |(offset, condition, position, full_frame, fires)| Point {
            site: TargetAddress(START + offset),
            condition,
            position,
            full_frame,
            fires,
        },
    )
}

fn force() -> impl Strategy<Value = Option<Tactic>> {
    prop_oneof![4 => Just(None), 1 => prop::sample::select(Tactic::ALL.to_vec()).prop_map(Some)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn i1_every_plan_keeps_every_instruction(
        pieces in prop::collection::vec(prop::sample::select(PIECES.to_vec()), 1..30),
        padding in prop::sample::select(vec![0x90_u8, 0xcc, 0x00, 0x55]),
        padding_length in 0_usize..24,
        targets in prop::collection::vec(0_u64..120, 0..4),
        points in prop::collection::vec(point(), 1..20),
        force in force(),
    ) {
        let mut bytes = pieces.concat();
        let size = bytes.len() as u64;
        bytes.extend(std::iter::repeat_n(padding, padding_length));
        let start = TargetAddress(START);
        let mut map = analyze(
            &CodeView { start, bytes: &bytes },
            &FunctionExtent { start, size, fragments: Vec::new() },
        );
        map.add_branch_targets(targets.iter().map(|offset| TargetAddress(START + offset)));
        map.show_padding(map.padding());
        let plan = plan(&map, &points, &PlanOptions { force, ..PlanOptions::default() });

        // Every point is in exactly one run, at its instruction, or its site is refused.
        let refused = |site: TargetAddress| plan.refusals.iter().any(|(refused, _)| *refused == site);
        for point in &points {
            let displaced = plan.runs.iter().flat_map(|run| &run.instructions);
            let here = displaced.filter(|displaced| displaced.address == point.site && displaced.points.contains(point));
            prop_assert_eq!(here.count(), usize::from(!refused(point.site)));
        }
        // Runs are ascending and disjoint, and use the forced tactic.
        for pair in plan.runs.windows(2) {
            prop_assert!(pair[0].claimed_end() <= pair[1].start);
        }
        // No springboard lies where another patch or springboard does.
        let mut claims: Vec<_> = plan.runs.iter().map(|run| run.start..run.claimed_end()).collect();
        let own = |springboard: &&Springboard| springboard.host.is_none();
        claims.extend(plan.runs.iter().filter_map(RunPlan::springboard).filter(own).map(Springboard::range));
        // A springboard in another patch is the exception; that patch carries only this springboard.
        for guest in plan.runs.iter().filter(|run| run.host().is_some()) {
            let hosts = plan.runs.iter().filter(|host| {
                host.guest.is_some_and(|known| (known.start, known.jump) == (guest.start, guest.jump()))
            });
            prop_assert_eq!(hosts.map(|host| Some(host.start)).collect::<Vec<_>>(), vec![guest.host()]);
        }
        claims.sort_by_key(|claim| claim.start);
        for pair in claims.windows(2) {
            prop_assert!(pair[0].end <= pair[1].start);
        }
        let mut space = NearSpace::new(vec![0x10_0000..START - 0x1000, START + 0x10_0000..0x7fff_0000_0000], 4096);
        for run in &plan.runs {
            // An instruction that is displaced only to make room is no site.
            prop_assert!(run.is_silent() || force.is_none_or(|tactic| tactic == run.tactic));
            // No known branch leads into the jump from outside of it, unless the branch leads to a site that would
            // trap anyway.
            let displaced = &run.instructions[..run.instructions.len() - run.kept];
            let jump = if run.springboard().is_some() { 2 } else { 5 };
            let entered = |inner: &&Displaced| run.entered.contains(&inner.address) && !inner.points.is_empty();
            let inner = displaced.iter().skip(1).filter(|inner| inner.address.0 < run.start.0 + jump);
            for inner in inner.filter(|inner| !entered(inner)) {
                prop_assert!(!targets.contains(&(inner.address.0 - START)));
                for (site, length) in map.instructions() {
                    let at = (site.0 - START) as usize;
                    let branch = Decoder::with_ip(64, &bytes[at..at + length], site.0, DecoderOptions::NONE).decode();
                    let leads = branch.is_jmp_short_or_near() || branch.is_jcc_short_or_near() || branch.is_loop()
                        || branch.is_loopcc() || branch.is_jcx_short() || branch.is_call_near();
                    let inside = run.start <= site && site < inner.address;
                    prop_assert!(inside || !leads || branch.near_branch_target() != inner.address.0);
                }
            }
            let Some(place) = space.place(run, run.detour_length) else {
                prop_assert_eq!(run.tactic, Tactic::Pun);
                continue;
            };
            prop_assert_eq!(run.springboard().is_some() || run.successor.is_some(), run.tactic == Tactic::Evict);
            let built = build(run, place, &Runtime { thread_key: ThreadKey::TlsSelf, ..RUNTIME }).unwrap();
            let text = |range: std::ops::Range<u64>| &bytes[(range.start - START) as usize..(range.end - START) as usize];
            check_invariant(&text, &map, run, &built);
            // rdfsbase is shorter; everything else is the same.
            let shorter = build(run, place, &RUNTIME).unwrap();
            prop_assert!(shorter.detour.len() <= run.detour_length);
            prop_assert_eq!(&shorter.patched, &built.patched);
            // If the jump finds no place, the same points fire in another way, at last by traps.
            let points_of = |run: &RunPlan| -> Vec<Point> {
                run.instructions.iter().flat_map(|displaced| displaced.points.clone()).collect()
            };
            let mut next = run.alternative.as_deref();
            let mut earlier = run;
            while let Some(alternative) = next {
                prop_assert_eq!(alternative.start, run.start);
                prop_assert_eq!(points_of(alternative), points_of(run));
                prop_assert_eq!(earlier.fallback().runs, vec![alternative.clone()]);
                if let Some(place) = space.place(alternative, alternative.detour_length) {
                    let built =
                        build(alternative, place, &Runtime { thread_key: ThreadKey::TlsSelf, ..RUNTIME }).unwrap();
                    check_invariant(&text, &map, alternative, &built);
                } else {
                    prop_assert_eq!(alternative.tactic, Tactic::Pun);
                }
                next = alternative.alternative.as_deref();
                earlier = alternative;
            }
            let traps = run.as_traps();
            let trapped: Vec<&Point> = traps.runs.iter().flat_map(|run| &run.instructions[0].points).collect();
            let in_run: Vec<&Point> = run.instructions.iter().flat_map(|displaced| &displaced.points).collect();
            prop_assert_eq!(trapped, in_run);
            prop_assert!(traps.runs.iter().all(|run| run.tactic == Tactic::Trap && run.original.len() == 1));
        }
        // All runs are placed together: jumps that share bytes agree about them.
        let mut space = NearSpace::new(vec![0x10_0000..START - 0x1000, START + 0x10_0000..0x7fff_0000_0000], 4096);
        let placed = space.place_with_fallbacks(plan.runs, &PlanOptions { force, ..PlanOptions::default() });
        let all: Vec<_> = placed
            .runs
            .into_iter()
            .map(|(run, detour)| {
                let built = build(&run, detour, &Runtime { thread_key: ThreadKey::TlsSelf, ..RUNTIME }).unwrap();
                (run, detour, built)
            })
            .collect();
        let text = |range: std::ops::Range<u64>| &bytes[(range.start - START) as usize..(range.end - START) as usize];
        check_together(&text, &map, &all);
    }

    #[test]
    fn any_bytes_are_analysed_without_harm(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        size in 0_u64..300,
        start in prop_oneof![Just(START), any::<u64>()],
    ) {
        let start = TargetAddress(start);
        let map = analyze(
            &CodeView { start, bytes: &bytes },
            &FunctionExtent { start, size, fragments: Vec::new() },
        );
        let end = map.undecodable().unwrap_or(TargetAddress(start.0.saturating_add(map.size())));
        let mut next = start;
        for (site, length) in map.instructions() {
            prop_assert_eq!(site, next);
            next = TargetAddress(site.0.saturating_add(length as u64));
        }
        prop_assert_eq!(next, end);
        let points: Vec<Point> = map
            .exits()
            .into_iter()
            .map(|exit| Point {
                site: exit.site,
                condition: exit.condition,
                position: Position::Inside,
                full_frame: false,
                fires: vec![Fire::Count { context_offset: 8 }],
            })
            .collect();
        let plan = plan(&map, &points, &PlanOptions::default());
        let in_runs: usize = plan.runs.iter().flat_map(|run| &run.instructions).map(|i| i.points.len()).sum();
        prop_assert!(in_runs <= points.len());
        prop_assert!(in_runs == points.len() || !plan.refusals.is_empty());
    }
}
