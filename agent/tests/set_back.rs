//! Signals to a thread that stands at one of our traps: a debugger has set the thread back, or it has executed a trap
//! of the program directly before ours.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use core::ffi::c_void;
use core::sync::atomic::{AtomicI32, Ordering};

use common::delivery::deliver;
use common::{Options, Target, map_code};
use nanoprobe_arena::layout::{Redirect, SLOT_TRAP, SignalAction};

static CALLS: AtomicI32 = AtomicI32::new(0);

extern "C" fn programs_handler(_: i32, _: *const libc::siginfo_t, _: *mut c_void) {
    CALLS.fetch_add(1, Ordering::Relaxed);
}

fn programs_own() -> SignalAction {
    let handler: extern "C" fn(i32, *const libc::siginfo_t, *mut c_void) = programs_handler;
    SignalAction {
        handler: handler as usize as u64,
        flags: 4,
        restorer: 0,
        mask: 0,
    }
}

/// A debugger that detaches while it passes SIGTRAP may set a thread back to our int3. The thread then continues
/// there. A thread that has executed an int3 of the program directly before ours stands at the same place, but its
/// signal is for the program.
#[test]
fn a_thread_that_was_set_back_goes_on_and_a_programs_own_int3_in_front_is_the_programs() {
    let own_int3: [u8; 3] = [0x90, 0x90, 0xcc];
    let own_int_3: [u8; 3] = [0x90, 0xcd, 0x03];
    // The last byte of another instruction: mov $0xcc..., cmp $3.
    let others: [[u8; 3]; 2] = [[0x90; 3], [0x90, 0x83, 0x03]];
    for (in_front, is_programs) in [
        (own_int3, true),
        (own_int_3, true),
        (others[0], false),
        (others[1], false),
    ] {
        let mut bytes = [0x90; 64];
        bytes[29..32].copy_from_slice(&in_front);
        bytes[32] = 0xcc;
        bytes[33] = 0xc3;
        let code = map_code(&bytes);
        let redirects = vec![Redirect {
            from: code + 32,
            to: code + 33,
        }];
        let target = Target::new(&Options {
            redirects,
            ..Options::default()
        });
        target.install();
        target.set_action(SLOT_TRAP, programs_own());
        CALLS.store(0, Ordering::Relaxed);
        // SAFETY: plain structures of integers; the handler lies in the image and keeps to the ABI.
        let rip = unsafe {
            let mut context: libc::ucontext_t = core::mem::zeroed();
            let mut information: libc::siginfo_t = core::mem::zeroed();
            information.si_code = 0x80;
            context.uc_mcontext.gregs[libc::REG_RIP as usize] = (code + 32) as i64;
            let handler = target.address(nanoprobe_agent::Function::OnTrap);
            let context = deliver(handler, libc::SIGTRAP, &mut information, context);
            context.uc_mcontext.gregs[libc::REG_RIP as usize] as u64
        };
        assert_eq!(rip, code + 32, "{in_front:x?}");
        assert_eq!(CALLS.load(Ordering::Relaxed), i32::from(is_programs), "{in_front:x?}");
    }
}
