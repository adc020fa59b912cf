//! Semaphores of static probes, whatever becomes of their place, of the program, and of the tracer while it changes them.

use std::path::PathBuf;
use std::process::Command;

use nanoprobe_tests::command::{Running, run};
use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::{Build, program, try_program};
use nanoprobe_tests::text;
use nanoprobe_tests::tracer::{Form, Tracer, Tracing, nanoprobe, start_waiting};
use nix::sys::signal::Signal;

const CLAUSE: &str = "library$target:::guarded { @ = count(); }";

fn library(source: &str) -> PathBuf {
    try_program(source, Build::Library).expect("a shared library")
}

/// A program that has the library, and where its word is.
#[track_caller]
fn start(arguments: &str) -> (Running, u64) {
    let target = start_waiting(&program("semaphores.c"), arguments);
    let word = word_in(&target.stdout()).expect("the place of the word");
    (target, word)
}

fn word_in(stdout: &str) -> Option<u64> {
    let line = stdout.lines().rev().find_map(|line| line.strip_prefix("word 0x"))?;
    u64::from_str_radix(line, 16).ok()
}

fn value(pid: i32, word: u64) -> Option<u16> {
    let bytes = text::read(pid, word, 2)?;
    Some(u16::from_le_bytes([bytes[0], bytes[1]]))
}

#[track_caller]
fn wait_for_value(target: &mut Running, word: u64, wanted: u16) {
    target.wait_until(&format!("having a semaphore of {wanted}"), |target| {
        value(target.pid(), word) == Some(wanted)
    });
}

#[track_caller]
fn attach(form: Form, target: &mut Running, word: u64) -> Tracing {
    let tracing = Tracer::new(form).clause(CLAUSE).attach(target.pid());
    wait_for_value(target, word, 1);
    tracing
}

#[track_caller]
fn kill(tracing: Tracing) {
    tracing.running.signal(Signal::SIGKILL);
    tracing.finish();
}

live_tests! {
    /// Nothing is written into what lies where a library was: pages of the program's, or another library's data. Whoever
    /// looks at it later, a tracer or `restore` after a tracer that was killed before the library went, lets it alone.
    fn a_library_that_goes_takes_its_semaphore_with_it(form) {
        for other in ["pages".to_owned(), library("guarded_plain.c").display().to_string()] {
            for killed in [false, true] {
                let (mut target, word) = start(&format!("unload {} {other}", library("guarded.c").display()));
                let tracing = attach(form, &mut target, word);
                target.go();
                target.wait_for("worked\n");
                assert!(target.stdout().contains("seen 100\n"), "{}", target.stdout());
                let tracing = if killed { kill(tracing); None } else { Some(tracing) };
                target.go();
                target.wait_for("replaced\n");
                match tracing {
                    Some(tracing) => assert_eq!(tracing.interrupt().results.trim(), "100"),
                    None => {
                        run(Command::new(nanoprobe()).args(["restore", &target.pid().to_string()])).success();
                    }
                }
                assert_eq!(value(target.pid(), word), Some(7), "{other}, killed {killed}");
                target.go();
                let finished = target.finish().success();
                assert!(finished.stdout.contains("word is 7\n"), "{other}, killed {killed}: {}", finished.stdout);
            }
        }
    }

    /// The new program has words of its own, which nobody has raised and nobody lowers.
    fn a_program_that_execs_starts_anew(form) {
        let (mut target, word) = start(&format!("exec {}", library("guarded.c").display()));
        let tracing = attach(form, &mut target, word);
        target.go();
        target.wait_for("seen 0 semaphore 0\n");
        assert!(target.stdout().contains("seen 100 semaphore 1\n"), "{}", target.stdout());
        tracing.running.signal(Signal::SIGINT);
        let traced = tracing.finish();
        let word = word_in(&target.stdout()).expect("the place of the word");
        assert_eq!(value(target.pid(), word), Some(0), "{}", traced.finished.stderr);
        target.go();
        let finished = target.finish().success();
        assert!(finished.stdout.contains("after 0\nsemaphore 0\n"), "{}", finished.stdout);
    }
}
