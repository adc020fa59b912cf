//! Our own traps, and all other signals. The program receives the same signals as without us, and the same signals kill
//! it.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;
#[path = "signals/relocated.rs"]
mod relocated;

use core::ffi::c_void;
use core::mem::offset_of;
use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use std::sync::{Mutex, MutexGuard, PoisonError};

use common::delivery::deliver;
use common::{Options, ROOM, Target, in_child, map_code};
use nanoprobe_arena::Memory;
use nanoprobe_arena::layout::{
    Control, Redirect, SLOT_BUS, SLOT_ILL, SLOT_SEGV, SLOT_TRAP, SignalAction, TABLE_FACTOR, TABLE_STEPS,
};

/// int3; ret, after sixteen bytes: ud2; ret, then mov eax, 77; ret, then mov rax, [0]; ret.
const CODE: [u8; 64] = {
    let mut code = [0x90; 64];
    code[0] = 0xcc;
    code[1] = 0xc3;
    code[16] = 0x0f;
    code[17] = 0x0b;
    code[18] = 0xc3;
    code[32] = 0xb8;
    code[33] = 77;
    code[34] = 0;
    code[35] = 0;
    code[36] = 0;
    code[37] = 0xc3;
    // mov rax, [abs 0]
    code[48] = 0x48;
    code[49] = 0x8b;
    code[50] = 0x04;
    code[51] = 0x25;
    code[52] = 0;
    code[53] = 0;
    code[54] = 0;
    code[55] = 0;
    code[56] = 0xc3;
    code
};

const INT3: u64 = 0;
const UD2: u64 = 16;
const SEVENTY_SEVEN: u64 = 32;
const LOAD_NULL: u64 = 48;

fn execute(address: u64) -> i32 {
    // SAFETY: the code at `address` is a function without arguments, or the trap under test.
    let function: extern "C" fn() -> i32 = unsafe { core::mem::transmute(address) };
    function()
}

/// A target with installed handlers, and code; `redirect` makes its traps ours.
fn target(redirect: bool) -> (Target, u64) {
    let code = map_code(&CODE);
    let mut redirects = Vec::new();
    if redirect {
        // There are further redirects before, between and after, so that look-ups must search.
        for (from, to) in [
            (1, 2),
            (code + INT3, code + SEVENTY_SEVEN),
            (code + 8, 3),
            (code + UD2, code + SEVENTY_SEVEN),
            (!0, 4),
        ] {
            redirects.push(Redirect { from, to });
        }
    }
    let target = Target::new(&Options {
        redirects,
        ..Options::default()
    });
    target.install();
    (target, code)
}

/// Signal actions belong to the process: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    let guard = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    CALLS.store(0, Ordering::Relaxed);
    RESUME.store(0, Ordering::Relaxed);
    guard
}

fn action(handler: u64, flags: u64) -> SignalAction {
    SignalAction {
        handler,
        flags,
        restorer: 0,
        mask: 0,
    }
}

#[test]
fn traps_go_where_the_table_says() {
    let _alone = alone();
    let (_target, code) = target(true);
    for _ in 0..100 {
        assert_eq!(execute(code + INT3), 77);
        assert_eq!(execute(code + UD2), 77);
    }
}

#[test]
fn an_older_table_holds_where_the_newer_one_has_no_entry() {
    let _alone = alone();
    let (target, code) = target(false);
    let entry = |from, to| Redirect { from, to };
    let right = code + SEVENTY_SEVEN;
    // Both orders of the nearest neighbours before the address, and one without a neighbour.
    for (older, newer) in [
        (
            vec![entry(code + INT3, 3), entry(code + UD2, right)],
            vec![entry(code + INT3, right)],
        ),
        (vec![entry(code + INT3, right)], vec![entry(code + UD2, right)]),
        (
            vec![entry(code + INT3, right), entry(code + 8, 3)],
            vec![entry(1, 2), entry(code + UD2, right), entry(!0, 4)],
        ),
        (vec![], vec![entry(code + INT3, right), entry(code + UD2, right)]),
        (vec![entry(code + INT3, right), entry(code + UD2, right)], vec![]),
        (
            vec![entry(code + INT3, right), entry(code + UD2, right)],
            vec![entry(code + 1, 2), entry(code + 15, 2)],
        ),
    ] {
        target.redirect_over(&older, &newer);
        assert_eq!(execute(code + INT3), 77, "{older:?} {newer:?}");
        assert_eq!(execute(code + UD2), 77, "{older:?} {newer:?}");
    }
}

