use super::*;
use crate::{CodeView, FunctionExtent, analyze};

const START: TargetAddress = TargetAddress(0x10_0000);

fn map(bytes: &[u8]) -> FunctionMap {
    let size = bytes.len() as u64;
    analyze(
        &CodeView { start: START, bytes },
        &FunctionExtent {
            start: START,
            size,
            fragments: Vec::new(),
        },
    )
}

/// xor edi, edi; mov eax, 14; lea rsi, [rip + 0x100]; syscall; mov eax, 13; syscall; ret
const BOTH: [u8; 25] = [
    0x31, 0xff, 0xb8, 14, 0, 0, 0, 0x48, 0x8d, 0x35, 0, 1, 0, 0, 0x0f, 5, 0xb8, 13, 0, 0, 0, 0x0f, 5, 0x90, 0xc3,
];

/// The addresses of the jumps and of the system calls.
fn places(bytes: &[u8], numbers: &[u32]) -> Vec<(u64, u64)> {
    let found = Replacement::find(&map(bytes), numbers);
    found
        .iter()
        .map(|found| (found.run().start.0 - START.0, found.syscall().0 - START.0))
        .collect()
}

#[test]
fn the_last_instruction_with_room_is_displaced() {
    assert_eq!(places(&BOTH, &[14]), [(7, 14)]);
    assert_eq!(places(&BOTH, &[13]), [(16, 21)]);
    assert_eq!(places(&BOTH, &[13, 14]), [(7, 14), (16, 21)]);
    assert_eq!(places(&BOTH, &[12]), []);
}

#[test]
fn the_number_is_followed_through_registers() {
    // mov r8d, 14; mov rax, r8; mov edi, 2 (of three): syscall; ret
    let kept = [
        0x41, 0xb8, 14, 0, 0, 0, 0x4c, 0x89, 0xc0, 0xbf, 2, 0, 0, 0, 0x0f, 5, 0xc3,
    ];
    assert_eq!(places(&kept, &[14]), [(9, 14)]);
    assert_eq!(places(&kept, &[13]), []);
    // The register is changed in between by lea r8, [r8 + 1], so its value is not a constant any more.
    let changed = [&kept[..6], &[0x4d, 0x8d, 0x40, 1], &kept[6..]].concat();
    assert_eq!(places(&changed, &[13]), [(13, 18)]);
    // mov rax, rbx; mov r9, [rsp + 8]; syscall: any number.
    let any = [0x48, 0x89, 0xd8, 0x4c, 0x8b, 0x4c, 0x24, 8, 0x0f, 5, 0xc3];
    assert_eq!(places(&any, &[13]), [(3, 8)]);
    // xor eax, eax; mov edi, 2; syscall: read.
    assert_eq!(places(&[0x31, 0xc0, 0xbf, 2, 0, 0, 0, 0x0f, 5, 0xc3], &[13]), []);
    // xor eax, eax; mov al, 2; mov edi, 2; syscall: open. With another low byte it is the number that is looked for,
    // with mov ah it is another one, and without the first instruction it may be any.
    let byte = |load: u8, value: u8| [0x31, 0xc0, load, value, 0xbf, 2, 0, 0, 0, 0x0f, 5, 0xc3];
    assert_eq!(places(&byte(0xb0, 2), &[13]), []);
    assert_eq!(places(&byte(0xb0, 13), &[13]), [(4, 9)]);
    assert_eq!(places(&byte(0xb4, 0), &[13]), [(4, 9)]);
    assert_eq!(places(&byte(0xb0, 2)[2..], &[13]), [(2, 7)]);
    // The same kept in a register, as in a loop: mov edx, 60; L: mov eax, edx; mov edi, 2; syscall; jmp L
    let mut looped = [0xba, 60, 0, 0, 0, 0x89, 0xd0, 0xbf, 2, 0, 0, 0, 0x0f, 5, 0xeb, 0xf5];
    assert_eq!(places(&looped, &[13]), []);
    looped[1] = 13;
    assert_eq!(places(&looped, &[13]), [(7, 12)]);
    // Twice, as brk is: mov esi, 12; mov eax, esi; syscall; mov edi, 2; mov eax, esi; syscall; mov esi, eax; ret
    let mut twice = [
        0xbe, 12, 0, 0, 0, 0x89, 0xf0, 0x0f, 5, 0xbf, 2, 0, 0, 0, 0x89, 0xf0, 0x0f, 5, 0x89, 0xc6, 0xc3,
    ];
    assert_eq!(places(&twice, &[13]), []);
    twice[1] = 13;
    assert_eq!(places(&twice, &[13]), [(0, 7), (9, 16)]);
    // The result of a call is not a known number: syscall; mov edi, 2; syscall.
    let yielded = [0xb8, 12, 0, 0, 0, 0x0f, 5, 0xbf, 2, 0, 0, 0, 0x0f, 5, 0xc3];
    assert_eq!(places(&yielded, &[13]), [(7, 12)]);
    // A branch to after the load: je +5; mov eax, 12; mov edi, 2; syscall.
    let joined = [0x74, 5, 0xb8, 12, 0, 0, 0, 0xbf, 2, 0, 0, 0, 0x0f, 5, 0xc3];
    assert_eq!(places(&joined, &[13]), [(7, 12)]);
    // A branch jumps over the only load, so the number may be the caller's: test esi, esi; je +5; mov edi, 1; mov
    // eax, edi; mov edx, 2; syscall.
    let given = [
        0x85, 0xf6, 0x74, 5, 0xbf, 1, 0, 0, 0, 0x89, 0xf8, 0xba, 2, 0, 0, 0, 0x0f, 5, 0xc3,
    ];
    assert_eq!(places(&given, &[13]), [(11, 16)]);
    // Loaded before a call, which may change the register: mov edx, 60; call; L: mov eax, edx; mov edi, 2; syscall;
    // jmp L
    let mut called = [
        0xba, 60, 0, 0, 0, 0xe8, 0, 0, 0, 0, 0x89, 0xd0, 0xbf, 2, 0, 0, 0, 0x0f, 5, 0xeb, 0xf5,
    ];
    assert_eq!(places(&called, &[13]), [(12, 17)]);
    // The number is in a register that calls preserve: mov ebx, 60; .. mov eax, ebx.
    (called[0], called[11]) = (0xbb, 0xd8);
    assert_eq!(places(&called, &[13]), []);
}

