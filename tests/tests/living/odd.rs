//! Programs that are unlike others: small stacks, coroutines, shared memory, sandboxes.

use std::process::Command;

use nanoprobe_tests::command::run;
use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::{said, stacks, value, values};
use nanoprobe_tests::text::{Snapshot, differences};
use nanoprobe_tests::tracer::{Tracer, nanoprobe, start_waiting, start_waiting_as};

use crate::{missed, traced_when_attached};

const WORK: &str = "pid$target:a.out:odd_work:entry { @ = count(); }";

live_tests! {
    fn exact_counts(form) {
        for mode in ["small-stacks", "contexts", "errno", "fs-base", "locked", "limited", "headless", "masks"] {
            let (target, traced) = traced_when_attached(form, WORK, &program("odd.c"), mode);
            assert_eq!(value(&traced.results), said(&target.stdout, "calls"), "{mode}: {}", traced.finished.stderr);
        }
    }

    /// The heaviest handlers on stacks of a few pages.
    fn little_stack_is_enough(form) {
        for mode in ["small-stacks", "contexts"] {
            let clause = "pid$target:a.out:odd_work:entry { @[ustack()] = count(); }
                          pid$target:a.out:odd_work:return { @q[probefunc] = quantize(arg1); trace(timestamp); }";
            let (target, traced) = traced_when_attached(form, clause, &program("odd.c"), mode);
            let total: i64 = stacks(&traced.results).iter().map(|(_, count)| count).sum();
            assert!(total >= said(&target.stdout, "calls"), "{mode}: {total}\n{}", traced.finished.stderr);
        }
    }

    /// Another process shares the memory and has the same thread pointer. Its hits may count or be missed; the program
    /// must not notice; the parent's own hits are not lost silently.
    fn tasks_that_share_memory(form) {
        let (target, traced) = traced_when_attached(form, WORK, &program("odd.c"), "shared");
        let (counted, calls) = (value(&traced.results), said(&target.stdout, "calls"));
        let all = counted + missed(&traced.finished.stderr);
        assert!(all >= calls && counted <= 2 * calls, "{counted} of {calls}: {}", traced.finished.stderr);
    }

    /// A process that shares the memory is created while we trace, and lives on when we detach. Our code, which it may
    /// be executing, stays mapped until it has ended.
    fn a_task_that_shares_memory_outlives_us(form) {
        let mut target = start_waiting(&program("odd.c"), "outlived");
        let snapshot = Snapshot::take(target.pid());
        let tracing = Tracer::new(form).clause(WORK).attach(target.pid());
        target.go();
        target.wait_for("made");
        let traced = tracing.interrupt().success();
        assert!(value(&traced.results) > 0, "{}", traced.finished.stderr);
        target.write("\n");
        target.wait_for("ended");
        run(Command::new(nanoprobe()).args(["restore", &target.pid().to_string()])).success();
        snapshot.assert_restored(target.pid());
        target.write("\n");
        let finished = target.finish().success();
        assert!(finished.stdout.ends_with("OK\n"), "{}", finished.stdout);
    }

    /// A sandbox that kills at a foreign system call: we trace without system calls, or refuse, and
    /// never make one.
    fn a_sandboxed_program_survives(form) {
        let mut target = start_waiting(&program("odd.c"), "seccomp");
        let tracing = Tracer::new(form).clause(WORK).attach_or_end(target.pid());
        target.go();
        let finished = target.finish().success();
        assert!(finished.stdout.ends_with("OK\n"), "{}", finished.stdout);
        let traced = tracing.finish();
        if traced.finished.code() == 0 {
            assert_eq!(value(&traced.results), said(&finished.stdout, "calls"));
        } else {
            assert!(traced.finished.stderr.contains("seccomp"), "{}", traced.finished.stderr);
            assert_eq!(values(&traced.results), []);
        }
    }

    /// A filter as in a container: root reads it, and traces. The agent makes no system call.
    fn a_program_in_a_container(form) {
        if !nanoprobe_tests::left_out::is_root_of_the_machine() {
            nanoprobe_tests::left_out::left_out("a program in a container", "to read a seccomp filter takes root");
            return;
        }
        let clauses = [
            WORK,
            "pid$target:a.out:odd_work:entry,pid$target:a.out:odd_work:return { @ = count(); @s[ustack(3), tid] = count(); }",
        ];
        for (clause, each) in clauses.into_iter().zip([1, 2]) {
            let (target, traced) = traced_when_attached(form, clause, &program("odd.c"), "container");
            let counted = values(&traced.results)[0];
            assert_eq!(counted, each * said(&target.stdout, "calls"), "{}", traced.finished.stderr);
        }
    }

    /// The program enters a sandbox while it is traced. From then on the agent makes no system call, and neither does
    /// detaching.
    fn a_program_that_enters_a_sandbox(form) {
        let clause = "pid$target:a.out:odd_work:entry { @ = count(); @s[ustack(3)] = count(); }
                      pid$target:a.out:odd_work:return { @v[vtimestamp] = count(); }";
        for (mode, to_its_end) in [("late", true), ("late", false), ("late-by-syscall", false), ("late-by-itself", false)] {
            let mut target = start_waiting(&program("odd.c"), mode);
            let tracing = Tracer::new(form).clause(clause).attach(target.pid());
            target.go();
            target.wait_for("inside\n");
            if to_its_end {
                let finished = target.finish().success();
                let traced = tracing.finish();
                assert_eq!(values(&traced.results)[0], said(&finished.stdout, "calls"), "{}", traced.finished.stderr);
            } else {
                let traced = tracing.interrupt();
                assert!(traced.finished.stderr.contains("seccomp"), "{}", traced.finished.stderr);
                assert_eq!(differences(target.pid()), []);
                let finished = target.finish().success();
                assert!(finished.stdout.ends_with("OK\n"), "{}", finished.stdout);
            }
        }
    }

    fn an_undumpable_program_of_an_ordinary_user_is_refused(form) {
        if !nanoprobe_tests::left_out::has_another_user() {
            nanoprobe_tests::left_out::left_out("an undumpable program", "its checks need root to look at its text");
            return;
        }
        let mut target = start_waiting_as(&program("odd.c"), "undumpable", true);
        let snapshot = Snapshot::take(target.pid());
        let traced = Tracer::new(form).as_ordinary_user().clause(WORK).process(target.pid()).run();
        assert_eq!(traced.finished.code(), 1, "{}", traced.finished.stderr);
        assert!(traced.finished.stderr.contains(&target.pid().to_string()), "{}", traced.finished.stderr);
        snapshot.assert_identical(target.pid());
        target.go();
        target.finish().success();
    }
}
