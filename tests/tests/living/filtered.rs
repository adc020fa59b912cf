//! Children that put themselves under a seccomp filter after the fork. The filter kills for any call that it does not
//! name, so a single call of ours would end a child.

use std::collections::BTreeMap;

use nanoprobe_tests::program::program;
use nanoprobe_tests::results::table;
use nanoprobe_tests::tracer::{Form, Tracer, assert_nothing_lost, start_waiting};

/// Stacks and aggregations: much for which the agent has calls elsewhere.
const STACKS: &str = "pid$target:a.out:called:entry { @[pid] = count(); @s[ustack(3)] = count(); }
                      pid$target:a.out:called:return { self->x = arg1; @r = sum(self->x); }";
/// With clocks, too. In strict mode the kernel forbids reading the time stamp counter.
const CLOCKS: &str = "pid$target:a.out:called:entry { @[pid] = count(); @s[ustack(3)] = count(); @t = max(timestamp); }
                      pid$target:a.out:called:return { self->x = timestamp; @v = min(self->x); printf(\"x\\n\"); }";
const KINDS: [(&str, &str); 3] = [("strict", STACKS), ("kill", CLOCKS), ("errno", CLOCKS)];

fn following(what: &str) -> Tracer {
    Tracer::new(Form::Default).argument("-x").argument(what)
}

fn said(stdout: &str) -> BTreeMap<String, i64> {
    let lines = stdout.lines().filter_map(|line| line.strip_prefix("by "));
    lines
        .map(|line| {
            let (pid, calls) = line.split_once(' ').expect("a number and a count");
            (pid.to_owned(), calls.parse().expect("a count"))
        })
        .collect()
}

/// A child that has called before it enters the filter, and one that has not, so that its first hit is inside.
#[test]
fn children_under_filters_of_their_own_are_counted_and_live() {
    for (kind, clause) in KINDS {
        for what in ["follow=fork", "follow=all"] {
            let traced = following(what)
                .argument("-q")
                .clause(clause)
                .command(&program("filtered.c"), &format!("{kind} 1000"))
                .run()
                .complete();
            let said = said(&traced.finished.stdout);
            assert_eq!(said.values().sum::<i64>(), 3001, "{kind}");
            let mut counted = table(&traced.results);
            counted.retain(|pid, _| said.contains_key(pid));
            assert_eq!(counted, said, "{kind}, {what}: {}", traced.finished.stderr);
        }
    }
}

/// Without permission for the calls that take mappings away, nanoprobe says what it leaves behind. The children go on.
#[test]
fn children_under_filters_outlive_the_tracing() {
    for (kind, _) in KINDS {
        let mut target = start_waiting(&program("filtered.c"), &format!("{kind} 1000"));
        let tracing = following("follow=all")
            .clause("pid$target:a.out:called:entry { @[pid] = count(); }")
            .trace(target.pid());
        target.go();
        target.wait_until("two children's calls", |target| said(&target.stdout()).len() == 3);
        let traced = tracing.interrupt();
        assert_nothing_lost(&traced.finished.stderr);
        assert_eq!(
            table(&traced.results),
            said(&target.stdout()),
            "{kind}: {}",
            traced.finished.stderr
        );
        target.close_input();
        let finished = target.finish().success();
        assert!(finished.stdout.ends_with("OK\n"), "{kind}: {}", finished.stdout);
    }
}
