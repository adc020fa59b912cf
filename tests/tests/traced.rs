//! `nanoprobe ps` and `nanoprobe restore --all`: the traced processes, and the remains of dead tracers.
//!
//! Other tests trace processes at the same time, and kill tracers. So each scenario runs in a pid namespace of its own,
//! where only its own processes are seen.

use std::process::Command;

use nanoprobe_tests::busy::Target;
use nanoprobe_tests::command::{Finished, Running, as_ordinary_user, run};
use nanoprobe_tests::left_out::{has_another_user, left_out, need_command};
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::{said, value};
use nanoprobe_tests::text::Snapshot;
use nanoprobe_tests::tracer::{Form, Tracer, assert_nothing_lost, nanoprobe, start_waiting};
use nix::sys::signal::Signal;

/// Set in the namespace.
const INSIDE: &str = "NANOPROBE_TEST_INSIDE";
const CLAUSE: &str = "pid$target:a.out:busy_work:entry { @ = count(); }";

/// Runs this test again in a pid namespace, and the scenario there.
fn alone(test: &str, scenario: fn()) {
    if std::env::var_os(INSIDE).is_some() {
        return scenario();
    }
    let Some(unshare) = need_command(test, "unshare") else {
        return;
    };
    let mut alone = Command::new(unshare);
    alone.args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
    let mut trial = Command::new(alone.get_program());
    if !run(trial.args(alone.get_args()).arg("true")).status.success() {
        left_out(test, "unshare cannot make a pid namespace here");
        return;
    }
    // Builds the command now, if it must be built.
    nanoprobe();
    let itself = std::env::current_exe().expect("the path of the test executable");
    alone
        .arg(itself)
        .args([test, "--exact", "--nocapture"])
        .env(INSIDE, "1");
    let finished = run(&mut alone).success();
    assert!(finished.stdout.contains("1 passed"), "{}", finished.stdout);
}

fn command(arguments: &[&str]) -> Finished {
    run(Command::new(nanoprobe()).args(arguments))
}

/// The words of a process's line of `ps`; none if the process is not listed.
fn row(pid: i32) -> Vec<String> {
    let listed = command(&["ps"]).success().stdout;
    assert!(listed.lines().all(|line| line.chars().count() <= 80), "{listed}");
    let mut rows = listed
        .lines()
        .map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    rows.find(|words| words.first() == Some(&pid.to_string()))
        .unwrap_or_default()
}

/// A process's line of `ps --json`.
fn json(pid: i32) -> String {
    let listed = command(&["ps", "--json"]).success().stdout;
    let mut lines = listed.lines();
    let line = lines.find(|line| line.starts_with(&format!("{{\"pid\":{pid},")));
    line.unwrap_or_default().to_owned()
}

/// A program whose tracer was killed.
fn abandoned() -> Target {
    let mut target = Target::start();
    let tracing = Tracer::new(Form::Default).clause(CLAUSE).trace(target.pid());
    tracing.running.signal(Signal::SIGKILL);
    assert_eq!(tracing.finish().finished.code(), 128 + libc::SIGKILL);
    target.busy.wait_until("being listed as abandoned", |busy| {
        row(busy.pid()).get(2).is_some_and(|state| state == "dead")
    });
    target
}

#[test]
fn the_list_tells_live_from_dead_and_all_restores_only_the_dead() {
    alone("the_list_tells_live_from_dead_and_all_restores_only_the_dead", || {
        let mut live = start_waiting(&program("busy.c"), "3");
        let tracing = Tracer::new(Form::Default).clause(CLAUSE).trace(live.pid());
        let tracer = tracing.running.pid();
        live.go();
        live.wait_for("working\n");
        let dead = abandoned();

        let words = row(live.pid());
        assert_eq!((&*words[1], &*words[2]), ("busy", "live"), "{words:?}");
        assert_eq!(words[5], tracer.to_string(), "{words:?}");
        assert!(words[4].starts_with("0:") && words[7] == "nanoprobe", "{words:?}");
        assert_ne!(words[3], "0", "{words:?}");
        let shown = json(live.pid());
        assert!(
            shown.contains("\"state\":\"live\"") && shown.contains(&format!("\"tracer\":{tracer},")),
            "{shown}"
        );
        let words = row(dead.pid());
        assert_eq!((&*words[1], &*words[2], &*words[5]), ("busy", "dead", "-"), "{words:?}");
        assert_ne!(words[3], "0", "{words:?}");
        let shown = json(dead.pid());
        assert!(
            shown.contains("\"state\":\"dead\"") && shown.contains("\"tracer\":null,"),
            "{shown}"
        );
        assert_eq!(row(tracer), [""; 0], "a tracer is not traced");

        let restored = command(&["restore", "--all"]).success().stderr;
        assert!(restored.contains(&format!("process {}: ", dead.pid())), "{restored}");
        assert!(
            restored.contains("restored: 1; failed: 0; left alone, because their tracers live: 1"),
            "{restored}"
        );
        dead.snapshot.assert_identical(dead.pid());
        assert_eq!(row(dead.pid()), [""; 0]);
        assert_eq!(row(live.pid())[2], "live");
        let again = command(&["restore", "--all"]).success().stderr;
        assert!(again.contains("restored: 0; failed: 0"), "{again}");
        dead.finish();

        live.write("stop\n");
        let counted = tracing.finish().success();
        assert_nothing_lost(&counted.finished.stderr);
        let calls = said(&live.finish().success().stdout, "calls");
        assert_eq!(value(&counted.results), calls);
    });
}

