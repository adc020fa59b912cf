//! Faults in relocated instructions: the program sees the original address.

use core::sync::atomic::Ordering;

use nanoprobe_arena::layout::{Redirect, SLOT_SEGV};

use super::common::{Options, Target, in_child, map, map_code};
use super::{
    CODE, LOAD_NULL, RESUME, RIP, SEVENTY_SEVEN, action, alone, execute, programs_own, signal_of_death, succeeds,
};

/// mov eax, 1; mov rax, [0]; mov eax, 77; ret. The first two instructions are the relocated form of one original
/// instruction.
const SPLIT: [u8; 24] = [
    0xb8, 1, 0, 0, 0, 0x48, 0x8b, 4, 0x25, 0, 0, 0, 0, 0xb8, 77, 0, 0, 0, 0xc3, 0x90, 0x90, 0x90, 0x90, 0x90,
];

#[test]
fn a_fault_in_a_relocated_instruction_has_its_original_address() {
    let _alone = alone();
    let code = map_code(&CODE);
    let split = map_code(&SPLIT);
    let original = map(4096, libc::MAP_PRIVATE);
    let entry = |from, to| Redirect { from, to };
    let fault = |origins: Vec<Redirect>, at: u64| {
        let mut origins = origins;
        origins.sort_by_key(|entry| entry.from);
        let target = Target::new(&Options {
            origins,
            ..Options::default()
        });
        target.install();
        target.set_action(SLOT_SEGV, programs_own(0, 0));
        RESUME.store(code + SEVENTY_SEVEN, Ordering::Relaxed);
        execute(at);
        RIP.load(Ordering::Relaxed)
    };
    let end = entry(code + 64, 0);
    // A fault at the address of an entry; and a fault between two entries, in the second part of an instruction that
    // was relocated as several.
    let exact = vec![entry(code + LOAD_NULL, original + 3), end];
    succeeds(|| i32::from(fault(exact, code + LOAD_NULL) != original + 3));
    let within = vec![
        entry(split, original + 7),
        entry(split + 13, original + 9),
        entry(split + 19, 0),
    ];
    succeeds(|| i32::from(fault(within, split) != original + 7));
    // Faults that are not in a relocated instruction: below the first entry, after the last detour, in a detour's own
    // code, and without any table.
    let below = vec![entry(code + LOAD_NULL + 1, original), end];
    succeeds(|| i32::from(fault(below, code + LOAD_NULL) != code + LOAD_NULL));
    let behind = vec![entry(code - 64, original), entry(code - 32, 0)];
    succeeds(|| i32::from(fault(behind, code + LOAD_NULL) != code + LOAD_NULL));
    let own = vec![
        entry(split, original),
        entry(split + 1, 0),
        entry(split + 13, original),
        entry(split + 19, 0),
    ];
    succeeds(|| i32::from(fault(own, split) != split + 5));
    succeeds(|| i32::from(fault(Vec::new(), split) != split + 5));

    let target = Target::new(&Options {
        origins: vec![entry(code + LOAD_NULL, original + 3), end],
        ..Options::default()
    });
    target.install();
    target.set_action(SLOT_SEGV, action(0, 0));
    assert_eq!(signal_of_death(in_child(|| execute(code + LOAD_NULL))), libc::SIGSEGV);
}
