//! Interpreted code in samples: the frames of the evaluation function become those of the program.
//!
//! A sample is the thread's registers and a copy of its C stack. The interpreter's frames on the heap are read when the
//! tracer sees the sample, and used as far as the copy confirms them (`nanoprobe_runtimes::python`).
//!
//! A runtime whose frames lie on the C stack needs no [`Reading`]: the copy holds its frames, which replace native
//! frames (`sampled_code`).

use std::collections::HashMap;
use std::ops::Range;

use nanoprobe_arena::layout::{POSITION_NONE, RUNTIME_OBJECTS, RUNTIME_PYTHON, RuntimeObjects};
use nanoprobe_arena::{Mapping, Memory as _, Structure as _};
use nanoprobe_runtimes::python::{self, Call, NativeCall, Sampled, ShownFrame, StackCopy};
use nanoprobe_runtimes::{CachedMemory, Frame, Object, POSITION_UNKNOWN};
use nanoprobe_target::UserState;
use nanoprobe_text::modules::Modules;

use super::sampled_code::Sources;
use super::{Interpreted, TargetMemory, hotspot};
use crate::stack::NativeFrame;

/// The largest number of attempts to read a thread's frames. An attempt reads them twice, and succeeds if both readings
/// agree on some of the frames.
const READINGS: usize = 3;
/// The most frames of a stack: as many as a `ustack()` may have.
const FRAMES_MAX: usize = 2048;
/// The most threads whose states are remembered.
const THREADS_MAX: usize = 4096;
/// Where the agent begins to look for an object's word: `np_interpreted_frame`.
const HASH_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
const PROBES: u64 = 16;

/// A thread's Python frames, as they were read some time after its sample.
pub struct Reading {
    calls: Vec<Call>,
    codes: HashMap<u64, (Object, Range<u64>)>,
}

impl Interpreted {
    /// Whether the process has a runtime whose frames are read for samples. Looks for it in new modules.
    pub fn looks_for_runtimes(
        &mut self,
        modules: &Modules,
        sources: (Option<&Mapping>, &nanoprobe_target::Memory),
    ) -> bool {
        let (arena, memory) = sources;
        let has_python = self.looks_for_python(modules, memory);
        self.javascript.find(modules, &TargetMemory(memory));
        if self.hotspot.is_none() && self.modules_searched_for_java != modules.list().len() {
            self.modules_searched_for_java = modules.list().len();
            let symbols = hotspot::Library::symbols(modules);
            self.hotspot = symbols.map(|symbols| hotspot::Library::new(symbols, None));
        }
        // A damaged arena is reported by what reads it next.
        let _ = self.look_for_java(arena, memory, false);
        has_python || self.hotspot.is_some() || self.javascript.is_known()
    }

    fn looks_for_python(&mut self, modules: &Modules, memory: &nanoprobe_target::Memory) -> bool {
        let is_loaded = |found: &super::Interpreter| modules.is_loaded(found.module);
        if self.found.as_ref().is_some_and(is_loaded) {
            return true;
        }
        let count = modules.list().len();
        if std::mem::replace(&mut self.modules_searched, count) == count {
            return false;
        }
        self.threads.clear();
        self.found = self.find_python(modules, &TargetMemory(memory));
        self.python = self.found.as_ref().map(|found| found.layout).or(self.python);
        self.found.is_some()
    }

    /// Reads the Python frames of a thread.
    pub fn read_thread(&mut self, memory: &nanoprobe_target::Memory, tid: u32) -> Option<Reading> {
        let found = self.found.as_ref()?;
        let (layout, memory) = (&found.layout, TargetMemory(memory));
        let known = self.threads.get(&tid).copied();
        let known = known.filter(|thread| python::is_thread(&memory, layout, *thread, tid));
        let thread = known.or_else(|| {
            let cached = CachedMemory::new(&memory);
            python::find_thread(&cached, layout, found.runtime, tid)
        })?;
        if self.threads.len() >= THREADS_MAX {
            self.threads.clear();
        }
        self.threads.insert(tid, thread);
        for _ in 0..READINGS {
            let first = CachedMemory::new(&memory);
            let calls = python::calls(&first, layout, thread);
            let second = python::calls(&CachedMemory::new(&memory), layout, thread);
            let (Some(calls), Some(second)) = (calls, second) else {
                continue;
            };
            let calls = python::agreed(&calls, &second);
            if calls.is_empty() && !second.is_empty() {
                continue;
            }
            let mut codes = HashMap::new();
            for code in calls.iter().flat_map(|call| &call.frames).map(|frame| frame.code) {
                let read = || {
                    Some((
                        python::object_at(&first, layout, code)?,
                        python::instructions(&first, layout, code)?,
                    ))
                };
                if !codes.contains_key(&code)
                    && let Some(read) = read()
                {
                    codes.insert(code, read);
                }
            }
            return Some(Reading { calls, codes });
        }
        None
    }

