//! Short jumps to springboards in padding, and jumps that share bytes with those behind them: every call counts, and the
//! text is the text again, whoever takes it back.

use std::process::Command;
use std::time::Duration;

use nanoprobe_tests::command::{Running, run};
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::{table, values};
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

/// All exits of the functions of `returns.c`, and all of their instructions.
const EXITS: &str = "pid$target:a.out:three_bytes:return { @[probefunc, arg1] = count(); } \
    pid$target:a.out:no_room:return,pid$target:a.out:behind_no_room:return { @others[probefunc, 0] = count(); }";
const INSTRUCTIONS: &str =
    "pid$target:a.out:three_bytes:,pid$target:a.out:no_room:,pid$target:a.out:behind_no_room: { @ = count(); }";

fn start(source: &str) -> Running {
    let mut target = start_waiting(&program(source), "3");
    target.go();
    target.wait_for("working\n");
    std::thread::sleep(Duration::from_millis(100));
    target
}

fn end(mut target: Running) {
    target.write("stop\n");
    let finished = target.finish().success();
    assert!(finished.stdout.ends_with("OK\n"), "{}", finished.stdout);
}

/// Attaches and detaches; `counted` looks at the results of every tenth time.
fn come_and_go(source: &str, tracer: impl Fn() -> Tracer, counted: impl Fn(&str)) {
    let target = start(source);
    let snapshot = Snapshot::take(target.pid());
    for cycle in 0..30 {
        let tracing = tracer().attach(target.pid());
        std::thread::sleep(Duration::from_micros(cycle * 977 % 20_000));
        let traced = tracing.interrupt();
        snapshot.assert_identical(target.pid());
        if cycle % 10 == 9 {
            counted(&traced.results);
        }
    }
    end(target);
}

/// Attaches, kills the tracer, and has the text restored.
fn kill_and_restore(source: &str, tracer: impl Fn() -> Tracer) {
    let mut target = start(source);
    let snapshot = Snapshot::take(target.pid());
    for kill in 0..10 {
        let tracing = tracer().attach(target.pid());
        std::thread::sleep(Duration::from_millis(kill));
        tracing.running.signal(Signal::SIGKILL);
        tracing.finish();
        assert!(is_patched(target.pid()));
        target.wait_until("being let go of", |target| ptracer(target.pid()) == Some(0));
        let restored = run(Command::new(nanoprobe()).args(["restore", &target.pid().to_string()]));
        assert_eq!(restored.code(), 0, "{}{}", restored.stdout, restored.stderr);
        snapshot.assert_identical(target.pid());
    }
    end(target);
}

fn of_returns(clause: &str) -> Tracer {
    Tracer::new(Form::Default).clause(clause)
}

#[test]
fn every_call_counts() {
    let traced = evicting().command(&program("short.c"), "0").run().complete();
    let counts = table(&traced.results);
    assert_eq!((counts["short_outer"], counts["short_twice"]), (100_000, 100_000));
}

#[test]
fn padding_is_padding_after_each_detach() {
    come_and_go("short.c", evicting, |results| {
        assert!(table(results)["short_outer"] > 0, "{results}");
    });
}

#[test]
fn padding_is_padding_after_a_kill_and_a_restore() {
    kill_and_restore("short.c", evicting);
}

/// Each return of a chain of jumps that share bytes is told from the others, and the last return of a function whose room
/// is the next function's is had, too.
#[test]
fn every_return_over_a_successor_counts() {
    let tracer = of_returns(EXITS).argument("-v");
    let traced = tracer.command(&program("returns.c"), "0").run().complete();
    let counts = table(&traced.results);
    for value in 10..18 {
        assert_eq!(counts[&format!("three_bytes {value}")], 1000, "{}", traced.results);
    }
    assert_eq!((counts["no_room 0"], counts["behind_no_room 0"]), (8000, 8000));
    let said = traced.finished.stderr;
    let tactic = |function: &str| -> Vec<&str> {
        let lines = said.lines().filter(|line| line.contains(function));
        lines
            .filter_map(|line| line.rsplit_once(": "))
            .map(|(_, tactic)| tactic)
            .collect()
    };
    assert_eq!(tactic("`no_room+"), ["evict"], "{said}");
    let of_chain = tactic("`three_bytes+");
    assert!(of_chain.len() == 5 && of_chain.contains(&"evict"), "{said}");
    assert!(!of_chain.iter().any(|tactic| tactic.starts_with("trap")), "{said}");
}

#[test]
fn every_instruction_over_a_successor_counts() {
    let traced = of_returns(INSTRUCTIONS)
        .command(&program("returns.c"), "0")
        .run()
        .complete();
    // Instructions of three_bytes by value: 0 to 3 leave the branches one by one, 4 and more go on. The others have 7 or 4,
    // and 3. Besides, there are `entry` and `return`.
    let three_bytes = [3 + 2, 4 + 2, 6 + 2, 7 + 2, 8 + 2, 8 + 2, 8 + 2, 8 + 2]
        .iter()
        .sum::<i64>()
        * 1000;
    let no_room = 4000 * (7 + 4);
    assert_eq!(
        values(&traced.results),
        [three_bytes + no_room + 8000 * 3 + 2 * 3 * 8000]
    );
}

#[test]
fn successors_are_themselves_after_each_detach() {
    come_and_go(
        "returns.c",
        || of_returns(INSTRUCTIONS),
        |results| {
            assert!(values(results)[0] > 0, "{results}");
        },
    );
}

#[test]
fn successors_are_themselves_after_a_kill_and_a_restore() {
    kill_and_restore("returns.c", || of_returns(INSTRUCTIONS));
}
