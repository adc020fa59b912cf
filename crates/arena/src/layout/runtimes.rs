//! Stacks of interpreted programs: `agent/contract/runtimes.h`.

use crate::structure::structure;

/// The upper two bits of a frame have this value if the frame is interpreted code.
pub const FRAME_INTERPRETED: u64 = 2 << 62;
/// The position in the code is not known.
pub const POSITION_NONE: u32 = u32::MAX;
/// The code object is not known. The position then holds the object's kind.
pub const OBJECT_NONE: u32 = 0x3fff_ffff;
/// The frame is CPython's.
pub const RUNTIME_PYTHON: u64 = 1;
/// The frame is V8's.
pub const RUNTIME_JAVASCRIPT: u64 = 2;
/// A Method of HotSpot's.
pub const RUNTIME_JAVA: u64 = 4;
/// A code blob of HotSpot's which is no method.
pub const RUNTIME_JAVA_STUB: u64 = 5;
/// A frame of HotSpot's interpreter whose method is not known.
pub const RUNTIME_JAVA_INTERPRETER: u64 = 16;
/// A frame of code of HotSpot's of which no more is known.
pub const RUNTIME_JAVA_CODE: u64 = 17;
/// The number of words after [`RuntimeObjects`].
pub const RUNTIME_OBJECTS: u64 = 65536;
/// [`Python::form`]: each call of the evaluation function runs one frame.
pub const PYTHON_OBJECTS: u32 = 1;
/// [`Python::form`]: one call of the evaluation function runs frames up to its entry frame.
pub const PYTHON_RECORDS: u32 = 2;
/// [`Python::form`]: one call of the evaluation function runs frames up to a frame on its own C stack.
pub const PYTHON_SHIMS: u32 = 3;

structure! {
    /// The head of the table of code objects; [`RUNTIME_OBJECTS`] words follow.
    RuntimeObjects = "np_runtime_objects" {
        /// The number of words that were claimed for code objects.
        noted: u64,
        /// The number of frames whose code object found no word.
        refused: u64,
        /// Frames of HotSpot's of which nothing is known.
        unknown: u64,
    }
}
structure! {
    /// How CPython's frames hang together: addresses, and offsets in its structures.
    Python = "np_python" {
        /// Where the ranges of the evaluation function begin.
        code_start: [u64; 4],
        /// Where the ranges that begin at `code_start` end.
        code_end: [u64; 4],
        /// Address of the word that holds the first interpreter's address.
        interpreters: u64,
        /// Address of the word that holds the address of the thread that runs Python code. 0: there is no such
        /// word.
        current: u64,
        /// One of `PYTHON_*`; 0: there is no CPython.
        form: u32,
        /// 1: the thread's structure leads to its frame through a `_PyCFrame`.
        has_record: u32,
        interpreter_next: u32,
        interpreter_threads: u32,
        thread_next: u32,
        thread_key: u32,
        thread_frame: u32,
        record_frame: u32,
        record_previous: u32,
        frame_previous: u32,
        frame_code: u32,
        frame_instruction: u32,
        /// The byte that shows the end of a call's frames.
        frame_end: u32,
        /// The number of bytes in one unit of an instruction's index.
        instruction_unit: u32,
        code_filename: u32,
        code_name: u32,
        code_line: u32,
        code_table: u32,
        code_instructions: u32,
        reserved: u32,
    }
}
structure! {
    /// Data for the agent about the runtimes of interpreted languages; a [`Python`] follows.
    Runtimes = "np_runtimes" {
        /// Offset of the [`RuntimeObjects`] in the arena.
        objects_offset: u64,
        /// Offset of a `HotSpot` in the arena; 0: there is none.
        hotspot_offset: u64,
        /// Offset of a [`V8`](super::V8) in the arena; 0: there is none.
        v8_offset: u64,
    }
}
