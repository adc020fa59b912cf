//! Which Python frames a sample shows. Pure.
//!
//! # Theory of operation
//!
//! A sample is a thread's registers and a copy of its C stack. The Python frames lie elsewhere, and are read a little
//! later, when the thread may run other functions. But the copy holds the values that the interpreter itself must
//! remember in each call of its evaluation function:
//!
//! ```text
//!                        the copy, of the sample's moment             read later
//!   3.11, 3.12    _PyCFrame: the address of the frame       ==  that call's innermost frame
//!   3.12, 3.13    the inner call's shim: its caller         ==  that call's innermost frame
//!   otherwise     a word: the address of the frame          ==  that call's innermost frame
//!   always        a word: the next instruction              in  the instructions of that frame's code object
//! ```
//!
//! The values that a call keeps in registers lie where the functions that it has called have saved them: in the six
//! words below their return addresses. The innermost call has the sample's registers, too.
//!
//! A call whose words do not fit the later reading is not known. Its frames are then not shown. The instruction that
//! the copy holds is also where the frame stood, so lines are right for the moment of the sample.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use nanoprobe_arena::layout::PYTHON_OBJECTS;

use super::Layout;
use super::thread::{Call, PythonFrame, SHIM_OWNER};

/// The words of the registers that a function must save, below its return address.
const SAVED_BYTES: u64 = 56;
/// The size of the longest instruction: the distance from the instruction that a frame notes to the next instruction,
/// whose address the interpreter keeps.
const INSTRUCTION_BYTES_MAX: u64 = 24;

/// A sample's registers and its copy of the stack.
#[derive(Clone, Copy, Debug)]
pub struct StackCopy<'a> {
    /// The registers that functions must save.
    pub registers: &'a [u64],
    /// The address of the first byte of the copy.
    pub start: u64,
    /// The bytes.
    pub bytes: &'a [u8],
}

impl StackCopy<'_> {
    fn word(&self, address: u64) -> Option<u64> {
        let offset = usize::try_from(address.checked_sub(self.start)?).ok()?;
        let word = self.bytes.get(offset..)?.first_chunk::<8>()?;
        Some(u64::from_le_bytes(*word))
    }

    fn words(&self, range: Range<u64>) -> impl Iterator<Item = u64> {
        // A hostile thread may have any stack pointer.
        let start = range
            .start
            .max(self.start)
            .checked_next_multiple_of(8)
            .unwrap_or(u64::MAX);
        let end = range.end.min(self.start.saturating_add(self.bytes.len() as u64));
        let count = end.saturating_sub(start) / 8;
        (0..count).filter_map(move |index| self.word(start + 8 * index))
    }
}

/// A call of the evaluation function on the C stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NativeCall {
    /// The stack pointer during the call.
    pub low: u64,
    /// The stack pointer after the call has returned.
    pub high: u64,
    /// The stack pointers after the returns of the functions that the call has called. The first of these functions is
    /// the next inner call of the evaluation function.
    pub called: Vec<u64>,
}

/// A frame that the sample shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShownFrame {
    /// The address of the frame's code object.
    pub code: u64,
    /// The position in the frame's code; `None`: it is not known.
    pub position: Option<u32>,
}

/// A sample, and the data that was read of its thread later.
pub struct Sampled<'a> {
    /// The layout of the interpreter's structures.
    pub layout: &'a Layout,
    /// The sample's registers and stack.
    pub copy: StackCopy<'a>,
    /// The calls of the evaluation function on the sample's stack, innermost first.
    pub natives: &'a [NativeCall],
    /// The calls that were read later, innermost first.
    pub calls: &'a [Call],
    /// Yields the addresses of a code object's instructions.
    pub instructions: &'a dyn Fn(u64) -> Option<Range<u64>>,
}

/// The index of a call that was read, and the index of the frame that was that call's innermost one when the sample
/// was taken.
type Found = (usize, usize);