#[test]
fn followed_children_have_lines_of_their_own() {
    alone("followed_children_have_lines_of_their_own", || {
        let mut target = start_waiting(&program("tree.c"), "sleep 2");
        let snapshot = Snapshot::take(target.pid());
        let clause = "pid$target:a.out:called:entry { @ = count(); }";
        let following = Tracer::new(Form::Default).argument("-x").argument("follow=fork");
        let tracing = following.clause(clause).trace(target.pid());
        target.go();
        let mut pids = Vec::new();
        target.wait_until("having two children", |target| {
            pids = children(target);
            pids.len() == 2
        });
        let tracer = tracing.running.pid().to_string();
        for pid in &pids {
            target.wait_until("listing its child", |_| {
                row(*pid).get(5) == Some(&tracer) && json(*pid).contains("\"forked\":true")
            });
        }
        target.wait_until("being listed", |target| json(target.pid()).contains("\"forked\":false"));
        tracing.interrupt();
        snapshot.assert_restored(target.pid());
        for pid in pids {
            assert_eq!(row(pid), [""; 0]);
        }
    });
}

/// The main thread of the process has ended: its map is empty.
#[test]
fn a_process_without_its_main_thread_is_restored_but_not_by_another_user() {
    alone(
        "a_process_without_its_main_thread_is_restored_but_not_by_another_user",
        || {
            let mut target = start_waiting(&program("odd.c"), "headless");
            let clause = "pid$target:a.out:odd_work:entry { @ = count(); }";
            let tracing = Tracer::new(Form::Default).clause(clause).trace(target.pid());
            let tracer = tracing.running.pid().to_string();
            assert_eq!((&*row(target.pid())[2], &row(target.pid())[5]), ("live", &tracer));
            tracing.running.signal(Signal::SIGKILL);
            tracing.finish();
            target.wait_until("being listed as abandoned", |target| {
                row(target.pid()).get(2).is_some_and(|state| state == "dead")
            });
            if has_another_user() {
                let by_another = |words: &[&str]| run(&mut as_ordinary_user(Command::new(nanoprobe()).args(words)));
                assert_eq!(by_another(&["ps", "--json"]).success().stdout, "");
                let restored = by_another(&["restore", "--all"]).success().stderr;
                assert!(restored.contains("restored: 0; failed: 0"), "{restored}");
                assert_eq!(row(target.pid())[2], "dead");
            }
            let restored = command(&["restore", "--all"]).success().stderr;
            assert!(restored.contains("restored: 1; failed: 0"), "{restored}");
            assert_eq!(row(target.pid()), [""; 0]);
            target.go();
            let stdout = target.finish().success().stdout;
            assert!(stdout.ends_with("OK\n"), "{stdout}");
        },
    );
}

fn children(running: &Running) -> Vec<i32> {
    let pid = running.pid();
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

/// A forged arena concerns the process that has forged it, and no other one.
#[test]
fn forged_arenas_are_survived() {
    alone("forged_arenas_are_survived", || {
        let victim = Target::start();
        let tracing = Tracer::new(Form::Default).clause(CLAUSE).trace(victim.pid());
        let forged = |mode: &str, pid| start_waiting(&program("forged.c"), &format!("{mode} {pid}"));
        let held = forged("held", tracing.running.pid());
        let other = forged("other", victim.pid());
        let all = ["garbage", "empty", "many"].map(|mode| forged(mode, tracing.running.pid()));
        let [garbage, empty, many] = &all;

        // The arena's statements about another process are not shown.
        assert_eq!((&*row(held.pid())[2], &*row(held.pid())[5]), ("live", "-"));
        assert_eq!((&*row(other.pid())[2], &*row(other.pid())[5]), ("dead", "-"));
        for running in [garbage, empty, many] {
            assert_eq!(row(running.pid()), [""; 0]);
            assert_eq!(json(running.pid()), "");
        }
        assert_eq!(row(victim.pid())[2], "live");

        let restored = command(&["restore", "--all"]);
        assert_eq!(restored.code(), 1, "{restored:?}");
        for running in [garbage, many] {
            let says = format!("process {} ", running.pid());
            assert!(restored.stderr.contains(&says), "{says}: {restored:?}");
        }
        let says = "restored: 1; failed: 2; left alone, because their tracers live: 2";
        assert!(restored.stderr.contains(says), "{restored:?}");
        assert_eq!(row(other.pid()), [""; 0]);
        assert_eq!(row(victim.pid())[2], "live");

        tracing.interrupt();
        victim.snapshot.assert_restored(victim.pid());
        victim.finish();
        for mut running in all.into_iter().chain([held, other]) {
            running.go();
            assert_eq!(running.finish().success().stdout, "ready\nOK\n");
        }
    });
}

/// The tables of a dead tracer may be forged, too.
#[test]
fn forged_tables_are_listed_within_their_bounds() {
    alone("forged_tables_are_listed_within_their_bounds", || {
        for (mode, sites) in [("true", "1000"), ("sparse", "0"), ("beyond", "0")] {
            let target = start_waiting(&program("faked.c"), &format!("{mode} 1000"));
            let words = row(target.pid());
            assert_eq!((&*words[2], &*words[3], &*words[5]), ("dead", sites, "-"), "{mode}");
        }
    });
}

#[test]
fn help_is_printed_and_mistakes_are_refused() {
    for word in ["ps", "restore"] {
        let help = command(&[word, "--help"]).success().stdout;
        assert!(help.starts_with(&format!("usage: nanoprobe {word} ")), "{help}");
        assert!(help.lines().all(|line| line.chars().count() <= 82), "{help}");
    }
    let refused = command(&["ps", "--jsno"]);
    assert_eq!(refused.code(), 2);
    assert!(refused.stderr.contains("did you mean --json?"), "{}", refused.stderr);
    assert_eq!(command(&["restore", "--all", "1"]).code(), 2);
}
