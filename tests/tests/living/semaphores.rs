//! Semaphores of static probes, whatever happens to their memory, to the program, and to a tracer that is changing
//! them.

use std::path::PathBuf;
use std::process::Command;

use nanoprobe_tests::command::{Running, run};
use nanoprobe_tests::left_out::need_command;
use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::{Build, program, try_program};
use nanoprobe_tests::text;
use nanoprobe_tests::tracer::{Form, Tracer, Tracing, nanoprobe, start_waiting};
use nix::sys::signal::Signal;

const CLAUSE: &str = "library$target:::guarded { @ = count(); }";

fn library(source: &str) -> PathBuf {
    try_program(source, Build::Library).expect("a shared library")
}

/// A program that has the library, and the address of its word.
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
    let tracing = Tracer::new(form).clause(CLAUSE).trace(target.pid());
    wait_for_value(target, word, 1);
    tracing
}

#[track_caller]
fn kill(tracing: Tracing) {
    tracing.running.signal(Signal::SIGKILL);
    tracing.finish();
}

live_tests! {
    /// After a library is unloaded, nothing is written into the new contents of its memory: pages of the program, or
    /// another library's data. The tracer leaves them alone, and so does `restore` after a tracer that was killed
    /// before the library was unloaded.
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

    /// The new program has its own words, which no tracer raises or lowers.
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

    /// Tracers one after the other, also after a killed one: the next tracer takes back the count of the killed one.
    fn tracers_that_follow_each_other_count_once_each(form) {
        let (mut target, word) = start(&format!("work {}", library("guarded.c").display()));
        target.go();
        for _ in 0..2 {
            attach(form, &mut target, word).interrupt();
            assert_eq!(value(target.pid(), word), Some(0));
            kill(attach(form, &mut target, word));
            assert_eq!(value(target.pid(), word), Some(1));
            let next = attach(form, &mut target, word);
            assert_eq!(value(target.pid(), word), Some(1));
            next.interrupt();
            assert_eq!(value(target.pid(), word), Some(0));
        }
        target.go();
        assert!(target.finish().success().stdout.contains("semaphore 0\n"));
    }
}

/// The tracer is killed when it writes the word, and at the calls before and after that, while raising and lowering.
#[test]
fn a_tracer_killed_while_counting_is_cleaned_up_by_restore() {
    let Some(strace) = need_command("SIGKILL at exact system calls", "strace") else {
        return;
    };
    let (mut target, word) = start(&format!("work {}", library("guarded.c").display()));
    target.go();
    let log = tempfile::NamedTempFile::new().expect("a temporary file");
    let traced = |target: &Running, extra: &[&str]| {
        let mut command = Command::new(&strace);
        command
            .args(["-qq", "-e", "trace=pwrite64", "-e", "signal=none"])
            .args(extra)
            .arg("-o")
            .arg(log.path())
            .arg("--")
            .arg(nanoprobe());
        let clause = format!("{CLAUSE} tick-50ms {{ exit(0); }}");
        command.args(["-q", "-n", &clause, "-p", &target.pid().to_string()]);
        command
    };
    run(&mut traced(&target, &[])).success();
    let text = std::fs::read_to_string(log.path()).expect("the log");
    // A patch may also be two bytes long, so only writes at the word's own address matter here.
    let own = format!(", 2, {word})");
    let calls = text.lines().filter(|line| line.starts_with("pwrite64(")).enumerate();
    let writes: Vec<usize> = calls
        .filter_map(|(number, line)| line.contains(&own).then_some(number + 1))
        .collect();
    let [raising, lowering] = writes.as_slice() else {
        panic!("not one write to raise and one to lower:\n{text}");
    };
    for write in [raising, lowering] {
        for number in write - 1..=write + 1 {
            let inject = format!("inject=pwrite64:signal=KILL:when={number}");
            run(&mut traced(&target, &["-e", &inject]));
            assert!(value(target.pid(), word) <= Some(1), "killed at {number} of {writes:?}");
            run(Command::new(nanoprobe()).args(["restore", &target.pid().to_string()]));
            assert_eq!(value(target.pid(), word), Some(0), "killed at {number} of {writes:?}");
        }
    }
    // The program can be traced again.
    attach(Form::Default, &mut target, word).interrupt();
    target.go();
    assert!(target.finish().success().stdout.contains("semaphore 0\n"));
}
