use super::*;
use crate::{JumpConstraint, TRAPPING_BYTES, is_trapping_byte};

fn run(start: u64, boundaries: &[usize], detour_length: usize) -> RunPlan {
    let constraint = boundaries.iter().fold(JumpConstraint::FREE, |constraint, offset| {
        constraint.with_boundary_at(*offset)
    });
    RunPlan {
        start: TargetAddress(start),
        tactic: Tactic::Run,
        instructions: Vec::new(),
        kept: 0,
        springboards: Vec::new(),
        successor: None,
        guest: None,
        length: 5,
        original: vec![0x90; 5],
        constraint,
        padding_boundaries: Vec::new(),
        detour_length,
        reach: TargetAddress(start.saturating_sub(0x7f00_0000))..TargetAddress(start + 0x7f00_0000),
        inside: Vec::new(),
        alternative: None,
        entered: Vec::new(),
        obstacle: None,
    }
}

/// The holes around a PIE executable's text of 2 MiB.
fn holes() -> Vec<Range<u64>> {
    vec![0x10_0000..0x5555_5555_0000, 0x5555_5575_0000..0x7fff_0000_0000]
}

#[test]
fn windows_are_those_of_the_trapping_bytes() {
    let mut tops: Vec<u8> = WINDOWS
        .iter()
        .flat_map(|window| {
            assert!(window.start % (1 << 24) == 0 && window.end % (1 << 24) == 0);
            (window.start >> 24..window.end >> 24).map(|top| top as u8)
        })
        .collect();
    tops.sort_unstable();
    assert_eq!(tops, TRAPPING_BYTES);
}

#[test]
fn every_combination_of_boundaries_is_placed_and_spelled() {
    let mut space = NearSpace::new(holes(), 4096);
    let mut taken: Vec<Range<u64>> = Vec::new();
    for mask in 0..16 {
        for step in 0..40 {
            let boundaries: Vec<usize> = (1..=4).filter(|offset| mask & 1 << (offset - 1) != 0).collect();
            let run = run(0x5555_5555_0000 + step * 0x5_0123, &boundaries, 110);
            let place = space.place(&run, 110).unwrap();
            let displacement = place
                .displacement_from(TargetAddress(run.start.0 + 5))
                .unwrap()
                .to_le_bytes();
            for offset in boundaries {
                assert!(
                    is_trapping_byte(displacement[offset - 1]),
                    "{displacement:x?} at {offset}"
                );
            }
            taken.push(place.0..place.0 + 110);
        }
    }
    let regions = space.regions();
    taken.sort_unstable_by_key(|range| range.start);
    for pair in taken.windows(2) {
        assert!(pair[0].end <= pair[1].start, "{pair:x?}");
    }
    for range in taken {
        assert!(
            regions
                .iter()
                .any(|region| region.start.0 <= range.start && range.end <= region.end.0)
        );
        assert!(
            holes()
                .iter()
                .any(|hole| hole.start <= range.start && range.end <= hole.end)
        );
    }
    for pair in regions.windows(2) {
        assert!(pair[0].end < pair[1].start);
    }
}

#[test]
fn nothing_fits_where_no_hole_is_in_reach() {
    let mut space = NearSpace::new(std::iter::once(0x10_0000..0x20_0000).collect(), 4096);
    assert_eq!(space.place(&run(0x5555_5555_0000, &[], 100), 100), None);
    assert!(space.regions().is_empty());
}

#[test]
fn a_hole_of_one_page_is_used_to_its_last_byte_and_no_further() {
    let mut space = NearSpace::new(std::iter::once(0x5555_5565_0001..0x5555_5565_2fff).collect(), 4096);
    let run = run(0x5555_5555_0000, &[], 1024);
    let places: Vec<u64> = (0..4).map(|_| space.place(&run, 1024).unwrap().0).collect();
    assert_eq!(
        places,
        [0x5555_5565_1000, 0x5555_5565_1400, 0x5555_5565_1800, 0x5555_5565_1c00]
    );
    assert_eq!(space.place(&run, 16), None);
    assert_eq!(
        space.regions(),
        vec![TargetAddress(0x5555_5565_1000)..TargetAddress(0x5555_5565_2000)]
    );
}

#[test]
fn many_light_detours_are_packed() {
    // The boundaries of bash's function entries: most have one at 4, and one more at 1, 2 or 3.
    let shapes: [&[usize]; 6] = [&[4], &[1, 4], &[2, 4], &[3], &[], &[1, 3]];
    let runs: Vec<RunPlan> = (0..1700)
        .map(|index| run(0x5555_5555_0000 + index * 613, shapes[index as usize % 6], 116))
        .collect();
    let mut space = NearSpace::new(holes(), 4096);
    let places = space.place_all(&runs.iter().collect::<Vec<_>>());
    let mut pages: Vec<u64> = places
        .iter()
        .flat_map(|place| {
            let place = place.unwrap().0;
            [place / 4096, (place + 115) / 4096]
        })
        .collect();
    pages.sort_unstable();
    pages.dedup();
    let touched = pages.len() * 4096;
    assert!(touched <= 400 << 10, "{} KiB", touched >> 10);
}

