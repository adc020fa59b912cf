//! Calls that wait under their own signal mask: they get a copy without SIGTRAP, SIGILL, SIGSEGV and SIGBUS.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use common::{Options, Target, in_child};
use nanoprobe_agent::Function;
use nanoprobe_arena::layout::{Registers, SYNCHRONOUS, TABLE_BYTES};

/// All signals except those that cannot be blocked.
const ALL: u64 = !(1 << (libc::SIGKILL - 1) | 1 << (libc::SIGSTOP - 1));
const USR1: u64 = 1 << (libc::SIGUSR1 - 1);

/// The registers with which the kernel gets a call that waits.
fn waiting(target: &Target, before: Registers, lends: bool) -> Registers {
    let mut registers = before;
    // SAFETY: the function lies in the image, which is mapped r-x, and has this signature.
    let entry: extern "C" fn(*mut Registers, u64, u64) -> u64 =
        unsafe { core::mem::transmute(target.address(Function::ShimSyscall)) };
    assert_eq!(
        entry(&raw mut registers, lends.into(), 0),
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
    // Calls that must not change: with no signal to take out, without a mask, with another size; and other calls.
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

/// The kernel must report that a pointer is bad: in the traced process, and in its child, where the agent handles no
/// fault.
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

/// A handler that runs before the call makes such calls itself.
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

// Calls the shim for a wait for signals, then makes another system call, and then comes to the place of the wait's
// `syscall`. Instead of it there are two bytes that would kill the thread. rdi: the shim, rsi: the wait's registers,
// rdx: the other call and its three arguments.
core::arch::global_asm!(
    ".globl nanoprobe_test_window",
    "nanoprobe_test_window:",
    "push rbx; push rbp; mov rbx, rdx; mov rbp, rsp; and rsp, -16; sub rsp, 256",
    "mov rax, rdi; mov ecx, 16; mov rdi, rsp; rep movsq",
    "mov rdi, rsp; xor esi, esi; lea rdx, [rip + 2f]; call rax",
    "add rsp, 256; test eax, eax; jne 3f",
    "mov rax, [rbx]; mov rdi, [rbx + 8]; mov rsi, [rbx + 16]; mov rdx, [rbx + 24]; mov r10d, 8; syscall",
    "2: ud2",
    "jmp 4f",
    "3: mov eax, 1000",
    "4: mov rsp, rbp; pop rbp; pop rbx; ret",
);

unsafe extern "C" {
    fn nanoprobe_test_window(shim: u64, registers: *const Registers, call: *const [u64; 4]) -> i64;
}

/// If a signal arrives after the shim has looked and before the call is made, it becomes the result of the call. A
/// bad pointer for its siginfo leads to EFAULT, as in the kernel, although the handler itself blocks the signal.
#[test]
fn a_signal_just_before_a_wait_is_the_waits_result() {
    const EFAULT: i64 = -(libc::EFAULT as i64);
    let signals = [libc::SIGTRAP, libc::SIGSEGV, libc::SIGBUS, libc::SIGILL];
    let status = in_child(|| {
        let target = Target::new(&Options::default());
        target.install();
        // SAFETY: asks for numbers.
        let [process, thread] = unsafe { [libc::SYS_getpid, libc::SYS_gettid].map(|call| libc::syscall(call)) };
        for signal in signals {
            let set = 1_u64 << (signal - 1);
            // The call that unblocks the signal reads its mask from here; the siginfo will be stored in the same
            // place.
            let mut information = [set; 16];
            let wait = |address: u64| Registers {
                rax: libc::SYS_rt_sigtimedwait as u64,
                rdi: core::ptr::from_ref(&set) as u64,
                rsi: address,
                r10: 8,
                ..Registers::default()
            };
            let place = information.as_mut_ptr() as u64;
            let lets_in = [libc::SYS_rt_sigprocmask as u64, libc::SIG_UNBLOCK as u64, place, 0];
            let sends = [libc::SYS_tgkill as u64, process as u64, thread as u64, signal as u64];
            let shim = target.address(Function::ShimSyscall);
            // SAFETY: the masks and the siginfo outlive the calls; the signal goes to this thread,
            // which has the handlers.
            let (result, bad) = unsafe {
                libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, &raw const set, 0, 8);
                libc::syscall(libc::SYS_tgkill, process, thread, signal);
                let result = nanoprobe_test_window(shim, &wait(place), &lets_in);
                // The second argument is the thread's number instead of an address, so the siginfo cannot be stored.
                let bad = nanoprobe_test_window(shim, &wait(thread as u64), &sends);
                (result, bad)
            };
            let told = information[0] as u32 as i32;
            if (result, told, bad) != (i64::from(signal), signal, EFAULT) {
                return signal;
            }
        }
        0
    });
    assert_eq!(status, 0, "the signal");
}
