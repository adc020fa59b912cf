//! The program's signal masks and actions, when the agent intercepts its calls. In the kernel, SIGTRAP, SIGILL,
//! SIGSEGV and SIGBUS are never blocked, but for the program they are.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use core::ffi::c_void;
use core::mem::offset_of;
use std::sync::{Mutex, MutexGuard, PoisonError};

use common::{Options, Target, exchange_action, in_child, map};
use nanoprobe_agent::Function;
use nanoprobe_arena::Memory;
use nanoprobe_arena::layout::{
    Control, Registers, SLOT_BUS, SLOT_ILL, SLOT_SEGV, SLOT_TRAP, SYNCHRONOUS, SignalAction, TABLE_ACTION_MASKS,
    TABLE_BLOCKED, TABLE_SLOTS,
};

const SIGPROCMASK: u64 = 14;
const SIGACTION: u64 = 13;
const BLOCK: u64 = 0;
const UNBLOCK: u64 = 1;
const SETMASK: u64 = 2;
/// The kernel does not allow these to be blocked.
const NEVER: u64 = 1 << (libc::SIGKILL - 1) | 1 << (libc::SIGSTOP - 1);
const ALL: u64 = !NEVER;
const USR1: u64 = 1 << (libc::SIGUSR1 - 1);

/// The tests share the signal actions and the main thread's mask.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The result that the agent returns in rax; `None`: the agent lets the program make the call.
fn shim(target: &Target, number: u64, arguments: [u64; 4]) -> Option<i64> {
    let before = Registers {
        rax: number,
        rdi: arguments[0],
        rsi: arguments[1],
        rdx: arguments[2],
        r10: arguments[3],
        rbx: 0x1234,
        ..Registers::default()
    };
    let mut registers = before;
    // SAFETY: the function lies in the image, which is mapped r-x, and has this signature.
    let entry: extern "C" fn(*mut Registers, u64, u64) -> u64 =
        unsafe { core::mem::transmute(target.address(Function::ShimSyscall)) };
    let handled = entry(&raw mut registers, 1, 0);
    let rax = registers.rax;
    registers.rax = number;
    assert_eq!(registers, before);
    match handled {
        0 => {
            assert_eq!(rax, number);
            None
        }
        1 => Some(rax as i64),
        other => panic!("neither yes nor no: {other}"),
    }
}

/// The result of `sigprocmask` for the program, with the old mask.
fn mask(target: &Target, how: u64, set: Option<u64>) -> (i64, u64) {
    let set = set.as_ref().map_or(0, |set| core::ptr::from_ref(set) as u64);
    let mut old = 0_u64;
    let arguments = [how, set, core::ptr::from_mut(&mut old) as u64, 8];
    let result = shim(target, SIGPROCMASK, arguments).unwrap_or_else(|| raw_mask(arguments));
    (result, old)
}

fn raw_mask(arguments: [u64; 4]) -> i64 {
    let [how, set, old, size] = arguments;
    // SAFETY: as the caller says; the kernel checks the pointers.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, how, set, old, size) }
}

fn kernels_mask() -> u64 {
    let mut old = 0_u64;
    assert_eq!(raw_mask([BLOCK, 0, core::ptr::from_mut(&mut old) as u64, 8]), 0);
    old
}

fn set_kernels_mask(mask: u64) {
    assert_eq!(raw_mask([SETMASK, core::ptr::from_ref(&mask) as u64, 0, 8]), 0);
}

/// All masks that the table records.
fn recorded(target: &Target) -> Vec<u16> {
    let words = |offset: usize, count: usize| {
        // SAFETY: the table is mapped, and only this thread writes it now.
        unsafe { core::slice::from_raw_parts((target.table + offset as u64) as *const u16, count) }.to_vec()
    };
    let mut all = words(TABLE_BLOCKED, TABLE_SLOTS);
    all.extend(words(TABLE_ACTION_MASKS, 64));
    all.into_iter().filter(|word| *word != 0).collect()
}

/// Runs `action` in its own thread, with its own mask, which is empty at first.
fn in_thread(action: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            set_kernels_mask(0);
            action();
            set_kernels_mask(0);
        });
        thread.join().unwrap();
    });
}

