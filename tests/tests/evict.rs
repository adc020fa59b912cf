//! Short jumps to springboards in padding, and jumps that share bytes with those after them: every call counts, and the
//! text is restored by the tracer or by `restore`.

use std::process::Command;
use std::time::Duration;

use nanoprobe_tests::command::{Running, run};
use nanoprobe_tests::program::{Build, need_program, program};
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

/// The sites of `neighbour.c`, for which the only springboard is in the long instruction after them.
const NEIGHBOURS: [&str; 3] = ["neighbour_ten", "neighbour_seven", "neighbour_six"];

fn neighbours() -> Tracer {
    let probes = NEIGHBOURS.map(|name| format!("pid$target:a.out:{name}:13"));
    Tracer::new(Form::Default)
        .argument("-x")
        .argument("tactic=evict")
        .clause(&format!("{} {{ @[probefunc] = count(); }}", probes.join(",")))
}

fn start(source: &str) -> Running {
    let mut target = start_waiting(&program(source), "3");
    target.go();
    target.wait_for("working\n");
    target
}

fn end(mut target: Running) {
    target.write("stop\n");
    let finished = target.finish().success();
    assert!(finished.stdout.ends_with("OK\n"), "{}", finished.stdout);
}

/// Attaches and detaches many times; `counted` checks the results of every tenth time.
fn come_and_go(source: &str, tracer: impl Fn() -> Tracer, counted: impl Fn(&str)) {
    let mut target = start(source);
    let snapshot = Snapshot::take(target.pid());
    for cycle in 0..30 {
        let tracing = tracer().attach(target.pid());
        target.wait_until_worked(Duration::from_micros(cycle * 977 % 20_000));
        let traced = tracing.interrupt();
        snapshot.assert_identical(target.pid());
        if cycle % 10 == 9 {
            counted(&traced.results);
        }
    }
    end(target);
}

/// Attaches, kills the tracer, and restores the text.
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

/// The lines of `-v` about the sites of a function: `0x401000 program`function+0x3: run`.
fn tactics<'a>(said: &'a str, function: &str) -> Vec<&'a str> {
    let words = said.lines().filter_map(|line| line.rsplit_once(": "));
    let is_of = |site: &str| {
        let name = site.rsplit_once('`').map_or("", |(_, name)| name);
        name.split('+').next() == Some(function)
    };
    words
        .filter(|(site, _)| is_of(site))
        .map(|(_, tactic)| tactic)
        .collect()
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

/// Each return of a chain of jumps that share bytes is counted separately. The last return of a function, which has
/// room only in the next function, is probed, too.
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
    assert_eq!(tactics(&said, "no_room"), ["evict"], "{said}");
    let of_chain = tactics(&said, "three_bytes");
    assert!(of_chain.len() == 5 && of_chain.contains(&"evict"), "{said}");
    assert!(!of_chain.iter().any(|tactic| tactic.starts_with("trap")), "{said}");
}

