//! Walks hand-made frames of V8's optimised code, whole and damaged.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use core::mem::offset_of;

use common::{DYNAMIC, ENABLING, Options, ROOM, Target, UNWIND, map};
use nanoprobe_agent::Function;
use nanoprobe_arena::layout::{
    CFA_END, CFA_RSP, Control, Enabling, FRAME_INTERPRETED, Python, Runtimes, UnwindModule, UnwindRow, UnwindTable, V8,
    V8_FIRST_OBJECT, V8_OBJECTS, V8Object, V8Objects,
};
use nanoprobe_arena::{ContextPlan, Memory, Structure};

const TEXT: u64 = 0x40_0000;
const LEAF: u64 = TEXT + 0x100;
const START: u64 = TEXT + 0x310;
/// Offset of the table of functions in the arena: in the room of the dynamic variables, which nobody uses here.
const OBJECTS: u64 = DYNAMIC + 4096;

/// The hand-made heap: its objects lie at these offsets.
const CONTEXT: u64 = 0x100;
const FUNCTION: u64 = 0x140;
const SCRIPT: u64 = 0x180;
const CODE: u64 = 0x1c0;
/// The array of what is known of the code's calls, its lists of frames, and its functions.
const EXITS: u64 = 0x400;
const LISTS: u64 = 0x500;
const LITERALS: u64 = 0x600;
/// The functions; they are in a page of their own, whose head names the heap.
const PAGE: u64 = 0x1000;
const OUTER: u64 = PAGE + 0x100;
const INNER: u64 = PAGE + 0x140;
/// A map for each type.
const MAPS: u64 = 0x2000;
const INSTRUCTIONS: u64 = 0x4000;
const INSTRUCTION_BYTES: u64 = 0x80;
/// Offset of the call in the instructions.
const CALL: u64 = 0x24;
/// All these lie below.
const HEAP_BYTES: u64 = 0x5000;
const STACK: u64 = 0x8000;
/// The frame pointer of the frame of JavaScript.
const FRAME: u64 = STACK + 0x100;

const CONTEXT_TYPE: u32 = 1;
const FUNCTION_TYPE: u32 = 2;
const SHARED_TYPE: u32 = 3;
const SCRIPT_TYPE: u32 = 4;
const CODE_TYPE: u32 = 5;
const ARRAY_TYPE: u32 = 6;
const LITERALS_TYPE: u32 = 7;
const BYTES_TYPE: u32 = 8;
const BYTECODE_TYPE: u32 = 9;

/// Field `n` of an object, in words, as an offset from its tagged address.
const fn field(n: i32) -> i32 {
    n * 8 - 1
}

fn v8() -> V8 {
    V8 {
        objects_offset: OBJECTS,
        page_mask: 0xfff,
        page_heap: 8,
        map_type: field(1) + 4,
        context_first: CONTEXT_TYPE,
        context_last: CONTEXT_TYPE,
        function_first: FUNCTION_TYPE,
        function_last: FUNCTION_TYPE,
        shared_type: SHARED_TYPE,
        script_type: SCRIPT_TYPE,
        bytecode_type: BYTECODE_TYPE,
        code_type: CODE_TYPE,
        frame_context: -8,
        frame_function: -16,
        frame_bytecode: -32,
        frame_offset: -40,
        function_shared: field(1),
        function_code: field(2),
        shared_data: field(1),
        shared_script: field(2),
        shared_number: field(3),
        script_number: field(1),
        code_start: field(1),
        code_size: field(2),
        code_flags: field(3),
        code_kind_mask: 15,
        code_baseline: 2,
        code_optimized: 4,
        bytecode_start: field(5),
        array_type: ARRAY_TYPE,
        literals_type: LITERALS_TYPE,
        bytes_type: BYTES_TYPE,
        array_length: field(1),
        array_start: field(2),
        code_exits: field(4),
        exit_lists: 0,
        exit_literals: 1,
        exit_function: 2,
        exit_start: 3,
        exit_eager: 4,
        exit_lazy: 5,
        exit_first: 6,
    }
}

/// A small integer of V8's.
const fn small(value: u64) -> u64 {
    value << 32
}

/// The outer function calls the inner one, of which the code has a copy:
///
/// ```text
/// BEGIN        back 0, 2 frames, 2 of JavaScript
/// INTERPRETED  position 5, literal 0, and three numbers more; then what the frame's registers hold
/// INTERPRETED  position 300, literal 1, ...
/// ```
const LIST: [u8; 18] = [2, 0, 4, 4, 23, 10, 0, 1, 1, 1, 23, 0xd8, 0x04, 2, 1, 1, 1, 2];