#[test]
fn the_kernel_never_learns_that_the_four_are_blocked() {
    let target = Target::new(&Options::default());
    in_thread(|| {
        assert_eq!(mask(&target, SETMASK, Some(!0)), (0, 0));
        assert_eq!(kernels_mask(), ALL & !SYNCHRONOUS);
        assert_eq!(recorded(&target), [SYNCHRONOUS as u16]);
        assert_eq!(mask(&target, BLOCK, None), (0, ALL));
        let two = 1 << (libc::SIGTRAP - 1) | 1 << (libc::SIGSEGV - 1);
        assert_eq!(mask(&target, UNBLOCK, Some(two | USR1)), (0, ALL));
        assert_eq!(kernels_mask(), ALL & !SYNCHRONOUS & !USR1);
        assert_eq!(mask(&target, BLOCK, Some(two)), (0, ALL & !two & !USR1));
        assert_eq!(mask(&target, SETMASK, Some(two)), (0, ALL & !USR1));
        assert_eq!(kernels_mask(), 0);
        assert_eq!(recorded(&target), [two as u16]);
        assert_eq!(mask(&target, SETMASK, Some(USR1)), (0, two));
        assert_eq!(kernels_mask(), USR1);
        assert_eq!(mask(&target, BLOCK, None), (0, USR1));
        assert!(recorded(&target).is_empty());
    });
}

#[test]
fn every_thread_believes_for_itself() {
    let target = Target::new(&Options::default());
    in_thread(|| {
        assert_eq!(mask(&target, SETMASK, Some(!0)).0, 0);
        in_thread(|| assert_eq!(mask(&target, BLOCK, None), (0, 0)));
        assert_eq!(mask(&target, SETMASK, Some(0)), (0, ALL));
    });
}

#[test]
fn calls_about_other_signals_are_left_to_the_program() {
    let target = Target::new(&Options::default());
    in_thread(|| {
        let shim = |arguments| shim(&target, SIGPROCMASK, arguments);
        let (usr1, all) = (USR1, !0_u64);
        let (usr1, all) = (core::ptr::from_ref(&usr1) as u64, core::ptr::from_ref(&all) as u64);
        for how in [BLOCK, UNBLOCK, SETMASK] {
            assert_eq!(shim([how, usr1, 0, 8]), None);
        }
        assert_eq!(shim([UNBLOCK, all, 0, 8]), None);
        assert_eq!(shim([BLOCK, 0, 0, 8]), None);
        // These are calls that the kernel will refuse.
        assert_eq!(shim([3, all, 0, 8]), None);
        assert_eq!(shim([BLOCK, all, 0, 4]), None);
        let unreadable = map(8192, libc::MAP_PRIVATE);
        // SAFETY: the mapping is ours.
        assert_eq!(unsafe { libc::munmap((unreadable + 4096) as *mut c_void, 4096) }, 0);
        for bad in [1, unreadable + 4092, unreadable + 4096, !0] {
            assert_eq!(shim([BLOCK, bad, 0, 8]), None);
        }
        assert_eq!(kernels_mask(), 0);
        // The kernel sets the new mask, and reports that it could not store the old one.
        assert_eq!(shim([BLOCK, all, unreadable + 4096, 8]), Some(-i64::from(libc::EFAULT)));
        assert_eq!(kernels_mask(), ALL & !SYNCHRONOUS);
        assert_eq!(recorded(&target), [SYNCHRONOUS as u16]);
    });
}

#[test]
fn a_forked_child_is_filtered_and_records_nothing() {
    let _alone = alone();
    let target = Target::new(&Options::default());
    in_thread(|| {
        assert_eq!(mask(&target, SETMASK, Some(!0)).0, 0);
        // The child has a copy of the parent's records, and no slot of its own.
        let inherited = recorded(&target);
        let status = in_child(|| {
            let good = mask(&target, BLOCK, None) == (0, ALL & !SYNCHRONOUS)
                && mask(&target, SETMASK, Some(0)).0 == 0
                && kernels_mask() == 0
                && recorded(&target) == inherited
                && mask(&target, SETMASK, Some(!0)).0 == 0
                && kernels_mask() == ALL & !SYNCHRONOUS
                && recorded(&target) == inherited;
            i32::from(!good)
        });
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status:#x}");
        assert_eq!(mask(&target, BLOCK, None), (0, ALL));
    });
}