#[test]
fn in_a_forked_child_too() {
    let _alone = alone();
    let (_target, code) = target(true);
    let status = in_child(|| i32::from(execute(code + INT3) + execute(code + UD2) != 154));
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status:#x}");
}

/// Memory whose file is too short for it.
fn behind_a_file() -> u64 {
    // SAFETY: a new file and a new mapping.
    unsafe {
        let file = libc::memfd_create(c"empty".as_ptr(), 0);
        let at = libc::mmap(core::ptr::null_mut(), 4096, libc::PROT_READ, libc::MAP_SHARED, file, 0);
        assert_ne!(at, libc::MAP_FAILED);
        at as u64
    }
}

fn signal_of_death(status: i32) -> i32 {
    assert!(libc::WIFSIGNALED(status), "it has lived: {status:#x}");
    libc::WTERMSIG(status)
}

#[test]
fn a_program_without_handlers_dies_of_the_same_signal() {
    let _alone = alone();
    let bus = behind_a_file();
    for allow_syscalls in [true, false] {
        let code = map_code(&CODE);
        let target = Target::new(&Options {
            allow_syscalls,
            ..Options::default()
        });
        target.install();
        for slot in [SLOT_TRAP, SLOT_SEGV, SLOT_BUS, SLOT_ILL] {
            target.set_action(slot, action(0, 0));
        }
        assert_eq!(signal_of_death(in_child(|| execute(code + INT3))), libc::SIGTRAP);
        assert_eq!(signal_of_death(in_child(|| execute(code + UD2))), libc::SIGILL);
        assert_eq!(signal_of_death(in_child(|| execute(code + LOAD_NULL))), libc::SIGSEGV);
        let read = || {
            // SAFETY: the read that kills the child.
            unsafe { (bus as *const i32).read_volatile() }
        };
        assert_eq!(signal_of_death(in_child(read)), libc::SIGBUS);
        for signal in [libc::SIGTRAP, libc::SIGILL, libc::SIGSEGV, libc::SIGBUS] {
            // SAFETY: a signal to ourselves, in the child.
            assert_eq!(signal_of_death(in_child(|| unsafe { libc::raise(signal) })), signal);
        }
        // If the action is to ignore a signal, a signal that was sent is ignored, and a signal that an instruction
        // caused is not.
        for slot in [SLOT_TRAP, SLOT_SEGV] {
            target.set_action(slot, action(1, 0));
        }
        let status = in_child(|| {
            // SAFETY: signals to ourselves, in the child.
            unsafe { libc::raise(libc::SIGTRAP) + libc::raise(libc::SIGSEGV) }
        });
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status:#x}");
        assert_eq!(signal_of_death(in_child(|| execute(code + INT3))), libc::SIGTRAP);
        assert_eq!(signal_of_death(in_child(|| execute(code + LOAD_NULL))), libc::SIGSEGV);
    }
}

/// The arguments that the program's handler received.
static CALLS: AtomicI32 = AtomicI32::new(0);
static SIGNAL: AtomicI32 = AtomicI32::new(0);
static CODE_OF_SIGNAL: AtomicI32 = AtomicI32::new(0);
static RIP: AtomicU64 = AtomicU64::new(0);
static BLOCKED: AtomicU64 = AtomicU64::new(0);
/// Where the handler returns to.
static BACK: AtomicU64 = AtomicU64::new(0);
/// The address at which the handler lets the program continue; 0: where the program was.
static RESUME: AtomicU64 = AtomicU64::new(0);

