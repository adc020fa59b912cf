//! Go's stacks, small and side by side, and C's stacks beside them: all bytes on both belong to the program.

use std::process::Command;
use std::time::Duration;

use nanoprobe_tests::command::Running;
use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::{Build, need_program};
use nanoprobe_tests::results::{said, table, values};
use nanoprobe_tests::text::differences;
use nanoprobe_tests::tracer::{Form, Tracer, assert_nothing_lost};

use crate::traced_when_attached;

const ATTACHES: u64 = 20;

/// Attaches to a working program, again and again, and detaches. In the end the program reports that everything was
/// correct.
fn attached_again_and_again(form: Form, program: &str, clause: &str) {
    for build in [Build::Go, Build::GoPie] {
        let Some(path) = need_program(program, build) else {
            continue;
        };
        let mut working = Running::start(&mut Command::new(path));
        working.wait_for("working\n");
        let mut hits = 0;
        for attach in 0..ATTACHES {
            let tracing = Tracer::new(form).clause(clause).attach(working.pid());
            // The lengths differ, so that each attach meets other goroutines at other places.
            std::thread::sleep(Duration::from_millis(5 + attach * 7 % 30));
            let traced = tracing.interrupt();
            assert_nothing_lost(&traced.finished.stderr);
            hits += values(&traced.results).iter().sum::<i64>();
        }
        assert!(hits > 0, "none in any of {ATTACHES} attaches");
        let left = differences(working.pid());
        assert!(left.is_empty(), "{left:?}");
        working.close_input();
        let finished = working.finish().success();
        assert!(finished.stdout.ends_with("OK\n"), "{}", finished.stdout);
    }
}

live_tests! {
    /// A borrowed thread has no frame on a goroutine's stack: the memory below it is
    /// another goroutine's array.
    fn arrays_on_goroutines_stacks_side_by_side_stay_whole(form) {
        attached_again_and_again(form, "gostacks.go", "pid$target:a.out:main.lowest:entry { @ = count(); }");
    }

    fn a_program_of_go_and_c_is_attached_to_again_and_again(form) {
        let clause = "pid$target:a.out:main.turn:entry,pid$target:a.out:c_leaf:return { @ = count(); }";
        attached_again_and_again(form, "cgo.go", clause);
    }

    /// Handlers of every size, on goroutines' stacks and on threads' stacks, called from both.
    fn calls_between_go_and_c_are_counted(form) {
        const WORKERS: u64 = 8;
        let turns = form.scale(4000, 400);
        for build in [Build::Go, Build::GoPie] {
            let Some(path) = need_program("cgo.go", build) else { continue };
            let clause = "pid$target:a.out:main.turn:entry,pid$target:a.out:main.fromC:entry,
                          pid$target:a.out:c_leaf:entry,pid$target:a.out:c_back:return,pid$target:a.out:c_deep:return
                          { @[probefunc] = count(); @stacks[ustack(3)] = count(); }";
            let (target, traced) = traced_when_attached(form, clause, &path, &turns.to_string());
            assert_nothing_lost(&traced.finished.stderr);
            let all = said(&target.stdout, "turns");
            assert_eq!(all, (WORKERS * turns) as i64);
            let rows = table(&traced.results);
            for (function, each) in [("main.turn", 1), ("main.fromC", 1), ("c_leaf", 1), ("c_back", 1), ("c_deep", 10)] {
                assert_eq!(rows[function], each * all, "{function} of {build:?}: {}", traced.results);
            }
        }
    }
}
