//! The goroutine of a thread, for various contents of the slot at its thread pointer.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::cell::Cell;

use common::{Options, Target};
use nanoprobe_agent::Function;
use nanoprobe_arena::layout::Context;
use std::mem::offset_of;

thread_local! {
    /// The value of the runtime's `runtime.tlsg`.
    static SLOT: Cell<u64> = const { Cell::new(0) };
}

/// From the thread pointer.
fn slot() -> u64 {
    let pointer: u64;
    // SAFETY: reads the C library's own pointer to the thread control block, which fs points to.
    unsafe { std::arch::asm!("mov {}, fs:0", out(reg) pointer, options(nostack, readonly)) };
    let address = SLOT.with(|slot| std::ptr::from_ref(slot) as u64);
    address.wrapping_sub(pointer)
}

#[test]
fn a_goroutine_is_found_by_way_of_the_thread() {
    const OFFSETS: u64 = 48 | 184 << 16 | 152 << 32;
    let target = Target::new(&Options::default());
    target.install();
    let context = target.enter();
    let tid = target.get(context, offset_of!(Context, tid)) & 0xffff_ffff;
    let task = 1 << 63 | tid;
    let found = |with_task: u64| {
        target.begin(context);
        let (result, fault) = target.run(context, Function::Goroutine, &[slot(), OFFSETS, with_task]);
        assert_eq!(fault, 0, "it never fails");
        result
    };
    let structures = common::map(4096, libc::MAP_PRIVATE);
    let (own, system, machine) = (structures, structures + 1024, structures + 2048);
    let put = |address: u64, value: u64| {
        // SAFETY: the mapping is ours, and this is inside of it.
        unsafe { (address as *mut u64).write_volatile(value) };
    };
    let say = |slot: u64, current: u64, number: u64| {
        put(machine + 184, current);
        put(system + 48, machine);
        put(own + 48, machine);
        put(own + 152, number);
        SLOT.with(|word| word.set(slot));
    };
    // The cases: no goroutine yet; a goroutine on its own stack; a goroutine while the thread is on the scheduler's
    // stack; the scheduler without a goroutine; an invalid address.
    for (slot, current, number, expected) in [
        (0, 0, 7, 0),
        (own, own, 7, 7),
        (system, own, 8, 8),
        (system, 0, 8, 0),
        (16, own, 8, 0),
        (1 << 63, own, 8, 0),
        (system, 24, 8, 0),
    ] {
        say(slot, current, number);
        assert_eq!(found(0), expected, "{slot:#x} {current:#x}");
        assert_eq!(found(1), if expected == 0 { task } else { expected });
    }
}
