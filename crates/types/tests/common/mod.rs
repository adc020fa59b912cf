//! Compiles programs for the tests, and describes the crate's answers as text.
#![allow(dead_code, reason = "each test program uses a part")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use nanoprobe_tests::in_time::InTime;

use nanoprobe_lang::program::Type;
use nanoprobe_symbols::{Module, files};
use nanoprobe_types::{DebugInfo, Kind, Problem, Signature};

/// A program in a directory of its own.
pub struct Program {
    pub folder: tempfile::TempDir,
    pub path: PathBuf,
}

/// The C program that the live tests trace, too.
pub fn typed_c() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs/typed.c")
}

/// Compiles a source file; the flags come last.
pub fn compile(compiler: &str, source: &Path, flags: &[&str]) -> Program {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("program");
    run(Command::new(compiler).arg("-o").arg(&path).arg(source).args(flags));
    Program { folder, path }
}

pub fn compile_text(compiler: &str, extension: &str, text: &str, flags: &[&str]) -> Program {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join(format!("source.{extension}"));
    std::fs::write(&source, text).unwrap();
    compile(compiler, &source, flags)
}

pub fn run(command: &mut Command) {
    let output = command.output_in_time().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{text}");
}

pub fn module(path: &Path) -> Module {
    files::open(path, path).unwrap()
}

pub fn info(path: &Path) -> Result<Arc<DebugInfo>, Problem> {
    DebugInfo::of(&module(path))
}

/// The signature of a function, found by its symbol.
pub fn signature(path: &Path, info: &DebugInfo, function: &str) -> Result<Signature, Problem> {
    let module = module(path);
    let functions = module.functions();
    let named = |is: &dyn Fn(&str) -> bool| functions.iter().find(|of| of.names().any(is));
    let found = named(&|name| name == function).or_else(|| named(&|name| name.contains(function)));
    info.function(found.unwrap_or_else(|| panic!("no function {function}")).address.0)
}

/// The members of a structure as lines `offset type name`, with `:shift+width` for a bit-field.
pub fn members(of: &Type) -> Vec<String> {
    let Type::Structure(structure) = of else {
        panic!("{of:?} is no structure");
    };
    let body = structure
        .body()
        .unwrap_or_else(|| panic!("{structure:?} has no members"));
    let mut lines: Vec<String> = body
        .members
        .iter()
        .map(|member| {
            let bits = member
                .bits
                .map_or(String::new(), |bits| format!(":{}+{}", bits.shift, bits.width));
            let name = nanoprobe_lang::types::name(&member.member_type);
            format!("{} {name} {}{bits}", member.offset, member.name)
        })
        .collect();
    lines.push(format!("{} bytes", body.bytes));
    lines
}

pub fn structure(info: &DebugInfo, name: &str) -> Vec<String> {
    members(&info.type_named(Kind::Structure, name).unwrap())
}
