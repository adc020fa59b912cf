//! An oracle that does not use nanoprobe: ptrace executes a program one instruction at a time.
//!
//! A stepped program and a probed one take the same path only if nothing distinguishes their
//! runs. So both are started without address space randomisation ([`without_randomisation`]) and
//! with the same environment.

use std::collections::HashMap;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use nix::sys::personality::{self, Persona};
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::in_time::TimeLimit;

/// A run, instruction by instruction.
#[derive(Debug)]
pub struct Steps {
    /// The program's output.
    pub output: String,
    /// How often the instruction at each address was executed.
    pub counts: HashMap<u64, i64>,
    /// The same counts, but only until the program's own entry point was reached: the dynamic linker's part.
    pub at_start: HashMap<u64, i64>,
}

/// Programs that the calling thread starts from now on have the same addresses in each run.
///
/// # Panics
/// When the kernel refuses.
pub fn without_randomisation() {
    let now = personality::get().expect("the personality");
    personality::set(now | Persona::ADDR_NO_RANDOMIZE).expect("a personality without randomisation");
}

/// Runs a program to its end. A repeated string instruction counts once, however often it repeats.
///
/// # Panics
/// When it does not end by itself, with status 0.
#[allow(clippy::zombie_processes, reason = "the loop waits until it has exited")]
pub fn step(program: &Path, argument: &str) -> Steps {
    let output = tempfile::NamedTempFile::new().expect("a temporary file");
    let mut command = Command::new(program);
    command.arg(argument).stdin(std::process::Stdio::piped());
    command.stdout(output.reopen().expect("a second handle"));
    // SAFETY: the closure makes one system call and allocates nothing.
    unsafe { command.pre_exec(|| Ok(ptrace::traceme()?)) };
    let child = command.spawn().expect("starting the program");
    let pid = Pid::from_raw(child.id() as i32);
    let _limit = TimeLimit::new(pid.as_raw(), "it is stepped to its end");
    let (mut counts, mut at_start) = (HashMap::new(), None);
    let mut last = 0;
    let mut start = None;
    loop {
        match waitpid(pid, None).expect("waiting for the program") {
            WaitStatus::Stopped(_, Signal::SIGTRAP) => {}
            WaitStatus::Exited(_, 0) => break,
            other => panic!("the program stepped by ptrace: {other:?}"),
        }
        let instruction = ptrace::getregs(pid).expect("its registers").rip;
        if *start.get_or_insert_with(|| entry_point(pid)) == instruction && at_start.is_none() {
            at_start = Some(counts.clone());
        }
        if instruction != last || !is_repeated(pid, instruction) {
            *counts.entry(instruction).or_default() += 1;
        }
        last = instruction;
        ptrace::step(pid, None).expect("a step");
    }
    Steps {
        output: std::fs::read_to_string(output.path()).expect("its output"),
        counts,
        at_start: at_start.expect("its entry point"),
    }
}

/// The address at which a program's own code begins (AT_ENTRY).
fn entry_point(pid: Pid) -> u64 {
    const AT_ENTRY: u64 = 9;
    let vector = std::fs::read(format!("/proc/{pid}/auxv")).expect("its auxiliary vector");
    let words: Vec<u64> = vector
        .chunks_exact(8)
        .map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
        .collect();
    let entry = words.chunks_exact(2).find(|pair| pair[0] == AT_ENTRY);
    entry.expect("its entry point")[1]
}

/// Whether the instruction repeats itself, so that single-stepping stops after each repetition: `rep movs` and the
/// like.
fn is_repeated(pid: Pid, address: u64) -> bool {
    let word = ptrace::read(pid, address as ptrace::AddressType).expect("its text");
    let bytes = word.to_le_bytes();
    let prefixes = bytes
        .iter()
        .take_while(|byte| matches!(byte, 0xf2 | 0xf3 | 0x66 | 0x67 | 0x48));
    let count = prefixes.clone().count();
    let repeats = prefixes.into_iter().any(|byte| matches!(byte, 0xf2 | 0xf3));
    let is_string = |byte: &u8| matches!(byte, 0xa4..=0xa7 | 0xaa..=0xaf | 0x6c..=0x6f);
    repeats && bytes.get(count).is_some_and(is_string)
}
