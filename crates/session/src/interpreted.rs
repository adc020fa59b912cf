//! Frames of interpreted code: which runtimes a process has, and the names of the code objects that its stacks show.
//!
//! The agent notes each code object once, in a table of the arena. The tracer looks at that table with every step, and
//! reads each new object while it exists. The names are kept, so a process that has ended still has its names.

mod hotspot;
mod sampled_code;
mod samples;

use std::cell::Cell;
use std::collections::HashMap;
use std::mem::offset_of;

use nanoprobe_arena::layout::{
    HotSpot, Python, RUNTIME_JAVA, RUNTIME_JAVA_STUB, RUNTIME_OBJECTS, RUNTIME_PYTHON, RuntimeObjects, Runtimes,
    V8_FIRST_OBJECT,
};
use nanoprobe_arena::{Mapping, Memory as _, Structure as _};
use nanoprobe_patch::TargetAddress;
use nanoprobe_runtimes::hotspot::{Method, stub};
use nanoprobe_runtimes::python::{self, Layout, Version};
use nanoprobe_runtimes::{Code, Frame, Memory, Object, without_name};
use nanoprobe_symbols::{AddressRange, Module};
use nanoprobe_text::modules::Modules;

use crate::attachment::Attachment;
use crate::error::SessionError;
use crate::javascript::{JavaScript, is_v8};

pub use sampled_code::Sources;

/// The function that runs Python code.
const EVALUATION: &str = "_PyEval_EvalFrameDefault";
/// The variable in which the interpreter keeps its threads.
const RUNTIME: &str = "_PyRuntime";
/// The most bytes of names that are kept. Further functions have no names.
const NAMES_BYTES_MAX: usize = 64 << 20;
/// The most bytes of tables of lines that are kept. Further functions are shown without lines.
const TABLES_BYTES_MAX: usize = 64 << 20;
/// One look reads no more after this many bytes of tables: a hostile process could fill all words at once.
const LOOK_BYTES_MAX: usize = 4 << 20;
/// The number of bytes that each object counts, besides the bytes that are read of it.
const OBJECT_BYTES: usize = 1 << 10;

/// A frame whose object was noted and not read, since the process ended first.
const UNREAD: &str = "[unknown]";

/// See the module's description.
#[derive(Default)]
pub struct Interpreted {
    python: Option<Layout>,
    hotspot: Option<hotspot::Library>,
    javascript: JavaScript,
    /// Offset in the arena of the table of code objects.
    objects: Option<u64>,
    /// How many objects the table of code objects had when it was last read.
    noted: u64,
    /// The data about each code object, by its number.
    codes: HashMap<u32, Code>,
    tables_bytes: usize,
    names_bytes: usize,
    /// The interpreter whose frames samples show.
    found: Option<Interpreter>,
    /// How many modules have been searched for that interpreter.
    modules_searched: usize,
    /// The same, for HotSpot.
    modules_searched_for_java: usize,
    /// The thread states that samples have shown, by the thread's number.
    threads: HashMap<u32, u64>,
    /// The numbers of the objects that samples have shown, by their words.
    numbers: HashMap<u64, u32>,
    warnings: Vec<String>,
    has_told_refusals: bool,
    has_told_makers: bool,
    has_told_unknown: bool,
}

/// The memory of a process.
pub struct TargetMemory<'a>(pub &'a nanoprobe_target::Memory);

impl Memory for TargetMemory<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        self.0.read(TargetAddress(address), into).is_ok()
    }
}

/// The same, with the number of bytes that were asked for.
struct CountedMemory<'a>(TargetMemory<'a>, Cell<usize>);

impl Memory for CountedMemory<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        self.1.set(self.1.get().saturating_add(into.len()));
        self.0.read(address, into)
    }
}

/// An interpreter that a process has mapped.
struct Interpreter {
    /// The index of the interpreter's module.
    module: usize,
    layout: Layout,
    /// Address of `_PyRuntime`.
    runtime: u64,
    /// The ranges of its evaluation function.
    evaluation: Vec<(u64, u64)>,
}

impl Interpreted {
    /// If code that a runtime makes has no names yet, says once how it gets names.
    pub fn tell_makers(&mut self, modules: &Modules, has_names: impl FnOnce() -> bool) {
        let loaded = modules.list().iter().enumerate();
        let mut loaded = loaded.filter(|(index, _)| modules.is_loaded(*index));
        let is_known = self.javascript.is_known();
        let maker = loaded.find_map(|(_, module)| maker_of(module, is_known));
        if let Some(remedy) = maker.filter(|_| !self.has_told_makers)
            && !has_names()
        {
            self.has_told_makers = true;
            self.warnings.push(remedy.to_owned());
        }
    }

    /// Whether the user was told how code that a runtime makes gets names.
    pub fn has_told_makers(&self) -> bool {
        self.has_told_makers
    }

