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
    plockstat$target:::mutex-spin /arg0 >= from && arg0 < to/ { @[\"spins\"] = sum(1); }
    plockstat$target:::mutex-spun /arg0 >= from && arg0 < to/
        { @[\"spun\"] = sum(1); @[\"by-spinning\"] = sum(arg1); @[\"pauses\"] = sum(arg2); @[\"unspun\"] = sum(!arg2);
          pauses[tid] = arg2; }
    plockstat$target:::mutex-acquire /arg0 >= from && arg0 < to/ { @[\"ended-pauses\"] = sum(arg2); pauses[tid] = 0; }
    plockstat$target:::mutex-error /arg0 >= from && arg0 < to/ { @[\"ended-pauses\"] = sum(pauses[tid]); pauses[tid] = 0; }
    plockstat$target:::mutex-spin /arg0 == to/ { @[\"busy-spins\"] = sum(1); }
    plockstat$target:::mutex-spun /arg0 == to/
        { @[\"busy-spun\"] = sum(1); @[\"busy-pauses\"] = sum(arg2); spun[tid] = !arg1; }
    plockstat$target:::mutex-block /arg0 == to/ { spun[tid] = 0; }
    plockstat$target:::mutex-acquire /arg0 == to/
        { @[\"busy-acquired\"] = sum(1); @[\"busy-acquired-pauses\"] = sum(arg2); @[\"busy-unspun\"] = sum(spun[tid]); }
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
                "acquired", "released", "failed", "blocked", "spins", "reads", "writes", "reads-ended", "writes-ended",
                "rw-failed", "rw-blocked", "busy-acquired",
            ] {
                assert_eq!(rows[name], said(stdout, name), "{name}: {}", traced.results);
            }
            let rounds = i64::try_from(rounds).expect("few");
            assert!(!rows.contains_key("unheld"), "{}", traced.results);
            // EBUSY, EDEADLK, EPERM
            let errors = [16, 35, 1].map(|error| rows[&format!("error{error}")]);
            assert_eq!(errors, [3 * rounds, 2 * rounds, rounds]);
            assert_eq!((rows["busy"], rows["as-reader"]), (2 * rounds, rounds));
            // Each of these attempts spins, and then blocks or fails.
            assert_eq!((rows["spun"], rows["by-spinning"], rows["unspun"]), (rows["spins"], 0, 0));
            assert!(rows["pauses"] >= rows["spun"] && rows["pauses"] == rows["ended-pauses"], "{}", traced.results);
            let by_chance = |name: &str| rows.get(name).copied().unwrap_or_default();
            assert_eq!(by_chance("busy-spun"), by_chance("busy-spins"));
            assert_eq!(by_chance("busy-pauses"), by_chance("busy-acquired-pauses"));
            assert_eq!(rows["busy-unspun"], 0, "spun in vain, and did not block");
            assert_eq!((rows["waits"], rows["waited"]), (rows["futexes"], rows["futexes"]));
        }
    }
}