extern "C" fn programs_handler(signal: i32, information: *const libc::siginfo_t, context: *mut c_void) {
    CALLS.fetch_add(1, Ordering::Relaxed);
    SIGNAL.store(signal, Ordering::Relaxed);
    let context: *mut libc::ucontext_t = context.cast();
    let mut blocked = 0_u64;
    // SAFETY: the kernel's structures, as the agent passes them; a system call that writes eight bytes.
    unsafe {
        CODE_OF_SIGNAL.store((*information).si_code, Ordering::Relaxed);
        BACK.store(*context.cast::<u64>().sub(1), Ordering::Relaxed);
        let registers = &mut (*context).uc_mcontext.gregs;
        RIP.store(registers[libc::REG_RIP as usize] as u64, Ordering::Relaxed);
        if RESUME.load(Ordering::Relaxed) != 0 {
            registers[libc::REG_RIP as usize] = RESUME.load(Ordering::Relaxed) as i64;
        }
        let none: *const u64 = core::ptr::null();
        libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, none, &raw mut blocked, 8);
    }
    BLOCKED.store(blocked, Ordering::Relaxed);
}

fn programs_own(flags: u64, mask: u64) -> SignalAction {
    let handler: extern "C" fn(i32, *const libc::siginfo_t, *mut c_void) = programs_handler;
    SignalAction {
        handler: handler as usize as u64,
        flags: flags | 4,
        restorer: 0,
        mask,
    }
}

/// 0 if all checks hold, else the number of the first check that does not.
fn first_wrong(checks: &[bool]) -> i32 {
    checks
        .iter()
        .position(|check| !check)
        .map_or(0, |index| index as i32 + 1)
}

fn succeeds(action: impl FnOnce() -> i32) {
    let status = in_child(action);
    assert!(libc::WIFEXITED(status), "died of signal {}", libc::WTERMSIG(status));
    assert_eq!(libc::WEXITSTATUS(status), 0, "number of the check that failed");
}

const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

#[test]
fn the_programs_handler_is_called_as_it_would_be() {
    let _alone = alone();
    let (target, code) = target(true);
    target.set_action(SLOT_TRAP, programs_own(0, bit(libc::SIGUSR1)));
    succeeds(|| {
        // This int3 is not in the table, so it is the program's. The kernel leaves rip after it, and the program
        // continues there.
        let own = code + INT3;
        let other = map_code(&CODE);
        execute(other + INT3);
        let first = first_wrong(&[
            CALLS.load(Ordering::Relaxed) == 1,
            SIGNAL.load(Ordering::Relaxed) == libc::SIGTRAP,
            CODE_OF_SIGNAL.load(Ordering::Relaxed) == 0x80,
            RIP.load(Ordering::Relaxed) == other + 1,
            BLOCKED.load(Ordering::Relaxed) & bit(libc::SIGUSR1) != 0,
            BLOCKED.load(Ordering::Relaxed) & bit(libc::SIGTRAP) == 0,
        ]);
        // A signal that was sent is the program's, even if the thread stands at a trap of ours. SAFETY: a signal to
        // ourselves, in the child.
        unsafe { libc::raise(libc::SIGTRAP) };
        let second = first_wrong(&[
            CALLS.load(Ordering::Relaxed) == 2,
            CODE_OF_SIGNAL.load(Ordering::Relaxed) == libc::SI_TKILL,
            execute(own) == 77,
            CALLS.load(Ordering::Relaxed) == 2,
        ]);
        if first != 0 {
            first
        } else if second != 0 {
            second + 10
        } else {
            0
        }
    });
}

/// Nothing of ours stays on the stack; an action without a restorer gets ours.
#[test]
fn the_programs_handler_returns_to_its_own_restorer() {
    const SA_RESTORER: u64 = 0x0400_0000;
    let _alone = alone();
    let (target, _) = target(false);
    let code = map_code(&CODE);
    let own = map_code(&[0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 5]);
    let ours = target.address(nanoprobe_agent::Function::Restorer);
    for (flags, back) in [(SA_RESTORER, own), (0, ours)] {
        let action = SignalAction {
            restorer: own,
            ..programs_own(flags, 0)
        };
        target.set_action(SLOT_TRAP, action);
        execute(code + INT3);
        assert_eq!(BACK.load(Ordering::Relaxed), back);
    }
    assert_eq!(CALLS.load(Ordering::Relaxed), 2);
}