/// `sub rsp, 8; call ..`, and the same with two bytes of the call in the jump.
fn pun(start: u64, boundaries: &[usize], kept: &[u8]) -> RunPlan {
    let mut pun = run(start, boundaries, 110);
    pun.tactic = Tactic::Pun;
    pun.length = 5 - kept.len();
    for (index, byte) in kept.iter().enumerate() {
        pun.constraint = pun.constraint.with_punned(pun.length + index, *byte);
    }
    pun
}

#[test]
fn puns_of_neighbours_share_their_window() {
    let runs: Vec<RunPlan> = (0..1000)
        .map(|index| {
            let start = 0x5555_5555_0000 + index * 1613;
            if index % 10 == 0 {
                pun(start, &[], &[0xe8, 0x28])
            } else {
                pun(start, &[1], &[0xe8])
            }
        })
        .collect();
    let mut space = NearSpace::new(holes(), 4096);
    let places = space.place_all(&runs.iter().collect::<Vec<_>>());
    let mut pages = std::collections::BTreeSet::new();
    for (run, place) in runs.iter().zip(places) {
        let place = place.unwrap();
        let displacement = place.displacement_from(TargetAddress(run.start.0 + 5)).unwrap();
        assert!(run.constraint.allows(displacement));
        let bytes = displacement.to_le_bytes();
        if run.length == 4 {
            assert_eq!(bytes[3], 0xe8);
            assert!(is_trapping_byte(bytes[0]));
        } else {
            assert_eq!(bytes[2..], [0xe8, 0x28]);
        }
        pages.extend([place.0 / 4096, (place.0 + 109) / 4096]);
    }
    // There are 110 KiB of detours; a tenth have windows of 64 KiB that move with the site, through 1.5 MiB.
    assert!(pages.len() * 4 <= 350, "{} KiB", pages.len() * 4);
    assert!(space.regions().len() <= 30, "{} regions", space.regions().len());
}

#[test]
fn a_run_without_a_place_falls_back_to_its_alternative_and_then_to_a_trap() {
    // There is only a hole above the text, and none 384 MiB below it.
    let hole = || std::iter::once(0x5555_5b55_0000..0x5555_6000_0000).collect();
    let displaced = crate::Displaced {
        address: TargetAddress(0x5555_5555_0000),
        bytes: vec![0x48, 0x83, 0xec, 0x08],
        points: vec![crate::Point {
            site: TargetAddress(0x5555_5555_0000),
            condition: crate::FireCondition::Always,
            position: crate::Position::Entry,
            full_frame: false,
            fires: Vec::new(),
        }],
    };
    let mut alternative = run(0x5555_5555_0000, &[4], 110);
    alternative.instructions = vec![displaced.clone()];
    let mut pun = pun(0x5555_5555_0000, &[], &[0xe8]);
    pun.instructions = vec![displaced];
    let tactics = |pun: &RunPlan, options| {
        let placed = NearSpace::new(hole(), 4096).place_with_fallbacks(vec![pun.clone()], &options);
        let tactics: Vec<Tactic> = placed.runs.iter().map(|(run, _)| run.tactic).collect();
        (tactics, placed.refusals)
    };
    let automatic = PlanOptions::default();
    assert_eq!(tactics(&pun, automatic), (vec![Tactic::Trap], vec![]));
    pun.alternative = Some(Box::new(alternative));
    assert_eq!(tactics(&pun, automatic), (vec![Tactic::Run], vec![]));
    let (site, tactic) = (pun.start, Tactic::Pun);
    let forced = PlanOptions {
        force: Some(tactic),
        ..PlanOptions::default()
    };
    let refusal = Refusal::TacticUnavailable {
        site,
        tactic,
        obstacle: Some(Obstacle::Address),
    };
    assert_eq!(tactics(&pun, forced), (vec![], vec![(site, refusal)]));
}

/// Libraries are mapped into a hole. Open regions stay open, and are not opened again.
#[test]
fn new_holes_leave_open_regions_open() {
    let mut space = NearSpace::new(vec![0x10_0000..0x20_0000, 0x30_0000..0x31_0000], 0x1000);
    space.set_holes(vec![0x40_0000..0x50_0000, 0x60_0000..0x61_0000]);
    assert_eq!(space.holes, [0x40_0000..0x50_0000, 0x60_0000..0x61_0000]);
    space.regions.push(Region::new(0x42_0000..0x43_0000, 0x1000));
    space.set_holes(vec![0x10_0000..0x11_0000, 0x41_0000..0x44_0000]);
    assert_eq!(
        space.holes,
        [0x10_0000..0x11_0000, 0x41_0000..0x42_0000, 0x43_0000..0x44_0000]
    );
}
