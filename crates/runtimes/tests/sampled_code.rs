//! Frames of samples whose memory is garbage, or was used for another function meanwhile.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "test code")]

use std::collections::HashMap;

use nanoprobe_arena::layout::{HOTSPOT_HEAPS, POSITION_INLINED, POSITION_NONE, V8, V8_BASELINE};
use nanoprobe_runtimes::hotspot::{self, CodeCache};
use nanoprobe_runtimes::v8::{JavaScriptFrame, Layout, Place, frame_at};
use nanoprobe_runtimes::{Cursor, Memory};

/// Words by their addresses.
#[derive(Clone, Default)]
struct Words(HashMap<u64, u64>);

impl Memory for Words {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        for (at, byte) in (address..).zip(into) {
            let Some(word) = self.0.get(&(at & !7)) else {
                return false;
            };
            *byte = word.to_le_bytes()[(at & 7) as usize];
        }
        true
    }
}

/// Bytes that depend on their addresses, so that they can be read at any.
struct Garbage(u64);

impl Garbage {
    fn word(&self, address: u64) -> u64 {
        let mixed = (address & !7 ^ self.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        // Most words are small, or addresses near to each other.
        match mixed >> 61 {
            0 => mixed,
            1 => u64::MAX - (mixed & 0xff),
            2 | 3 => mixed & 0xff,
            _ => 0x10_0000 + (mixed & 0xffff),
        }
    }
}

impl Memory for Garbage {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        for (offset, byte) in (0..).zip(into) {
            let at = address.wrapping_add(offset);
            *byte = self.word(at).to_le_bytes()[(at & 7) as usize];
        }
        true
    }
}

#[test]
fn garbage_is_no_code_of_java() {
    let mut known = 0;
    for seed in 0..20_000 {
        let memory = Garbage(seed);
        let at = |index: u64| memory.word(seed.wrapping_mul(977) + 8 * index);
        let small = |index: u64| (at(index) & 0xff) as u32;
        let mut layout = hotspot::Layout::default();
        let agent = &mut layout.agent;
        for heap in 0..HOTSPOT_HEAPS {
            agent.heap_low[heap] = at(1 + heap as u64) & !7;
            agent.heap_high[heap] = agent.heap_low[heap].saturating_add(1 << 20);
            agent.heap_map[heap] = at(9 + heap as u64);
        }
        (agent.interpreter_low, agent.interpreter_high) = (at(20), at(21));
        (agent.segment_bits, agent.unsigned5_excess) = (small(22), small(23) & 1);
        (agent.has_scopes, agent.description_bytes) = (1, small(24));
        (agent.scopes, agent.metadata, agent.code) = ([small(25), 0], [0, small(26)], [small(27), small(28)]);
        (agent.deoptimized, agent.frame_complete) = ([0, small(29)], small(30));
        let code = CodeCache {
            layout: &layout,
            memory: &memory,
            stack: &|address| Some(memory.word(address)),
            bytecode: at(31),
            is_of_module: &|address| address & 1 == 0,
        };
        let mut cursor = Cursor {
            pc: agent_address(&layout, at(32)),
            rsp: at(33) & !7,
            rbp: at(34),
            exact: at(35) & 1 == 0,
        };
        for _ in 0..10 {
            let Some(piece) = code.find(cursor.at()) else { break };
            known += code.functions(&piece, &cursor).len();
            let Some(caller) = code.caller(&piece, &cursor) else {
                break;
            };
            assert!(caller.rsp > cursor.rsp, "{caller:?}");
            cursor = caller;
        }
    }
    assert!(known > 1000, "{known}");
}

fn agent_address(layout: &hotspot::Layout, random: u64) -> u64 {
    layout.agent.heap_low[(random % HOTSPOT_HEAPS as u64) as usize].wrapping_add(random % (1 << 20))
}

const MAP: u64 = 0x5000;
const PAGE: u64 = 0x10_0000;

fn layout() -> Layout {
    Layout {
        agent: V8 {
            page_mask: 0xffff,
            page_heap: 16,
            map_type: 7,
            context_first: 1,
            context_last: 1,
            function_first: 2,
            function_last: 2,
            shared_type: 3,
            script_type: 4,
            bytecode_type: 5,
            code_type: 6,
            frame_context: -8,
            frame_function: -16,
            frame_bytecode: -32,
            frame_offset: -40,
            function_shared: 7,
            function_code: 15,
            shared_data: 7,
            shared_script: 15,
            shared_number: 23,
            script_number: 7,
            code_start: 7,
            code_size: 15,
            code_flags: 23,
            code_kind_mask: 15,
            code_baseline: 11,
            bytecode_start: 15,
            code_optimized: 12,
            array_type: 8,
            literals_type: 9,
            bytes_type: 10,
            array_length: 7,
            array_start: 15,
            code_exits: 31,
            exit_lists: 0,
            exit_literals: 1,
            exit_start: 2,
            exit_eager: 3,
            exit_lazy: 4,
            exit_first: 6,
            ..V8::default()
        },
        code_bytecode: 31,
        exit_inlined: 5,
        ..Layout::default()
    }
}