#[test]
fn no_defer_and_reset() {
    let _alone = alone();
    let (target, _) = target(false);
    let code = map_code(&CODE);
    target.set_action(SLOT_TRAP, programs_own(libc::SA_NODEFER as u64, 0));
    succeeds(|| {
        execute(code + INT3);
        first_wrong(&[BLOCKED.load(Ordering::Relaxed) & bit(libc::SIGTRAP) == 0])
    });
    target.set_action(SLOT_TRAP, programs_own(libc::SA_RESETHAND as u32 as u64, 0));
    execute(code + INT3);
    assert_eq!(CALLS.load(Ordering::Relaxed), 1);
    let offset = offset_of!(Control, actions) + SLOT_TRAP * 32;
    assert_eq!(target.memory.load_u64(offset as u64), Ok(0));
    assert_eq!(signal_of_death(in_child(|| execute(code + INT3))), libc::SIGTRAP);
}

/// What a stray write, or a child that shares the arena, can change leads no signal astray.
#[test]
fn the_arena_names_no_handler_that_is_called() {
    let _alone = alone();
    let (target, _) = target(false);
    let code = map_code(&CODE);
    target.set_action(SLOT_TRAP, programs_own(0, 0));
    let elsewhere = SignalAction {
        handler: 0x1000,
        restorer: 0x1000,
        ..programs_own(0, 0)
    };
    target.copy_action(SLOT_TRAP, elsewhere);
    execute(code + INT3);
    assert_eq!(CALLS.load(Ordering::Relaxed), 1);
}

/// The program jumps to the byte after a trap of ours and gets a SIGTRAP for another reason there: a step of its own,
/// a breakpoint register, a perf event.
#[test]
fn only_an_int3_has_executed_our_int3() {
    let _alone = alone();
    let (target, code) = target(true);
    target.set_action(SLOT_TRAP, programs_own(0, 0));
    const SI_KERNEL: i32 = 0x80;
    let hardware = [
        libc::TRAP_BRKPT,
        libc::TRAP_TRACE,
        libc::TRAP_BRANCH,
        libc::TRAP_HWBKPT,
        6,
    ];
    let mut handed_on = 0;
    for si_code in hardware.into_iter().chain([SI_KERNEL, libc::SI_USER]) {
        // SAFETY: plain structures of integers; the handler lies in the image and keeps to the ABI.
        let rip = unsafe {
            let mut context: libc::ucontext_t = core::mem::zeroed();
            let mut information: libc::siginfo_t = core::mem::zeroed();
            information.si_code = si_code;
            context.uc_mcontext.gregs[libc::REG_RIP as usize] = (code + INT3 + 1) as i64;
            let handler = target.address(nanoprobe_agent::Function::OnTrap);
            let context = deliver(handler, libc::SIGTRAP, &mut information, context);
            context.uc_mcontext.gregs[libc::REG_RIP as usize] as u64
        };
        if si_code == SI_KERNEL {
            assert_eq!(rip, code + SEVENTY_SEVEN);
        } else {
            handed_on += 1;
            assert_eq!(
                (rip, si_code),
                (code + INT3 + 1, CODE_OF_SIGNAL.load(Ordering::Relaxed))
            );
            assert_eq!(RIP.load(Ordering::Relaxed), code + INT3 + 1);
        }
        assert_eq!(CALLS.load(Ordering::Relaxed), handed_on);
    }
}

