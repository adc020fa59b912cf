//! The provider `plockstat`: locks of the C library, and futexes, as the program itself counts them.

use std::collections::BTreeMap;
use std::path::Path;

use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::{Build, need_program};
use nanoprobe_tests::results::{said, table};
use nanoprobe_tests::tracer::{Form, Traced, assert_nothing_lost};

use crate::{traced_from_start, traced_when_attached};

fn rows(results: &str) -> BTreeMap<String, i64> {
    table(&results.lines().map(|line| format!("  {line}\n")).collect::<String>())
}

/// Only the program's own locks: `mark` says where they lie.
const CLAUSES: &str = "#pragma D option quiet
    uintptr_t from; uintptr_t to;
    pid$target:a.out:mark:entry { from = arg0; to = arg1; }
    plockstat$target:::mutex-acquire /arg0 >= from && arg0 < to/ { @[\"acquired\"] = sum(1); held[tid, arg0]++; }
    plockstat$target:::mutex-release /arg0 >= from && arg0 < to/ { @[\"released\"] = sum(1); held[tid, arg0]--; }
    plockstat$target:::mutex-release /arg0 >= from && arg0 < to && held[tid, arg0] < 0/ { @[\"unheld\"] = sum(1); }
    plockstat$target:::mutex-error /arg0 >= from && arg0 < to/
        { @[\"failed\"] = sum(1); @[strjoin(\"error\", lltostr(arg1))] = sum(1); }
    plockstat$target:::mutex-block /arg0 >= from && arg0 < to/ { @[\"blocked\"] = sum(1); }
    plockstat$target:::rw-acquire /arg0 >= from && arg0 < to/ { @[arg1 ? \"writes\" : \"reads\"] = sum(1); }
    plockstat$target:::rw-release /arg0 >= from && arg0 < to/
        { @[arg1 ? \"writes-ended\" : \"reads-ended\"] = sum(1); }
    plockstat$target:::rw-error /arg0 >= from && arg0 < to/ { @[\"rw-failed\"] = sum(1); @[\"busy\"] = sum(arg2 == 16); }
    plockstat$target:::rw-block /arg0 >= from && arg0 < to/ { @[\"rw-blocked\"] = sum(1); @[\"as-reader\"] = sum(!arg1); }
    plockstat$target:::futex-wait { @[\"waits\"] = sum(1); }
    plockstat$target:::futex-waited { @[\"waited\"] = sum(1); }
    syscall::futex:entry /(arg1 & 0x7f) == 0 || (arg1 & 0x7f) == 9/ { @[\"futexes\"] = sum(1); }
    END { printa(\"%s %@d\\n\", @); }";

/// The output of the program, and the results: traced from its start, or attached to.
fn traced(attached: bool, form: Form, program: &Path, arguments: &str) -> (String, Traced) {
    if attached {
        let (target, traced) = traced_when_attached(form, CLAUSES, program, arguments);
        return (target.stdout, traced);
    }
    let traced = traced_from_start(form, CLAUSES, program, arguments);
    (traced.finished.stdout.clone(), traced)
}

live_tests! {
    /// Every way to take and to leave a lock; a thread blocks where the program makes it block, and nowhere else.
    fn locks_are_taken_as_the_program_says(form) {
        for (build, attached) in [(Build::Usual, false), (Build::Usual, true), (Build::MuslStatic, false)] {
            let Some(program) = need_program("plocks.c", build) else { continue };
            let rounds = form.scale(30, 5);
            let (stdout, traced) = traced(attached, form, &program, &rounds.to_string());
            assert_nothing_lost(&traced.finished.stderr);
            let (stdout, rows) = (&stdout, rows(&traced.results));
            for name in [
                "acquired", "released", "failed", "blocked", "reads", "writes", "reads-ended", "writes-ended", "rw-failed",
                "rw-blocked",
            ] {
                assert_eq!(rows[name], said(stdout, name), "{name}: {}", traced.results);
            }
            let rounds = i64::try_from(rounds).expect("few");
            assert!(!rows.contains_key("unheld"), "{}", traced.results);
            // EBUSY, EDEADLK, EPERM
            let errors = [16, 35, 1].map(|error| rows[&format!("error{error}")]);
            assert_eq!(errors, [rounds, 2 * rounds, rounds]);
            assert_eq!((rows["busy"], rows["as-reader"]), (2 * rounds, rounds));
            assert_eq!((rows["waits"], rows["waited"]), (rows["futexes"], rows["futexes"]));
        }
    }
}
