//! Python frames of hand-made samples, and of garbage.

use std::ops::Range;

use nanoprobe_runtimes::python::{
    Call, Layout, NativeCall, PythonFrame, Sampled, ShownFrame, StackCopy, Version, agreed,
};

const SP: u64 = 0x7000;
/// Two calls of the evaluation function: where each begins and ends.
const INNER: Range<u64> = SP + 0x40..SP + 0x100;
const OUTER: Range<u64> = SP + 0x140..SP + 0x200;

fn natives() -> [NativeCall; 2] {
    let native = |range: Range<u64>, called: &[u64]| NativeCall {
        low: range.start,
        high: range.end,
        called: called.to_vec(),
    };
    [native(INNER, &[]), native(OUTER, &[INNER.end])]
}

/// Two code objects.
const CODES: [u64; 2] = [0x10_0000, 0x20_0000];

fn instructions(code: u64) -> Option<Range<u64>> {
    CODES.contains(&code).then(|| code + 200..code + 300)
}

fn frame(address: u64, code: u64, instruction: u64) -> PythonFrame {
    PythonFrame {
        address,
        code,
        instruction,
    }
}

struct Words(Vec<u8>);

impl Words {
    fn with(words: &[(u64, u64)]) -> Words {
        let mut bytes = vec![0; 0x200];
        for (address, word) in words {
            let offset = (address - SP) as usize;
            bytes[offset..offset + 8].copy_from_slice(&word.to_le_bytes());
        }
        Words(bytes)
    }

    fn shown(&self, version: u32, registers: &[u64], calls: &[Call]) -> Vec<Option<Vec<ShownFrame>>> {
        let sampled = Sampled {
            layout: &Layout::of(Version(version)).expect("a layout"),
            copy: StackCopy {
                registers,
                start: SP,
                bytes: &self.0,
            },
            natives: &natives(),
            calls,
            instructions: &instructions,
        };
        sampled.shown()
    }
}

fn shown(code: u64, position: u32) -> Option<Vec<ShownFrame>> {
    Some(vec![ShownFrame {
        code,
        position: Some(position),
    }])
}

/// Up to 3.10: the inner frame in registers, the outer one in the registers that the inner call has saved.
#[test]
fn a_frame_is_shown_if_the_sample_has_its_address_and_its_instruction() {
    let call = |frame| Call {
        frames: vec![frame],
        ..Call::default()
    };
    let calls = [call(frame(0x5000, CODES[0], 20)), call(frame(0x6000, CODES[1], 40))];
    let saved = INNER.end - 16;
    let copy = Words::with(&[(saved, 0x6000), (saved - 8, CODES[1] + 242)]);
    let registers = [0x5000, CODES[0] + 222];
    let both = [shown(CODES[0], 20), shown(CODES[1], 40)];
    assert_eq!(copy.shown(8, &registers, &calls), both);
    // Another function runs now in the inner call.
    let other = [call(frame(0x5000, CODES[1], 20)), calls[1].clone()];
    assert_eq!(copy.shown(8, &registers, &other), [None, shown(CODES[1], 40)]);
    // The inner call has returned, or has called another function.
    assert_eq!(copy.shown(8, &registers, &calls[1..]), [None, shown(CODES[1], 40)]);
    let deeper = [call(frame(0x4000, CODES[0], 2)), calls[0].clone(), calls[1].clone()];
    assert_eq!(copy.shown(8, &registers, &deeper), both);
    // Calls that did not follow each other.
    let between = [calls[0].clone(), call(frame(0x4000, CODES[0], 2)), calls[1].clone()];
    assert_eq!(copy.shown(8, &registers, &between), [None, shown(CODES[1], 40)]);
    // The line is that of the sample, not of the reading.
    let later = [call(frame(0x5000, CODES[0], 80)), calls[1].clone()];
    assert_eq!(copy.shown(8, &registers, &later), both);
}

