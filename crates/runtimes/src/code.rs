//! The facts about a code object, for all runtimes.

use nanoprobe_arena::layout::{
    POSITION_INLINED, POSITION_NEAR, RUNTIME_JAVA, RUNTIME_JAVA_CODE, RUNTIME_JAVA_INTERPRETER, RUNTIME_JAVA_STUB,
    RUNTIME_JAVASCRIPT, RUNTIME_PYTHON,
};

use crate::{Function, POSITION_UNKNOWN, hotspot, python};

/// What follows the outermost function of code of which only that one is known.
pub(crate) const INLINED_UNKNOWN: &str = " [inlined functions are not known]";

/// What follows a function that is that of the next place which is known.
const NEAR: &str = " [probably]";

/// A code object with its names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Code {
    /// A function of Python.
    Python(python::Code),
    /// A method of Java.
    Java(hotspot::Method),
    /// A stub of HotSpot's.
    Stub(String),
    /// An object of this kind that was gone, or no longer what the agent had seen.
    Gone(u64),
}

impl Code {
    /// The function at a position, as a stack shows it.
    pub fn at(&self, position: Option<u32>) -> String {
        match self {
            Code::Python(code) => {
                let lines = code.lines.as_ref().filter(|_| position != Some(POSITION_UNKNOWN));
                code.function.at(lines.and_then(|lines| lines.line(position)))
            }
            Code::Java(method) if position == Some(POSITION_INLINED) => {
                format!("{}{INLINED_UNKNOWN}", method.function.shown())
            }
            Code::Java(method)
                if position.is_some_and(|position| (POSITION_NEAR..POSITION_UNKNOWN).contains(&position)) =>
            {
                let place = position.map(|position| position & !POSITION_NEAR);
                let line = method.lines.as_ref().zip(place);
                let line = line.and_then(|(lines, place)| lines.line(place));
                format!("{}{NEAR}", method.function.at(line))
            }
            Code::Java(method) => {
                let line = method.lines.as_ref().zip(position);
                method
                    .function
                    .at(line.and_then(|(lines, position)| lines.line(position)))
            }
            Code::Stub(name) => format!("[stub {name}]"),
            Code::Gone(kind) => without_name(*kind).to_owned(),
        }
    }

    /// The function without a line.
    pub fn shown(&self) -> String {
        match self {
            Code::Python(python::Code { function, .. }) | Code::Java(hotspot::Method { function, .. }) => {
                Function::shown(function)
            }
            Code::Stub(_) | Code::Gone(_) => self.at(None),
        }
    }

    /// The size of its table of lines.
    pub fn table_bytes(&self) -> usize {
        match self {
            Code::Python(code) => code.lines.as_ref().map_or(0, |lines| lines.bytes.len()),
            Code::Java(method) => method.lines.as_ref().map_or(0, |lines| lines.bytes.len()),
            Code::Stub(_) | Code::Gone(_) => 0,
        }
    }

    /// The size of its names.
    pub fn names_bytes(&self) -> usize {
        match self {
            Code::Python(python::Code { function, .. }) | Code::Java(hotspot::Method { function, .. }) => {
                function.name.len() + function.file.len()
            }
            Code::Stub(name) => name.len(),
            Code::Gone(_) => 0,
        }
    }

    /// Forgets its table of lines.
    pub fn forget_table(&mut self) {
        match self {
            Code::Python(code) => code.lines = None,
            Code::Java(method) => method.lines = None,
            Code::Stub(_) | Code::Gone(_) => {}
        }
    }
}

/// The text of a frame of this kind (`RUNTIME_*`) of which nothing else is known.
pub fn without_name(kind: u64) -> &'static str {
    match kind {
        RUNTIME_PYTHON => "[python]",
        RUNTIME_JAVASCRIPT => "[javascript]",
        RUNTIME_JAVA => "[java]",
        RUNTIME_JAVA_STUB => "[stub]",
        RUNTIME_JAVA_INTERPRETER => "[interpreter]",
        RUNTIME_JAVA_CODE => "[jit]",
        _ => "[unknown]",
    }
}
