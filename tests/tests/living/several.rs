//! Several tracers on one process: each counts all of its hits, whoever comes and goes, and in whatever order.

use std::time::Duration;

use nanoprobe_tests::busy::Target;
use nanoprobe_tests::command::{Running, run};
use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::{Build, program, try_program};
use nanoprobe_tests::results::{said, table, value};
use nanoprobe_tests::text::Snapshot;
use nanoprobe_tests::tracer::{Form, Tracer, Tracing, assert_nothing_lost, nanoprobe, start_waiting};
use nix::sys::signal::Signal;

/// The entry and the exits of a function. The program's own count is that of its calls.
const WORK: &str = "pid$target:a.out:busy_work:entry,pid$target:a.out:busy_work:return { @[probename] = count(); }";
/// The same function, and more.
const ALL: &str = "pid$target:a.out:busy_*:entry,pid$target:a.out:busy_*:return { @[probefunc, probename] = count(); }
                   pid$target:libc:malloc:entry,pid$target:libc:free:entry { @[probefunc, probename] = count(); }";
const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [2, 1, 0], [1, 0, 2], [0, 2, 1], [1, 2, 0], [2, 0, 1]];

fn tracers(form: Form, pid: i32) -> Vec<Option<Tracing>> {
    let tracer = |clause: &str| Some(Tracer::new(form).clause(clause).trace(pid));
    vec![tracer(WORK), tracer(ALL), tracer(WORK)]
}

/// The entries and the exits of `busy_work`, as one of the tracers has counted them.
#[track_caller]
fn counted(results: &str) -> (i64, i64) {
    let rows = table(results);
    let of = |name: &str| {
        let mut found = rows.iter().filter(|(key, _)| {
            let words: Vec<&str> = key.split_whitespace().collect();
            words.last() == Some(&name) && (words.len() == 1 || words.first() == Some(&"busy_work"))
        });
        found.next().map_or(-1, |(_, count)| *count)
    };
    (of("entry"), of("return"))
}

#[track_caller]
fn assert_counted(results: &str) {
    let (entries, exits) = counted(results);
    assert!(entries > 0 && exits > 0, "{results}");
}

/// Lets the program work for a moment. The length of the time does not matter.
fn work(busy: &mut Running) {
    busy.wait_until_worked(Duration::from_millis(100));
}

fn kill(tracing: Tracing) {
    tracing.running.signal(Signal::SIGKILL);
    tracing.finish();
}