    /// Writes what the agent must know; yields its offset in the arena, 0: no code is interpreted.
    ///
    /// # Errors
    /// The arena is full.
    pub fn publish(&mut self, attachment: &mut Attachment, modules: &Modules) -> Result<u64, SessionError> {
        let memory = TargetMemory(attachment.process.memory());
        self.javascript.find(modules, &memory);
        let interpreter = self.find_python(modules, &memory);
        let java = hotspot::Library::symbols(modules);
        let v8_offset = self.javascript.publish(attachment)?;
        if interpreter.is_none() && java.is_none() && v8_offset == 0 {
            return Ok(0);
        }
        let arena = attachment.addresses.arena.0;
        let growth = &mut attachment.room.growth;
        let objects = match self.objects {
            Some(objects) => objects,
            None if interpreter.is_none() && java.is_none() => 0,
            None => {
                let bytes = RuntimeObjects::BYTES as u64 + 8 * RUNTIME_OBJECTS;
                growth.reserve(bytes, 64)?.0 - arena
            }
        };
        self.objects = Some(objects).filter(|objects| *objects > 0);
        let known = |library: &hotspot::Library| {
            library.offset.is_some() && java.as_ref().is_none_or(|symbols| library.has_symbols(symbols))
        };
        if let (Some(symbols), false) = (&java, self.hotspot.as_ref().is_some_and(known)) {
            let offset = growth.reserve(HotSpot::BYTES as u64, 8)?.0 - arena;
            self.hotspot = Some(hotspot::Library::new(symbols.clone(), Some(offset)));
        }
        let mut bytes = Runtimes {
            objects_offset: objects,
            hotspot_offset: self.hotspot.as_ref().and_then(|library| library.offset).unwrap_or(0),
            v8_offset,
        }
        .to_bytes();
        self.python = interpreter.as_ref().map(|interpreter| interpreter.layout);
        let python = interpreter.map_or_else(Python::default, |interpreter| {
            interpreter
                .layout
                .for_agent(interpreter.runtime, &interpreter.evaluation)
        });
        bytes.extend_from_slice(&python.to_bytes());
        Ok(growth.put(bytes, 8)?.0 - arena)
    }

    fn find_python(&mut self, modules: &Modules, memory: &dyn Memory) -> Option<Interpreter> {
        let loaded = modules.list().iter().enumerate();
        let mut loaded = loaded.filter(|(index, _)| modules.is_loaded(*index));
        let (index, module, evaluation) = loaded.find_map(|(index, module)| {
            // Looking for one symbol is much cheaper than a list of all functions.
            module.symbol(RUNTIME)?;
            Some((index, module, evaluation_of(module)?))
        })?;
        let address = |name: &str| Some(module.bias().to_target(module.symbol(name)?.address).0);
        let runtime = address(RUNTIME)?;
        let number = address("Py_Version").and_then(|address| {
            let mut bytes = [0; 8];
            memory.read(address, &mut bytes).then_some(u64::from_le_bytes(bytes))
        });
        let file = module.path().file_name().unwrap_or_default().to_string_lossy();
        let version = number.and_then(Version::of_number).or_else(|| Version::of_file(&file));
        // Python 3.13 describes its own layout. A build of 3.13 without the lock describes its layout, too, but its
        // objects have another one.
        let older = version.filter(|Version(minor)| *minor < 13);
        let layout = Layout::described(memory, runtime).or_else(|| Layout::of(older?));
        if layout.is_none() && self.warnings.is_empty() {
            let version = version.map_or_else(|| "this version".to_owned(), |Version(minor)| format!("3.{minor}"));
            let warning = format!(
                "the frames of {version} of Python are not known here: stacks show the interpreter's own functions; \
                 python3 -X perf gives the program's functions names, where it has that option"
            );
            self.warnings.push(warning);
        }
        Some(Interpreter {
            module: index,
            layout: layout?,
            runtime,
            evaluation,
        })
    }

    /// Reads the code objects that the agent has noted since the last look.
    ///
    /// # Errors
    /// The arena is damaged.
    pub fn look(&mut self, arena: &Mapping, memory: &nanoprobe_target::Memory) -> Result<(), SessionError> {
        let warning = self.javascript.look(arena, &TargetMemory(memory))?;
        self.warnings.extend(warning.map(str::to_owned));
        let Some(objects) = self.objects else {
            return Ok(());
        };
        self.look_for_java(Some(arena), memory, false)?;
        let unknown = arena.load_u64(objects + offset_of!(RuntimeObjects, unknown) as u64)?;
        if unknown > 0 && !std::mem::replace(&mut self.has_told_unknown, true) {
            let warning = "some frames of the JVM could not be read: they are [jit] or [interpreter] in stacks, and \
                           their callers may be missing; jstack PID shows the stacks as the JVM knows them";
            self.warnings.push(warning.to_owned());
        }
        let refused = arena.load_u64(objects + offset_of!(RuntimeObjects, refused) as u64)?;
        if refused > 0 && !std::mem::replace(&mut self.has_told_refusals, true) {
            let warning =
                "more functions are called than the tracer can name: some frames are shown as [python] or [java]";
            self.warnings.push(warning.to_owned());
        }
        let noted = arena.load_u64(objects + offset_of!(RuntimeObjects, noted) as u64)?;
        if noted == self.noted {
            return Ok(());
        }
        let memory = CountedMemory(TargetMemory(memory), Cell::new(0));
        for index in 0..RUNTIME_OBJECTS as u32 {
            if self.codes.contains_key(&index) {
                continue;
            }
            let word = arena.load_u64(objects + RuntimeObjects::BYTES as u64 + 8 * u64::from(index))?;
            if let Some(object) = Object::of(word) {
                let code = self.read(&memory, object);
                self.codes.insert(index, code);
                // The next look reads the rest. Objects that are gone count, too, so that records need not wait long.
                memory.1.set(memory.1.get().saturating_add(OBJECT_BYTES));
                if memory.1.get() > LOOK_BYTES_MAX {
                    return Ok(());
                }
            }
        }
        // The count from before the words were read: objects that came meanwhile are read at the next look.
        self.noted = noted;
        Ok(())
    }

