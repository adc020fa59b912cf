//! Signal handlers: what their first instruction tells of the way there, and which the tracer is told of.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use core::mem::offset_of;

use common::{Options, Target, map, map_code};
use nanoprobe_agent::Function;
use nanoprobe_arena::layout::{Control, HANDLERS, Inherited, Registers, SignalAction, TABLE_INHERITANCE};
use nanoprobe_arena::{Memory, Structure as _};

const SIGACTION: u64 = 13;
const SIGINFO: u64 = 4;
const USR1: u64 = libc::SIGUSR1 as u64;
const SITE: u64 = 0x40_1000;
/// rcx, r8, r9, r10, r11 in a frame, and what stands for them.
const SAVED: [u64; 5] = [1, 1 << 40, 3, u64::MAX, 5];
const FACTORS: [u64; 5] = [1, 3, 5, 7, 11];

fn inherited(target: &Target) -> Inherited {
    let from = (target.table + TABLE_INHERITANCE as u64) as *const u8;
    // SAFETY: the table is mapped, this part of it has so many bytes, and only this thread uses it.
    let bytes = unsafe { core::slice::from_raw_parts(from, Inherited::BYTES) };
    Inherited::from_bytes(bytes).unwrap()
}

fn set_inherited(target: &Target, change: impl FnOnce(&mut Inherited)) {
    let mut inherited = inherited(target);
    change(&mut inherited);
    let bytes = inherited.to_bytes();
    let to = (target.table + TABLE_INHERITANCE as u64) as *mut u8;
    // SAFETY: the table is mapped, this part of it has so many bytes, and only this thread uses it.
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
}

fn mixed(registers: [u64; 5]) -> u64 {
    let parts = registers.iter().zip(FACTORS);
    parts.fold(0, |sum: u64, (value, factor)| {
        sum.wrapping_add(value.wrapping_mul(factor))
    })
}

/// A frame that returns to this address.
fn frame(returns_to: u64) -> u64 {
    const CONTEXT: usize = 1 + 5; // the return address; flags, link and stack of the ucontext
    let stack = map(4096, libc::MAP_PRIVATE);
    let words = stack as *mut u64;
    let [rcx, r8, r9, r10, r11] = SAVED;
    let places = [
        (0, returns_to),
        (CONTEXT, r8),
        (CONTEXT + 1, r9),
        (CONTEXT + 2, r10),
        (CONTEXT + 3, r11),
    ];
    for (index, value) in places.into_iter().chain([(CONTEXT + 14, rcx)]) {
        // SAFETY: the page is mapped, and the words lie inside.
        unsafe { *words.add(index) = value };
    }
    stack
}

fn delivered(target: &Target, context: u64, stack: u64, signal: u64, mixed: u64) -> u64 {
    target.begin(context);
    let (result, fault) = target.run(context, Function::SignalFrame, &[stack, signal, SITE, mixed]);
    assert_eq!(fault, 0);
    result
}

