//! Walks a hand-made stack with a hand-made table.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use core::mem::offset_of;

use common::{ENABLING, Options, ROOM, Target, UNWIND, map};
use nanoprobe_agent::Function;
use nanoprobe_arena::layout::{
    CFA_END, CFA_PLT, CFA_RBP, CFA_RBP_DEREF, CFA_RSP, CFA_SIGNAL, CFA_UNKNOWN, Context, Control, Enabling,
    FAULT_KEY_TOO_LONG, UnwindModule, UnwindRow, UnwindTable,
};
use nanoprobe_arena::{ContextPlan, Memory, Structure};

const TEXT: u64 = 0x40_0000;

/// The rows of a made-up module, by offset.
fn rows() -> Vec<UnwindRow> {
    let row = |pc, cfa, cfa_offset, rbp, rbp_offset| UnwindRow {
        pc,
        cfa,
        rbp,
        rbp_offset,
        cfa_offset,
    };
    vec![
        row(0x000, CFA_END, 0, 0, 0),
        // A leaf at its entry.
        row(0x100, CFA_RSP, 8, 0, 0),
        // A function that has pushed rbp and three words.
        row(0x200, CFA_RSP, 40, 1, -16),
        // A function with a frame pointer.
        row(0x300, CFA_RBP, 16, 1, -16),
        row(0x400, CFA_PLT, 0, 0, 0),
        row(0x500, CFA_SIGNAL, 0, 0, 0),
        // A `main` that has realigned its stack: the canonical frame address is stored below rbp.
        row(0x600, CFA_RBP_DEREF, -8, 1, -24),
        row(0x700, CFA_RBP, 16, 2, 0),
        row(0x800, CFA_END, 0, 0, 0),
        // A function that has saved the caller's rbp far from the canonical address.
        row(0x900, CFA_RSP, 24, 3, 8),
        row(0xa00, CFA_UNKNOWN, 0, 0, 0),
        // A function that uses rbp for something else, and saves it nowhere.
        row(0xb00, CFA_RSP, 16, 2, 0),
        row(0xc00, CFA_END, 0, 0, 0),
    ]
}

struct Stack {
    target: Target,
    context: u64,
    /// The start of the stack's memory, which has 64 KiB.
    base: u64,
}

impl Stack {
    fn new() -> Self {
        let plan = ContextPlan::new(4096, 0, 0, 64, 512, 4096, 0).unwrap();
        let target = Target::new(&Options {
            plan,
            ..Options::default()
        });
        target.install();
        let table = UnwindTable {
            module_count: 2,
            runtimes_offset: 0,
        };
        let rows_offset = UNWIND + 128;
        let rows = rows();
        let module = UnwindModule {
            start: TEXT,
            end: TEXT + 0x1000,
            base: TEXT,
            rows_offset,
            row_count: rows.len() as u64,
        };
        let other = UnwindModule {
            start: TEXT + 0x2000,
            end: TEXT + 0x3000,
            base: TEXT,
            rows_offset,
            row_count: 0,
        };
        target.memory.write_structure(UNWIND, &table).unwrap();
        target.memory.write_structure(UNWIND + 16, &module).unwrap();
        target
            .memory
            .write_structure(UNWIND + 16 + UnwindModule::BYTES as u64, &other)
            .unwrap();
        for (index, row) in rows.iter().enumerate() {
            target
                .memory
                .write_structure(rows_offset + index as u64 * UnwindRow::BYTES as u64, row)
                .unwrap();
        }
        target
            .memory
            .store_u64(offset_of!(Control, unwind_offset) as u64, UNWIND)
            .unwrap();
        let context = target.enter();
        Self {
            target,
            context,
            base: map(65536, libc::MAP_PRIVATE),
        }
    }

    fn put(&self, address: u64, words: &[u64]) {
        for (index, word) in words.iter().enumerate() {
            // SAFETY: callers stay inside the mapping at `base`.
            unsafe { *((address + index as u64 * 8) as *mut u64) = *word };
        }
    }

