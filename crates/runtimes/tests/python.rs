//! CPython's structures and tables of lines, compared with the headers and the interpreters that are installed; and
//! what happens with garbage.

#![allow(clippy::unwrap_used, reason = "test code")]

use std::path::PathBuf;
use std::process::Command;

use nanoprobe_runtimes::python::{Code, Form, Layout, Lines, Version};
use nanoprobe_runtimes::{Memory, Object};
use nanoprobe_tests::command::run;
use nanoprobe_tests::left_out::left_out;

/// The interpreters that pyenv has installed, each with its version.
fn installed() -> Vec<(u32, PathBuf)> {
    let root = std::env::var_os("PYENV_ROOT").map(PathBuf::from);
    let root = root.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".pyenv")));
    let folder = root.and_then(|root| std::fs::read_dir(root.join("versions")).ok());
    let paths = folder.into_iter().flatten().flatten().map(|entry| entry.path());
    let version = |path: PathBuf| {
        let name = path.file_name()?.to_str()?.to_owned();
        let minor = name.strip_prefix("3.")?.split('.').next()?.parse().ok()?;
        path.join("bin/python3").is_file().then_some((minor, path))
    };
    paths.filter_map(version).collect()
}

/// A program that prints the offsets of a version, each with its name.
fn offsets_program(minor: u32) -> String {
    let headers = match minor {
        8 => "#include \"internal/pycore_pystate.h\"\n#include \"frameobject.h\"\n#include \"code.h\"\n",
        9 | 10 => {
            "#include \"internal/pycore_runtime.h\"\n#include \"internal/pycore_interp.h\"\n#include \"frameobject.h\"\n"
        }
        _ => {
            "#include \"internal/pycore_runtime.h\"\n#include \"internal/pycore_interp.h\"\n\
             #include \"internal/pycore_frame.h\"\n#include \"internal/pycore_code.h\"\n"
        }
    };
    let threads = if minor < 11 { "tstate_head" } else { "threads.head" };
    let mut fields = vec![
        ("interpreters", "_PyRuntimeState", "interpreters.head"),
        ("interpreter_next", "PyInterpreterState", "next"),
        ("interpreter_threads", "PyInterpreterState", threads),
        ("thread_next", "PyThreadState", "next"),
        ("thread_key", "PyThreadState", "thread_id"),
        ("code_filename", "PyCodeObject", "co_filename"),
        ("code_name", "PyCodeObject", "co_name"),
        ("code_line", "PyCodeObject", "co_firstlineno"),
    ];
    if minor < 12 {
        fields.push(("current", "_PyRuntimeState", "gilstate.tstate_current"));
    }
    fields.extend(match minor {
        ..=10 => vec![
            ("thread_frame", "PyThreadState", "frame"),
            ("frame_previous", "PyFrameObject", "f_back"),
            ("frame_code", "PyFrameObject", "f_code"),
            ("frame_instruction", "PyFrameObject", "f_lasti"),
        ],
        11 | 12 => vec![
            ("thread_frame", "PyThreadState", "cframe"),
            ("record_frame", "_PyCFrame", "current_frame"),
            ("record_previous", "_PyCFrame", "previous"),
            ("frame_code", "_PyInterpreterFrame", "f_code"),
            ("frame_instruction", "_PyInterpreterFrame", "prev_instr"),
        ],
        _ => vec![
            ("thread_frame", "PyThreadState", "current_frame"),
            ("frame_code", "_PyInterpreterFrame", "f_executable"),
            ("frame_instruction", "_PyInterpreterFrame", "instr_ptr"),
        ],
    });
    if minor >= 11 {
        fields.extend([
            ("frame_previous", "_PyInterpreterFrame", "previous"),
            (
                "frame_end",
                "_PyInterpreterFrame",
                if minor == 11 { "is_entry" } else { "owner" },
            ),
            ("code_instructions", "PyCodeObject", "co_code_adaptive"),
            ("qualified_name", "PyCodeObject", "co_qualname"),
        ]);
    }
    let table = if minor < 10 { "co_lnotab" } else { "co_linetable" };
    fields.push(("line_table", "PyCodeObject", table));
    let print = fields
        .iter()
        .map(|(name, structure, member)| format!("  printf(\"{name} %zu\\n\", offsetof({structure}, {member}));\n"));
    let print: String = print.collect();
    format!(
        "#define Py_BUILD_CORE 1\n#include <Python.h>\n#include <stddef.h>\n#include <stdio.h>\n{headers}int main(void) {{\n{print}  \
         printf(\"ascii %zu\\nother %zu\\n\", sizeof(PyASCIIObject), sizeof(PyCompactUnicodeObject));\n  return 0;\n}}\n"
    )
}