/// Compilers write a function that takes the number and the arguments like this.
#[test]
fn two_short_instructions_make_room() {
    // mov rax, rdi; mov rdi, rsi; mov rsi, rdx; mov rdx, rcx; mov r10, r8; syscall; ret
    let moves = [
        0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x48, 0x89, 0xd6, 0x48, 0x89, 0xca, 0x4d, 0x89, 0xc2, 0x0f, 5, 0xc3,
    ];
    assert_eq!(places(&moves, &[13]), [(9, 15)]);
    let found = Replacement::find(&map(&moves), &[13]).pop().unwrap();
    // The boundary at +12 falls into the displacement, whose third byte must trap.
    let detour = TargetAddress(START.0 + 14 + 0xcc_1000);
    let built = found.build(TargetAddress(0x7000_0000_1000), detour).unwrap();
    assert_eq!(built.original, moves[9..14]);
    assert_eq!(built.patched, [0xe9, 0, 0x10, 0xcc, 0]);
    let redirect = &built.redirects[..];
    assert_eq!(redirect.len(), 1);
    assert_eq!((redirect[0].from.0 - START.0, redirect[0].to.0 - detour.0), (12, 3));
    let wrong = TargetAddress(START.0 + 14 + 0x48_1000);
    let refused = found.build(TargetAddress(0x7000_0000_1000), wrong);
    assert!(matches!(refused, Err(Refusal::BoundaryUnprotected { .. })));
}

#[test]
fn the_quick_search_never_finds_a_wrong_number() {
    let numbers = [13, 14];
    let is_other =
        |before: &[u8]| Replacement::load_in_front(before).is_some_and(|(_, number)| !numbers.contains(&number));
    assert_eq!(
        Replacement::load_in_front(&[0x90, 0x90, 0xb8, 14, 0, 0, 0, 0x90]),
        Some((2, 14))
    );
    assert!(is_other(&[0x90, 0xb8, 12, 0, 0, 0, 0xbf, 2, 0, 0, 0]));
    assert!(!is_other(&[0x90, 0xb8, 14, 0, 0, 0, 0xbf, 2, 0, 0, 0]));
    // mov rax, 15: rt_sigreturn.
    assert!(is_other(&[0x48, 0xc7, 0xc0, 15, 0, 0, 0]));
    // mov r8d, 8 is no load of eax; there is no load; a call lies between; eax is changed; the decoding is out of step.
    assert!(!is_other(&[0x90, 0xb8, 14, 0, 0, 0, 0x41, 0xb8, 8, 0, 0, 0]));
    assert!(!is_other(&[0x90, 0x48, 0x89, 0xd8]));
    assert!(!is_other(&[0x90, 0xb8, 12, 0, 0, 0, 0xe8, 0, 0, 0, 0]));
    assert!(!is_other(&[0x90, 0xb8, 12, 0, 0, 0, 0x89, 0xd8]));
    assert!(!is_other(&[0x90, 0xb8, 12, 0, 0, 0, 0x48, 0x8b]));
}

#[test]
fn only_straight_code_is_replaced() {
    // A branch, a call, another system call, and the function's end between.
    for between in [&[0x74, 0][..], &[0xe8, 0, 0, 0, 0], &[0xcd, 0x80], &[0xc3]] {
        let bytes = [&[0xb8, 14, 0, 0, 0][..], between, &[0x0f, 5, 0xc3]].concat();
        assert!(Replacement::find(&map(&bytes), &[14]).is_empty(), "{bytes:x?}");
    }
    assert!(Replacement::find(&map(&[0xb8, 14, 0, 0, 0, 0x90, 0x90]), &[14]).is_empty());
    let far = [&[0xb8, 14, 0, 0, 0][..], &[0x90; 12], &[0x0f, 5, 0xc3]].concat();
    // The two moves are too far apart to be displaced together; the nops between them are displaced.
    assert_eq!(places(&far, &[14]).len(), 1);
    assert_eq!(places(&far, &[13]), []);
}