#[test]
fn a_record_or_a_shim_on_the_stack_says_which_frame_ran() {
    let inner = frame(0x5000, CODES[0], CODES[0] + 220);
    let outer = frame(0x6000, CODES[1], CODES[1] + 240);
    // 3.11, 3.12: the record's offset of its frame is 8, 0.
    for (version, offset) in [(11, 8), (12, 0)] {
        let layout = Layout::of(Version(version)).expect("a layout").agent;
        let (records, shims) = ([INNER.start + 8, OUTER.start + 8], [INNER.start + 32, OUTER.start + 32]);
        let call = |index: usize, frames: &[PythonFrame]| Call {
            record: records[index],
            shim: if version == 12 { shims[index] } else { 0 },
            frames: frames.to_vec(),
        };
        let owner = |shim: u64| {
            (
                (shim + u64::from(layout.frame_end)) & !7,
                3_u64 << (8 * ((shim + u64::from(layout.frame_end)) & 7)),
            )
        };
        let copy = Words::with(&[
            (records[0] + offset, 0x5000),
            (records[1] + offset, 0x6000),
            (INNER.end - 16, CODES[1] + 242),
            owner(shims[0]),
            owner(shims[1]),
        ]);
        let registers = [CODES[0] + 222];
        let codes = |calls: &[Call]| -> Vec<Option<Vec<u64>>> {
            let shown = copy.shown(version, &registers, calls).into_iter();
            shown
                .map(|frames| Some(frames?.iter().map(|frame| frame.code).collect()))
                .collect()
        };
        let calls = [call(0, &[inner, outer]), call(1, &[outer])];
        assert_eq!(
            codes(&calls),
            [Some(CODES.to_vec()), Some(vec![CODES[1]])],
            "3.{version}"
        );
        // The inner call has called another function meanwhile.
        let deeper = [call(0, &[frame(0x5050, CODES[1], 0), inner, outer]), call(1, &[outer])];
        assert_eq!(
            codes(&deeper),
            [Some(CODES.to_vec()), Some(vec![CODES[1]])],
            "3.{version}"
        );
        // Another frame, or another function in its place.
        for changed in [frame(0x5050, CODES[0], 0), frame(0x5000, CODES[1], 0)] {
            let changed = [call(0, &[changed, outer]), call(1, &[outer])];
            assert_eq!(codes(&changed), [None, Some(vec![CODES[1]])], "3.{version}");
        }
    }
}

#[test]
fn two_readings_agree_on_the_outer_frames() {
    let call = |record, frames: &[u64]| Call {
        record,
        shim: 0,
        frames: frames.iter().map(|address| frame(*address, 1, 0)).collect(),
    };
    let outer = call(9, &[1, 2]);
    let both = [call(7, &[5, 6]), outer.clone()];
    assert_eq!(agreed(&both, &both), both);
    assert_eq!(agreed(&both, &both[1..]), both[1..]);
    assert_eq!(
        agreed(&[call(7, &[5, 6]), outer.clone()], &[call(7, &[4, 6]), outer.clone()]),
        [call(7, &[6]), outer]
    );
    assert_eq!(agreed(&both, &[call(9, &[3])]), []);
}

/// Callers stand still while a frame that they have called runs.
#[test]
fn frames_inside_of_one_that_has_moved_are_of_another_call() {
    let call = |record, frames: &[(u64, u64)]| Call {
        record,
        shim: 0,
        frames: frames
            .iter()
            .map(|(address, instruction)| frame(*address, 0, *instruction))
            .collect(),
    };
    let outer = call(9, &[(1, 10), (2, 20)]);
    let first = [call(7, &[(5, 50), (6, 60)]), outer.clone()];
    let innermost_moved = [call(7, &[(5, 51), (6, 60)]), outer.clone()];
    assert_eq!(agreed(&first, &innermost_moved), first);
    let caller_moved = [call(7, &[(5, 50), (6, 61)]), outer.clone()];
    assert_eq!(agreed(&first, &caller_moved), [call(7, &[(6, 60)]), outer]);
    let outer_moved = [first[0].clone(), call(9, &[(1, 11), (2, 20)])];
    assert_eq!(agreed(&first, &outer_moved), first[1..]);
    let outer_has_another_inner = [first[0].clone(), call(9, &[(0, 0), (1, 10), (2, 20)])];
    assert_eq!(agreed(&first, &outer_has_another_inner), first[1..]);
}

#[test]
fn garbage_is_survived() {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        // Many equal and extreme words.
        match random & 7 {
            0 => u64::MAX - (random >> 60),
            1 => random >> 60,
            2 | 3 => SP + (random >> 55),
            4 => CODES[0] + (random >> 56),
            _ => random,
        }
    };
    for round in 0..20_000 {
        let bytes: Vec<u8> = (0..64).flat_map(|_| next().to_le_bytes()).collect();
        let registers: Vec<u64> = (0..20).map(|_| next()).collect();
        let natives: Vec<NativeCall> = (0..3)
            .map(|_| NativeCall {
                low: next(),
                high: next(),
                called: vec![next(), next()],
            })
            .collect();
        let mut call = || Call {
            record: next(),
            shim: next(),
            frames: (0..3).map(|_| frame(next(), next(), next())).collect(),
        };
        let calls: Vec<Call> = (0..3).map(|_| call()).collect();
        let layout = Layout::of(Version(8 + round % 6)).expect("a layout");
        let sampled = Sampled {
            layout: &layout,
            copy: StackCopy {
                registers: &registers,
                start: next(),
                bytes: &bytes,
            },
            natives: &natives,
            calls: &calls,
            instructions: &|code| Some(code..code.saturating_add(100)),
        };
        assert_eq!(sampled.shown().len(), natives.len());
    }
}
