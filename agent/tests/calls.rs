//! System calls: where a thread goes before and after them is said by code alone, whatever the arena holds.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use core::mem::offset_of;

use common::{Options, ROOM, Target, map_code};
use nanoprobe_agent::Function;
use nanoprobe_arena::layout::{CALL_NUMBERS, CALL_ROWS, CALL_SITE_CODE, CallSite, Context, Enabling, Frame};
use nanoprobe_arena::{Memory, Structure as _};

/// inc qword [r15 + missed]; ret
const COUNTS: [u8; 5] = [0x49, 0xff, 0x47, offset_of!(Context, missed) as u8, 0xc3];
/// ud2
const DIES: [u8; 2] = [0x0f, 0x0b];

/// Calls what a detour calls there.
fn fire(context: u64, site: u64) {
    let code = site + offset_of!(CallSite, code) as u64;
    // SAFETY: the code and what it jumps to preserve all registers but rax; r15 is kept by push and pop.
    unsafe {
        core::arch::asm!(
            "push r15; mov r15, {context}; mov rax, {code}; call rax; pop r15",
            context = in(reg) context,
            code = in(reg) code,
            out("rax") _,
        );
    }
}

#[test]
fn what_the_context_holds_chooses_no_handler() {
    let target = Target::new(&Options::default());
    let context = target.enter();
    target
        .memory
        .write_structure(
            ROOM,
            &Frame {
                rax: 39,
                ..Frame::default()
            },
        )
        .unwrap();
    target.set(context, offset_of!(Context, frame), target.arena + ROOM);
    let enabling = Enabling {
        epid: 12,
        ..Enabling::default()
    };
    target.memory.write_structure(ROOM + 64, &enabling).unwrap();
    let mut table = vec![0_u64; CALL_ROWS as usize];
    table[39] = target.arena + ROOM + 64;
    let table = map_code(&table.into_iter().flat_map(u64::to_le_bytes).collect::<Vec<u8>>());
    let wrong = map_code(&DIES);
    for agent in [Function::CallEntry, Function::CallReturn] {
        let site = |handler| CallSite {
            table,
            handler,
            agent: target.address(agent),
            code: CALL_SITE_CODE,
            ..CallSite::default()
        };
        let site = |handler| map_code(&site(handler).to_bytes());
        let (right, wrong_site) = (site(map_code(&COUNTS)), site(wrong));
        for (field, value) in [
            (offset_of!(Context, enabling), wrong_site),
            (offset_of!(Context, result), wrong),
            (offset_of!(Context, missed), 0),
        ] {
            target.set(context, field, value);
        }
        let call_number = target.field(context, offset_of!(Context, call_number));
        target.memory.store_u32(call_number, 39).unwrap();
        fire(context, right);
        assert_eq!(target.get(context, offset_of!(Context, missed)), 1);
        let called = offset_of!(Context, called);
        assert_eq!(
            target.get(context, offset_of!(Context, enabling)),
            context + called as u64
        );
        // A number of which no probe fires.
        target.memory.store_u32(call_number, 40).unwrap();
        target.set(target.arena + ROOM, offset_of!(Frame, rax), 40);
        fire(context, right);
        assert_eq!(target.get(context, offset_of!(Context, missed)), 1);
        target.set(target.arena + ROOM, offset_of!(Frame, rax), 39);
    }
}

#[test]
fn a_call_that_has_ended_is_counted_under_its_number() {
    let target = Target::new(&Options::default());
    let context = target.enter();
    let counter = offset_of!(Context, missed);
    let mut table = vec![offset_of!(Context, call_scrap) as u32; CALL_ROWS as usize];
    table[39] = counter as u32;
    table[CALL_NUMBERS as usize] = counter as u32;
    let site = CallSite {
        table: map_code(&table.into_iter().flat_map(u32::to_le_bytes).collect::<Vec<u8>>()),
        agent: target.address(Function::CallCount),
        code: CALL_SITE_CODE,
        ..CallSite::default()
    };
    let site = map_code(&site.to_bytes());
    let call_number = target.field(context, offset_of!(Context, call_number));
    let before = target.get(context, counter);
    // The last two are no call's: the context may hold anything.
    for (number, counted) in [
        (39, 1),
        (40, 1),
        (CALL_NUMBERS, 2),
        (CALL_NUMBERS + 1, 2),
        (CALL_ROWS, 2),
        (u32::MAX, 2),
    ] {
        target.memory.store_u32(call_number, number).unwrap();
        // No address of the context is used.
        target.set(context, offset_of!(Context, enabling), 1);
        fire(context, site);
        assert_eq!(target.get(context, counter) - before, counted, "{number}");
    }
}
