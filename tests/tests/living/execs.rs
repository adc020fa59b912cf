//! Attaching to a process that executes another program at that moment: the new program is traced, and nothing is left.

use std::process::Command;
use std::time::Duration;

use nanoprobe_tests::command::Running;
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::table;
use nanoprobe_tests::text::{differences, maps};
use nanoprobe_tests::tracer::{Form, Tracer, is_prepared, wait_until_tracing};

/// Planning takes far longer than the program needs to notice a new mapping and execute itself.
const CLAUSES: &str = "pid$target:a.out:work:entry { @[probefunc] = count(); }
                       pid$target:libc::entry,pid$target:libc::return { @others = count(); }";

/// The program executes itself this many times, each time after a tracer has begun.
fn start(times: &str) -> Running {
    let mut target = Running::start(Command::new(program("execs.c")).arg(times));
    target.wait_for("ready\n");
    target
}

#[track_caller]
fn assert_untouched(target: &Running) {
    let pid = target.pid();
    assert_eq!(differences(pid), []);
    let left = maps(pid)
        .into_iter()
        .find(|mapping| mapping.path.starts_with("/memfd:nanoprobe"));
    assert_eq!(left, None);
}

#[test]
fn the_final_program_is_traced() {
    let mut target = start("3");
    let tracing = Tracer::new(Form::Default).clause(CLAUSES).trace(target.pid());
    // The tracer may attach before the last program has printed anything.
    target.wait_for("stays\n");
    assert_eq!(target.stdout().matches("ready").count(), 4, "the last one stays");
    target.go();
    target.wait_for("worked 1000\n");
    let traced = tracing.interrupt();
    assert_eq!(table(&traced.results)["work"], 1000);
    let told = &traced.finished.stderr;
    assert!(
        !told.contains("gone") && told.matches("nanoprobe: attach ").count() == 1,
        "{told}"
    );
    assert_untouched(&target);
    target.close_input();
    target.finish().success();
}

#[test]
fn a_process_that_never_stops_executing_is_refused() {
    let mut target = start("-1");
    let traced = Tracer::new(Form::Default).clause(CLAUSES).process(target.pid()).run();
    assert_eq!(traced.finished.code(), 1);
    let told = traced.finished.stderr;
    let refusal = format!(
        "nanoprobe: process {} executes other programs faster than",
        target.pid()
    );
    assert!(told.starts_with(&refusal), "{told}");
    assert!(target.is_running());
    assert_untouched(&target);
}

/// The dynamic linker waits, because it should load a pipe as a library. Meanwhile none of the program's libraries is
/// mapped.
#[test]
fn a_process_that_is_being_started_is_waited_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRUSR | nix::sys::stat::Mode::S_IWUSR).expect("a pipe");
    let mut target = Running::start(Command::new(program("execs.c")).arg("0").env("LD_PRELOAD", &pipe));
    let has = |pid: i32, name: &str| maps(pid).iter().any(|mapping| mapping.path.contains(name));
    target.wait_until("the linker", |target| {
        has(target.pid(), "/ld-linux") && !has(target.pid(), "/libc")
    });
    let clause = "pid$target:libc:qsort:entry,pid$target:a.out:work:entry { @[probefunc] = count(); }";
    let mut tracing = Tracer::new(Form::Default)
        .argument("-v")
        .clause(clause)
        .start_on(target.pid());
    tracing.running.wait_until("being prepared for signals", is_prepared);
    std::thread::sleep(Duration::from_millis(100));
    // The pipe is no library, so the linker reports that and continues.
    drop(std::fs::File::options().write(true).open(&pipe).expect("the pipe"));
    wait_until_tracing(&mut tracing.running);
    target.go();
    target.wait_for("worked 1000\n");
    let traced = tracing.interrupt();
    assert_eq!(table(&traced.results)["work"], 1000);
    target.close_input();
    target.finish().success();
}
