//! Children that are not followed: unharmed, and never counted as their parent.

use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::{said, table};
use nanoprobe_tests::text::Snapshot;
use nanoprobe_tests::tracer::{Tracer, assert_nothing_lost, start_waiting};

use crate::traced_when_attached;

const STORM: &str = "pid$target:a.out:stormed:entry { @[probefunc] = count(); }
                     pid$target:a.out:stormed_in_vfork:entry { @[probefunc] = count(); }";

live_tests! {
    fn children_are_unharmed_and_not_counted(form) {
        let arguments = format!("{} 500", form.scale(100, 10));
        let program = program("forkstorm.c");
        for attached in [false, true] {
            // The storm's own verdict: its background thread calls as often as it can.
            let (stdout, traced) = if attached {
                let (target, traced) = traced_when_attached(form, STORM, &program, &arguments);
                (target.stdout, traced)
            } else {
                let tracer = Tracer::new(form).argument("-x").argument("follow=no");
                let traced = tracer.clause(STORM).command(&program, &arguments).run().complete();
                (traced.finished.stdout.clone(), traced)
            };
            let rows = table(&traced.results);
            assert_eq!(rows["stormed"], said(&stdout, "parent"), "attached: {attached}");
            // Children of vfork run in the parent's memory: either all their calls are counted, or none.
            let vforked = rows.get("stormed_in_vfork").copied().unwrap_or(0);
            assert!(vforked == 0 || vforked == said(&stdout, "vforked"), "{vforked} of {}", said(&stdout, "vforked"));
            assert_nothing_lost(&traced.finished.stderr);
        }
    }

    /// Entry and return, keys, records and stacks: no effect of a handler may reach the parent's buffers.
    fn children_run_whole_handlers_in_vain(form) {
        let clause = "pid$target:a.out:stormed:entry,pid$target:a.out:stormed:return { @[probename] = count(); }
                      pid$target:a.out:stormed:entry /arg0 == 1/ { @stacks[ustack(3)] = count(); }";
        let (target, traced) = traced_when_attached(form, clause, &program("forkstorm.c"), "10 100");
        let rows = table(&traced.results);
        let parent = said(&target.stdout, "parent");
        assert_eq!((rows["entry"], rows["return"]), (parent, parent));
    }

    /// The tracer detaches from the program while its children, which have copies of the patches, live on.
    fn children_outlive_the_tracing(form) {
        let mut target = start_waiting(&program("forkstorm.c"), "60 300");
        let snapshot = Snapshot::take(target.pid());
        let tracing = Tracer::new(form).clause(STORM).attach(target.pid());
        target.go();
        target.wait_until("some children", |target| children(target.pid()) > 0);
        let traced = tracing.interrupt();
        assert!(!traced.results.is_empty());
        if target.is_running() {
            snapshot.assert_restored(target.pid());
        }
        let finished = target.finish().success();
        assert!(finished.stdout.ends_with("OK\n"), "{}", finished.stdout);
    }
}

fn children(pid: i32) -> usize {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().count()
}