/// The offset of a name in a layout.
fn offset(layout: &Layout, name: &str) -> u64 {
    let agent = &layout.agent;
    match name {
        "interpreters" => layout.interpreters,
        "current" => layout.current,
        "qualified_name" => layout.qualified_name,
        "line_table" => layout.agent.code_table.into(),
        "ascii" => layout.text_heads[0],
        "other" => layout.text_heads[1],
        "interpreter_next" => agent.interpreter_next.into(),
        "interpreter_threads" => agent.interpreter_threads.into(),
        "thread_next" => agent.thread_next.into(),
        "thread_key" => agent.thread_key.into(),
        "thread_frame" => agent.thread_frame.into(),
        "record_frame" => agent.record_frame.into(),
        "record_previous" => agent.record_previous.into(),
        "frame_previous" => agent.frame_previous.into(),
        "frame_code" => agent.frame_code.into(),
        "frame_instruction" => agent.frame_instruction.into(),
        "frame_end" => agent.frame_end.into(),
        "code_filename" => agent.code_filename.into(),
        "code_name" => agent.code_name.into(),
        "code_line" => agent.code_line.into(),
        "code_instructions" => agent.code_instructions.into(),
        other => panic!("{other}"),
    }
}

#[test]
fn offsets_are_those_of_the_headers() {
    let folder = tempfile::tempdir().unwrap();
    let mut seen = Vec::new();
    for (minor, root) in installed() {
        let Some(layout) = Layout::of(Version(minor)) else {
            continue;
        };
        let include = root.join(format!("include/python3.{minor}"));
        if !include.join("internal").is_dir() {
            continue;
        }
        let (source, program) = (
            folder.path().join("offsets.c"),
            folder.path().join(format!("offsets{minor}")),
        );
        std::fs::write(&source, offsets_program(minor)).unwrap();
        let mut compiler = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".to_owned()));
        compiler
            .arg("-w")
            .arg("-I")
            .arg(&include)
            .arg("-I")
            .arg(include.join("internal"));
        run(compiler.arg(&source).arg("-o").arg(&program)).success();
        let told = run(&mut Command::new(&program)).success().stdout;
        for line in told.lines() {
            let (name, number) = line.split_once(' ').unwrap();
            assert_eq!(offset(&layout, name).to_string(), number, "3.{minor}: {name}");
        }
        seen.push(minor);
    }
    for minor in (8..=13).filter(|minor| !seen.contains(minor)) {
        left_out(&format!("offsets of Python 3.{minor}"), "its headers are not installed");
    }
}