#[test]
fn only_a_delivery_leads_to_a_handler() {
    let target = Target::new(&Options::default());
    target.install();
    let context = target.enter();
    let long = map_code(&[0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05]);
    let short = map_code(&[0xb8, 15, 0, 0, 0, 0x0f, 0x05, 0xcc]);
    let others = [
        map_code(&[0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x0b]),
        map_code(&[0xb8, 14, 0, 0, 0, 0x0f, 0x05, 0xcc]),
        map_code(&[0x90; 16]),
        0,
        1 << 62,
    ];
    let is = |stack, signal, mixed| delivered(&target, context, stack, signal, mixed);
    // The program has set the handler for this signal: other registers may have changed (np_chain).
    set_inherited(&target, |own| own.handlers[0][USR1 as usize - 1] = SITE);
    assert_eq!((is(frame(long), USR1, 0), is(frame(short), USR1, 0)), (1, 1));
    set_inherited(&target, |own| own.with_information = 1 << (USR1 - 1));
    assert_eq!(is(frame(long), USR1, 0), 2);
    // It has set another one. Then the registers are the saved ones, or another handler has jumped here.
    set_inherited(&target, |own| own.handlers[0][USR1 as usize - 1] = SITE + 16);
    assert_eq!((is(frame(long), USR1, mixed(SAVED)), is(frame(long), USR1, 0)), (2, 0));
    // rax is 0 when the kernel has called the handler.
    assert_eq!(is(frame(long), USR1, mixed(SAVED).wrapping_add(13)), 0);
    for other in others {
        assert_eq!(is(frame(other), USR1, mixed(SAVED)), 0, "{other:#x}");
    }
    for signal in [0, 65, u64::MAX, 1 << 32 | USR1] {
        assert_eq!(is(frame(long), signal, mixed(SAVED)), 0, "{signal}");
    }
    // A signal for which our own action asks for the siginfo; and one that the program has not set.
    let without = libc::SIGUSR2 as u64;
    assert_eq!(
        (
            is(frame(long), 11, mixed(SAVED)),
            is(frame(long), without, mixed(SAVED))
        ),
        (2, 1)
    );
    // No stack.
    assert_eq!(is(8, USR1, mixed(SAVED)), 0);
}

fn set(target: &Target, signal: u64, handler: u64, flags: u64) {
    let action = SignalAction {
        handler,
        flags,
        ..SignalAction::default()
    };
    let mut registers = Registers {
        rax: SIGACTION,
        rdi: signal,
        rsi: core::ptr::from_ref(&action) as u64,
        r10: 8,
        ..Registers::default()
    };
    // SAFETY: the function lies in the image, which is mapped r-x, and has this signature.
    let entry: extern "C" fn(*mut Registers, u64, u64) -> u64 =
        unsafe { core::mem::transmute(target.address(Function::ShimSyscall)) };
    assert_eq!(entry(&raw mut registers, 1, 0), 0, "the program makes the call itself");
}

#[test]
fn the_tracer_is_told_of_each_handler_once() {
    let target = Target::new(&Options::default());
    let load = |field: usize| target.memory.load_u32(field as u64).unwrap();
    let asked = || load(offset_of!(Control, library_event));
    set(&target, USR1, SITE, SIGINFO);
    assert_eq!(
        (inherited(&target), asked()),
        (Inherited::default(), 0),
        "nobody wants to know"
    );
    target
        .memory
        .store_u32(offset_of!(Control, watches_handlers) as u64, 1)
        .unwrap();
    set(&target, USR1, SITE, SIGINFO);
    set(&target, USR1, SITE, 0);
    let own = inherited(&target);
    assert_eq!(
        (own.handler_count, own.places[0][..2].to_vec(), asked()),
        (1, vec![SITE, 0], 2)
    );
    assert_eq!((own.handlers[0][USR1 as usize - 1], own.with_information), (SITE, 0));
    // The tracer has answered.
    set_inherited(&target, |own| own.handlers_placed = 1);
    set(&target, 64, SITE, SIGINFO);
    let own = inherited(&target);
    assert_eq!(
        (own.handler_count, own.handlers[1][31], own.with_information),
        (1, SITE, 1 << 63)
    );
    for ignored in [0, 1] {
        set(&target, USR1, ignored, SIGINFO);
    }
    assert_eq!((inherited(&target).handler_count, asked()), (1, 2));
    // There is room for so many; what finds none is counted, and nobody waits.
    for index in 0..2 * HANDLERS as u64 {
        set(&target, USR1, SITE + index, 0);
    }
    let own = inherited(&target);
    assert_eq!(own.handler_count as usize, HANDLERS);
    assert_eq!(
        (own.places[0][1], own.places[HANDLERS / 32 - 1][31]),
        (SITE + 1, SITE + HANDLERS as u64 - 1)
    );
    assert_eq!(asked() as usize, 2 + HANDLERS - 1);
    assert_eq!(load(offset_of!(Control, handlers_unseen)) as usize, HANDLERS);
}