    /// The frames of a sample, innermost first. Native frames of interpreters, and of code that runtimes have made, are
    /// replaced by the frames of the interpreted functions.
    pub fn frames_of_sample(
        &mut self,
        sources: &Sources<'_>,
        native: &[NativeFrame],
        reading: Option<&Reading>,
    ) -> Vec<u64> {
        let ranges = self.found.as_ref().map_or(&[][..], |found| &found.evaluation);
        let evaluates = |frame: &NativeFrame| ranges.iter().any(|(start, end)| (*start..*end).contains(&frame.at));
        let is_evaluation: Vec<bool> = native.iter().map(evaluates).collect();
        let natives = calls_of(native, &is_evaluation);
        let mut shown = self
            .found
            .as_ref()
            .zip(reading)
            .map(|(found, reading)| shown_of(&found.layout, sources.user, &natives, reading))
            .unwrap_or_default()
            .into_iter();
        let mut frames = Vec::new();
        for (frame, evaluates) in native.iter().zip(is_evaluation) {
            if !evaluates {
                let found = self.java_frames(sources, frame);
                let found = found.or_else(|| self.javascript_frames(sources, frame));
                frames.extend(found.unwrap_or_else(|| vec![frame.pc]));
                continue;
            }
            let Some((shown, reading)) = shown.next().flatten().zip(reading) else {
                frames.push(UNKNOWN.number());
                continue;
            };
            for shown in shown {
                let object = reading.codes.get(&shown.code).map(|(object, _)| *object);
                let number = object.and_then(|object| self.number_of(sources.arena, sources.target, object));
                frames.push(number.map_or(UNKNOWN, |object| known(object, shown)).number());
            }
        }
        frames.truncate(FRAMES_MAX);
        frames
    }

    /// The number of a code object, which is named now if it is new. If the agent's table has a number for the object,
    /// it is the same: frames of probes and of samples are equal.
    pub(super) fn number_of(
        &mut self,
        arena: Option<&Mapping>,
        memory: &nanoprobe_target::Memory,
        object: Object,
    ) -> Option<u32> {
        let word = object.word();
        let number = match (self.numbers.get(&word), arena.zip(self.objects)) {
            (Some(number), _) => *number,
            (None, Some((arena, objects))) => claim(arena, objects, word)?,
            (None, None) if self.numbers.len() < RUNTIME_OBJECTS as usize => {
                RUNTIME_OBJECTS as u32 + self.numbers.len() as u32
            }
            (None, None) => return None,
        };
        self.numbers.insert(word, number);
        if !self.codes.contains_key(&number) {
            let code = self.read(&TargetMemory(memory), object);
            self.codes.insert(number, code);
        }
        Some(number)
    }
}

/// A call of the evaluation function of which nothing else is known.
const UNKNOWN: Frame = Frame::Unknown { kind: RUNTIME_PYTHON };

fn known(object: u32, shown: ShownFrame) -> Frame {
    let position = shown.position.filter(|position| *position != POSITION_NONE);
    Frame::Known {
        object,
        position: Some(position.unwrap_or(POSITION_UNKNOWN)),
    }
}

/// The registers that functions must save.
const SAVED: [&str; 6] = ["bx", "bp", "r12", "r13", "r14", "r15"];

/// The calls of the evaluation function among the frames.
fn calls_of(native: &[NativeFrame], is_evaluation: &[bool]) -> Vec<NativeCall> {
    let (mut calls, mut called) = (Vec::new(), Vec::new());
    for (frame, evaluates) in native.iter().zip(is_evaluation) {
        let high = frame.high.unwrap_or(frame.low);
        if *evaluates {
            calls.push(NativeCall {
                low: frame.low,
                high,
                called: std::mem::take(&mut called),
            });
        }
        called.push(high);
    }
    calls
}

fn shown_of(
    layout: &python::Layout,
    user: &UserState,
    natives: &[NativeCall],
    reading: &Reading,
) -> Vec<Option<Vec<ShownFrame>>> {
    let sampled = Sampled {
        layout,
        copy: StackCopy {
            registers: &SAVED.map(|name| user.register(name)),
            start: user.register("sp"),
            bytes: &user.stack,
        },
        natives,
        calls: &reading.calls,
        instructions: &|code| reading.codes.get(&code).map(|(_, range)| range.clone()),
    };
    sampled.shown()
}

/// Claims a word of the table that the agent uses, as the agent does; yields its index. `None`: there is no room.
fn claim(arena: &Mapping, objects: u64, word: u64) -> Option<u32> {
    let hash = word.wrapping_mul(HASH_FACTOR) >> 32;
    for probe in 0..PROBES {
        let index = (hash + probe) % RUNTIME_OBJECTS;
        let at = objects + RuntimeObjects::BYTES as u64 + 8 * index;
        let _ = arena.compare_exchange_u64(at, 0, word).ok()?;
        if arena.load_u64(at).ok()? == word {
            return Some(index as u32);
        }
    }
    None
}