    /// Tells the agent where Java's code lies, as soon as the JVM has made it. Attempts that fail become rare; `now`
    /// asks for one.
    ///
    /// # Errors
    /// The arena is damaged.
    pub fn look_for_java(
        &mut self,
        arena: Option<&Mapping>,
        memory: &nanoprobe_target::Memory,
        now: bool,
    ) -> Result<(), SessionError> {
        let Some(library) = &mut self.hotspot else {
            return Ok(());
        };
        library.look(arena, &TargetMemory(memory), now)?;
        if library.is_unknown() && !std::mem::replace(&mut self.has_told_makers, true) {
            let warning = "the frames of this JVM are not known here: functions that it has made are [jit] in \
                           stacks, and compiled ones may be missing; `jcmd PID Compiler.perfmap` gives them names, \
                           also while nanoprobe traces (JDK 17 and later); java -XX:+PreserveFramePointer keeps all \
                           of them in stacks";
            self.warnings.push(warning.to_owned());
        }
        Ok(())
    }

    fn read(&mut self, memory: &dyn Memory, object: Object) -> Code {
        let java = self.hotspot.as_ref().and_then(hotspot::Library::layout);
        let read = match object.kind {
            RUNTIME_PYTHON => {
                let layout = self.python.as_ref();
                let code = layout.and_then(|layout| python::Code::read(memory, layout, object));
                code.map(Code::Python)
            }
            RUNTIME_JAVA => {
                let method = java.and_then(|layout| Method::read(memory, layout, object));
                method.map(Code::Java)
            }
            RUNTIME_JAVA_STUB => java.and_then(|layout| stub(memory, layout, object)).map(Code::Stub),
            _ => None,
        };
        let mut code = read.unwrap_or(Code::Gone(object.kind));
        self.names_bytes += code.names_bytes();
        if self.names_bytes > NAMES_BYTES_MAX {
            return Code::Gone(object.kind);
        }
        if self.tables_bytes + code.table_bytes() > TABLES_BYTES_MAX {
            code.forget_table();
        }
        self.tables_bytes += code.table_bytes();
        code
    }

    /// The warnings for the user; each is returned only once.
    pub fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// The text for a frame of interpreted code; `None` for any other frame.
    pub fn name(&self, frame: u64) -> Option<String> {
        Some(match Frame::of(frame)? {
            Frame::Known { object, position } if object >= V8_FIRST_OBJECT => self.javascript.name(object, position),
            Frame::Known { object, position } => {
                let code = self.codes.get(&object);
                code.map_or_else(|| UNREAD.to_owned(), |code| code.at(position))
            }
            Frame::Unknown { kind } => without_name(kind).to_owned(),
        })
    }

    /// The text for a frame of interpreted code without the line; `None` for any other frame.
    pub fn function(&self, frame: u64) -> Option<String> {
        match Frame::of(frame)? {
            Frame::Known { object, .. } if object >= V8_FIRST_OBJECT => Some(self.javascript.function(object)),
            Frame::Known { object, .. } => self.codes.get(&object).map(Code::shown).or(Some(UNREAD.to_owned())),
            Frame::Unknown { .. } => self.name(frame),
        }
    }
}

/// Advice on how the code that a module makes at run time gets names; `None`: the module makes no code.
fn maker_of(module: &Module, knows_v8: bool) -> Option<&'static str> {
    (!knows_v8 && is_v8(module)).then_some(
        "the frames of this version of V8 are not known here: functions that it has made are [jit] in stacks, and \
         interpreted ones have the interpreter's name; \
         node --perf-basic-prof --interpreted-frames-native-stack gives them names",
    )
}

/// The address ranges of a module's function that evaluates Python code. Compilers divide this function into parts.
fn evaluation_of(module: &Module) -> Option<Vec<(u64, u64)>> {
    let is_part = |name: &str| {
        let rest = name.strip_prefix(EVALUATION);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(".cold"))
    };
    let parts = module.functions().iter().filter(|function| is_part(&function.name));
    let range = |extent: AddressRange| {
        let start = module.bias().to_target(extent.start).0;
        (start, module.bias().to_target(extent.end).0)
    };
    let ranges: Vec<(u64, u64)> = parts.map(|function| range(function.extent())).collect();
    (!ranges.is_empty()).then_some(ranges)
}