    /// The frames from these registers.
    fn walk(&self, site: u64, offset: u64, rsp: u64, rbp: u64, limit: u64) -> Vec<u64> {
        let enabling = Enabling {
            epid: 7,
            site,
            offset,
            ..Enabling::default()
        };
        self.target.memory.write_structure(ENABLING, &enabling).unwrap();
        self.target.begin(self.context);
        self.target.push_frame(self.context, rsp, rbp);
        let destination = self.target.arena + ROOM + 3000;
        self.target.memory.write(ROOM + 3000, &[0xcc; 800]).unwrap();
        assert_eq!(
            self.target
                .run(self.context, Function::UserStack, &[destination, limit])
                .1,
            0
        );
        let count = self.target.memory.load_u64(ROOM + 3000).unwrap();
        let words = self.target.bytes(destination + 8, (count + 1) * 8);
        let mut frames: Vec<u64> = words
            .chunks(8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
            .collect();
        assert_eq!(
            frames.pop(),
            Some(0xcccc_cccc_cccc_cccc),
            "written behind the last frame"
        );
        if limit > 1 || limit == 0 {
            let caller = self.target.run(self.context, Function::UserCaller, &[]).0;
            assert_eq!(caller, frames.get(1).copied().unwrap_or(0));
        }
        frames
    }
}

#[test]
fn all_kinds_of_rows() {
    let stack = Stack::new();
    let rsp = stack.base + 1024;
    // 0x100 (entry) <- 0x210 <- 0x310 <- 0x610 <- 0x820: the end.
    stack.put(rsp, &[TEXT + 0x210]);
    let second = rsp + 8; // rsp in 0x210: 24 bytes of locals, rbp, return address
    let third_rbp = second + 200;
    stack.put(second, &[1, 2, 3, third_rbp, TEXT + 0x310]);
    let fourth_rbp = third_rbp + 400;
    stack.put(third_rbp, &[fourth_rbp, TEXT + 0x610]);
    let fourth_cfa = fourth_rbp + 240;
    stack.put(fourth_rbp - 8, &[fourth_cfa]);
    stack.put(fourth_cfa - 24, &[0x1234, 0, TEXT + 0x820]);
    let all = [TEXT + 0x100, TEXT + 0x210, TEXT + 0x310, TEXT + 0x610, TEXT + 0x820];
    assert_eq!(stack.walk(TEXT + 0x100, 0, rsp, 0x77, 20), all);
    assert_eq!(stack.walk(TEXT + 0x100, 0, rsp, 0x77, 0), all);
    assert_eq!(stack.walk(TEXT + 0x100, 0, rsp, 0x77, 3), all[..3]);
    assert_eq!(stack.walk(TEXT + 0x100, 0, rsp, 0x77, 1), all[..1]);
}

/// A call that is a function's last instruction returns to an address in the next function. The row of the call is
/// the right one.
#[test]
fn a_return_address_belongs_to_its_call() {
    let stack = Stack::new();
    let rsp = stack.base + 1024;
    stack.put(rsp, &[TEXT + 0x300]);
    stack.put(rsp + 8, &[0, 0, 0, 0, TEXT + 0x820]); // as the row for 0x2ff says
    assert_eq!(
        stack.walk(TEXT + 0x100, 0, rsp, 0, 20),
        [TEXT + 0x100, TEXT + 0x300, TEXT + 0x820]
    );
}

#[test]
fn a_row_that_knows_nothing_is_like_no_row() {
    let stack = Stack::new();
    let rsp = stack.base + 1024;
    let frame = rsp + 80;
    stack.put(frame, &[frame + 160, TEXT + 0x310]);
    stack.put(frame + 160, &[0x1234, TEXT + 0x820]);
    let all = [TEXT + 0xa40, TEXT + 0x310, TEXT + 0x820];
    assert_eq!(stack.walk(TEXT + 0xa40, 0x40, rsp, frame, 20), all);
    // At a function's entry the return address is on top.
    stack.put(rsp, &[TEXT + 0x310]);
    assert_eq!(stack.walk(TEXT + 0xa00, 0, rsp, frame, 20)[1..2], [TEXT + 0x310]);
    // An rbp below the stack leads nowhere.
    assert_eq!(stack.walk(TEXT + 0xa40, 0x40, rsp, rsp - 8, 20), [TEXT + 0xa40]);
}

#[test]
fn the_callers_rbp_is_found_from_rbp_or_lost() {
    let stack = Stack::new();
    let rsp = stack.base + 1024;
    let (rbp, frame) = (rsp + 400, rsp + 640);
    stack.put(rsp, &[0, 0, TEXT + 0x310]);
    stack.put(rbp + 8, &[frame]);
    stack.put(frame, &[0x1234, TEXT + 0x820]);
    let all = [TEXT + 0x900, TEXT + 0x310, TEXT + 0x820];
    assert_eq!(stack.walk(TEXT + 0x900, 1, rsp, rbp, 20), all);
    // The same frames, but 0xb00 has lost rbp. 0x310 needs it; 0x110 does not.
    stack.put(rsp, &[0, TEXT + 0x310]);
    assert_eq!(
        stack.walk(TEXT + 0xb00, 1, rsp, frame, 20),
        [TEXT + 0xb00, TEXT + 0x310]
    );
    stack.put(rsp, &[0, TEXT + 0x110, TEXT + 0x820]);
    assert_eq!(
        stack.walk(TEXT + 0xb00, 1, rsp, frame, 20),
        [TEXT + 0xb00, TEXT + 0x110, TEXT + 0x820]
    );
    // rbp is lost, and then needed as "at rbp + 8", and as the start of a chain.
    for next in [0x910, 0xa10] {
        stack.put(rsp, &[0, TEXT + next, 0, 0, TEXT + 0x820]);
        assert_eq!(stack.walk(TEXT + 0xb00, 1, rsp, frame, 20), [TEXT + 0xb00, TEXT + next]);
    }
}

#[test]
fn linkage_tables_push_in_the_middle() {
    let stack = Stack::new();
    let rsp = stack.base + 1024;
    stack.put(rsp, &[TEXT + 0x810, TEXT + 0x820]);
    assert_eq!(stack.walk(TEXT + 0x40a, 1, rsp, 0, 20), [TEXT + 0x40a, TEXT + 0x810]);
    assert_eq!(stack.walk(TEXT + 0x40b, 1, rsp, 0, 20), [TEXT + 0x40b, TEXT + 0x820]);
}

#[test]
fn through_a_signal_frame() {
    let stack = Stack::new();
    let rsp = stack.base + 1024;
    stack.put(rsp, &[TEXT + 0x510]);
    let ucontext = rsp + 8;
    // The interrupted function stood at its first instruction, on another stack, which lies lower than this one.
    let other = stack.base + 64;
    stack.put(ucontext + 120, &[0x5555]);
    stack.put(ucontext + 160, &[other, TEXT + 0x300]);
    // At 0x300 exactly, the row of 0x300 applies, and not that of 0x2ff.
    let rbp = other + 160;
    stack.put(ucontext + 120, &[rbp]);
    stack.put(rbp, &[0, TEXT + 0x820]);
    let frames = [TEXT + 0x100, TEXT + 0x510, TEXT + 0x300, TEXT + 0x820];
    assert_eq!(stack.walk(TEXT + 0x100, 0, rsp, 0, 20), frames);
}

#[test]
fn where_no_module_is() {
    let stack = Stack::new();
    let rsp = stack.base + 1024;
    let unknown = 0x1000_0000;
    // At an entry the return address is on top; then rbp, which the unknown function has not touched.
    let rbp = rsp + 128;
    stack.put(rsp, &[unknown + 0x100]);
    stack.put(rbp, &[rbp + 64, unknown + 0x200]);
    stack.put(rbp + 64, &[0, TEXT + 0x820]);
    let frames = [unknown, unknown + 0x100, unknown + 0x200, TEXT + 0x820];
    assert_eq!(stack.walk(unknown, 0, rsp, rbp, 20), frames);
    // At other places only rbp leads to the caller.
    assert_eq!(
        stack.walk(unknown, 4, rsp, rbp, 20),
        [unknown, unknown + 0x200, TEXT + 0x820]
    );
    // A module without rows ends the walk.
    assert_eq!(stack.walk(TEXT + 0x2010, 4, rsp, rbp, 20), [TEXT + 0x2010]);
}

#[test]
fn garbage_ends_the_walk() {
    let stack = Stack::new();
    let rsp = stack.base + 1024;
    let unknown = 0x1000_0000;
    let walk = |rbp| stack.walk(unknown, 4, rsp, rbp, 20);
    // Values of rbp: below rsp, misaligned, unmapped, outside of user memory, and a chain that leads back to itself.
    for rbp in [
        0,
        rsp - 8,
        rsp + 3,
        stack.base + (1 << 30),
        u64::MAX - 7,
        1 << 63,
        u64::MAX,
    ] {
        assert_eq!(walk(rbp), [unknown], "{rbp:#x}");
    }
    stack.put(rsp + 64, &[rsp + 64, unknown + 16]);
    assert_eq!(walk(rsp + 64), [unknown, unknown + 16]);
    // Invalid return addresses.
    for pc in [0, 17, u64::MAX, 1 << 60] {
        stack.put(rsp + 64, &[rsp + 128, pc]);
        assert_eq!(walk(rsp + 64), [unknown], "{pc:#x}");
    }
    // With rows, too, a frame must lie above its callee's frame. Without this rule, the frame here would repeat for
    // ever.
    stack.put(rsp - 128, &[rsp - 128, TEXT + 0x310]);
    assert_eq!(stack.walk(TEXT + 0x310, 4, rsp, rsp - 128, 20), [TEXT + 0x310]);
    // The stack's end.
    assert_eq!(stack.walk(TEXT + 0x100, 0, stack.base + 65536, 0, 20), [TEXT + 0x100]);
    // A table that points outside of the arena, or lies outside, is ignored.
    let memory = &stack.target.memory;
    for (offset, value) in [
        (UNWIND, u64::MAX),
        (UNWIND + 16 + 24, u64::MAX - 7),
        (UNWIND + 16 + 32, 1 << 60),
    ] {
        let old = memory.load_u64(offset).unwrap();
        memory.store_u64(offset, value).unwrap();
        let frames = stack.walk(TEXT + 0x300, 4, rsp, 0, 20);
        assert_eq!(frames, [TEXT + 0x300]);
        memory.store_u64(offset, old).unwrap();
    }
    for value in [u64::MAX, 1 << 50, 4] {
        memory
            .store_u64(offset_of!(Control, unwind_offset) as u64, value)
            .unwrap();
        assert_eq!(stack.walk(TEXT + 0x300, 4, rsp, 0, 20), [TEXT + 0x300]);
    }
}

#[test]
fn a_deep_stack_is_read_directly_after_the_first_word_of_a_page() {
    let stack = Stack::new();
    let unknown = 0x1000_0000;
    let rsp = stack.base;
    let links = 90;
    for link in 0..links {
        let at = rsp + link * 512;
        stack.put(at, &[at + 512, unknown + link + 1]);
    }
    let frames = stack.walk(unknown, 4, rsp, rsp, 60);
    assert_eq!(frames, (0..60).map(|link| unknown + link).collect::<Vec<_>>());
    // No snapshot was published. The walk has found out which pages are readable. The page after the last page that it
    // read is not among them.
    let known = stack.target.get(stack.context, offset_of!(Context, stack_end));
    assert_eq!(known, (rsp + 59 * 512).next_multiple_of(4096));
    assert_eq!(stack.target.get(stack.context, offset_of!(Context, stack_start)), rsp);
}

#[test]
fn stacks_in_keys() {
    let stack = Stack::new();
    let rsp = stack.base + 1024;
    stack.put(rsp, &[TEXT + 0x820]);
    let frames = stack.walk(TEXT + 0x100, 0, rsp, 0, 20);
    let target = &stack.target;
    target.run(stack.context, Function::KeyInteger, &[5]);
    assert_eq!(target.run(stack.context, Function::KeyStack, &[20]).1, 0);
    let key = target.get(stack.context, offset_of!(Context, key));
    let bytes = target.get(stack.context, offset_of!(Context, key_bytes));
    let words: Vec<u8> = [5, 2].into_iter().chain(frames).flat_map(u64::to_le_bytes).collect();
    assert_eq!(target.bytes(key, bytes), words);
    // One word of room is not enough for a stack.
    target.begin(stack.context);
    for element in 0..63 {
        target.run(stack.context, Function::KeyInteger, &[element]);
    }
    assert_eq!(
        target.run(stack.context, Function::KeyStack, &[20]).1,
        u64::from(FAULT_KEY_TOO_LONG)
    );
    assert_eq!(target.get(stack.context, offset_of!(Context, key_bytes)), 63 * 8);
}
