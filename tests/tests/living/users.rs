//! The usual case: an ordinary user traces that user's own processes, and no others.

use nanoprobe_tests::left_out::{has_another_user, left_out};
use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::{said, value};
use nanoprobe_tests::text::Snapshot;
use nanoprobe_tests::tracer::{Tracer, start_waiting, start_waiting_as, wait_until_armed};

const WORK: &str = "pid$target:a.out:thread_work:entry { @ = count(); }";

live_tests! {
    fn an_ordinary_user_starts_a_program(form) {
        let arguments = format!("4 {}", form.scale(100_000, 2000));
        let tracer = Tracer::new(form).as_ordinary_user().clause(WORK);
        let traced = tracer.command(&program("threads.c"), &arguments).run().complete();
        assert_eq!(value(&traced.results), said(&traced.finished.stdout, "calls"));
    }

    fn an_ordinary_user_attaches(form) {
        let arguments = format!("4 {} early", form.scale(100_000, 2000));
        let mut target = start_waiting_as(&program("threads.c"), &arguments, true);
        let tracer = Tracer::new(form).as_ordinary_user().clause(WORK);
        let mut tracing = tracer.start_on(target.pid());
        wait_until_armed(&mut tracing.running, target.pid());
        target.go();
        let finished = target.finish().success();
        assert_eq!(value(&tracing.finish().success().results), said(&finished.stdout, "calls"));
    }

    fn another_users_program_is_refused(form) {
        if !has_another_user() {
            left_out("a target of another user", "needs root and another user");
            return;
        }
        let mut target = start_waiting(&program("looper.c"), "10");
        let snapshot = Snapshot::take(target.pid());
        let clause = "pid$target:a.out:func:entry { @ = count(); }";
        let traced = Tracer::new(form).as_ordinary_user().clause(clause).process(target.pid()).run();
        assert_eq!(traced.finished.code(), 1, "{}", traced.finished.stderr);
        let stderr = traced.finished.stderr.to_lowercase();
        assert!(stderr.contains(&target.pid().to_string()), "{stderr}");
        assert!(stderr.contains("permission") || stderr.contains("not permitted") || stderr.contains("user"), "{stderr}");
        snapshot.assert_identical(target.pid());
        target.go();
        target.finish().success();
    }

    fn a_process_that_is_not_there_is_refused(form) {
        let traced = Tracer::new(form).clause("pid$target:a.out:func:entry { @ = count(); }").process(0x3fff_fff0).run();
        assert_eq!(traced.finished.code(), 1, "{}", traced.finished.stderr);
        assert!(traced.finished.stderr.contains("1073741808"), "{}", traced.finished.stderr);
    }
}
