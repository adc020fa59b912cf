//! Children of other kinds under `-x follow=all`: started by make and by Go, of 32 bits, in a pid namespace of their
//! own, daemons that live on after the tracing.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nanoprobe_tests::LIMIT;
use nanoprobe_tests::in_time::InTime as _;
use nanoprobe_tests::left_out::{left_out, need_command};
use nanoprobe_tests::program::{Build, need_program, program};
use nanoprobe_tests::results::value;
use nanoprobe_tests::text::Snapshot;
use nanoprobe_tests::tracer::{Form, Traced, Tracer, assert_nothing_lost, start_waiting};

const CALLS: &str = "pid$target:executes:called:entry { @ = count(); }";

/// What the processes say of themselves: the calls of each.
fn said(stdout: &str) -> BTreeMap<i32, i64> {
    let lines = stdout.lines().filter_map(|line| line.strip_prefix("by "));
    lines
        .map(|line| {
            let (pid, calls) = line.split_once(' ').expect("a number and a count");
            (pid.parse().expect("a number"), calls.parse().expect("a count"))
        })
        .collect()
}

fn traced(command: &Path, arguments: &str) -> Traced {
    Tracer::new(Form::Default)
        .argument("-x")
        .argument("follow=all")
        .clause(CALLS)
        .command(command, arguments)
        .run()
        .success()
}

#[test]
fn programs_that_make_starts_side_by_side_are_counted() {
    let Some(make) = need_command("children of make", "make") else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let executes = program("executes.c").display().to_string();
    let rules =
        format!("all: a b c d\na b c d:\n\t{executes} call 10\n\t{executes} call 5 && true\n.PHONY: all a b c d\n");
    std::fs::write(folder.path().join("Makefile"), rules).expect("a makefile");
    let traced = traced(&make, &format!("-s -j2 -C {}", folder.path().display()));
    let said: i64 = said(&traced.finished.stdout).values().sum();
    assert_eq!(said, 60, "{}", traced.finished.stdout);
    assert_eq!(value(&traced.results), said, "{}", traced.finished.stderr);
    assert_nothing_lost(&traced.finished.stderr);
}

/// A static program whose own runtime makes the system calls. No other program lives when the next one is executed.
#[test]
fn programs_that_go_starts_are_counted() {
    let Some(go) = need_program("goexecs.go", Build::Go) else {
        return;
    };
    let traced = traced(&go, &format!("{} call 25", program("executes.c").display()));
    assert_eq!(said(&traced.finished.stdout).len(), 4, "{}", traced.finished.stdout);
    assert_eq!(value(&traced.results), 100, "{}", traced.finished.stderr);
    assert_nothing_lost(&traced.finished.stderr);
}

/// An ELF file for i386 whose program ends with the status 7.
fn program_of_32_bits() -> Vec<u8> {
    const BASE: u32 = 0x0804_8000;
    const HEADERS: u32 = 52 + 32;
    // mov eax, 1 (exit); mov ebx, 7; int 0x80
    const CODE: [u8; 12] = [0xb8, 1, 0, 0, 0, 0xbb, 7, 0, 0, 0, 0xcd, 0x80];
    let bytes = HEADERS + CODE.len() as u32;
    let halves = |halves: &[u16]| halves.iter().flat_map(|half| half.to_le_bytes()).collect::<Vec<u8>>();
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let mut file = b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    file.extend(halves(&[2, 3]));
    file.extend(words(&[1, BASE + HEADERS, 52, 0, 0]));
    file.extend(halves(&[52, 32, 1, 0, 0, 0]));
    file.extend(words(&[1, 0, BASE, BASE, bytes, bytes, 5, 0x1000]));
    file.extend(CODE);
    file
}

#[test]
fn a_child_of_32_bits_is_left_alone_and_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let (file, script) = (folder.path().join("old"), folder.path().join("script"));
    std::fs::write(&file, program_of_32_bits()).expect("a program");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    let alone = Command::new(&file).status_in_time();
    if alone.ok().and_then(|status| status.code()) != Some(7) {
        return left_out("children of 32 bits", "the kernel executes no such programs");
    }
    let (executes, file) = (program("executes.c"), file.display());
    let text = format!(
        "{} call 10\n{file}\necho status $?\n{} call 20\n",
        executes.display(),
        executes.display()
    );
    std::fs::write(&script, text).expect("a script");
    let traced = traced(Path::new("/bin/sh"), &script.display().to_string());
    assert!(
        traced.finished.stdout.contains("status 7"),
        "{}",
        traced.finished.stdout
    );
    assert_eq!(value(&traced.results), 30, "{}", traced.finished.stderr);
    let told = format!("executes {file}, which is not traced: it is no program for x86-64");
    assert!(traced.finished.stderr.contains(&told), "{}", traced.finished.stderr);
}

#[test]
fn a_child_in_another_pid_namespace_is_left_alone_and_told() {
    let Some(unshare) = need_command("children in a pid namespace", "unshare") else {
        return;
    };
    let alone = Command::new(&unshare).args(["-pf", "true"]).status_in_time();
    if !alone.is_ok_and(|status| status.success()) {
        return left_out("children in a pid namespace", "unshare may not make one");
    }
    let (executes, script) = (
        program("executes.c").display().to_string(),
        tempfile::NamedTempFile::new(),
    );
    let script = script.expect("a script");
    let text = format!(
        "{executes} call 10\n{} -pf {executes} call 40\n{executes} call 20\n",
        unshare.display()
    );
    std::fs::write(script.path(), text).expect("a script");
    let traced = traced(Path::new("/bin/sh"), &script.path().display().to_string());
    assert_eq!(said(&traced.finished.stdout).len(), 3, "{}", traced.finished.stdout);
    assert_eq!(value(&traced.results), 30, "{}", traced.finished.stderr);
    let told = "which is not traced: it is in another pid namespace";
    assert!(traced.finished.stderr.contains(told), "{}", traced.finished.stderr);
}

/// Waits for what a process does whose parent has ended.
fn until(what: &str, is_done: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_done() {
        assert!(start.elapsed() < LIMIT, "hung before {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The first process has ended, and the tracing ends before the daemon does.
#[test]
fn a_daemon_that_outlives_the_tracing_has_its_own_text() {
    for follow in ["follow=fork", "follow=all"] {
        let mut target = start_waiting(&program("tree.c"), "outlive 10");
        let snapshot = Snapshot::take(target.pid());
        let tracer = Tracer::new(Form::Default).argument("-x").argument(follow);
        let tracing = tracer
            .clause("pid$target:a.out:called:entry { @ = count(); }")
            .trace(target.pid());
        target.go();
        until("the daemon's calls", || said(&target.stdout()).len() == 2);
        let traced = tracing.interrupt();
        assert_eq!(value(&traced.results), 11, "{}", traced.finished.stderr);
        let processes = said(&target.stdout());
        let daemon = processes.keys().find(|pid| **pid != target.pid()).expect("a daemon");
        snapshot.assert_restored(*daemon);
        target.close_input();
        until("the daemon's end", || target.stdout().ends_with("OK\n"));
    }
}