struct Stack {
    target: Target,
    context: u64,
    base: u64,
    /// Offset of the [`V8`] in the arena.
    v8: u64,
}

impl Stack {
    fn new() -> Stack {
        let plan = ContextPlan::new(4096, 0, 0, 64, 512, 4096, 0).unwrap();
        let target = Target::new(&Options {
            plan,
            dynamic_bytes: 1 << 20,
            ..Options::default()
        });
        target.install();
        let memory = &target.memory;
        let table_bytes = V8Objects::BYTES as u64 + V8_OBJECTS * V8Object::BYTES as u64;
        memory.write(OBJECTS, &vec![0; table_bytes as usize]).unwrap();
        let rows = [(0x000, CFA_END, 0), (0x100, CFA_RSP, 8), (0x200, CFA_END, 0)];
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
        let v8_offset = runtimes + (Runtimes::BYTES + Python::BYTES) as u64;
        let head = Runtimes {
            v8_offset,
            ..Runtimes::default()
        };
        memory.write_structure(runtimes, &head).unwrap();
        memory.write_structure(v8_offset, &v8()).unwrap();
        memory
            .store_u64(offset_of!(Control, unwind_offset) as u64, UNWIND)
            .unwrap();
        let context = target.enter();
        let base = map(1 << 20, libc::MAP_PRIVATE);
        target.publish_range(base, base + (1 << 20));
        let stack = Stack {
            target,
            context,
            base,
            v8: v8_offset,
        };
        stack.fill();
        stack
    }

    fn put(&self, offset: u64, words: &[u64]) {
        for (index, word) in words.iter().enumerate() {
            // SAFETY: callers stay inside the mapping at `base`.
            unsafe { *((self.base + offset + index as u64 * 8) as *mut u64) = *word };
        }
    }

    fn word(&self, offset: u64) -> u64 {
        // SAFETY: callers stay inside the mapping at `base`.
        unsafe { *((self.base + offset) as *const u64) }
    }

    /// The tagged address of an object.
    fn tagged(&self, offset: u64) -> u64 {
        self.base + offset + 1
    }

    fn map_of(&self, kind: u32) -> u64 {
        self.tagged(MAPS + u64::from(kind) * 64)
    }

    /// Writes a whole heap, and a stack whose only frame of JavaScript runs optimised code.
    fn fill(&self) {
        for kind in CONTEXT_TYPE..=BYTECODE_TYPE {
            self.put(MAPS + u64::from(kind) * 64, &[self.map_of(0), u64::from(kind) << 32]);
        }
        let map = |kind| self.map_of(kind);
        self.put(CONTEXT, &[map(CONTEXT_TYPE)]);
        self.put(FUNCTION, &[map(FUNCTION_TYPE), self.tagged(OUTER), self.tagged(CODE)]);
        self.put(SCRIPT, &[map(SCRIPT_TYPE), small(77)]);
        let start = self.base + INSTRUCTIONS;
        self.put(CODE, &[map(CODE_TYPE), start, INSTRUCTION_BYTES, 4, self.tagged(EXITS)]);
        self.put(PAGE, &[0, 0xbeef]);
        for (offset, number) in [(OUTER, 1), (INNER, 2)] {
            self.put(
                offset,
                &[map(SHARED_TYPE), self.tagged(CODE), self.tagged(SCRIPT), number],
            );
        }
        // Exit 1 is the call's, and its list begins at the byte 4.
        let exits = [
            self.tagged(LISTS),
            self.tagged(LITERALS),
            0,
            small(0x60),
            small(1),
            small(1),
        ];
        self.put(EXITS, &[map(ARRAY_TYPE), small(12)]);
        self.put(EXITS + 16, &exits);
        self.put(EXITS + 16 + 6 * 8, &[0, 0, 0, small(4), 0, 0]);
        self.put(
            LITERALS,
            &[map(LITERALS_TYPE), small(2), self.tagged(OUTER), self.tagged(INNER)],
        );
        self.put(LISTS, &[map(BYTES_TYPE), small(4 + LIST.len() as u64)]);
        let mut bytes = [0; 24];
        bytes[4..][..LIST.len()].copy_from_slice(&LIST);
        for (index, chunk) in bytes.chunks(8).enumerate() {
            self.put(
                LISTS + 16 + index as u64 * 8,
                &[u64::from_le_bytes(chunk.try_into().unwrap())],
            );
        }
        // The safepoints: three of three bytes each, place, exit + 1, and a place that is not needed.
        let head = 3 | 1 << 32 | 1 << 36 | 1 << 39;
        let [call, other] = [CALL as u8, 0];
        let mut safepoints = [0; 16];
        safepoints[..9].copy_from_slice(&[4, 1, other, call, 2, other, 0x30, 1, other]);
        self.put(INSTRUCTIONS + INSTRUCTION_BYTES, &[head]);
        for (index, chunk) in safepoints.chunks(8).enumerate() {
            let at = INSTRUCTIONS + INSTRUCTION_BYTES + 8 + index as u64 * 8;
            self.put(at, &[u64::from_le_bytes(chunk.try_into().unwrap())]);
        }
        self.put(STACK, &[start + CALL]);
        self.put(FRAME - 16, &[self.tagged(FUNCTION), self.tagged(CONTEXT), 0, START]);
    }

