//! C and C++ programs, built against the header and linked with the shared library of this build.
#![allow(
    clippy::unwrap_used,
    dead_code,
    reason = "a panic is how a test fails; not every suite needs all"
)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use nanoprobe_tests::in_time::InTime;

/// The shared library that was built with this test.
fn library() -> PathBuf {
    let here = std::env::current_exe().unwrap();
    here.parent().unwrap().join("libnanoprobe.so")
}

/// A folder for programs, with the library in it.
pub struct Built {
    /// The folder.
    pub folder: tempfile::TempDir,
}

impl Built {
    pub fn new() -> Built {
        let folder = tempfile::tempdir().unwrap();
        for name in ["libnanoprobe.so", "libnanoprobe.so.0"] {
            std::os::unix::fs::symlink(library(), folder.path().join(name)).unwrap();
        }
        Built { folder }
    }

    pub fn compile(&self, compiler: &str, source: &str) -> PathBuf {
        self.compile_with(compiler, source, "program", &[])
    }

    pub fn compile_with(&self, compiler: &str, source: &str, name: &str, flags: &[&str]) -> PathBuf {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let program = self.folder.path().join(name);
        let output = Command::new(compiler)
            .args(["-O2", "-Wall", "-Wextra", "-Werror"])
            .args(nanoprobe_tests::compiler::flags(compiler))
            .args(flags)
            .arg("-o")
            .arg(&program)
            .arg(root.join("tests/c").join(source))
            .arg("-I")
            .arg(root.join("include"))
            .arg("-L")
            .arg(self.folder.path())
            .args(["-lnanoprobe", "-lpthread", "-Wno-missing-field-initializers"])
            .output_in_time()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        program
    }

    pub fn run(&self, program: &Path) -> String {
        self.run_with(program, &[])
    }

    pub fn run_with(&self, program: &Path, arguments: &[&str]) -> String {
        text(&self.command(program).args(arguments).output_in_time().unwrap())
    }

    /// A command that runs the program with the library.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", self.folder.path());
        command
    }
}

/// The output of a program that must have succeeded.
pub fn text(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}: {error}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The output of `retprobe.c` for both forms.
pub const RETURNS: &str = "\
sum 999063
values: 999 hits, 0 missed, 0 abandoned
sum 999063
values: 999 hits, 0 missed, 0 abandoned
sum 999063
values: 999 hits, 0 missed, 0 abandoned
recursion, maxactive 1: exact, 0 abandoned
recursion, maxactive 40: exact, 0 abandoned
recursion, maxactive 0: exact, 0 abandoned
alone: 40 340
alone: 40 hits, 60 missed, 0 abandoned
longjmp, maxactive 0: 50 50, 50 hits, the rest abandoned
longjmp, maxactive 1: 50 50, 50 hits, the rest abandoned
recursion left by longjmp: 500 entered, the rest abandoned
threads that end inside: 10 hits, 0 missed, 10 abandoned
colocated: pabc pbc pca
removed while active
backtrace: 6 6
fork: child 10, parent 10
reentry: 12
reentry: 1 hits, 2 missed, 0 abandoned
own entry: 420
own entry: 10 hits, 0 missed, 0 abandoned
";

/// The output of `handlers.c`.
pub const HANDLERS: &str = "\
jcc: 100
jmp: 50, behind, stack 0
loop: 300, out of the loop, stack 0
call: 100, inner, stack -8
call [rdx]: 100, inner, stack -8
jmp r11: 100, end, stack 0
ret: 100, outside, stack 8
ret 0: 200, caller, stack 8
faults of handlers: dealt with
faults of other kinds: 10
mended: 42, 2 pre-handlers, 1 asked
skipped: 7, 4 pre-handlers, 2 asked
the program's: 4 asked, there, address 8
without: 42
";