extern "C" fn child_with_our_memory(target: *mut c_void) -> i32 {
    // SAFETY: the parent waits, so the target outlives this.
    let target = unsafe { &*target.cast::<Target>() };
    let ignore = action(1, 0);
    let new = core::ptr::from_ref(&ignore) as u64;
    let trap = shim(target, SIGACTION, [libc::SIGTRAP as u64, new, 0, 8]);
    let all = action(1, !0);
    let new = core::ptr::from_ref(&all) as u64;
    let other = shim(target, SIGACTION, [libc::SIGUSR2 as u64, new, 0, 8]);
    let (result, _) = mask(target, SETMASK, Some(!0));
    i32::from(trap != Some(0)) + 2 * i32::from(other != Some(0)) + 4 * i32::from(result != 0)
}

/// A child of posix_spawn and vfork has its own masks and actions, but its parent's memory.
#[test]
fn a_child_that_shares_our_memory_records_nothing() {
    let _alone = alone();
    let target = installed();
    // This thread claims its slot of the table now, so that `before` already contains the claim.
    let (_, own) = mask(&target, SETMASK, Some(!0));
    mask(&target, SETMASK, Some(own));
    let before = target.memory.copy(0, 4096).unwrap();
    let stack = map(1 << 18, libc::MAP_PRIVATE) + (1 << 18);
    // SAFETY: the child runs on its own stack, and we wait until it has ended.
    let status = unsafe {
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        let argument = core::ptr::from_ref(&target).cast_mut().cast();
        let child = libc::clone(child_with_our_memory, stack as *mut c_void, flags, argument);
        assert!(child > 0);
        nanoprobe_tests::in_time::status_of_forked(child)
    };
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status:#x}");
    assert!(recorded(&target).is_empty());
    assert!(before == target.memory.copy(0, 4096).unwrap());
}

fn action(handler: u64, mask: u64) -> SignalAction {
    SignalAction {
        handler,
        flags: 0x0400_0000 | libc::SA_RESTART as u64,
        restorer: 0x5555,
        mask,
    }
}

const SIGNALS: [(i32, usize); 4] = [
    (libc::SIGTRAP, SLOT_TRAP),
    (libc::SIGSEGV, SLOT_SEGV),
    (libc::SIGBUS, SLOT_BUS),
    (libc::SIGILL, SLOT_ILL),
];

/// A target whose actions for the four signals are installed in the kernel. The recorded actions of the program are
/// handlers at 0x1000 + slot.
fn installed() -> Target {
    let target = Target::new(&Options::default());
    target.install();
    for (signal, slot) in SIGNALS {
        target.set_action(slot, action(0x1000 + slot as u64, USR1));
        let offset = offset_of!(Control, installed) + slot * size_of::<SignalAction>();
        target
            .memory
            .write_structure(offset as u64, &exchange_action(signal, None))
            .unwrap();
    }
    target
        .memory
        .store_u32(offset_of!(Control, action_mask) as u64, 0xf)
        .unwrap();
    target
}

/// The result of `sigaction` for the program.
fn exchange(target: &Target, signal: i32, new: Option<SignalAction>) -> (i64, SignalAction) {
    let mut old = SignalAction::default();
    let new = new.as_ref().map_or(0, |new| core::ptr::from_ref(new) as u64);
    let arguments = [signal as u64, new, core::ptr::from_mut(&mut old) as u64, 8];
    let result = shim(target, SIGACTION, arguments).unwrap_or_else(|| {
        // SAFETY: the pointers are to structures of the kernel's, or null.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, arguments[0], arguments[1], arguments[2], 8) }
    });
    (result, old)
}