    /// The offsets of all words of the heap that are not 0, and of those of the frame.
    fn used(&self) -> Vec<u64> {
        let heap = (0..HEAP_BYTES).step_by(8).filter(|offset| self.word(*offset) != 0);
        heap.chain([FRAME - 16, FRAME - 8, FRAME]).collect()
    }

    /// The frames from the leaf on. Checks that nothing is written after the last one that there is room for.
    fn walk(&self, limit: u64) -> Vec<u64> {
        const CANARY: u64 = 0x5a5a_a5a5_1234_4321;
        let enabling = Enabling {
            epid: 7,
            site: LEAF,
            ..Enabling::default()
        };
        self.target.memory.write_structure(ENABLING, &enabling).unwrap();
        self.target.begin(self.context);
        let (stack, frame) = (self.base + STACK, self.base + FRAME);
        self.target.push_frame(self.context, stack, frame);
        let destination = ROOM + 3000;
        for word in 0..32 {
            self.target.memory.store_u64(destination + word * 8, CANARY).unwrap();
        }
        let address = self.target.arena + destination;
        self.target.run(self.context, Function::UserStack, &[address, limit]);
        let count = self.target.memory.load_u64(destination).unwrap();
        assert!(count <= limit, "{count} frames");
        for word in limit + 1..32 {
            assert_eq!(self.target.memory.load_u64(destination + word * 8).unwrap(), CANARY);
        }
        let words = self.target.bytes(address + 8, count * 8);
        words
            .chunks(8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
            .collect()
    }

    /// The function of a frame, as the table has it, and the frame's position.
    fn function_of(&self, frame: u64) -> (u64, u64) {
        assert_eq!(frame & 3 << 62, FRAME_INTERPRETED, "{frame:x}");
        let index = (frame & 0x3fff_ffff) - u64::from(V8_FIRST_OBJECT);
        assert!(index < V8_OBJECTS, "{frame:x}");
        let entry = OBJECTS + V8Objects::BYTES as u64 + index * V8Object::BYTES as u64;
        let object: V8Object = self.target.memory.structure(entry).unwrap();
        (object.address - self.base - 1, frame << 2 >> 32)
    }
}

/// Numbers that follow from a seed (xorshift).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A word that something else might have written there.
    fn wrong(&mut self, stack: &Stack) -> u64 {
        let number = self.next();
        match number % 8 {
            0 => 0,
            1 => u64::MAX,
            2 => small(number >> 40),
            3 => small(0xffff_ffff),
            4 => stack.tagged(number >> 8 & 0xffff & !7),
            5 => stack.tagged([CODE, EXITS, LISTS, LITERALS, OUTER, MAPS][(number >> 8) as usize % 6]),
            6 => number >> 17,
            _ => number,
        }
    }
}

#[test]
fn a_call_stands_for_the_functions_of_its_list() {
    let stack = Stack::new();
    let walked = stack.walk(20);
    assert_eq!(walked.len(), 4, "{walked:x?}");
    assert_eq!((walked[0], walked[3]), (LEAF, START));
    assert_eq!(stack.function_of(walked[1]), (INNER, 300));
    assert_eq!(stack.function_of(walked[2]), (OUTER, 5));
    // Where there is room for one only, it is the innermost.
    let short = stack.walk(2);
    assert_eq!(short, walked[..2]);
}