/// A list from byte 16 on is damaged; the one at 20 has two functions: offset 4 of literal 2, into which offset 7 of
/// literal 0 is inlined.
const LISTS: [u64; 5] = [
    0,
    0,
    u64::from_le_bytes([1, 1, 1, 1, 2, 0, 4, 4]),
    u64::from_le_bytes([24, 8, 4, 0, 31, 6, 24, 14]),
    u64::from_le_bytes([0, 0, 0, 0, 0, 0, 0, 0]),
];

/// The objects of a function, each at a multiple of 0x100 from its page's start.
fn objects() -> Words {
    let mut words = Words::default();
    let mut object = |number: u64, kind: u64, fields: &[u64]| {
        let map = MAP + kind * 0x10;
        words.0.insert(map + 8, kind);
        let start = PAGE + number * 0x100;
        words.0.insert(start, map + 1);
        for (at, field) in (1..).zip(fields) {
            words.0.insert(start + at * 8, *field);
        }
    };
    let tagged = |number: u64| PAGE + number * 0x100 + 1;
    object(1, 1, &[]);
    object(2, 2, &[tagged(3), tagged(7)]);
    object(3, 3, &[tagged(5), tagged(4), 9]);
    object(4, 4, &[7 << 32]);
    object(5, 5, &[]);
    // Another function, with another bytecode.
    object(12, 2, &[tagged(13), tagged(7)]);
    object(13, 3, &[tagged(15), tagged(4), 10]);
    object(15, 5, &[]);
    // Optimised code, and what is known of its calls: lists of functions, functions, where the jumps begin, numbers of
    // jumps that no call and that calls have, the number of inlined functions, and where the lists begin.
    object(7, 6, &[0x9000, 0x100, 12, tagged(20)]);
    let numbers = [0x80, 1, 1, 1, 0, 0, 0, 20].map(|number: u64| number << 32);
    object(20, 8, &[&[10 << 32, tagged(21), tagged(22)][..], &numbers].concat());
    object(21, 10, &[&[40 << 32][..], &LISTS].concat());
    object(22, 9, &[3 << 32, tagged(13), 0, tagged(3)]);
    // Its safepoints: two calls, of which the first one has no list.
    words.0.insert(0x9100, 0x91 << 32 | 2);
    words
        .0
        .insert(0x9108, u64::from_le_bytes([0x10, 0, 0, 0x20, 2, 0x84, 0, 0]));
    words.0.insert(0x9110, 0);
    let mut object = |number: u64, kind: u64, fields: &[u64]| {
        let start = PAGE + number * 0x100;
        words.0.insert(start, MAP + kind * 0x10 + 1);
        for (at, field) in (1..).zip(fields) {
            words.0.insert(start + at * 8, *field);
        }
    };
    // Baseline code.
    object(8, 6, &[0x9000, 0x100, 11]);
    words.0.insert(PAGE + 16, 0xabc0);
    words
}

/// The frame of a stack with this function in it, whose bytecode is the first function's.
fn frame(words: &Words, function: u64, pc: u64, is_made: bool) -> Option<JavaScriptFrame> {
    let tagged = |number: u64| PAGE + number * 0x100 + 1;
    let fp = 0x8000;
    let slots = [(8, tagged(1)), (16, tagged(function)), (32, tagged(5)), (40, 33 << 32)];
    let stack = |address: u64| {
        slots
            .iter()
            .find(|(offset, _)| fp - offset == address)
            .map(|(_, word)| *word)
    };
    let is_exact = false;
    let place = Place {
        fp,
        pc,
        is_made,
        is_exact,
    };
    let frames = frame_at(&layout(), words, &stack, place)?;
    assert_eq!(frames.len(), 1, "{frames:?}");
    frames.first().copied()
}

fn position(frame: Option<JavaScriptFrame>) -> Option<u32> {
    match frame? {
        JavaScriptFrame::Known { position, .. } => Some(position),
        JavaScriptFrame::Unknown => None,
    }
}