#[test]
fn the_tables_name_every_place() {
    let found = Replacement::find(&map(&BOTH), &[14]).pop().unwrap();
    let detour = TargetAddress(0x20_0000);
    let built = found.build(TargetAddress(0x7000_0000_1000), detour).unwrap();
    assert_eq!(built.original[..5], [0x48, 0x8d, 0x35, 0, 1]);
    assert_eq!(built.detour.len(), found.run().detour_length);
    assert_eq!(built.patched[..5], [0xe9, 0xf4, 0xff, 0x0f, 0]); // 0x200000 - 0x10000c
    // The copy of the lea, whose operand has the same address as before.
    assert_eq!(built.detour[..3], [0x48, 0x8d, 0x35]);
    let displacement = i32::from_le_bytes(built.detour[3..7].try_into().unwrap());
    assert_eq!(
        detour.0 as i64 + 7 + i64::from(displacement),
        START.0 as i64 + 14 + 0x100
    );
    let pairs = |moves: &[Move]| -> Vec<(u64, u64)> {
        moves
            .iter()
            .map(|entry| (entry.original.0 - START.0, entry.relocated.0 - detour.0))
            .collect()
    };
    assert_eq!(pairs(&built.moves), [(7, 0), (14, 7)]);
    let departures = pairs(&built.departures);
    assert_eq!(departures[0], (14, 7));
    // Each of the other two departures is a jump to its original address.
    for (original, relocated) in &departures[1..] {
        let jump = &built.detour[*relocated as usize..*relocated as usize + 5];
        assert_eq!(jump[0], 0xe9);
        let displacement = i32::from_le_bytes(jump[1..].try_into().unwrap());
        assert_eq!(
            detour.0 as i64 + *relocated as i64 + 5 + i64::from(displacement),
            (START.0 + original) as i64
        );
    }
    assert_eq!([departures[1].0, departures[2].0], [14, 16]);
    let far = TargetAddress(0x1_2000_0000);
    assert!(matches!(found.build(far, far), Err(Refusal::OutOfReach { .. })));
}

/// The fires lie after the displaced instructions. A thread that must make its call again is moved to an address after
/// the fires.
#[test]
fn points_fire_before_the_function() {
    let runtime = Runtime {
        enter: TargetAddress(0x1111),
        table: TargetAddress(0x2222),
        thread_key: crate::ThreadKey::TlsSelf,
        trap: None,
    };
    let point = Point {
        site: TargetAddress(START.0 + 14),
        condition: FireCondition::Always,
        position: Position::Inside,
        full_frame: false,
        fires: vec![crate::Fire::CountByNumber {
            table: TargetAddress(0x3333),
        }],
    };
    let found = Replacement::find(&map(&BOTH), &[14]).pop().unwrap();
    let bare = found.run().detour_length;
    let firing = found.clone().with_points(&[point], &runtime).unwrap();
    assert!(firing.run().detour_length > bare + 50);
    let (function, detour) = (TargetAddress(0x7000_0000_1000), TargetAddress(0x20_0000));
    let built = firing.build(function, detour).unwrap();
    assert_eq!(built.detour.len(), firing.run().detour_length);
    let count = [0x49, 0xff, 0x04, 0x0f]; // inc qword [r15 + rcx]
    let saves = [0x50, 0x53, 0x51, 0x52, 0x56, 0x57, 0x55]; // push rax, rbx, rcx, rdx, rsi, rdi, rbp
    let at = |bytes: &[u8]| built.detour.windows(bytes.len()).position(|window| window == bytes);
    assert_eq!(at(&[0x48, 0x8d, 0x35]), Some(0));
    assert!(at(&count).unwrap() < at(&saves).unwrap());
    // A thread that has counted is at the `syscall`, wherever it stands then.
    let home = built
        .moves
        .iter()
        .find(|entry| entry.original.0 == START.0 + 14)
        .unwrap();
    assert!(home.relocated.0 - detour.0 > at(&count).unwrap() as u64);
    assert_eq!(found.with_points(&[], &runtime).unwrap().run().detour_length, bare);
}

#[test]
fn a_branch_behind_the_displaced_instructions_is_known() {
    let bypassed = |bytes: &[u8]| Replacement::find(&map(bytes), &[14]).pop().unwrap().is_bypassed();
    // mov eax, 14; L: xor edi, edi; syscall; cmp eax, -4; je L; ret
    let mut again = [
        0xb8, 14, 0, 0, 0, 0x31, 0xff, 0x0f, 5, 0x83, 0xf8, 0xfc, 0x74, 0xf7, 0xc3,
    ];
    assert!(bypassed(&again));
    // The branch leads to the load: it is displaced, so the detour is where the branch leads to.
    again[13] = 0xf2;
    assert!(!bypassed(&again));
    assert!(!bypassed(&BOTH));
}