#[test]
fn a_list_that_makes_no_sense_leaves_the_function_itself() {
    let stack = Stack::new();
    let outer = |stack: &Stack| {
        let walked = stack.walk(20);
        assert_eq!(walked.len(), 3, "{walked:x?}");
        assert_eq!((walked[0], walked[2]), (LEAF, START));
        stack.function_of(walked[1]).0
    };
    let lists = LISTS + 16;
    for (offset, word) in [
        // The list has no begin, ends before its frames, or begins after its end.
        (lists, 0),
        (LISTS + 8, small(14)),
        (EXITS + 16 + 9 * 8, small(0x7fff_ffff)),
        // A literal that is no function, and a first function that is not the code's.
        (LITERALS + 24, stack.tagged(SCRIPT)),
        (LITERALS + 16, stack.tagged(INNER)),
        // No safepoint is that of the call, or there is none.
        (INSTRUCTIONS + INSTRUCTION_BYTES + 8, 0),
        (INSTRUCTIONS + INSTRUCTION_BYTES, 0),
    ] {
        let kept = stack.word(offset);
        stack.put(offset, &[word]);
        assert_eq!(outer(&stack), OUTER, "{offset:x}");
        stack.put(offset, &[kept]);
    }
    assert_eq!(stack.walk(20).len(), 4);
}

/// Whatever the heap holds, the walk ends, within its room, with frames that are addresses or functions, and changes
/// nothing.
#[test]
fn a_damaged_heap_is_survived() {
    let stack = Stack::new();
    let whole = stack.walk(20);
    let used = stack.used();
    assert_eq!(used.len(), 60);
    let code = stack.base + INSTRUCTIONS + CALL;
    let mut numbers = Numbers(0x2545_f491_4f6c_dd1d);
    let mut different = 0;
    for round in 0..40_000_u64 {
        // First each word alone, then several together.
        let count = 1 + round / 20_000 * (numbers.next() % 6);
        let damaged: Vec<(u64, u64)> = (0..count)
            .map(|_| used[numbers.next() as usize % used.len()])
            .map(|offset| (offset, stack.word(offset)))
            .collect();
        for (offset, kept) in &damaged {
            let wrong = match numbers.next() % 3 {
                0 => kept ^ 1 << (numbers.next() % 64),
                _ => numbers.wrong(&stack),
            };
            stack.put(*offset, &[wrong]);
        }
        let before: Vec<u64> = used.iter().map(|offset| stack.word(*offset)).collect();
        let limit = 1 + numbers.next() % 20;
        let walked = stack.walk(limit);
        let after: Vec<u64> = used.iter().map(|offset| stack.word(*offset)).collect();
        assert_eq!(before, after, "{damaged:x?}");
        assert_eq!(walked[0], LEAF);
        for frame in &walked[1..] {
            // A damaged chain of frame pointers may lead to any word as a return address.
            let is_address = frame >> 47 == 0;
            assert!(
                is_address || frame & 3 << 62 == FRAME_INTERPRETED,
                "{damaged:x?} {walked:x?}"
            );
        }
        different += u64::from(walked.get(1).is_some_and(|frame| ![code, whole[1]].contains(frame)));
        for (offset, kept) in damaged.iter().rev() {
            stack.put(*offset, &[*kept]);
        }
    }
    // The damage was not all refused at the first look.
    assert!(different > 1000, "{different}");
    assert_eq!(stack.walk(20), whole);
}

/// As above, with damage in what the tracer says of V8: a child, or a stray write, can change it.
#[test]
fn a_damaged_description_is_survived() {
    let stack = Stack::new();
    let whole = stack.walk(20);
    let memory = &stack.target.memory;
    // The table of functions stays where it is: frames are noted in it.
    let words = stack.v8 + 8..stack.v8 + V8::BYTES as u64 / 8 * 8;
    let words: Vec<u64> = words.step_by(8).collect();
    let mut numbers = Numbers(0x9e37_79b9_7f4a_7c15);
    let mut different = 0;
    for _ in 0..20_000 {
        let offset = words[numbers.next() as usize % words.len()];
        let kept = memory.load_u64(offset).unwrap();
        let wrong = match numbers.next() % 2 {
            0 => kept ^ 1 << (numbers.next() % 64),
            _ => numbers.next() >> (numbers.next() % 64),
        };
        memory.store_u64(offset, wrong).unwrap();
        let before: Vec<u64> = stack.used().iter().map(|offset| stack.word(*offset)).collect();
        let walked = stack.walk(1 + numbers.next() % 20);
        let after: Vec<u64> = stack.used().iter().map(|offset| stack.word(*offset)).collect();
        assert_eq!(before, after, "{offset} {wrong:x}");
        assert_eq!(walked[0], LEAF);
        different += u64::from(walked.get(1).is_some_and(|frame| *frame != whole[1]));
        memory.store_u64(offset, kept).unwrap();
    }
    assert!(different > 1000, "{different}");
    assert_eq!(stack.walk(20), whole);
}
