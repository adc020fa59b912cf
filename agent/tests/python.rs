//! Walks hand-made frames of Python, of each form, between hand-made native frames.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use core::mem::offset_of;

use common::{ENABLING, Options, ROOM, Target, UNWIND, map};
use nanoprobe_agent::Function;
use nanoprobe_arena::layout::{
    CFA_END, CFA_RSP, Control, Enabling, FRAME_INTERPRETED, OBJECT_NONE, PYTHON_OBJECTS, PYTHON_RECORDS, PYTHON_SHIMS,
    Python, RUNTIME_PYTHON, Runtimes, UnwindModule, UnwindRow, UnwindTable,
};
use nanoprobe_arena::{ContextPlan, Memory, Structure};

const TEXT: u64 = 0x40_0000;
/// A leaf, the evaluation function with a frame of 64 bytes, the start.
const LEAF: u64 = TEXT + 0x100;
const EVALUATION: u64 = TEXT + 0x200;
const START: u64 = TEXT + 0x310;

/// Offsets of the hand-made structures.
fn python(form: u32, interpreters: u64) -> Python {
    let mut python = Python {
        interpreters,
        form,
        has_record: u32::from(form == PYTHON_RECORDS),
        interpreter_next: 0,
        interpreter_threads: 8,
        thread_next: 0,
        thread_key: 8,
        thread_frame: 16,
        record_frame: 0,
        record_previous: 8,
        frame_previous: 0,
        frame_code: 8,
        frame_instruction: 16,
        frame_end: 30,
        instruction_unit: 2,
        code_filename: 0,
        code_name: 8,
        code_line: 16,
        code_instructions: 24,
        ..Python::default()
    };
    (python.code_start[0], python.code_end[0]) = (EVALUATION, EVALUATION + 0x100);
    python
}

struct Stack {
    target: Target,
    context: u64,
    /// 64 KiB: the stack at 1024, structures from 16384 on.
    base: u64,
}

impl Stack {
    fn new(form: u32) -> Stack {
        let plan = ContextPlan::new(4096, 0, 0, 64, 512, 4096, 0).unwrap();
        let target = Target::new(&Options {
            plan,
            ..Options::default()
        });
        target.install();
        let base = map(1 << 20, libc::MAP_PRIVATE);
        let memory = &target.memory;
        let rows = [
            (0x000, CFA_END, 0),
            (0x100, CFA_RSP, 8),
            (0x200, CFA_RSP, 64),
            (0x300, CFA_END, 0),
        ];
        let (runtimes, rows_offset) = (UNWIND + 1024, UNWIND + 512);
        let table = UnwindTable {
            module_count: 1,
            runtimes_offset: runtimes,
        };
        let module = UnwindModule {
            start: TEXT,
            end: TEXT + 0x1000,
            base: TEXT,
            rows_offset,
            row_count: rows.len() as u64,
        };
        memory.write_structure(UNWIND, &table).unwrap();
        memory.write_structure(UNWIND + 16, &module).unwrap();
        for (at, (pc, cfa, cfa_offset)) in (rows_offset..).step_by(UnwindRow::BYTES).zip(rows) {
            let row = UnwindRow {
                pc,
                cfa,
                cfa_offset,
                ..UnwindRow::default()
            };
            memory.write_structure(at, &row).unwrap();
        }
        let head = Runtimes {
            objects_offset: 0,
            ..Runtimes::default()
        };
        memory.write_structure(runtimes, &head).unwrap();
        memory
            .write_structure(runtimes + Runtimes::BYTES as u64, &python(form, base + 16384))
            .unwrap();
        memory
            .store_u64(offset_of!(Control, unwind_offset) as u64, UNWIND)
            .unwrap();
        let context = target.enter();
        Stack { target, context, base }
    }

    fn put(&self, address: u64, words: &[u64]) {
        for (index, word) in words.iter().enumerate() {
            // SAFETY: callers stay inside the mapping at `base`.
            unsafe { *((address + index as u64 * 8) as *mut u64) = *word };
        }
    }

    /// Writes one interpreter with this thread. The thread's first frame, or its record, is at this address.
    fn thread(&self, first: u64) {
        let own: u64;
        // SAFETY: the thread control block begins with its own address.
        unsafe { core::arch::asm!("mov {}, fs:[0]", out(reg) own) };
        let (interpreter, other, thread) = (self.base + 16400, self.base + 16416, self.base + 16448);
        self.put(self.base + 16384, &[interpreter]);
        self.put(interpreter, &[0, other]);
        self.put(other, &[thread, own + 8, 1]);
        self.put(thread, &[0, own, first]);
    }

    /// Writes a frame. `end` is 1 if the frame ends its call.
    fn frame(&self, address: u64, previous: u64, code: u64, end: u64) {
        self.put(address, &[previous, code, code + 24 + 6, end << 48]);
    }

