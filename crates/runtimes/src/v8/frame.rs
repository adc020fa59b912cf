//! Frames of JavaScript in a sample: as `agent/v8.c` recognises them at a hit, which has the form of the frames.
//!
//! The stack is a copy from the moment of the sample, and the objects that it refers to are read some milliseconds
//! later. V8 may have moved or freed them meanwhile, and another function may be in a function's place. So the sample
//! must confirm a function by a second thing that belongs to it: its code contains the program counter, or its bytecode
//! is the bytecode that the frame runs.

use nanoprobe_arena::layout::{POSITION_INLINED, POSITION_NONE, V8_BASELINE};

use super::Layout;
use super::code::{InCode, Inlined};
use super::function::key_of;
use super::heap::{Heap, small};
use crate::memory::Memory;

/// A frame that may be one of JavaScript.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Its frame pointer.
    pub fp: u64,
    /// Its return address, or the address of its instruction.
    pub pc: u64,
    /// Its code was made at run time.
    pub is_made: bool,
    /// `pc` is an instruction's own address, not a return address.
    pub is_exact: bool,
}

/// A frame of JavaScript.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JavaScriptFrame {
    /// A function: its key, its address, and the position in it.
    Known {
        /// See `struct np_v8_object`.
        key: u64,
        /// Its address.
        address: u64,
        /// As in a frame's number.
        position: u32,
    },
    /// A function that is gone, or was moved.
    Unknown,
}

/// The functions of a frame, innermost first; `None`: it is none of JavaScript, or one of V8's own.
pub fn frame_at(
    layout: &Layout,
    memory: &dyn Memory,
    stack: &dyn Fn(u64) -> Option<u64>,
    place: Place,
) -> Option<Vec<JavaScriptFrame>> {
    let agent = &layout.agent;
    let slot = |offset: i32| stack(place.fp.checked_add_signed(offset.into())?);
    let is_tagged = |value: &u64| value & 3 == 1;
    let context = slot(agent.frame_context).filter(is_tagged)?;
    let function = slot(agent.frame_function).filter(is_tagged)?;
    let reader = Reader {
        heap: Heap { memory, layout },
        place,
        bytecode: slot(agent.frame_bytecode),
        offset: slot(agent.frame_offset),
    };
    match reader.read(context, function) {
        Found::Own => None,
        Found::Functions(frames) => Some(frames),
        // Where nothing is confirmed, only code that was made shows that the frame is JavaScript's.
        Found::Nothing => place.is_made.then(|| vec![JavaScriptFrame::Unknown]),
    }
}

enum Found {
    /// A function that V8 itself brings.
    Own,
    Functions(Vec<JavaScriptFrame>),
    Nothing,
}

struct Reader<'a> {
    heap: Heap<'a>,
    place: Place,
    bytecode: Option<u64>,
    offset: Option<u64>,
}

impl Reader<'_> {
    fn read(&self, context: u64, function: u64) -> Found {
        let agent = &self.heap.layout.agent;
        let is = |object, first, last| {
            self.heap
                .type_of(object)
                .is_some_and(|kind| (first..=last).contains(&kind))
        };
        let shared = self.heap.word(function, agent.function_shared);
        let Some(shared) = shared.filter(|shared| self.heap.is(*shared, agent.shared_type)) else {
            return Found::Nothing;
        };
        if !is(context, agent.context_first, agent.context_last)
            || !is(function, agent.function_first, agent.function_last)
        {
            return Found::Nothing;
        }
        let Some(data) = self.heap.word(shared, agent.shared_data) else {
            return Found::Nothing;
        };
        if small(data).is_some() {
            return Found::Own;
        }
        let known = |function, position| {
            let is_baseline = position < POSITION_INLINED && position & V8_BASELINE != 0;
            Some(JavaScriptFrame::Known {
                key: key_of(self.heap, function, is_baseline)?,
                address: function,
                position,
            })
        };
        let confirmed = self.confirmed(function, shared, data).unwrap_or_default();
        let frames = confirmed
            .into_iter()
            .map(|(function, position)| known(function, position));
        let frames: Option<Vec<JavaScriptFrame>> = frames.collect();
        let frames = frames.filter(|frames| !frames.is_empty());
        Found::Functions(frames.unwrap_or_else(|| vec![JavaScriptFrame::Unknown]))
    }

    /// The functions of the frame, and where it stands in them. `None`: nothing shows that it is this function's.
    fn confirmed(&self, function: u64, shared: u64, data: u64) -> Option<Vec<Inlined>> {
        let agent = &self.heap.layout.agent;
        let one = |position| Some(vec![(shared, position)]);
        // Of a kind below, it is the interpreter's entry.
        let in_code = |code: u64| self.in_code(code).filter(|place| place.kind >= agent.code_baseline);
        let own = self.heap.word(function, agent.function_code);
        let found = [own, Some(data)].into_iter().flatten().find_map(in_code);
        if let Some(place) = found {
            return match place.kind == agent.code_baseline {
                true => one(V8_BASELINE | place.offset),
                false => self.inlined(&place, shared).or_else(|| one(self.without_list(&place))),
            };
        }
        // A loop's code, or older code that this call still runs. It says whose it is.
        let other = self
            .place
            .is_made
            .then(|| in_code(self.heap.code_at(self.place.pc)?))
            .flatten();
        if let Some(functions) = other.and_then(|place| self.inlined(&place, shared)) {
            return Some(functions);
        }
        let own = match self.heap.is(data, agent.code_type) {
            true => self.heap.word(data, self.heap.layout.code_bytecode)?,
            false => data,
        };
        if self.bytecode != Some(own) || !self.heap.is(own, agent.bytecode_type) {
            return None;
        }
        // A loop's optimised code continues in the interpreter's frame. The frame's offset is then the offset of the
        // loop's start.
        if self.place.is_made {
            return one(other.map_or(POSITION_NONE, |place| self.without_list(&place)));
        }
        let start = u32::try_from(agent.bytecode_start).ok()?;
        let offset = self.offset.and_then(small).and_then(|offset| offset.checked_sub(start));
        one(offset.filter(|offset| *offset < V8_BASELINE).unwrap_or(POSITION_NONE))
    }

    /// Where nothing says for which functions the code stands. Only calls are described.
    fn without_list(&self, place: &InCode) -> u32 {
        match self.heap.has_inlined(place.code) {
            true => POSITION_INLINED,
            false => POSITION_NONE,
        }
    }

    /// The functions of optimised code.
    fn inlined(&self, place: &InCode, shared: u64) -> Option<Vec<Inlined>> {
        let is_call = !self.place.is_exact && place.kind == self.heap.layout.agent.code_optimized;
        is_call.then(|| self.heap.inlined(place, shared)).flatten()
    }

    /// Where the frame's pc is in a code object.
    fn in_code(&self, code: u64) -> Option<InCode> {
        let agent = &self.heap.layout.agent;
        if !self.heap.is(code, agent.code_type) {
            return None;
        }
        let start = self.heap.word(code, agent.code_start)?;
        let offset = self.place.pc.checked_sub(start)?;
        let size = self.heap.half(code, agent.code_size)?;
        if offset > size.into() || offset >= u64::from(POSITION_INLINED - V8_BASELINE) {
            return None;
        }
        Some(InCode {
            code,
            kind: self.heap.half(code, agent.code_flags)? & agent.code_kind_mask,
            start,
            size,
            offset: offset as u32,
        })
    }
}