live_tests! {
    /// Two of three tracers leave, or die, while the program works; the third one has counted every call.
    fn each_counts_all_calls_whatever_the_others_do(form) {
        for (round, order) in ORDERS.iter().take(form.scale(6, 3) as usize).enumerate() {
            let mut busy = start_waiting(&program("busy.c"), "3");
            let mut all = tracers(form, busy.pid());
            busy.go();
            busy.wait_for("working\n");
            for (number, index) in order.iter().take(2).enumerate() {
                work(&mut busy);
                let tracing = all[*index].take().expect("not gone yet");
                if (round + number) % 2 == 0 {
                    assert_counted(&tracing.interrupt().results);
                } else {
                    kill(tracing);
                }
            }
            work(&mut busy);
            busy.write("stop\n");
            let target = busy.finish().success();
            let last = all[order[2]].take().expect("the last one").finish().success();
            let calls = said(&target.stdout, "calls");
            assert_eq!(counted(&last.results), (calls, calls), "{order:?}: {}", last.finished.stderr);
            assert_nothing_lost(&last.finished.stderr);
        }
    }

    /// Whoever is the last one takes away what the others had to leave.
    fn the_last_one_leaves_nothing(form) {
        for (round, order) in ORDERS.iter().take(form.scale(6, 3) as usize).enumerate() {
            let mut target = Target::start();
            let mut all = tracers(form, target.pid());
            for (number, index) in order.iter().enumerate() {
                work(&mut target.busy);
                let tracing = all[*index].take().expect("not gone yet");
                if number < 2 && (round + number) % 2 == 1 {
                    kill(tracing);
                } else {
                    assert_counted(&tracing.interrupt().results);
                }
            }
            target.snapshot.assert_identical(target.pid());
            target.finish();
        }
    }

    /// All tracers die. One `restore` takes away what all of them have left.
    fn what_several_dead_ones_have_left_is_restored(form) {
        let mut target = Target::start();
        for tracing in tracers(form, target.pid()).into_iter().flatten() {
            kill(tracing);
        }
        work(&mut target.busy);
        let restored = run(std::process::Command::new(nanoprobe()).args(["restore", &target.pid().to_string()]));
        restored.success();
        target.snapshot.assert_identical(target.pid());
        target.finish();
    }

    /// They come, go and die at random, up to four at a time.
    fn they_come_and_go_for_a_while(form) {
        let mut target = Target::start();
        let mut seed = 12345_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let mut all: Vec<Tracing> = Vec::new();
        let mut said = String::new();
        for _ in 0..form.scale(40, 16) {
            if all.len() < 4 && random(3) > 0 {
                let clause = if random(2) == 0 { WORK } else { ALL };
                all.push(Tracer::new(form).clause(clause).trace(target.pid()));
            } else if !all.is_empty() {
                let tracing = all.swap_remove(random(all.len() as u64) as usize);
                match random(3) {
                    0 => kill(tracing),
                    _ => said.push_str(&tracing.interrupt().finished.stderr),
                }
            }
            work(&mut target.busy);
        }
        for tracing in all {
            said.push_str(&tracing.interrupt().finished.stderr);
        }
        let said: Vec<&str> = said.lines().filter(|line| !line.contains(" 0x")).collect();
        assert!(!nanoprobe_tests::text::is_patched(target.pid()), "{}", said.join("\n"));
        // On a machine that is much too busy, a thread may stay inside for longer than a tracer waits. It says so.
        if said.iter().any(|line| line.contains("still inside of our code")) {
            run(std::process::Command::new(nanoprobe()).args(["restore", &target.pid().to_string()])).success();
        }
        target.snapshot.assert_identical(target.pid());
        target.finish();
    }

    /// The first tracer watches the program's signal masks for the second one, too, also after its end.
    fn signals_that_the_program_blocks_stay_blocked(form) {
        let handled = "pid$target:a.out:handled:entry { copyin(uregs[R_RSP], 8); @ = count(); }";
        let mut target = start_waiting(&program("blocked.c"), "pending 960");
        let first = Tracer::new(form).clause(handled).trace(target.pid());
        let second = Tracer::new(form).clause(handled).trace(target.pid());
        let third = Tracer::new(form).clause(handled).trace(target.pid());
        first.interrupt();
        kill(second);
        target.go();
        let finished = target.finish().success();
        assert!(finished.stdout.ends_with("OK\n"), "{}", finished.stdout);
        let traced = third.finish().success();
        assert_eq!(value(&traced.results), said(&finished.stdout, "calls"), "{}", traced.finished.stderr);
    }

    /// Both see a library that comes while they trace, each at the same places. Where a tracer that came later traps,
    /// the earlier one sees nothing, and says so.
    fn a_library_that_comes_later_is_probed_by_all(form) {
        let plugin = try_program("plugin.c", Build::Library).expect("a shared library");
        let mut target = start_waiting(&program("dlopen.c"), &format!("{} 20 1000", plugin.display()));
        let clause = "pid$target:plugin.so:plugin_function:entry,pid$target:plugin.so:plugin_function:return
                      { @[probename] = count(); }";
        let tracer = || Tracer::new(form).argument("-Z").clause(clause).trace(target.pid());
        let all = [tracer(), tracer()];
        target.go();
        let finished = target.finish().success();
        let calls = said(&finished.stdout, "calls");
        for (tracing, is_last) in all.into_iter().zip([false, true]) {
            let traced = tracing.finish();
            let stderr = &traced.finished.stderr;
            let is_told = stderr.contains("another nanoprobe has a patch over this instruction");
            assert_eq!(is_told, form == Form::Trap && !is_last, "{stderr}");
            if !is_told {
                let rows = table(&traced.results);
                assert_eq!((rows["entry"], rows["return"]), (calls, calls), "{stderr}");
            }
        }
    }

    /// A forked child has the patches of all; the tracers that follow it see its calls.
    fn children_are_followed_by_each_that_wants_it(form) {
        let mut target = start_waiting(&program("tree.c"), "sleep 3 10");
        let snapshot = Snapshot::take(target.pid());
        let clause = "pid$target:a.out:called:entry { @ = count(); }";
        let tracer = |follow: &str| {
            Tracer::new(form).argument("-x").argument(format!("follow={follow}")).clause(clause).trace(target.pid())
        };
        let (first, second, third) = (tracer("fork"), tracer("no"), tracer("fork"));
        target.go();
        let reports = |text: &str| text.lines().filter(|line| line.starts_with("by ")).count();
        target.wait_until("its children", |target| reports(&target.stdout()) == 4);
        assert_eq!(value(&first.interrupt().results), 31);
        assert_eq!(value(&second.interrupt().results), 1);
        assert_eq!(value(&third.interrupt().results), 31);
        snapshot.assert_restored(target.pid());
        target.signal(Signal::SIGKILL);
    }
}

#[test]
fn ps_lists_all_of_them_and_restore_leaves_them_alone() {
    let target = Target::start();
    let all = tracers(Form::Default, target.pid());
    let pid = target.pid().to_string();
    let listed = run(std::process::Command::new(nanoprobe()).arg("ps")).success();
    let rows = listed
        .stdout
        .lines()
        .filter(|line| line.split_whitespace().next() == Some(&pid));
    assert_eq!(
        rows.filter(|row| row.contains(" live ")).count(),
        3,
        "{}",
        listed.stdout
    );
    let refused = run(std::process::Command::new(nanoprobe()).args(["restore", &pid]));
    assert_ne!(refused.code(), 0);
    assert!(refused.stderr.contains("end that one first"), "{}", refused.stderr);
    for tracing in all.into_iter().flatten() {
        assert_counted(&tracing.interrupt().results);
    }
    target.snapshot.assert_identical(target.pid());
    target.finish();
}
