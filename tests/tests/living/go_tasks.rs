//! A goroutine's `self->` variables stay with it, on whatever thread it runs; `goid` is its number.

use nanoprobe_tests::program::{Build, need_program};
use nanoprobe_tests::results::{said, table};
use nanoprobe_tests::tracer::{Form, Tracer, assert_nothing_lost, start_waiting};
use nanoprobe_tests::{live_tests, number_from_environment};

use crate::traced_when_attached;

/// The sum of the numbers on the lines `NAME NUMBER`.
fn summed(text: &str, name: &str) -> i64 {
    let value = |line: &str| line.trim().strip_prefix(name)?.trim().parse::<i64>().ok();
    text.lines().filter_map(value).sum()
}

live_tests! {
    /// The program measures each call from within and from without: the true time lies between.
    fn a_latency_is_the_goroutine_s(form) {
        for build in [Build::Go, Build::GoPie, Build::GoStripped] {
            let Some(path) = need_program("gotasks.go", build) else { continue };
            let clause = "#pragma D option quiet
                pid$target:a.out:main.handle:entry { self->at = timestamp; @right[arg0 == goid] = count(); }
                pid$target:a.out:main.handle:return /self->at/ {
                    @ = sum(timestamp - self->at); @calls = count(); self->at = 0;
                }
                END {
                    printa(\"right %d %@d\\n\", @right); printa(\"took %@d\\n\", @); printa(\"calls %@d\\n\", @calls);
                }";
            let turns = form.scale(40, 10);
            let (target, traced) = traced_when_attached(form, clause, &path, &format!("{turns} waits"));
            assert_nothing_lost(&traced.finished.stderr);
            let calls = 16 * turns as i64;
            assert_eq!(summed(&traced.results, "calls"), calls, "{}", traced.results);
            assert_eq!(summed(&traced.results, "right 1"), calls, "{}", traced.results);
            let (inner, outer) = (said(&target.stdout, "inner"), said(&target.stdout, "outer"));
            let took = summed(&traced.results, "took");
            // The two times come from different clocks.
            let apart = outer / 1000 + 1000 * calls;
            let is_between = inner - apart <= took && took <= outer + apart;
            assert!(is_between, "{inner} <= {took} <= {outer} of {build:?}");
        }
    }
}

/// `NANOPROBE_GO_HITS` hits, a million by default, under permanent garbage collection, on stacks that grow and move.
#[test]
fn no_argument_and_no_goroutine_is_wrong_in_a_million_hits() {
    let hits = number_from_environment("NANOPROBE_GO_HITS", 1_000_000).next_multiple_of(64);
    for build in [Build::Go, Build::GoPieStripped] {
        let Some(path) = need_program("gotasks.go", build) else {
            continue;
        };
        let clause = "#pragma D option quiet
            pid$target:a.out:main.hit:entry {
                @sum = sum(arg0); @keys[arg1] = count(); @right[arg2 == goid] = count();
                self->value = (arg0 ^ arg1) + 1;
            }
            pid$target:a.out:main.hit:return {
                @returned = sum(arg1); @kept[self->value == arg1 + 1] = count(); self->value = 0;
            }
            END {
                printa(\"sum %@d\\n\", @sum); printa(\"returned %@d\\n\", @returned); printa(\"key%d %@d\\n\", @keys);
                printa(\"right%d %@d\\n\", @right); printa(\"kept%d %@d\\n\", @kept);
            }";
        let mut command = std::process::Command::new("env");
        command.arg("GOGC=1").arg(&path).args(["--wait", &hits.to_string()]);
        let mut target = nanoprobe_tests::command::Running::start(&mut command);
        target.wait_for("ready\n");
        let tracing = Tracer::new(Form::Default).clause(clause).trace(target.pid());
        target.go();
        let target = target.finish().success();
        let traced = tracing.finish().success();
        assert!(target.stdout.ends_with("OK\n"), "{}", target.stdout);
        assert_nothing_lost(&traced.finished.stderr);
        let all = hits as i64;
        for (name, expected) in [
            ("right1", all),
            ("kept1", all),
            ("sum", said(&target.stdout, "sum")),
            ("returned", said(&target.stdout, "returned")),
        ] {
            assert_eq!(
                summed(&traced.results, name),
                expected,
                "{build:?}: {name} in {}",
                traced.results
            );
        }
        for key in 0..8 {
            let name = format!("key{key}");
            assert_eq!(
                summed(&traced.results, &name),
                said(&target.stdout, &name),
                "{}",
                traced.results
            );
        }
        let counts: i64 = (0..8).map(|key| summed(&traced.results, &format!("key{key}"))).sum();
        assert_eq!(counts, all);
    }
}

/// A function whose stack has to grow begins again, but counts as one call.
#[test]
fn a_call_whose_stack_grows_is_one_hit() {
    for build in [Build::Go, Build::GoPieStripped] {
        let Some(path) = need_program("gotasks.go", build) else {
            continue;
        };
        let clause = "#pragma D option quiet
            pid$target:a.out:main.deep:entry { @in = count(); @sum = sum(arg0 + 1); }
            pid$target:a.out:main.deep:return { @out = count(); }
            END { printa(\"in %@d\\n\", @in); printa(\"out %@d\\n\", @out); printa(\"sum %@d\\n\", @sum); }";
        let (target, traced) = traced_when_attached(Form::Default, clause, &path, "640000");
        assert_nothing_lost(&traced.finished.stderr);
        let calls = said(&target.stdout, "calls");
        assert!(calls > 100_000, "{}", target.stdout);
        assert_eq!(summed(&traced.results, "in"), calls, "{build:?}: {}", traced.results);
        assert_eq!(summed(&traced.results, "out"), calls, "{build:?}");
        assert_eq!(
            summed(&traced.results, "sum"),
            said(&target.stdout, "depths"),
            "{build:?}"
        );
    }
}

/// With `self=thread` a variable stays with the thread, as in C programs.
#[test]
fn self_is_a_thread_s_where_that_is_asked_for() {
    let Some(path) = need_program("gotasks.go", Build::Go) else {
        return;
    };
    let clause = "pid$target:a.out:main.hit:entry { self->count++; @[tid] = max(self->count); @all = count(); }";
    let mut target = start_waiting(&path, "64000");
    let tracing = Tracer::new(Form::Default)
        .argument("-x")
        .argument("self=thread")
        .clause(clause)
        .trace(target.pid());
    target.go();
    target.finish().success();
    let traced = tracing.finish().success();
    assert_nothing_lost(&traced.finished.stderr);
    let rows = table(&traced.results);
    assert_eq!(rows.values().sum::<i64>(), 64_000, "{}", traced.results);
}