#[test]
fn the_programs_own_action_is_exchanged_in_our_record() {
    let _alone = alone();
    let target = installed();
    for (signal, slot) in SIGNALS {
        let ours = exchange_action(signal, None);
        let first = action(0x1000 + slot as u64, USR1);
        let second = SignalAction {
            flags: 0x0c00_0000,
            ..action(0x2000, !0)
        };
        assert_eq!(exchange(&target, signal, None), (0, first));
        assert_eq!(exchange(&target, signal, Some(second)), (0, first));
        assert_eq!(exchange(&target, signal, Some(action(0, 0))), (0, second));
        assert_eq!(exchange(&target, signal, None), (0, action(0, 0)));
        assert_eq!(exchange_action(signal, None), ours);
        // The frame must lie where the program wants it.
        let elsewhere = SignalAction {
            flags: 0x0400_0000,
            ..second
        };
        assert_eq!(exchange(&target, signal, Some(elsewhere)).0, 0);
        let moved = SignalAction {
            flags: ours.flags & !(libc::SA_ONSTACK as u64),
            ..ours
        };
        assert_eq!(exchange_action(signal, None), moved);
        exchange_action(signal, Some(ours));
        // Bad pointers get the kernel's answer. As in the kernel, a bad pointer for the old action
        // is found after the action is set.
        let good = core::ptr::from_ref(&second) as u64;
        let shim = |new, old| shim(&target, SIGACTION, [signal as u64, new, old, 8]);
        assert_eq!(shim(1, 0), None);
        assert_eq!(exchange(&target, signal, None), (0, elsewhere));
        assert_eq!(shim(good, 1), Some(-i64::from(libc::EFAULT)));
        assert_eq!(exchange(&target, signal, None), (0, second));
    }
    // An action that was set directly in the kernel is found there.
    let theirs = action(1, 0);
    let ours = exchange_action(libc::SIGTRAP, Some(theirs));
    let null = [libc::SIGTRAP as u64, 0, 0, 8];
    assert_eq!(shim(&target, SIGACTION, null), None);
    exchange_action(libc::SIGTRAP, Some(ours));
}

#[test]
fn in_a_forked_child_traps_stay_ours_and_faults_become_the_childs() {
    let _alone = alone();
    let target = installed();
    let before = target.memory.copy(0, 4096).unwrap();
    let status = in_child(|| {
        let mut good = true;
        for (signal, slot) in SIGNALS {
            let first = action(0x1000 + slot as u64, USR1);
            let ours = exchange_action(signal, None);
            good &= exchange(&target, signal, None) == (0, first);
            good &= exchange(&target, signal, Some(action(1, 0))) == (0, first);
            let now = exchange_action(signal, None);
            let traps = signal == libc::SIGTRAP || signal == libc::SIGILL;
            good &= if traps { now == ours } else { now.handler == 1 };
        }
        i32::from(!good)
    });
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status:#x}");
    assert!(before == target.memory.copy(0, 4096).unwrap());
}

#[test]
fn masks_of_other_actions_block_none_of_the_four() {
    let _alone = alone();
    let target = installed();
    let signal = libc::SIGUSR2;
    let was = exchange_action(signal, None);
    let all = action(1, ALL);
    assert_eq!(exchange(&target, signal, Some(all)), (0, was));
    assert_eq!(exchange_action(signal, None), action(1, ALL & !SYNCHRONOUS));
    assert_eq!(recorded(&target), [SYNCHRONOUS as u16]);
    assert_eq!(exchange(&target, signal, None), (0, all));
    assert_eq!(exchange(&target, signal, Some(action(1, USR1))), (0, all));
    assert_eq!(exchange(&target, signal, None), (0, action(1, USR1)));
    assert!(recorded(&target).is_empty());
    // Calls that do not concern the agent, and calls that the kernel would refuse.
    let new = core::ptr::from_ref(&all) as u64;
    let shim = |arguments| shim(&target, SIGACTION, arguments);
    for arguments in [
        [signal as u64, 0, 0, 8],
        [signal as u64, new, 0, 16],
        [0, new, 0, 8],
        [65, new, 0, 8],
    ] {
        assert_eq!(shim(arguments), None);
    }
    assert_eq!(shim([signal as u64, 1, 0, 8]), None);
    assert_eq!(shim([libc::SIGKILL as u64, new, 0, 8]), Some(-i64::from(libc::EINVAL)));
    assert!(recorded(&target).is_empty());
    exchange_action(signal, Some(was));
}