    /// The frames from the leaf on, or from an address.
    fn walk(&self, site: u64, offset: u64, limit: u64) -> Vec<u64> {
        let enabling = Enabling {
            epid: 7,
            site,
            offset,
            ..Enabling::default()
        };
        self.target.memory.write_structure(ENABLING, &enabling).unwrap();
        self.target.begin(self.context);
        self.target.push_frame(self.context, self.base + 1024, 0);
        let destination = self.target.arena + ROOM + 3000;
        self.target
            .run(self.context, Function::UserStack, &[destination, limit]);
        let count = self.target.memory.load_u64(ROOM + 3000).unwrap();
        let words = self.target.bytes(destination + 8, count * 8);
        words
            .chunks(8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
            .collect()
    }
}

/// The frame whose object found no table.
const PYTHON: u64 = FRAME_INTERPRETED | RUNTIME_PYTHON << 30 | OBJECT_NONE as u64;
/// A return address in the evaluation function.
const CALL: u64 = EVALUATION + 0x20;

#[test]
fn a_call_runs_one_frame() {
    let stack = Stack::new(PYTHON_OBJECTS);
    // leaf <- evaluation <- evaluation <- start; three frames, of which the outermost has no native one.
    let rsp = stack.base + 1024;
    stack.put(rsp, &[CALL]);
    stack.put(rsp + 8 + 56, &[CALL]);
    stack.put(rsp + 8 + 64 + 56, &[START]);
    let (code, first) = (stack.base + 32768, stack.base + 20480);
    stack.thread(first);
    stack.frame(first, first + 64, code, 0);
    stack.frame(first + 64, first + 128, code, 0);
    stack.frame(first + 128, 0, code, 0);
    assert_eq!(stack.walk(LEAF, 0, 20), [LEAF, PYTHON, PYTHON, START]);
    assert_eq!(stack.walk(LEAF, 0, 2), [LEAF, PYTHON]);
    // There is no second Python frame, so the second native frame stays.
    stack.frame(first, 0, code, 0);
    assert_eq!(stack.walk(LEAF, 0, 20), [LEAF, PYTHON, CALL, START]);
    // Another thread's state, and none.
    stack.put(stack.base + 16448, &[0, 5, first]);
    assert_eq!(stack.walk(LEAF, 0, 20), [LEAF, CALL, CALL, START]);
    stack.put(stack.base + 16384, &[0xdead_0000]);
    assert_eq!(stack.walk(LEAF, 0, 20), [LEAF, CALL, CALL, START]);
}

#[test]
fn a_call_ends_with_the_frame_on_its_stack() {
    let stack = Stack::new(PYTHON_SHIMS);
    let rsp = stack.base + 1024;
    stack.put(rsp, &[CALL]);
    // Each native frame has 56 bytes of its own, and a shim of 32 in it.
    let (inner, outer) = (rsp + 8, rsp + 8 + 64);
    stack.put(inner + 56, &[CALL]);
    stack.put(outer + 56, &[START]);
    let (code, first) = (stack.base + 32768, stack.base + 20480);
    stack.thread(first);
    stack.frame(first, first + 64, code, 0);
    stack.frame(first + 64, inner + 8, code, 0);
    stack.frame(inner + 8, first + 128, code, 3);
    stack.frame(first + 128, outer + 8, code, 1);
    stack.frame(outer + 8, 0, code, 3);
    assert_eq!(stack.walk(LEAF, 0, 20), [LEAF, PYTHON, PYTHON, PYTHON, START]);
    // At the entry of the evaluation function nothing belongs to the call yet.
    stack.put(rsp - 64 + 56, &[CALL]);
    let at_entry = stack.walk(EVALUATION, 0, 20);
    assert_eq!(at_entry.first(), Some(&EVALUATION), "{at_entry:x?}");
    assert!(!at_entry.get(..1).unwrap().contains(&PYTHON));
    // A thread whose innermost call is not this one: only the frames that fit are taken.
    stack.frame(first + 64, outer + 8, code, 0);
    assert_eq!(stack.walk(LEAF, 0, 20), [LEAF, CALL, PYTHON, PYTHON, START]);
    // A ring ends.
    stack.frame(first + 64, first, code, 0);
    assert_eq!(stack.walk(LEAF, 0, 20), [LEAF, CALL, CALL, START]);
}

#[test]
fn a_call_ends_with_its_entry_frame() {
    let stack = Stack::new(PYTHON_RECORDS);
    let rsp = stack.base + 1024;
    stack.put(rsp, &[CALL]);
    let (inner, outer) = (rsp + 8, rsp + 8 + 64);
    stack.put(inner + 56, &[CALL]);
    stack.put(outer + 56, &[START]);
    let (code, first) = (stack.base + 32768, stack.base + 20480);
    stack.thread(inner + 16);
    stack.put(inner + 16, &[first, outer + 16]);
    stack.put(outer + 16, &[first + 128, 0]);
    stack.frame(first, first + 64, code, 0);
    stack.frame(first + 64, first + 128, code, 1);
    stack.frame(first + 128, 0, code, 1);
    assert_eq!(stack.walk(LEAF, 0, 20), [LEAF, PYTHON, PYTHON, PYTHON, START]);
    assert_eq!(stack.walk(LEAF, 0, 3), [LEAF, PYTHON, PYTHON]);
    // The innermost call that the thread knows is the outer one.
    stack.thread(outer + 16);
    stack.put(outer + 16, &[first + 128, 0]);
    assert_eq!(stack.walk(LEAF, 0, 20), [LEAF, CALL, PYTHON, START]);
}
