//! Where CPython keeps the parts of a stack. Only 3.13 describes this itself. In the other versions the structures are
//! the same in all releases of a version, which CPython promises to extension modules.

use nanoprobe_arena::Structure as _;
use nanoprobe_arena::layout::{PYTHON_OBJECTS, PYTHON_RECORDS, PYTHON_SHIMS, Python};

use super::lines::Form;
use crate::memory::{Memory, word};

/// `3.N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32);

impl Version {
    /// From the word `Py_Version`, which interpreters have from 3.11 on.
    pub fn of_number(number: u64) -> Option<Version> {
        (number >> 24 & 0xff == 3).then_some(Version((number >> 16) as u32 & 0xff))
    }

    /// From the name of a file: `python3.10`, `libpython3.8.so.1.0`.
    pub fn of_file(name: &str) -> Option<Version> {
        let (_, rest) = name.rsplit_once("python3.")?;
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        rest.get(..digits)?.parse().ok().map(Version)
    }
}

/// The offsets that are needed of one version's structures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// The description that the agent gets. The addresses in it are 0 here.
    pub agent: Python,
    /// Offset in a code object of its qualified name; 0: it has no qualified name.
    pub qualified_name: u64,
    /// The form of a code object's table of lines.
    pub line_form: Form,
    /// The size of a string's head: in a string of ASCII characters only, and in any other string.
    pub text_heads: [u64; 2],
    /// Offset in the runtime of the first interpreter's address.
    pub interpreters: u64,
    /// Offset in the runtime of the address of the thread that runs; 0: the runtime does not keep this address.
    pub current: u64,
    /// Offset in a thread of its number (gettid); 0: it has none.
    pub thread_native: u32,
    /// Offset in a code object of the bytes with its instructions; 0: they lie in the object itself.
    pub code_bytes: u32,
}

impl Layout {
    /// The layout of a version; `None`: this program does not know the version.
    pub fn of(version: Version) -> Option<Layout> {
        Some(match version.0 {
            8 => Layout::of_frame_objects(104, 1, 1368, Form::Deltas),
            9 => Layout::of_frame_objects(104, 1, 568, Form::Deltas),
            10 => Layout::of_frame_objects(96, 2, 568, Form::Ranges),
            11 => Layout::of_3_11(),
            12 => Layout::of_3_12(),
            13 => Layout::of_3_13(),
            _ => return None,
        })
    }

    /// 3.8, 3.9, 3.10: a frame is an object.
    fn of_frame_objects(instruction: u32, unit: u32, current: u64, line_form: Form) -> Layout {
        Layout {
            agent: Python {
                form: PYTHON_OBJECTS,
                interpreter_next: 0,
                interpreter_threads: 8,
                thread_next: 8,
                thread_key: 176,
                thread_frame: 24,
                frame_previous: 24,
                frame_code: 32,
                frame_instruction: instruction,
                instruction_unit: unit,
                code_filename: 104,
                code_name: 112,
                code_line: 40,
                code_table: 120,
                ..Python::default()
            },
            qualified_name: 0,
            line_form,
            text_heads: [48, 72],
            interpreters: 32,
            current,
            thread_native: 0,
            code_bytes: 48,
        }
    }

    fn of_3_11() -> Layout {
        Layout {
            agent: Python {
                form: PYTHON_RECORDS,
                has_record: 1,
                interpreter_next: 0,
                interpreter_threads: 16,
                thread_next: 8,
                thread_key: 152,
                thread_frame: 56,
                record_frame: 8,
                record_previous: 16,
                frame_previous: 48,
                frame_code: 32,
                frame_instruction: 56,
                frame_end: 68,
                code_filename: 112,
                code_name: 120,
                code_line: 72,
                code_table: 136,
                code_instructions: 184,
                ..Python::default()
            },
            qualified_name: 128,
            line_form: Form::Locations,
            text_heads: [48, 72],
            interpreters: 40,
            current: 576,
            thread_native: 160,
            code_bytes: 0,
        }
    }

    fn of_3_12() -> Layout {
        Layout {
            agent: Python {
                form: PYTHON_SHIMS,
                has_record: 1,
                interpreter_next: 0,
                interpreter_threads: 72,
                thread_next: 8,
                thread_key: 136,
                thread_frame: 56,
                record_frame: 0,
                record_previous: 8,
                frame_previous: 8,
                frame_code: 0,
                frame_instruction: 56,
                frame_end: 70,
                code_filename: 112,
                code_name: 120,
                code_line: 68,
                code_table: 136,
                code_instructions: 192,
                ..Python::default()
            },
            qualified_name: 128,
            line_form: Form::Locations,
            text_heads: [40, 56],
            interpreters: 40,
            current: 0,
            thread_native: 144,
            code_bytes: 0,
        }
    }

    fn of_3_13() -> Layout {
        let of_3_12 = Layout::of_3_12();
        Layout {
            agent: Python {
                has_record: 0,
                interpreter_next: 7264,
                interpreter_threads: 7344,
                thread_key: 152,
                thread_frame: 72,
                code_instructions: 200,
                ..of_3_12.agent
            },
            interpreters: 632,
            thread_native: 160,
            ..of_3_12
        }
    }

    /// The layout that the runtime at an address describes itself, as 3.13 does (`_Py_DebugOffsets`). `None`: the
    /// runtime describes no layout, or one that makes no sense here.
    pub fn described(memory: &dyn Memory, runtime: u64) -> Option<Layout> {
        const COOKIE: u64 = u64::from_le_bytes(*b"xdebugpy");
        const OFFSET_MAX: u64 = 1 << 20;
        let at = |index: u64| word(memory, runtime.checked_add(8 * index)?);
        let version = Version::of_number(at(1)?)?;
        let threads_without_lock = at(2)? != 0;
        if at(0)? != COOKIE || version != Version(13) || threads_without_lock {
            return None;
        }
        let long = |index| at(index).filter(|offset| *offset < OFFSET_MAX);
        let offset = |index| long(index).map(|offset| offset as u32);
        let known = Layout::of_3_13();
        Some(Layout {
            agent: Python {
                interpreter_next: offset(8)?,
                interpreter_threads: offset(9)?,
                thread_next: offset(21)?,
                thread_frame: offset(23)?,
                thread_key: offset(24)?,
                frame_previous: offset(29)?,
                frame_code: offset(30)?,
                frame_instruction: offset(31)?,
                frame_end: offset(33)?,
                code_filename: offset(35)?,
                code_name: offset(36)?,
                code_line: offset(39)?,
                code_table: offset(38)?,
                code_instructions: offset(43)?,
                ..known.agent
            },
            qualified_name: long(37)?,
            interpreters: long(5)?,
            thread_native: offset(25)?,
            text_heads: [long(70)?, known.text_heads[1]],
            ..known
        })
    }

    /// The description for the agent: with the address of the runtime, and the ranges of the evaluation function.
    pub fn for_agent(&self, runtime: u64, evaluation: &[(u64, u64)]) -> Python {
        let mut agent = self.agent;
        for (index, (start, end)) in evaluation.iter().take(agent.code_start.len()).enumerate() {
            if let (Some(to_start), Some(to_end)) = (agent.code_start.get_mut(index), agent.code_end.get_mut(index)) {
                (*to_start, *to_end) = (*start, *end);
            }
        }
        agent.interpreters = runtime.wrapping_add(self.interpreters);
        agent.current = match self.current {
            0 => 0,
            current => runtime.wrapping_add(current),
        };
        agent
    }
}

const _: () = assert!(Python::BYTES == 64 + 16 + 20 * 4);