/// Prints, of each function of some modules of the library: the first line, the table, and the line of each position.
const LINES: &str = "
import dis, sys, types, argparse, inspect, typing, dataclasses, traceback
table = 'co_linetable' if sys.version_info >= (3, 10) else 'co_lnotab'
def codes(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes(constant)
for module in argparse, inspect, typing, dataclasses, traceback:
    text = open(module.__file__).read()
    for code in codes(compile(text, module.__file__, 'exec')):
        lines = []
        if hasattr(code, 'co_lines'):
            for start, end, line in code.co_lines():
                lines += [(position, line or 0) for position in range(start, end, 2)]
        else:
            starts = list(dis.findlinestarts(code))
            for (start, line), (end, _) in zip(starts, starts[1:] + [(len(code.co_code), 0)]):
                lines += [(position, line) for position in range(start, end, 2)]
        print(code.co_firstlineno, getattr(code, table).hex() or '-', ','.join('%d:%d' % pair for pair in lines))
";

#[test]
fn lines_are_those_that_python_computes() {
    let mut seen = Vec::new();
    for (minor, root) in installed() {
        let Some(layout) = Layout::of(Version(minor)) else {
            continue;
        };
        let mut python = Command::new(root.join("bin/python3"));
        let told = run(python.args(["-S", "-E", "-c", LINES])).success().stdout;
        let mut positions = 0;
        for line in told.lines() {
            let fields: Vec<&str> = line.split(' ').collect();
            let [first, table, lines] = fields[..] else {
                panic!("{line}")
            };
            let table = table.trim_matches('-').as_bytes().chunks(2);
            let byte = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap();
            let known = Lines {
                first: first.parse().unwrap(),
                form: layout.line_form,
                bytes: table.map(byte).collect(),
            };
            for pair in lines.split(',').filter(|pair| !pair.is_empty()) {
                let (position, line) = pair.split_once(':').unwrap();
                let found = known.line(Some(position.parse().unwrap())).unwrap_or(0);
                assert_eq!(
                    found.to_string(),
                    line,
                    "3.{minor}: {position} of {first} {table:?}",
                    table = known.bytes
                );
                positions += 1;
            }
        }
        assert!(positions > 10_000, "3.{minor}: {positions}");
        seen.push(minor);
    }
    for minor in (8..=13).filter(|minor| !seen.contains(minor)) {
        left_out(&format!("lines of Python 3.{minor}"), "it is not installed");
    }
}

/// A memory in which every address can be read, and which holds what a generator makes.
struct Garbage(u64);

impl Memory for Garbage {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        for (index, byte) in into.iter_mut().enumerate() {
            let at = (address + index as u64) ^ self.0;
            *byte = (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8;
        }
        !address.is_multiple_of(7)
    }
}

#[test]
fn garbage_has_no_name_and_ends() {
    for seed in 0..2000 {
        let memory = Garbage(seed);
        assert_eq!(Layout::described(&memory, 4096), None);
        let layout = Layout::of(Version(8 + seed as u32 % 6)).unwrap();
        for address in [u64::MAX - 8, 0, 1 << 44] {
            let object = Object {
                kind: 1,
                address,
                check: 5,
            };
            let _ = Code::read(&memory, &layout, object);
        }
    }
}

#[test]
fn garbage_as_a_table_of_lines_ends() {
    for seed in 0..2000_u64 {
        let mut bytes = vec![0; seed as usize % 300];
        Garbage(seed).read(1, &mut bytes);
        for form in [Form::Deltas, Form::Ranges, Form::Locations] {
            let lines = Lines {
                first: 1,
                form,
                bytes: bytes.clone(),
            };
            for position in [0, 2, 100, u32::MAX] {
                let _ = lines.line(Some(position));
            }
        }
    }
}

/// A code object was freed, and its memory used for another function, between the hit and the tracer's look.
#[test]
fn another_object_in_the_same_place_is_not_named() {
    struct Words(Vec<(u64, u64)>);
    impl Memory for Words {
        fn read(&self, address: u64, into: &mut [u8]) -> bool {
            for (index, byte) in into.iter_mut().enumerate() {
                let at = address + index as u64;
                let word = self.0.iter().find(|(start, _)| (*start..*start + 8).contains(&at));
                let Some((start, word)) = word else { return false };
                *byte = (word >> (8 * (at - start))) as u8;
            }
            true
        }
    }
    let layout = Layout::of(Version(9)).unwrap();
    // A code object at 0x1000, its name "f" at 0x2000, its file "a.py" at 0x3000, its table at 0x4000.
    let ascii = 1 << 2 | 1 << 5 | 1 << 6;
    let memory = Words(vec![
        (0x1000, 3),
        (0x1000 + 40, 7),
        (0x1000 + 104, 0x3000),
        (0x1000 + 112, 0x2000),
        (0x1000 + 120, 0x4000),
        (0x2000 + 16, 1),
        (0x2000 + 32, ascii),
        (0x2000 + 48, u64::from(b'f')),
        (0x3000 + 16, 4),
        (0x3000 + 32, ascii),
        (0x3000 + 48, u64::from(u32::from_le_bytes(*b"a.py"))),
        (0x4000 + 16, 2),
        (0x4000 + 32, 0x0403),
        (0x4000 + 26, 0),
    ]);
    let object = |check| Object {
        kind: 1,
        address: 0x1000,
        check,
    };
    let fitting = |memory: &Words| {
        (0..1 << 17)
            .filter_map(|check| Code::read(memory, &layout, object(check)))
            .collect()
    };
    let codes: Vec<Code> = fitting(&memory);
    let [code] = &codes[..] else { panic!("{codes:?}") };
    let lines = code.lines.clone().unwrap();
    assert_eq!(code.function.at(lines.line(Some(4))), "a.py:11 f");
    assert_eq!(code.function.at(lines.line(Some(3))), "a.py:11 f");
    assert_eq!(code.function.at(lines.line(Some(2))), "a.py:7 f");
    // The check that fits the object fits none that differs from it in one word.
    let check = (0..1 << 17)
        .find(|check| Code::read(&memory, &layout, object(*check)).is_some())
        .unwrap();
    for (index, (address, _)) in memory.0.iter().enumerate() {
        if [0x1000 + 40, 0x4000 + 16, 0x4000 + 32].contains(address) {
            let mut other = Words(memory.0.clone());
            other.0[index].1 ^= 1;
            assert_eq!(Code::read(&other, &layout, object(check)), None, "{address:#x}");
        }
    }
    // Of a freed object the count of references is 0, or an address of the allocator's.
    for (count, is_named) in [(1, true), (0xffff_ffff, true), (0, false), (0x7f12_3456_7890, false)] {
        let mut other = Words(memory.0.clone());
        other.0[0].1 = count;
        assert_eq!(
            Code::read(&other, &layout, object(check)).is_some(),
            is_named,
            "{count:#x}"
        );
    }
}
