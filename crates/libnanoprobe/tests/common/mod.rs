//! C and C++ programs, built against the header and linked with the shared library of this build.
#![allow(
    clippy::unwrap_used,
    dead_code,
    reason = "a panic is how a test fails; not every suite needs all"
)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

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
            .args(flags)
            .arg("-o")
            .arg(&program)
            .arg(root.join("tests/c").join(source))
            .arg("-I")
            .arg(root.join("include"))
            .arg("-L")
            .arg(self.folder.path())
            .args(["-lnanoprobe", "-lpthread", "-Wno-missing-field-initializers"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        program
    }

    pub fn run(&self, program: &Path) -> String {
        self.run_with(program, &[])
    }

    pub fn run_with(&self, program: &Path, arguments: &[&str]) -> String {
        text(
            &Command::new(program)
                .args(arguments)
                .env("LD_LIBRARY_PATH", self.folder.path())
                .output()
                .unwrap(),
        )
    }
}

/// What a program that ended well has printed.
pub fn text(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}: {error}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}
