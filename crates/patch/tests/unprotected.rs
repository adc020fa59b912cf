//! A detour whose address does not give the jump the bytes that the patch needs is refused when it is built. So a
//! caller that places detours by other means than `NearSpace` cannot tear an instruction.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use nanoprobe_patch::*;

const START: TargetAddress = TargetAddress(0x5555_5555_5000);

const RUNTIME: Runtime = Runtime {
    enter: TargetAddress(0x7fff_f000_1000),
    table: TargetAddress(0x7fff_f100_0000),
    thread_key: ThreadKey::TlsSelf,
    trap: None,
};

/// The runs for sites of a function without padding.
fn runs(bytes: &[u8], sites: &[u64], force: Tactic) -> Vec<RunPlan> {
    let extent = FunctionExtent {
        start: START,
        size: bytes.len() as u64,
        fragments: Vec::new(),
    };
    let mut map = analyze(&CodeView { start: START, bytes }, &extent);
    map.show_padding([]);
    let point = |offset: &u64| Point {
        site: TargetAddress(START.0 + offset),
        condition: FireCondition::Always,
        position: Position::Inside,
        full_frame: false,
        fires: Vec::new(),
    };
    let points: Vec<Point> = sites.iter().map(point).collect();
    plan(
        &map,
        &points,
        &PlanOptions {
            force: Some(force),
            ..PlanOptions::default()
        },
    )
    .runs
}

/// Every displacement that differs from a good one in one byte is refused if that byte is not free. Returns the number
/// of refused ones.
fn refused_around(run: &RunPlan, good: i32, free: &[u8]) -> usize {
    let at = |displacement: i32| {
        TargetAddress(run.jump().0 + 5)
            .0
            .wrapping_add_signed(i64::from(displacement))
    };
    build(run, TargetAddress(at(good)), &RUNTIME).unwrap();
    let mut refused = 0;
    for byte in 0..4_usize {
        for value in 0..=255_u8 {
            let mut bytes = good.to_le_bytes();
            bytes[byte] = value;
            let detour = TargetAddress(at(i32::from_le_bytes(bytes)));
            match build(run, detour, &RUNTIME) {
                Ok(built) => {
                    let is_free = free.contains(&(byte as u8));
                    assert!(is_free || is_trapping_byte(value) || bytes == good.to_le_bytes());
                    assert_eq!(built.patched[1..5], bytes);
                }
                Err(Refusal::BoundaryUnprotected { start, detour: said }) => {
                    assert_eq!((start, said), (run.start, detour));
                    assert!(!free.contains(&(byte as u8)));
                    refused += 1;
                }
                Err(other) => panic!("{other}"),
            }
        }
    }
    refused
}

#[test]
fn a_boundary_that_would_not_trap_is_refused() {
    // push rbp; mov rbp, rsp; push r12: boundaries at 1 and 4.
    let [run] = &runs(&[0x55, 0x48, 0x89, 0xe5, 0x41, 0x54, 0xc3], &[0], Tactic::Run)[..] else {
        panic!("one run");
    };
    // Each of the two bytes may have 19 values.
    assert_eq!(
        refused_around(run, 0x0600_0006, &[1, 2]),
        2 * (256 - TRAPPING_BYTES.len())
    );
}

#[test]
fn a_punned_byte_that_would_change_is_refused() {
    // sub rsp, 8; call: the jump's last byte is the call's.
    let code = [0x48, 0x83, 0xec, 8, 0xe8, 0, 1, 0, 0, 0xc3];
    let [run] = &runs(&code, &[0], Tactic::Pun)[..] else {
        panic!("one run");
    };
    assert_eq!(
        refused_around(run, i32::from_le_bytes([1, 2, 3, 0xe8]), &[0, 1, 2]),
        255
    );
}

