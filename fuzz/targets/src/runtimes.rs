//! The memory of a process that runs Python, Java or JavaScript.

use std::collections::HashMap;

use nanoprobe_arena::layout::{RUNTIME_JAVA, V8};
use nanoprobe_runtimes::python::{self, Call, NativeCall, Sampled, StackCopy};
use nanoprobe_runtimes::{Memory, Object, hotspot, v8};

/// A number of a thread, and an address of everything else.
const TID: u32 = 1;
const ADDRESS: u64 = 0x7f00_0000_0000;

/// A memory that repeats the input, so that each address leads somewhere.
struct Repeated<'a>(&'a [u8]);

impl Memory for Repeated<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        for (index, byte) in (0..).zip(into) {
            let at = address.wrapping_add(index).checked_rem(self.0.len() as u64);
            let Some(found) = at.and_then(|at| self.0.get(at as usize)) else {
                return false;
            };
            *byte = *found;
        }
        true
    }
}

/// Reads what each runtime would have at some addresses of the memory.
pub fn runtimes(input: &[u8]) {
    let memory = Repeated(input);
    for version in 8..=13 {
        if let Some(layout) = python::Layout::of(python::Version(version)) {
            of_python(&memory, &layout, input);
        }
    }
    if let Some(layout) = python::Layout::described(&memory, ADDRESS) {
        of_python(&memory, &layout, input);
    }
    of_hotspot(&memory);
    of_v8(&memory, input);
}

fn of_python(memory: &Repeated<'_>, layout: &python::Layout, input: &[u8]) {
    let thread = python::find_thread(memory, layout, ADDRESS, TID);
    let calls = python::calls(memory, layout, thread.unwrap_or(ADDRESS)).unwrap_or_default();
    if let Some(object) = python::object_at(memory, layout, ADDRESS)
        && let Some(code) = python::Code::read(memory, layout, object)
        && let Some(lines) = &code.lines
    {
        let _ = (lines.line(None), lines.line(Some(1)), lines.line(Some(u32::MAX)));
    }
    // A sample whose stack has the input, too.
    let called = calls.iter().map(|call| call.record.max(call.shim)).collect();
    let natives = [NativeCall {
        low: ADDRESS,
        high: ADDRESS + input.len() as u64,
        called,
    }];
    let agreed: Vec<Call> = python::agreed(&calls, &calls);
    // A call without frames ends the calls on which both readings agree.
    assert!(calls.ends_with(&agreed), "a reading agrees with itself");
    let sampled = Sampled {
        layout,
        copy: StackCopy {
            registers: &[ADDRESS],
            start: ADDRESS,
            bytes: input,
        },
        natives: &natives,
        calls: &agreed,
        instructions: &|code| python::instructions(memory, layout, code),
    };
    assert_eq!(sampled.shown().len(), natives.len());
}

fn of_hotspot(memory: &Repeated<'_>) {
    let symbols: HashMap<String, u64> = (0..)
        .zip(hotspot::SYMBOLS)
        .map(|(index, name)| ((*name).to_owned(), ADDRESS + 8 * index))
        .collect();
    let structures = hotspot::Structures::read(memory, &symbols);
    let layout = structures.and_then(|structures| hotspot::Layout::of(memory, &structures));
    let Some(layout) = layout else { return };
    let _ = layout.locate(memory);
    for check in 0..4 {
        let object = Object {
            kind: RUNTIME_JAVA,
            address: ADDRESS,
            check,
        };
        let _ = hotspot::stub(memory, &layout, object);
        if let Some(lines) = hotspot::Method::read(memory, &layout, object).and_then(|method| method.lines) {
            let _ = lines.line(1);
        }
    }
}

fn of_v8(memory: &Repeated<'_>, input: &[u8]) {
    let constants = v8::Constants::read(memory, |name| Some(ADDRESS + 8 * name.len() as u64));
    let layout = v8::Layout::of(&constants).unwrap_or(v8::Layout {
        agent: V8 {
            page_mask: 0x3_ffff,
            map_type: 10,
            ..V8::default()
        },
        not_string: u32::MAX,
        ..v8::Layout::default()
    });
    let mut reader = v8::Reader::new(layout);
    for key in [0, 1, u64::MAX] {
        if let Some(function) = reader.read(memory, key, ADDRESS | 1) {
            let _ = (function.shown(), function.at(Some(1)));
        }
    }
    let positions = v8::source_positions(input);
    assert!(positions.len() <= input.len());
    let (table, bytecode) = input.split_at(input.len() / 2);
    let sizes = std::array::from_fn(|_| vec![1; 256]);
    let _ = v8::baseline_offsets(table, bytecode, &sizes);
}
