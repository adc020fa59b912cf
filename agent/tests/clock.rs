//! The clocks, and waiting for the tracer.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use core::arch::{asm, x86_64::_rdtsc};
use core::mem::offset_of;

use common::{Options, Target};
use nanoprobe_agent::Function;
use nanoprobe_arena::layout::{Control, FAULT_ILLEGAL};
use nanoprobe_arena::{ControlBlock, Memory};

fn tsc() -> u64 {
    // SAFETY: reads the time stamp counter.
    unsafe { _rdtsc() }
}

fn set(target: &Target, field: usize, value: u64) {
    target.memory.store_u64(field as u64, value).unwrap();
}

#[test]
fn time_is_calibrated() {
    let target = Target::new(&Options::default());
    let context = target.enter();
    let start = tsc();
    set(&target, offset_of!(Control, clock_tsc), start);
    set(&target, offset_of!(Control, clock_ns), 5_000_000);
    set(&target, offset_of!(Control, clock_mult), 1 << 31); // half a nanosecond a tick
    set(&target, offset_of!(Control, wall_ns), 1 << 60);
    let (time, _) = target.run(context, Function::Timestamp, &[0]);
    let (wall, _) = target.run(context, Function::WallTimestamp, &[0]);
    let end = tsc();
    assert!(time >= 5_000_000 && wall - (1 << 60) >= time);
    assert!(wall - (1 << 60) <= 5_000_000 + (end - start) / 2);
    // If the counter is before the calibration, the clock does not leap.
    set(&target, offset_of!(Control, clock_tsc), tsc() + 10_000_000_000);
    let (time, _) = target.run(context, Function::Timestamp, &[0]);
    assert!(time.wrapping_sub(5_000_000) as i64 <= 0);
}

#[test]
fn processor_time_is_the_threads() {
    let target = Target::new(&Options::default());
    let context = target.enter();
    let own = || {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the structure is ours.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    };
    let before = own();
    let (time, fault) = target.run(context, Function::VirtualTimestamp, &[]);
    assert_eq!(fault, 0);
    assert!((before..=own()).contains(&time));
    let target = Target::new(&Options {
        allow_syscalls: false,
        ..Options::default()
    });
    let context = target.enter();
    assert_eq!(
        target.run(context, Function::VirtualTimestamp, &[]),
        (0, u64::from(FAULT_ILLEGAL))
    );
}

fn calibrate(target: &Target) {
    set(target, offset_of!(Control, clock_mult), 1 << 31);
    set(target, offset_of!(Control, heartbeat_limit), u64::MAX >> 1);
}

#[test]
fn the_linker_waits_for_an_answer() {
    for allow_syscalls in [true, false] {
        let target = Target::new(&Options {
            allow_syscalls,
            ..Options::default()
        });
        let context = target.enter();
        calibrate(&target);
        let block = ControlBlock::open(&target.memory).unwrap();
        block.beat(tsc()).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for event in 1..=20 {
                    while block.library_events().unwrap().0 < event {
                        std::thread::yield_now();
                    }
                    block.acknowledge_library(event).unwrap();
                }
            });
            for _ in 0..20 {
                target.run(context, Function::LibraryEvent, &[]);
                let (event, answer) = block.library_events().unwrap();
                // Without system calls the agent looks a million times, which may be too few on a very busy machine.
                assert!(answer == event || !allow_syscalls, "{event} {answer}");
                let timeouts = block.read().unwrap().library_timeouts;
                assert!(answer == event || timeouts > 0, "{event} {answer} {timeouts}");
            }
        });
        assert_eq!(block.library_events(), Ok((20, 20)));
    }
}

#[test]
fn no_thread_waits_for_a_dead_tracer() {
    let target = Target::new(&Options::default());
    let context = target.enter();
    calibrate(&target);
    let block = ControlBlock::open(&target.memory).unwrap();
    // Without a clock only the number of looks ends the wait; if each look slept, the test would take very long.
    set(&target, offset_of!(Control, clock_mult), 0);
    target.run(context, Function::LibraryEvent, &[]);
    block.beat(tsc() - 1_000_000).unwrap();
    set(&target, offset_of!(Control, heartbeat_limit), 1000);
    target.run(context, Function::LibraryEvent, &[]);
    assert_eq!(block.library_events(), Ok((2, 0)));
    // Before the first heartbeat there is no tracer, so nothing is counted. The second time there was a tracer.
    assert_eq!(block.read().unwrap().library_timeouts, 1);
}

#[test]
fn the_handlers_entry_takes_its_context_from_r15() {
    let target = Target::new(&Options::default());
    let context = target.enter();
    // call() puts the first argument into r15, too. A different value in rdi shows which of the two registers is
    // used.
    let entry = target.address(Function::LibraryEventHandler);
    let mut rdi = 0x1234_u64;
    // SAFETY: the agent's function preserves all registers except flags.
    unsafe {
        asm!(
            "push r15", "mov r15, {context}", "call {entry}", "pop r15",
            context = in(reg) context, entry = in(reg) entry, inout("rdi") rdi,
        );
    }
    assert_eq!(rdi, 0x1234);
    assert_eq!(ControlBlock::open(&target.memory).unwrap().library_events(), Ok((1, 0)));
}
