//! Programs that stand before their first instruction.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::os::unix::fs::PermissionsExt;

use nanoprobe_patch::TargetAddress;
use nanoprobe_target::{Exit, Process, SpawnError, Spawned};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support::{compile_with, copy_program, until, words};

/// The e_entry of a file, at the address where the file is mapped.
fn entry(spawned: &Spawned, path: &std::path::Path) -> u64 {
    let bytes = std::fs::read(path).unwrap();
    let field = |at: usize, bytes_wide: usize| {
        bytes[at..at + bytes_wide]
            .iter()
            .rev()
            .fold(0u64, |word, &byte| word << 8 | u64::from(byte))
    };
    let entry = field(24, 8);
    let is_dynamic = field(16, 2) == 3;
    let map = spawned.process.map().unwrap();
    let path = std::fs::canonicalize(path).unwrap();
    let images = map.images();
    let image = images
        .iter()
        .find(|image| image.mappings[0].path() == Some(path.as_path()))
        .expect("mapped");
    entry + if is_dynamic { image.base.0 } else { 0 }
}

#[test]
fn every_kind_of_program_stops_at_its_first_instruction() {
    let kinds: [(&str, &str, &[&str]); 5] = [
        ("cc", "dynamic", &["-pie"]),
        ("cc", "dynamic", &["-no-pie"]),
        ("cc", "static", &["-static"]),
        ("cc", "static", &["-static-pie"]),
        ("musl-gcc", "static", &["-static"]),
    ];
    for (compiler, kind, flags) in kinds {
        let Some(program) = compile_with(compiler, "plain", flags) else {
            continue;
        };
        let spawned = Process::spawn(&words(&[program.path.to_str().unwrap()]), None).unwrap();
        spawned.process.set_kill_on_drop(true);
        let tid = spawned.stopped.best_thread().unwrap();
        let registers = spawned.stopped.registers(tid).unwrap();
        let first = if kind == "static" {
            entry(&spawned, &program.path)
        } else {
            let linker = std::path::Path::new("/lib64/ld-linux-x86-64.so.2");
            entry(&spawned, &std::fs::canonicalize(linker).unwrap())
        };
        assert_eq!(registers.rip, first, "{compiler} {flags:?}");
        // argc is on the stack, where the kernel put it.
        assert_eq!(
            spawned.process.memory().read_u64(TargetAddress(registers.rsp)).unwrap(),
            1
        );
        assert_eq!(spawned.process.facts().executable, program.path);
    }
}

#[test]
fn calls_are_made_before_the_first_instruction() {
    let mut spawned = Process::spawn(&words(&["sh", "-c", "exit 23"]), None).unwrap();
    let tid = spawned.stopped.best_thread().unwrap();
    let mut remote = spawned.stopped.remote(tid).unwrap();
    assert_eq!(
        remote.syscall(libc::SYS_getpid, [0; 6]).unwrap(),
        i64::from(spawned.process.pid())
    );
    drop(remote);
    assert_eq!(spawned.process.try_wait(), None);
    drop(spawned.stopped);
    assert_eq!(spawned.process.wait_exit(None), Some(Exit::Status(23)));
    assert_eq!(spawned.process.try_wait(), Some(Exit::Status(23)), "and again");
}

#[test]
fn words_and_environment_arrive() {
    let environment = [
        ("PATH".into(), "/nowhere:/usr/bin:/bin".into()),
        ("PROBE".into(), "x y".into()),
    ];
    let script = r#"test "$1" = "a b" && test "$PROBE" = "x y" && test -z "$HOME" && kill -TERM $$"#;
    let spawned = Process::spawn(&words(&["sh", "-c", script, "sh", "a b"]), Some(&environment)).unwrap();
    drop(spawned.stopped);
    let killed = Exit::Signal {
        number: libc::SIGTERM,
        dumped_core: false,
    };
    assert_eq!(spawned.process.wait_exit(None), Some(killed));
}

#[test]
fn failures_name_the_command() {
    let spawn = |word: &str| Process::spawn(&words(&[word]), None).map(drop).unwrap_err();
    assert_eq!(Process::spawn(&[], None).map(drop).unwrap_err(), SpawnError::Empty);
    let error = spawn("no-such-program-here");
    assert_eq!(
        error,
        SpawnError::NotFound {
            command: "no-such-program-here".into()
        }
    );
    assert!(error.to_string().contains("no-such-program-here"));
    assert!(matches!(
        spawn("/no/such/file"),
        SpawnError::Exec {
            errno: Errno::ENOENT,
            ..
        }
    ));
    assert!(matches!(
        spawn("/etc"),
        SpawnError::Exec {
            errno: Errno::EACCES,
            ..
        }
    ));
    let folder = tempfile::tempdir().unwrap();
    let (text, file) = (folder.path().join("text"), folder.path().join("nonsense"));
    std::fs::write(&text, "no program").unwrap();
    copy_program(&text, &file);
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
    assert!(matches!(
        spawn(file.to_str().unwrap()),
        SpawnError::Exec {
            errno: Errno::ENOEXEC,
            ..
        }
    ));
    assert!(matches!(spawn("a\0b"), SpawnError::Nul { .. }));
}

#[test]
fn dropping_kills_when_asked_to() {
    let spawned = Process::spawn(&words(&["sleep", "1000"]), None).unwrap();
    let pid = spawned.process.pid();
    spawned.process.set_kill_on_drop(true);
    drop(spawned);
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
}

/// The target has ended, and the child that it has forked is the last one that has the memory.
#[test]
fn the_end_of_the_last_mapping_is_proven() {
    let program = compile_with("cc", "forks", &[]).unwrap();
    let spawned = Process::spawn(&words(&[program.path.to_str().unwrap()]), None).unwrap();
    let (process, mut stopped) = (spawned.process, spawned.stopped);
    process.set_kill_on_drop(true);
    let holes = process.map().unwrap().holes(&process.hole_rules());
    let hole = holes.iter().find(|hole| hole.bytes() > 1 << 20).unwrap();
    let at = hole.start.checked_add(4096).unwrap();
    let shared = {
        let tid = stopped.best_thread().unwrap();
        let mut remote = stopped.remote(tid).unwrap();
        let shared = remote.create_shared("nanoprobe-test", at, 65536).unwrap();
        remote.finish().unwrap();
        shared
    };
    assert!(shared.file.may_be_mapped());
    stopped.release();
    let pid = process.pid();
    let children = || std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    until("it has a child", || !children().trim().is_empty());
    let child = Pid::from_raw(children().trim().parse().unwrap());
    kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    until("it has ended", || process.try_wait().is_some());
    for _ in 0..100 {
        assert!(shared.file.may_be_mapped());
    }
    kill(child, Signal::SIGKILL).unwrap();
    until("its child has ended, too", || !shared.file.may_be_mapped());
}