/// A single step that the agent started ends with the next SIGTRAP, whether or not the kernel reports it as a step. A
/// SIGTRAP of another kind ends the step as well, and goes to the program.
#[test]
fn a_step_ends_whatever_code_the_kernel_reports() {
    let _alone = alone();
    let (target, _) = target(false);
    target.set_action(SLOT_TRAP, programs_own(0, 0));
    // struct np_emulation: length, site, copy and copy_end, which count from after themselves.
    let (emulation, copy, copy_end) = (ROOM + 4000, ROOM + 4800, ROOM + 4804);
    let mut bytes = [0; 64];
    bytes[12] = 3;
    bytes[32..40].copy_from_slice(&0x1230_u64.to_le_bytes());
    bytes[56..60].copy_from_slice(&((copy - emulation - 60) as u32).to_le_bytes());
    bytes[60..64].copy_from_slice(&((copy_end - emulation - 64) as u32).to_le_bytes());
    target.memory.write(emulation, &bytes).unwrap();
    let key: u64;
    // SAFETY: the thread control block begins with its own address.
    unsafe { core::arch::asm!("mov {}, fs:0", out(reg) key) };
    let slot = key.wrapping_mul(TABLE_FACTOR) >> 52;
    let step = target.table + TABLE_STEPS as u64 + 16 * slot;
    // Each case: the signal's code, the trap flag, the thread's place; whether the agent's handler took the signal, and
    // where the thread continues.
    let (inside, end, elsewhere) = (target.arena + copy, target.arena + copy_end, 0x5678);
    const TF: i64 = 0x100;
    let cases = [
        (libc::TRAP_TRACE, TF, inside, true, inside),
        (libc::TRAP_TRACE, TF, end, true, 0x1233),
        (libc::TRAP_BRKPT, TF, inside, true, inside),
        (libc::TRAP_BRKPT, TF, end, true, 0x1233),
        // A step was begun and never ended: this signal is an int1, a breakpoint register or a perf event.
        (libc::TRAP_BRKPT, 0, elsewhere, false, elsewhere),
        (libc::TRAP_HWBKPT, 0, elsewhere, false, elsewhere),
        (6, 0, elsewhere, false, elsewhere),
        // A signal comes during a step: the thread continues without stepping.
        (libc::TRAP_HWBKPT, TF, inside, false, inside),
        (6, TF, end, false, end),
    ];
    let mut handed_on = 0;
    for (si_code, trap_flag, rip, taken, after) in cases {
        // SAFETY: plain structures of integers. The table is this test's private memory, in
        // which this thread has the first slot of its row. The handler lies in the image and
        // keeps to the ABI.
        let (found, flags, left) = unsafe {
            *((target.table + 16 * slot) as *mut u64) = key;
            *(step as *mut u64) = target.arena + emulation;
            let mut context: libc::ucontext_t = core::mem::zeroed();
            let mut information: libc::siginfo_t = core::mem::zeroed();
            information.si_code = si_code;
            context.uc_mcontext.gregs[libc::REG_RIP as usize] = rip as i64;
            context.uc_mcontext.gregs[libc::REG_EFL as usize] = trap_flag;
            let handler = target.address(nanoprobe_agent::Function::OnTrap);
            let context = deliver(handler, libc::SIGTRAP, &mut information, context);
            let registers = context.uc_mcontext.gregs;
            let left = core::mem::replace(&mut *(step as *mut u64), 0);
            (
                registers[libc::REG_RIP as usize] as u64,
                registers[libc::REG_EFL as usize],
                left,
            )
        };
        handed_on += i32::from(!taken);
        assert_eq!(
            (found, CALLS.load(Ordering::Relaxed)),
            (after, handed_on),
            "{si_code} at {rip:#x}"
        );
        let goes_on = taken && rip == inside;
        assert_eq!(flags & TF != 0, goes_on, "{si_code} at {rip:#x}");
        assert_eq!(left != 0, goes_on || trap_flag == 0, "{si_code} at {rip:#x}");
        if !taken {
            assert_eq!(
                (CODE_OF_SIGNAL.load(Ordering::Relaxed), RIP.load(Ordering::Relaxed)),
                (si_code, after)
            );
        }
    }
}