#[test]
fn a_function_is_believed_only_if_a_second_thing_belongs_to_it() {
    let words = objects();
    assert_eq!(position(frame(&words, 2, 0x4000, false)), Some(18), "its bytecode");
    assert_eq!(
        position(frame(&words, 2, 0x4000, true)),
        Some(POSITION_NONE),
        "a loop's optimised code"
    );
    assert_eq!(
        position(frame(&words, 2, 0x9010, true)),
        Some(POSITION_INLINED),
        "its optimised code"
    );
    // Another function is in its place.
    let other = frame(&words, 12, 0x4000, true);
    assert_eq!(other, Some(JavaScriptFrame::Unknown), "another bytecode");
    assert_eq!(
        frame(&words, 12, 0x9101, true),
        Some(JavaScriptFrame::Unknown),
        "after its code"
    );
    assert_eq!(
        position(frame(&words, 12, 0x90ff, true)),
        Some(POSITION_INLINED),
        "in its code"
    );
    let mut baseline = words.clone();
    baseline.0.insert(PAGE + 0x208 + 8, PAGE + 0x801);
    assert_eq!(position(frame(&baseline, 2, 0x9010, true)), Some(V8_BASELINE | 0x10));
}

/// The frames of a function's optimised code that returns there.
fn optimised(words: &Words, pc: u64) -> Vec<(u64, u32)> {
    let tagged = |number: u64| PAGE + number * 0x100 + 1;
    let stack = |address: u64| match address {
        0x7ff8 => Some(tagged(1)),
        0x7ff0 => Some(tagged(2)),
        _ => None,
    };
    let place = Place {
        fp: 0x8000,
        pc,
        is_made: true,
        is_exact: false,
    };
    let frames = frame_at(&layout(), words, &stack, place).unwrap_or_default();
    let known = frames.iter().map(|frame| match frame {
        JavaScriptFrame::Known { address, position, .. } => (*address, *position),
        JavaScriptFrame::Unknown => (0, 0),
    });
    known.collect()
}

#[test]
fn optimised_code_has_its_inlined_functions() {
    let words = objects();
    let (outer, inner) = (PAGE + 0x301, PAGE + 0xd01);
    let both = vec![(inner, 7), (outer, 4)];
    assert_eq!(optimised(&words, 0x9020), both, "a call");
    assert_eq!(
        optimised(&words, 0x9084),
        both,
        "the jump after a call whose code is no longer valid"
    );
    let unknown = vec![(outer, POSITION_INLINED)];
    for (pc, what) in [
        (0x9010, "a call without a list"),
        (0x901f, "no call"),
        (0x9080, "another jump"),
        (0x90ff, "after the jumps"),
    ] {
        assert_eq!(optimised(&words, pc), unknown, "{what}");
    }
    // Code is found by what lies before its instructions, too.
    let mut other = words.clone();
    other.0.insert(PAGE + 0x210, PAGE + 0x501);
    other.0.insert(0x8ff8, PAGE + 0x701);
    assert_eq!(optimised(&other, 0x9020), both, "older code");
    // Another function's code does not count.
    let mut foreign = words.clone();
    foreign.0.insert(PAGE + 0x1600 + 0x20, PAGE + 0xd01);
    assert_eq!(optimised(&foreign, 0x9020), unknown);
}

/// Each damaged word.
#[test]
fn damaged_optimised_code_has_no_wrong_functions() {
    let words = objects();
    let known = [PAGE + 0x301, PAGE + 0xd01, 0];
    for address in words.0.keys() {
        for value in [
            0,
            1,
            1 << 32,
            u64::MAX,
            PAGE + 0x301,
            PAGE + 0xd01,
            PAGE + 0x1501,
            0xff << 32,
        ] {
            let mut damaged = words.clone();
            damaged.0.insert(*address, value);
            for pc in [0x9010, 0x9020, 0x9084] {
                let frames = optimised(&damaged, pc);
                assert!(
                    frames.iter().all(|(function, _)| known.contains(function)),
                    "{frames:?}"
                );
            }
        }
    }
}

#[test]
fn an_unreadable_function_is_javascript_only_in_made_code() {
    let words = objects();
    let mut gone = words.clone();
    // The function has been moved: its first word is no map.
    gone.0.insert(PAGE + 0x200, 0x7777_0000);
    assert_eq!(frame(&gone, 2, 0x4000, true), Some(JavaScriptFrame::Unknown));
    assert_eq!(frame(&gone, 2, 0x4000, false), None);
    let mut own = words;
    own.0.insert(PAGE + 0x308, 5 << 32);
    assert_eq!(frame(&own, 2, 0x4000, true), None, "one of V8's own");
    assert_eq!(
        frame(&Words::default(), 2, 0x4000, true),
        Some(JavaScriptFrame::Unknown)
    );
}

#[test]
fn garbage_is_no_javascript() {
    for seed in 0..20_000 {
        let memory = Garbage(seed);
        let place = Place {
            fp: memory.word(8),
            pc: memory.word(16),
            is_made: seed & 1 == 0,
            is_exact: seed & 2 == 0,
        };
        let _ = frame_at(&layout(), &memory, &|address| Some(memory.word(address) | 1), place);
    }
}
