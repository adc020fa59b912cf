//! The frames of a thread, read from outside of it, while it may run.
//!
//! The structures are those of `agent/python.c`, which reads them in the thread itself. Here each word may be from
//! another moment than the previous word. So a reading counts only as far as a second reading finds the same.

use nanoprobe_arena::layout::{PYTHON_OBJECTS, PYTHON_SHIMS};

use super::Layout;
use crate::memory::{Memory, half, word};

/// `FRAME_OWNED_BY_CSTACK`.
pub(super) const SHIM_OWNER: u32 = 3;
const INTERPRETERS_MAX: usize = 64;
const THREADS_MAX: usize = 1024;
/// The most frames that are read: as many as a sample's stack may have.
const FRAMES_MAX: usize = 2048;
/// Offset of a thread's number from its thread pointer, in the GNU C library.
const GNU_NUMBER: u64 = 720;
/// Offset of the size in every object of variable size.
const SIZE: u64 = 16;
/// Offset of the content in a bytes object.
const CONTENT: u64 = 32;
/// If code claims to be longer than this, it is not code.
const CODE_BYTES_MAX: u64 = 16 << 20;

/// One Python frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PythonFrame {
    /// The frame's address.
    pub address: u64,
    /// The address of the frame's code object.
    pub code: u64,
    /// The frame's current instruction, in the form in which the version stores it.
    pub instruction: u64,
}

/// The frames that one call of the evaluation function runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// The call's `_PyCFrame`, which lies on the C stack; 0: this version has none.
    pub record: u64,
    /// The frame on the C stack that ends the call's frames; 0: this version has none.
    pub shim: u64,
    /// The frames, innermost first.
    pub frames: Vec<PythonFrame>,
}

impl Call {
    /// The frames of a call on which two readings agree: its outer frames, and whether these are all. A caller stands
    /// at one instruction while a frame that it has called runs. So if a frame has moved between the readings, the
    /// frames inside of it belonged to another call, and it is the innermost frame that both readings know.
    fn agreed(&self, other: &Call) -> Option<(Call, bool)> {
        if (self.record, self.shim) != (other.record, other.shim) {
            return None;
        }
        let (mut equal, mut stands) = (0, true);
        for (one, another) in self.frames.iter().rev().zip(other.frames.iter().rev()) {
            if !stands || (one.address, one.code) != (another.address, another.code) {
                break;
            }
            equal += 1;
            stands = one.instruction == another.instruction;
        }
        let frames = self.frames.get(self.frames.len() - equal..)?.to_vec();
        let is_whole = stands && equal == self.frames.len() && equal == other.frames.len();
        (equal > 0).then_some((Call { frames, ..*self }, is_whole))
    }
}

/// The calls and frames that two readings agree on, innermost first: inner ones may have come or gone between the two.
pub fn agreed(first: &[Call], second: &[Call]) -> Vec<Call> {
    let mut agreed = Vec::new();
    for (one, another) in first.iter().rev().zip(second.iter().rev()) {
        let Some((call, is_whole)) = one.agreed(another) else {
            break;
        };
        agreed.push(call);
        if !is_whole {
            break;
        }
    }
    agreed.reverse();
    agreed
}

fn at(memory: &dyn Memory, base: u64, offset: u32) -> Option<u64> {
    word(memory, base.checked_add(offset.into())?)
}

/// The state of the thread with this number (as the program sees it), if the thread runs Python frames. `runtime`: the
/// address of `_PyRuntime`.
pub fn find_thread(memory: &dyn Memory, layout: &Layout, runtime: u64, tid: u32) -> Option<u64> {
    let agent = &layout.agent;
    let mut interpreter = word(memory, runtime.checked_add(layout.interpreters)?)?;
    let mut left = THREADS_MAX;
    for _ in 0..INTERPRETERS_MAX {
        if interpreter == 0 {
            break;
        }
        let mut thread = at(memory, interpreter, agent.interpreter_threads)?;
        while thread != 0 && left > 0 {
            left -= 1;
            if is_thread(memory, layout, thread, tid) && at(memory, thread, agent.thread_frame)? != 0 {
                return Some(thread);
            }
            thread = at(memory, thread, agent.thread_next)?;
        }
        interpreter = at(memory, interpreter, agent.interpreter_next)?;
    }
    None
}

/// Whether a thread state belongs to the thread with this number.
pub fn is_thread(memory: &dyn Memory, layout: &Layout, thread: u64, tid: u32) -> bool {
    let number = match layout.thread_native {
        0 => at(memory, thread, layout.agent.thread_key)
            .and_then(|pointer| half(memory, pointer.checked_add(GNU_NUMBER)?)),
        offset => at(memory, thread, offset).and_then(|number| u32::try_from(number).ok()),
    };
    number == Some(tid)
}

/// The calls of a thread, innermost first. `None`: a word cannot be read.
pub fn calls(memory: &dyn Memory, layout: &Layout, thread: u64) -> Option<Vec<Call>> {
    let agent = &layout.agent;
    let at = |base, offset| at(memory, base, offset);
    let mut frame = at(thread, agent.thread_frame)?;
    let mut record = 0;
    if agent.has_record == 1 && frame != 0 {
        record = frame;
        frame = at(record, agent.record_frame)?;
    }
    let (mut calls, mut frames) = (Vec::new(), Vec::new());
    for _ in 0..FRAMES_MAX {
        if frame == 0 {
            break;
        }
        let end = match agent.form {
            PYTHON_OBJECTS => 1,
            _ => half(memory, frame.checked_add(agent.frame_end.into())? & !3)? >> (8 * (agent.frame_end & 3)) & 0xff,
        };
        let is_shim = agent.form == PYTHON_SHIMS && end == SHIM_OWNER;
        if !is_shim {
            frames.push(PythonFrame {
                address: frame,
                code: at(frame, agent.frame_code)?,
                instruction: at(frame, agent.frame_instruction)?,
            });
        }
        let previous = at(frame, agent.frame_previous)?;
        if is_shim || agent.form != PYTHON_SHIMS && end != 0 {
            calls.push(Call {
                record,
                shim: if is_shim { frame } else { 0 },
                frames: std::mem::take(&mut frames),
            });
            if record != 0 {
                record = at(record, agent.record_previous)?;
            }
        }
        frame = previous;
    }
    Some(calls)
}

/// The addresses of a code object's instructions.
pub fn instructions(memory: &dyn Memory, layout: &Layout, code: u64) -> Option<std::ops::Range<u64>> {
    let (start, bytes) = match layout.code_bytes {
        0 => {
            let units = half(memory, code.checked_add(SIZE)?)?;
            (
                code.checked_add(layout.agent.code_instructions.into())?,
                2 * u64::from(units),
            )
        }
        offset => {
            let content = at(memory, code, offset)?;
            (content.checked_add(CONTENT)?, word(memory, content.checked_add(SIZE)?)?)
        }
    };
    let end = start.checked_add(bytes).filter(|_| bytes <= CODE_BYTES_MAX)?;
    Some(start..end)
}

impl PythonFrame {
    /// The position of the frame in its code, whose instructions begin at `start`.
    pub fn position(&self, layout: &Layout, start: u64) -> Option<u64> {
        let position = match layout.agent.form {
            PYTHON_OBJECTS => i64::from(self.instruction as i32) * i64::from(layout.agent.instruction_unit),
            _ => self.instruction.wrapping_sub(start) as i64,
        };
        u64::try_from(position).ok()
    }
}
