//! Short jumps to springboards in padding: every call counts, and padding is padding again, whoever takes it back.

use std::process::Command;
use std::time::Duration;

use nanoprobe_tests::command::{Running, run};
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::table;
use nanoprobe_tests::text::{Snapshot, is_patched, ptracer};
use nanoprobe_tests::tracer::{Form, Tracer, nanoprobe, start_waiting};
use nix::sys::signal::Signal;

/// The functions of `short.c` that begin with a short instruction and a call.
const CLAUSE: &str =
    "pid$target:a.out:short_outer:entry,pid$target:a.out:short_twice:entry { @[probefunc] = count(); }";

fn evicting() -> Tracer {
    Tracer::new(Form::Default)
        .argument("-x")
        .argument("tactic=evict")
        .clause(CLAUSE)
}

fn start_short() -> Running {
    let mut short = start_waiting(&program("short.c"), "3");
    short.go();
    short.wait_for("working\n");
    std::thread::sleep(Duration::from_millis(100));
    short
}

fn end(mut short: Running) {
    short.write("stop\n");
    let finished = short.finish().success();
    assert!(finished.stdout.ends_with("OK\n"), "{}", finished.stdout);
}

#[test]
fn every_call_counts() {
    let traced = evicting().command(&program("short.c"), "0").run().complete();
    let counts = table(&traced.results);
    assert_eq!((counts["short_outer"], counts["short_twice"]), (100_000, 100_000));
}

#[test]
fn padding_is_padding_after_each_detach() {
    let short = start_short();
    let snapshot = Snapshot::take(short.pid());
    for cycle in 0..30 {
        let tracing = evicting().attach(short.pid());
        std::thread::sleep(Duration::from_micros(cycle * 977 % 20_000));
        let traced = tracing.interrupt();
        snapshot.assert_identical(short.pid());
        if cycle % 10 == 9 {
            assert!(table(&traced.results)["short_outer"] > 0, "{}", traced.results);
        }
    }
    end(short);
}

#[test]
fn padding_is_padding_after_a_kill_and_a_restore() {
    let mut short = start_short();
    let snapshot = Snapshot::take(short.pid());
    for kill in 0..10 {
        let tracing = evicting().attach(short.pid());
        std::thread::sleep(Duration::from_millis(kill));
        tracing.running.signal(Signal::SIGKILL);
        tracing.finish();
        assert!(is_patched(short.pid()));
        short.wait_until("being let go of", |short| ptracer(short.pid()) == Some(0));
        let restored = run(Command::new(nanoprobe()).args(["restore", &short.pid().to_string()]));
        assert_eq!(restored.code(), 0, "{}{}", restored.stdout, restored.stderr);
        snapshot.assert_identical(short.pid());
    }
    end(short);
}
