//! The C programs, compiled with AddressSanitizer and ThreadSanitizer, on the library as it is.
//!
//! AddressSanitizer needs no help. The library tells ThreadSanitizer what orders handlers (`src/tsan.rs`). A
//! suppression (`called_from_lib`) makes it ignore the library itself, of whose work it sees only the calls of the C
//! library. The test `a_race_in_a_handler_is_told` shows that it still reports the races of a program.
//!
//! Left out are `first.c` and `faults.c`, since the sanitizers replace the C library's malloc, and
//! `section_3_3_the_scratch_area...`, since they keep freed memory back.
//!
//! With `NANOPROBE_STRESS_SECONDS=120` each stress takes 120 seconds, and all statements of the paper are tested.
//! Without the variable the tests take some seconds.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::path::Path;
use std::process::Command;

use nanoprobe_tests::in_time::InTime;
use nanoprobe_tests::left_out::left_out;

use common::{Built, HANDLERS, RETURNS, text};

const ADDRESS: &str = "-fsanitize=address";
const THREAD: &str = "-fsanitize=thread";

/// How long each stress test runs.
fn seconds() -> Option<String> {
    std::env::var("NANOPROBE_STRESS_SECONDS").ok()
}

/// A folder for programs. If this machine cannot compile or run them, prints a message and yields `None`.
fn sanitized(flag: &str) -> Option<Built> {
    let built = Built::new();
    let source = built.folder.path().join("empty.c");
    std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    std::fs::write(
        built.folder.path().join("suppressions"),
        "called_from_lib:libnanoprobe.so\n",
    )
    .unwrap();
    let program = built.folder.path().join("empty");
    let mut compiler = Command::new("cc");
    compiler.arg(flag).arg("-o").arg(&program).arg(&source);
    let works = compiler.output_in_time().is_ok_and(|output| output.status.success())
        && Command::new(&program)
            .output_in_time()
            .is_ok_and(|output| output.status.success());
    if !works {
        left_out(
            &format!("programs with {flag}"),
            "this compiler or machine cannot build or run them",
        );
    }
    works.then_some(built)
}

fn compile(built: &Built, flag: &str, compiler: &str, source: &str) -> std::path::PathBuf {
    built.compile_with(compiler, source, "program", &["-g", flag])
}

/// The command that runs a program, with options for both sanitizers.
fn command(built: &Built, program: &Path, options: &str) -> Command {
    let mut command = built.command(program);
    let suppressions = built.folder.path().join("suppressions");
    command.env(
        "TSAN_OPTIONS",
        format!("suppressions={}:{options}", suppressions.display()),
    );
    command.env("ASAN_OPTIONS", options);
    command
}

fn run(built: &Built, program: &Path, arguments: &[&str]) -> String {
    text(&command(built, program, "").args(arguments).output_in_time().unwrap())
}

fn stress(flag: &str) {
    let Some(built) = sanitized(flag) else { return };
    let program = compile(&built, flag, "cc", "stress.c");
    let seconds = seconds().unwrap_or("0".to_owned());
    assert_eq!(run(&built, &program, &["30", &seconds]), "0 idle, 0 left, 0 changed\n");
}

#[test]
fn stress_under_address_sanitizer() {
    stress(ADDRESS);
}

#[test]
fn stress_under_thread_sanitizer() {
    stress(THREAD);
}

/// Among the cases is recursion in 16 threads with maxactive 1, where hits + missed must be exactly the calls.
fn returns(flag: &str) {
    let Some(built) = sanitized(flag) else { return };
    let program = compile(&built, flag, "cc", "retprobe.c");
    for form in ["1", "2"] {
        let output = run(&built, &program, &[form]);
        // AddressSanitizer has its own backtrace, which ends early, whether or not there is a probe.
        assert_eq!(
            output.replace("backtrace: 1 1", "backtrace: 6 6"),
            RETURNS,
            "form {form}"
        );
    }
    let program = compile(&built, flag, "c++", "retprobe.cpp");
    for form in ["0", "1", "2"] {
        let output = run(&built, &program, &[form]);
        assert!(output.contains(", 100 caught, 1200 calls\n"), "{output}");
        assert!(output.ends_with("all plain returns\n"), "{output}");
    }
}

#[test]
fn return_probes_under_address_sanitizer() {
    returns(ADDRESS);
}

#[test]
fn return_probes_under_thread_sanitizer() {
    returns(THREAD);
}

fn handlers(flag: &str) {
    let Some(built) = sanitized(flag) else { return };
    let program = compile(&built, flag, "cc", "handlers.c");
    for flags in ["0", "4"] {
        assert_eq!(run(&built, &program, &[flags]), HANDLERS, "flags {flags}");
    }
    let program = compile(&built, flag, "cc", "process.c");
    // No other thread may allocate meanwhile: the sanitizers do not hold the locks of their allocators over a fork, so
    // a child that allocates may wait for ever. (`linked.rs` has the thread.)
    let output = run(&built, &program, &["alone"]);
    assert!(output.ends_with("without: 0 hits\nforks: 50 good\n"), "{output}");
}

#[test]
fn handlers_signals_and_forks_under_address_sanitizer() {
    handlers(ADDRESS);
}

#[test]
fn handlers_signals_and_forks_under_thread_sanitizer() {
    handlers(THREAD);
}

fn statements(flag: &str) {
    let Some(built) = sanitized(flag) else { return };
    let mut programs = vec!["colocated", "reentry"];
    if seconds().is_some() {
        programs.extend(["registration", "handlers", "jprobes", "returns", "boosters"]);
    }
    for name in programs {
        let program = compile(&built, flag, "cc", &format!("seed_003/{name}.c"));
        for statement in built.run_with(&program, &[]).lines() {
            if statement == "section_3_3_the_scratch_area_is_used_again" {
                continue;
            }
            // Faults that no handler deals with must end the program as usual. A traced child cannot be searched for
            // leaks.
            let options = match flag {
                ADDRESS => "handle_segv=0:detect_leaks=0",
                _ => "handle_segv=0",
            };
            let output = command(&built, &program, options)
                .args([statement, "0"])
                .output_in_time()
                .unwrap();
            assert_eq!(text(&output), "holds\n", "{statement}");
        }
    }
}

#[test]
fn the_papers_statements_under_address_sanitizer() {
    statements(ADDRESS);
}

#[test]
fn the_papers_statements_under_thread_sanitizer() {
    statements(THREAD);
}

#[test]
fn a_race_in_a_handler_is_told() {
    let Some(built) = sanitized(THREAD) else { return };
    let program = compile(&built, THREAD, "cc", "race.c");
    assert_eq!(run(&built, &program, &["none"]), "done\n");
    let output = command(&built, &program, "").arg("race").output_in_time().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("WARNING: ThreadSanitizer: data race"), "{error}");
    assert!(error.contains("#0 look "), "{error}");
    assert_eq!(output.status.code(), Some(66));
}
