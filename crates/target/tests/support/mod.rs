//! Building and running the programs of these tests.
#![allow(dead_code, missing_docs, clippy::unwrap_used)]

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nanoprobe_tests::in_time::{EndsInTime, InTime, TimeLimit};
use nanoprobe_tests::left_out::left_out;

use nanoprobe_target::Process;

/// A compiled program; its folder goes when it is dropped.
pub struct Program {
    folder: tempfile::TempDir,
    pub path: PathBuf,
}

/// Compiles tests/programs/NAME.c. If this compiler is missing, prints a message and returns `None`.
pub fn compile_with(compiler: &str, name: &str, flags: &[&str]) -> Option<Program> {
    let folder = tempfile::tempdir().unwrap();
    // Other users run the program, too.
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let path = folder.path().join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/programs/{name}.c"));
    let output = Command::new(compiler)
        .args(["-O1", "-g", "-pthread"])
        .args(nanoprobe_tests::compiler::flags(compiler))
        .arg("-o")
        .arg(&path)
        .arg(source)
        .args(flags)
        .output_in_time();
    match output {
        Err(error) => {
            left_out(&format!("{name} by {compiler}"), &format!("it cannot be run: {error}"));
            None
        }
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(Program { folder, path })
        }
    }
}

pub fn compile(name: &str) -> Program {
    compile_with("cc", name, &[]).expect("a C compiler")
}

/// Copies a file that will be executed. Another process, `cp`, makes the copy. If we made it, a child that another test
/// forks meanwhile would inherit the copy open for writing. Then no process could execute the copy before that child
/// has executed another program (ETXTBSY).
pub fn copy_program(from: &Path, to: &Path) {
    let status = Command::new("cp").arg(from).arg(to).status_in_time().unwrap();
    assert!(status.success(), "copying {} failed", from.display());
}

/// A running program with pipes; killed when dropped.
pub struct Running {
    pub child: Child,
    pub output: BufReader<std::process::ChildStdout>,
}

impl Running {
    pub fn start(command: &mut Command) -> Running {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn_in_group()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Running { child, output }
    }

    pub fn of(program: &Program, arguments: &[&str]) -> Running {
        Running::start(Command::new(&program.path).args(arguments))
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    pub fn open(&self) -> Process {
        Process::open(self.pid()).unwrap()
    }

    pub fn line(&mut self) -> String {
        let _limit = TimeLimit::new(self.pid(), "its next line is waited for");
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub fn write(&mut self, bytes: &[u8]) {
        self.child.stdin.as_mut().unwrap().write_all(bytes).unwrap();
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    pub fn close_input(&mut self) {
        drop(self.child.stdin.take());
    }

    /// Closes the program's input, and returns the rest of its output and its status.
    pub fn finish(mut self) -> (String, std::process::ExitStatus) {
        self.close_input();
        let _limit = TimeLimit::new(self.pid(), "its last lines are waited for");
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        let status = self.child.wait_in_time().unwrap();
        (rest.trim_end().to_owned(), status)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The tracer of a thread, 0 if it has none; `None` if the thread is gone.
pub fn tracer(tid: i32) -> Option<i32> {
    let status = std::fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("TracerPid:"))?;
    line.trim().parse().ok()
}

pub fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

pub fn is_root() -> bool {
    nanoprobe_tests::left_out::is_root_of_the_machine()
}

/// The letter of a thread's state.
pub fn state(tid: i32) -> char {
    state_if_any(tid).unwrap()
}

/// `None` if the thread is gone, as a thread that is ending may be at any moment.
pub fn state_if_any(tid: i32) -> Option<char> {
    let text = std::fs::read_to_string(format!("/proc/{tid}/stat")).ok()?;
    text.rsplit_once(") ")?.1.chars().next()
}

/// Waits until a condition holds.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !holds() {
        assert!(start.elapsed() < nanoprobe_tests::LIMIT, "never: {what}");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Sends a queued signal with the value 77; waits while the queue is full.
pub fn queue(pid: i32, signal: i32) {
    let value = libc::sigval {
        sival_ptr: 77 as *mut libc::c_void,
    };
    // SAFETY: no memory is involved; the pointer is only a number.
    until(
        "room in the signal queue",
        || unsafe { libc::sigqueue(pid, signal, value) } == 0,
    );
}
