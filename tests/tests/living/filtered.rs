//! Children that put themselves under a seccomp filter after the fork. The filter kills for any call that it does not
//! name, so a single call of ours would end a child.

use std::collections::BTreeMap;

use nanoprobe_tests::command::Finished;
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::{said_by_processes, table};
use nanoprobe_tests::tracer::{Form, Tracer, assert_nothing_lost, start_waiting};

/// Clocks, stacks, records and aggregations: much for which the agent has calls elsewhere.
const CLAUSES: &str =
    "pid$target:a.out:called:entry { @[pid] = count(); @s[ustack(3)] = count(); @t = max(timestamp); }
                       pid$target:a.out:called:return { self->x = timestamp; @v = min(self->x); printf(\"x\\n\"); }";

fn following(what: &str) -> Tracer {
    Tracer::new(Form::Default).argument("-x").argument(what)
}

/// A child that has called before it enters the filter, and one that has not, so that its first hit is inside.
#[test]
fn children_under_filters_of_their_own_are_counted_and_live() {
    for kind in ["kill", "errno"] {
        for what in ["follow=fork", "follow=all"] {
            let traced = following(what)
                .argument("-q")
                .clause(CLAUSES)
                .command(&program("filtered.c"), &format!("{kind} 1000"))
                .run()
                .complete();
            let said = said_by_processes(&traced.finished.stdout);
            assert_eq!(said.values().sum::<i64>(), 3001, "{kind}");
            let mut counted = table(&traced.results);
            counted.retain(|pid, _| said.contains_key(pid));
            assert_eq!(counted, said, "{kind}, {what}: {}", traced.finished.stderr);
        }
    }
}

/// In strict mode the kernel also forbids reading the time stamp counter, which a handler may do: nothing fires there
/// any more, and what did not fire is told.
#[test]
fn children_in_strict_mode_live_and_their_hits_are_missed() {
    let traced = following("follow=fork")
        .argument("-q")
        .clause(CLAUSES)
        .command(&program("filtered.c"), "strict 1000")
        .run()
        .success();
    let Finished { stdout, stderr, .. } = &traced.finished;
    assert!(stdout.ends_with("OK\n"), "{stdout}");
    let said = said_by_processes(stdout);
    // Of the child with 2,000 calls, the first 1,000 come before it enters the mode; the other has none before.
    let before = said.iter().filter(|(_, calls)| **calls != 1000);
    let expected: BTreeMap<String, i64> = before.map(|(pid, calls)| (pid.clone(), (*calls).min(1000))).collect();
    let mut counted = table(&traced.results);
    counted.retain(|pid, _| said.contains_key(pid));
    assert_eq!(counted, expected, "{stderr}");
    // Each call would have fired at its entry and its return.
    assert!(stderr.contains(" 4000 hits missed"), "{stderr}");
}

/// Without permission for the calls that take mappings away, nanoprobe says what it leaves behind. The children go on.
#[test]
fn children_under_filters_outlive_the_tracing() {
    for kind in ["strict", "kill", "errno"] {
        let mut target = start_waiting(&program("filtered.c"), &format!("{kind} 1000"));
        let tracing = following("follow=all")
            .clause("pid$target:a.out:called:entry { @[pid] = count(); }")
            .trace(target.pid());
        target.go();
        target.wait_until("two children's calls", |target| {
            said_by_processes(&target.stdout()).len() == 3
        });
        let traced = tracing.interrupt();
        if kind != "strict" {
            assert_nothing_lost(&traced.finished.stderr);
            let counted = table(&traced.results);
            assert_eq!(
                counted,
                said_by_processes(&target.stdout()),
                "{kind}: {}",
                traced.finished.stderr
            );
        }
        target.close_input();
        let finished = target.finish().success();
        assert!(finished.stdout.ends_with("OK\n"), "{kind}: {}", finished.stdout);
    }
}