#[test]
fn every_instruction_over_a_successor_counts() {
    let traced = of_returns(INSTRUCTIONS)
        .command(&program("returns.c"), "0")
        .run()
        .complete();
    // The instructions of three_bytes by value: 0 to 3 leave by one branch each, 4 and more continue. The other
    // functions have 7, 4 or 3. There are also `entry` and `return`.
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

/// A thread that reaches the site by a branch is counted, and so is one that runs into it. A thread that reaches the
/// neighbour, or the instruction after it, is not.
#[test]
fn every_hit_by_way_of_a_neighbour_counts() {
    let tracer = neighbours().argument("-v");
    let traced = tracer.command(&program("neighbour.c"), "0").run().complete();
    let counts = table(&traced.results);
    let said = traced.finished.stderr;
    for function in NEIGHBOURS {
        assert_eq!(counts[function], 4000, "{}", traced.results);
        assert_eq!(tactics(&said, function), ["evict"], "{said}");
    }
}

#[test]
fn neighbours_are_themselves_after_each_detach() {
    come_and_go("neighbour.c", neighbours, |results| {
        for function in NEIGHBOURS {
            assert!(table(results)[function] > 0, "{results}");
        }
    });
}

#[test]
fn neighbours_are_themselves_after_a_kill_and_a_restore() {
    kill_and_restore("neighbour.c", neighbours);
}

/// Two sites that would trap share a jump. A thread that runs into them comes by the jump; a thread that branches to
/// the second site traps there. Both are counted exactly, and `-v` says which branches trap.
#[test]
fn the_last_resort_counts_both_ways_in() {
    let Some(path) = need_program("branched.c", Build::FixedAddress) else {
        return;
    };
    let clause = "pid$target:a.out:branched:a,pid$target:a.out:branched:d { @[probename] = count(); }";
    let traced = of_returns(clause).argument("-v").command(&path, "100").run().complete();
    let counts = table(&traced.results);
    // In each round ten calls run into the sites. Their loops make 1 + 2 + .. + 10 steps. The ten calls with negative
    // numbers make as many steps, all by the branch.
    assert_eq!(
        (counts["a"], counts["d"]),
        (1000, 100 * (55 + 55)),
        "{}",
        traced.results
    );
    let said = traced.finished.stderr;
    let how = tactics(&said, "branched");
    assert_eq!(how.len(), 2, "{said}");
    for how in how {
        assert!(
            how.starts_with("run (branches to 0x") && how.ends_with(" trap)"),
            "{said}"
        );
    }

    let mut target = start_waiting(&path, "100");
    let snapshot = Snapshot::take(target.pid());
    let tracing = of_returns(clause).attach(target.pid());
    assert!(is_patched(target.pid()));
    tracing.interrupt();
    snapshot.assert_identical(target.pid());
    target.go();
    target.finish().success();
}

/// Three functions without room, one after the other: a lone `ret`, `xor; ret`, `rep ret`. Each has
/// both probes, and each jump ends with the bytes of the next one, which has its own.
#[test]
fn a_lone_ret_before_other_short_functions_counts() {
    let functions = ["only_ret", "short_zero", "rep_ret"];
    let probes = functions.map(|name| format!("pid$target:a.out:{name}:entry,pid$target:a.out:{name}:return"));
    let clause = format!("{} {{ @[probefunc, probename] = count(); }}", probes.join(","));
    let tracer = of_returns(&clause).argument("-v");
    let traced = tracer.command(&program("tails.c"), "500").run().complete();
    let counts = table(&traced.results);
    for (function, name) in functions.iter().flat_map(|name| [(name, "entry"), (name, "return")]) {
        assert_eq!(counts[&format!("{function} {name}")], 500, "{}", traced.results);
    }
    let said = traced.finished.stderr;
    for function in functions {
        let how = tactics(&said, function);
        assert!(
            !how.is_empty() && !how.iter().any(|tactic| tactic.starts_with("trap")),
            "{said}"
        );
    }
}

#[test]
fn short_functions_are_themselves_after_each_detach() {
    let clause = "pid$target:a.out:only_ret:,pid$target:a.out:short_zero:,pid$target:a.out:rep_ret: { @ = count(); }";
    let mut target = start_waiting(&program("tails.c"), "1000000000");
    let snapshot = Snapshot::take(target.pid());
    target.go();
    let mut counted = 0;
    for cycle in 0..20 {
        let tracing = of_returns(clause).attach(target.pid());
        target.wait_until_worked(Duration::from_micros(cycle * 977 % 20_000));
        counted += values(&tracing.interrupt().results)[0];
        snapshot.assert_identical(target.pid());
    }
    assert!(counted > 0);
    target.signal(Signal::SIGKILL);
}

/// `.init` and `.fini` of a static musl program have three bytes each. The bytes after them belong to nothing, up to
/// the next section or the end of the page.
#[test]
fn three_bytes_at_the_end_of_a_section_have_room_after_it() {
    let Some(path) = need_program("staticprog.c", Build::MuslStatic) else {
        return;
    };
    let probes = ["_init", "_fini"].map(|name| format!("pid$target:a.out:{name}:entry,pid$target:a.out:{name}:return"));
    let clause = format!("{} {{ @[probefunc, probename] = count(); }}", probes.join(","));
    let traced = of_returns(&clause).argument("-v").command(&path, "10").run().complete();
    let counts = table(&traced.results);
    for row in ["_init entry", "_init return", "_fini entry", "_fini return"] {
        assert_eq!(counts[row], 1, "{}", traced.results);
    }
    let said = traced.finished.stderr;
    for function in ["_init", "_fini"] {
        let how = tactics(&said, function);
        assert!(!how.is_empty() && how.iter().all(|tactic| *tactic == "run"), "{said}");
    }

    let mut target = start_waiting(&path, "10");
    let snapshot = Snapshot::take(target.pid());
    let tracing = of_returns(&clause).attach(target.pid());
    assert!(is_patched(target.pid()));
    tracing.interrupt();
    snapshot.assert_identical(target.pid());
    target.go();
    target.finish().success();
}
