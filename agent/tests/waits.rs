//! Calls that wait under a signal mask of their own: they get a copy without SIGTRAP, SIGILL, SIGSEGV and SIGBUS.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use common::{Options, Target, in_child};
use nanoprobe_agent::Function;
use nanoprobe_arena::layout::{Registers, SYNCHRONOUS, TABLE_BYTES};

/// All but those that nobody can block.
const ALL: u64 = !(1 << (libc::SIGKILL - 1) | 1 << (libc::SIGSTOP - 1));
const USR1: u64 = 1 << (libc::SIGUSR1 - 1);

/// The registers in front of a call that waits, as the kernel gets them.
fn waiting(target: &Target, before: Registers, lends: bool) -> Registers {
    let mut registers = before;
    // SAFETY: the function lies in the image, which is mapped r-x, and has this signature.
    let entry: extern "C" fn(*mut Registers, u64) -> u64 =
        unsafe { core::mem::transmute(target.address(Function::ShimSyscall)) };
    assert_eq!(
        entry(&raw mut registers, lends.into()),
        0,
        "the program makes the call itself"
    );
    registers
}

fn sigsuspend(mask: u64) -> Registers {
    Registers {
        rax: libc::SYS_rt_sigsuspend as u64,
        rdi: mask,
        rsi: 8,
        ..Registers::default()
    }
}

fn word(address: u64) -> u64 {
    // SAFETY: a mask of the test's, or a copy in the table, which is mapped.
    unsafe { (address as *const u64).read_volatile() }
}

#[test]
fn a_wait_gets_a_mask_without_the_four() {
    let target = Target::new(&Options::default());
    let lies_in_table = |address: u64| (target.table..target.table + TABLE_BYTES as u64).contains(&address);
    let masks = [ALL, USR1];
    let [full, harmless] = [&masks[0], &masks[1]].map(|mask| core::ptr::from_ref(mask) as u64);
    let pair = [full, 8];
    let calls = [
        sigsuspend(full),
        Registers {
            rax: libc::SYS_ppoll as u64,
            r10: full,
            r8: 8,
            ..Registers::default()
        },
        Registers {
            rax: libc::SYS_epoll_pwait as u64,
            r8: full,
            r9: 8,
            ..Registers::default()
        },
        Registers {
            rax: libc::SYS_epoll_pwait2 as u64,
            r8: full,
            r9: 8,
            ..Registers::default()
        },
        Registers {
            rax: libc::SYS_pselect6 as u64,
            r9: core::ptr::from_ref(&pair) as u64,
            ..Registers::default()
        },
    ];
    for before in calls {
        let after = waiting(&target, before, true);
        let of = |registers: &Registers| [registers.rdi, registers.r8, registers.r9, registers.r10];
        let changed: Vec<_> = of(&before)
            .into_iter()
            .zip(of(&after))
            .filter(|(before, after)| before != after)
            .collect();
        let [(original, lent)] = changed[..] else {
            panic!("one register: {changed:x?}");
        };
        assert!(lies_in_table(lent));
        let lent_mask = if before.rax == libc::SYS_pselect6 as u64 {
            assert_eq!(word(lent + 8), 8);
            word(lent)
        } else {
            lent
        };
        assert_eq!(word(lent_mask), ALL & !SYNCHRONOUS);
        assert_eq!(word(lent_mask - 8), original);
        assert_eq!(masks, [ALL, USR1], "the program's own is as it was");
        assert_eq!(waiting(&target, before, true), after, "the same once more");
        assert_eq!(waiting(&target, before, false), before, "the program reads it again");
    }
    // Nothing to take out, no mask, another size; and other calls.
    for before in [
        sigsuspend(harmless),
        sigsuspend(0),
        Registers {
            rsi: 4,
            ..sigsuspend(full)
        },
        Registers {
            rax: libc::SYS_read as u64,
            ..sigsuspend(full)
        },
    ] {
        assert_eq!(waiting(&target, before, true), before);
    }
}

/// The kernel is to say that a pointer is bad; in the traced process, and in its child, where no fault is ours.
#[test]
fn a_bad_mask_is_left_to_the_kernel() {
    let bad = [
        sigsuspend(8),
        Registers {
            rax: libc::SYS_pselect6 as u64,
            r9: 8,
            ..Registers::default()
        },
    ];
    let all_are_left = |target: &Target| bad.iter().all(|before| waiting(target, *before, true) == *before);
    let status = in_child(|| {
        let target = Target::new(&Options::default());
        target.install();
        i32::from(!all_are_left(&target))
    });
    assert_eq!(status, 0);
    let target = Target::new(&Options::default());
    assert_eq!(in_child(|| i32::from(!all_are_left(&target))), 0);
}

/// A handler that comes in front of the call makes such calls of its own.
#[test]
fn a_wait_in_a_handler_has_a_copy_of_its_own() {
    let target = Target::new(&Options::default());
    let masks: Vec<u64> = (0..4).map(|bit| ALL & !(1 << (40 + bit))).collect();
    let lent: Vec<u64> = masks
        .iter()
        .map(|mask| waiting(&target, sigsuspend(core::ptr::from_ref(mask) as u64), true).rdi)
        .collect();
    for (mask, lent) in masks.iter().zip(&lent) {
        assert_eq!(word(*lent), mask & !SYNCHRONOUS);
    }
}