#[test]
fn jumps_that_disagree_about_the_bytes_they_share_are_refused() {
    // xor ecx, ecx; lea rax, [rip + 0x1000] with room for a springboard that begins with its jump's third byte; ret
    let code = [0x31, 0xc9, 0x48, 0x8d, 5, 0, 0x10, 0, 0, 0xc3];
    let planned = runs(&code, &[0], Tactic::Evict);
    let mut space = NearSpace::new(
        vec![0x10_0000..START.0 & !0xffff, START.0 + 0x10_0000..0x7fff_0000_0000],
        4096,
    );
    let placed = space.place_with_fallbacks(planned, &PlanOptions::default());
    let [(guest, to), (host, place)] = &placed.runs[..] else {
        panic!("two runs: {placed:?}");
    };
    let carried = host.guest.unwrap();
    assert_eq!((guest.host(), carried.detour), (Some(host.start), Some(*to)));
    assert_eq!(
        (carried.start, carried.jump),
        (guest.start, TargetAddress(host.start.0 + 2))
    );
    build(host, *place, &RUNTIME).unwrap();
    for wrong in [to.0 + 1, to.0 + 0x100, to.0 - 0x100] {
        let mut host = host.clone();
        host.guest = Some(Guest {
            detour: Some(TargetAddress(wrong)),
            ..carried
        });
        let refused = build(&host, *place, &RUNTIME);
        assert!(
            matches!(refused, Err(Refusal::BoundaryUnprotected { .. })),
            "{refused:?}"
        );
    }
}

/// In every transition from nothing to both patches, and back to the host alone: while the short jump may be seen,
/// the springboard is whole. The host's start always holds its instruction, its jump, or a trap.
#[test]
fn the_springboard_is_whole_before_the_short_jump_is_live() {
    for code in [
        // xor ecx, ecx; an instruction of 10, 7 or 6 bytes; ret
        &[0x31, 0xc9, 0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8, 0xc3][..],
        &[0x31, 0xc9, 0x48, 0x8d, 5, 0, 0x10, 0, 0, 0xc3],
        &[0x31, 0xc9, 0x8d, 5, 0, 0x10, 0, 0, 0xc3],
    ] {
        let planned = runs(code, &[0], Tactic::Evict);
        let mut space = NearSpace::new(
            vec![0x10_0000..START.0 & !0xffff, START.0 + 0x10_0000..0x7fff_0000_0000],
            4096,
        );
        let placed = space.place_with_fallbacks(planned, &PlanOptions::default());
        let built: Vec<Built> = placed
            .runs
            .iter()
            .map(|(run, place)| build(run, *place, &RUNTIME).unwrap())
            .collect();
        let [guest, host] = &built[..] else {
            panic!("two patches: {placed:?}");
        };
        let springboard = (host.carries.unwrap().0 - START.0) as usize;
        let [of_guest, of_host] = [guest.ranges(), host.ranges()];
        let both = [of_guest.clone(), of_host.clone()].concat();
        let length = code.len();
        let mut views: Vec<Vec<u8>> = code.iter().map(|byte| vec![*byte]).collect();
        let mut seen = 0;
        for (old, new) in [(&[][..], &both[..]), (&of_guest, &[]), (&[], &of_guest)] {
            for (number, step) in transition(old, new).into_iter().enumerate() {
                if number > 0 {
                    views.iter_mut().for_each(|view| *view = view.split_off(view.len() - 1));
                }
                for (address, byte) in step {
                    views[(address.0 - START.0) as usize].push(byte);
                }
                let host_at = (host.address.0 - START.0) as usize;
                for first in &views[host_at] {
                    let wanted = match first {
                        0xcc => continue,
                        0xe9 => &host.patched[..5],
                        _ => &code[host_at..length - 1],
                    };
                    let found = views[host_at..].iter().zip(wanted).skip(1);
                    assert!(
                        found
                            .into_iter()
                            .all(|(view, byte)| view.iter().all(|seen| seen == byte))
                    );
                }
                // eb: the short jump, live.
                if views[0].contains(&0xeb) {
                    seen += 1;
                    let whole = &host.patched[springboard - host_at..];
                    assert_eq!(whole.len(), 5);
                    for (view, byte) in views[springboard..].iter().zip(whole) {
                        assert!(view.iter().all(|seen| seen == byte), "{code:x?}");
                    }
                }
            }
        }
        assert!(seen >= 2, "the short jump was live twice");
    }
}