impl Sampled<'_> {
    /// The frames of each call in `natives`, in the same order; `None`: they are not known.
    pub fn shown(&self) -> Vec<Option<Vec<ShownFrame>>> {
        let natives = self.natives.iter().enumerate();
        let words: Vec<Vec<u64>> = natives.map(|(index, native)| self.words_of(index, native)).collect();
        let mut found = match self.layout.agent.form {
            PYTHON_OBJECTS => self.by_frames(&words),
            _ => self.by_places(&words),
        };
        drop_broken(&mut found);
        let shown = found.iter().zip(&words).map(|(found, words)| {
            let (call, first) = (*found)?;
            let frames = self.calls.get(call)?.frames.get(first..)?;
            Some(self.frames_of(frames, words))
        });
        shown.collect()
    }

    /// The words that a call keeps in registers: the functions that it has called have saved them, and the innermost
    /// call has the sample's registers, too. The call's own part of the stack also has values of earlier calls. That
    /// part counts only where a record says exactly which frame ran: 3.11 and 3.12 keep the instruction there.
    fn words_of(&self, index: usize, native: &NativeCall) -> Vec<u64> {
        let of_registers = |high: &u64| high.saturating_sub(SAVED_BYTES)..high.saturating_sub(8);
        let mut words: Vec<u64> = match self.layout.agent.has_record {
            1 => {
                let start = native.called.first().map_or(0, |inner| of_registers(inner).start);
                let start = if index == 0 { 0 } else { start };
                self.copy.words(start..of_registers(&native.high).start).collect()
            }
            _ => native
                .called
                .iter()
                .flat_map(|high| self.copy.words(of_registers(high)))
                .collect(),
        };
        if index == 0 {
            words.extend_from_slice(self.copy.registers);
        }
        words
    }

    /// Up to 3.10: each call runs one frame, whose address and instruction are among the call's words. The frames of
    /// earlier calls are among them, too, in words that nothing has overwritten. But all calls follow each other in the
    /// same order.
    fn by_frames(&self, words: &[Vec<u64>]) -> Vec<Option<Found>> {
        let innermost = |call: &Call| call.frames.first().copied();
        let frames = self.calls.iter().enumerate();
        let frames: HashMap<u64, (usize, PythonFrame)> = frames
            .filter_map(|(index, call)| innermost(call).map(|frame| (frame.address, (index, frame))))
            .collect();
        let mut fits: HashSet<(usize, usize)> = HashSet::new();
        let mut votes: HashMap<isize, usize> = HashMap::new();
        for (native, words) in words.iter().enumerate() {
            for (call, frame) in words.iter().filter_map(|word| frames.get(word)) {
                if !fits.contains(&(native, *call)) && self.has_instruction(frame, words) {
                    fits.insert((native, *call));
                    *votes.entry(*call as isize - native as isize).or_insert(0) += 1;
                }
            }
        }
        let outermost = self.calls.len() as isize - words.len() as isize;
        let rank = |(shift, votes): &(&isize, &usize)| (**votes, **shift == outermost);
        let best = votes.iter().max_by_key(rank);
        let shift = best.filter(|best| votes.iter().filter(|other| rank(other) == rank(best)).count() == 1);
        let call_of = |native: usize| {
            let call = usize::try_from(native as isize + *shift?.0).ok()?;
            fits.contains(&(native, call)).then_some((call, 0))
        };
        (0..words.len()).map(call_of).collect()
    }

    fn by_places(&self, words: &[Vec<u64>]) -> Vec<Option<Found>> {
        let natives = self.natives.iter().zip(words).enumerate();
        let found = natives.map(|(index, (native, words))| {
            let inner = index.checked_sub(1).and_then(|inner| self.natives.get(inner));
            self.by_place(native, inner, words)
        });
        found.collect()
    }

    /// From 3.11 on: the call that has something in the native frame's part of the stack.
    fn by_place(&self, native: &NativeCall, inner: Option<&NativeCall>, words: &[u64]) -> Option<Found> {
        let agent = &self.layout.agent;
        let place = |call: &Call| if call.shim == 0 { call.record } else { call.shim };
        let is_within = |call: &Call| (native.low..native.high).contains(&place(call));
        let index = self.calls.iter().position(is_within)?;
        let call = self.calls.get(index)?;
        if call.shim != 0 {
            let owner = call.shim.checked_add(agent.frame_end.into())?;
            if self.copy.word(owner & !7)? >> (8 * (owner & 7)) & 0xff != u64::from(SHIM_OWNER) {
                return None;
            }
        }
        let innermost = match (call.record, inner) {
            (0, None) => None,
            // The shim lies at the same place in each call.
            (0, Some(inner)) => {
                let shim = inner.high.checked_sub(native.high.checked_sub(call.shim)?)?;
                Some(self.copy.word(shim.checked_add(agent.frame_previous.into())?)?)
            }
            (record, _) => Some(self.copy.word(record.checked_add(agent.record_frame.into())?)?),
        };
        let fits = |frame: &PythonFrame| match innermost {
            Some(address) => frame.address == address && self.has_instruction(frame, words),
            None => self.is_told(frame, words),
        };
        let first = call.frames.iter().position(fits)?;
        Some((index, first))
    }

    fn is_told(&self, frame: &PythonFrame, words: &[u64]) -> bool {
        words.contains(&frame.address) && self.has_instruction(frame, words)
    }

    fn has_instruction(&self, frame: &PythonFrame, words: &[u64]) -> bool {
        let range = (self.instructions)(frame.code);
        range.is_some_and(|range| words.iter().any(|word| range.contains(word)))
    }

    fn frames_of(&self, frames: &[PythonFrame], words: &[u64]) -> Vec<ShownFrame> {
        let shown = frames.iter().enumerate().map(|(index, frame)| {
            let range = (self.instructions)(frame.code).unwrap_or_default();
            let noted = frame.position(self.layout, range.start);
            let position = match index {
                0 => stands_at(words, &range, noted),
                _ => noted,
            };
            ShownFrame {
                code: frame.code,
                position: position.and_then(|position| u32::try_from(position).ok()),
            }
        });
        shown.collect()
    }
}

/// Calls that follow each other on the C stack followed each other in the reading, too; else the inner call has ended.
fn drop_broken(found: &mut [Option<Found>]) {
    let mut outer: Option<Found> = None;
    for found in found.iter_mut().rev() {
        let follows = |inner: Found, outer: Found| inner.0 + 1 == outer.0 && outer.1 == 0;
        if let (Some(inner), Some(outer)) = (*found, outer)
            && !follows(inner, outer)
        {
            *found = None;
        }
        outer = *found;
    }
}

/// The position of a frame: the position that it has noted, if the sample's words have the instruction after it; else
/// the only position in the sample's words.
fn stands_at(words: &[u64], range: &Range<u64>, noted: Option<u64>) -> Option<u64> {
    const UNIT: u64 = 2;
    let within = words.iter().filter(|word| range.contains(word) && **word > range.start);
    let mut next: Vec<u64> = within.map(|word| word - range.start).collect();
    next.sort_unstable();
    next.dedup();
    let follows = |noted: &u64| {
        next.iter()
            .any(|next| (*noted..=noted + INSTRUCTION_BYTES_MAX).contains(next))
    };
    let alone = || match next.as_slice() {
        [next] => next.checked_sub(UNIT),
        _ => None,
    };
    noted.filter(follows).or_else(alone)
}
