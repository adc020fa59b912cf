//! The figures in the table of docs/coverage.md hold for the programs of this machine: see `bench/src/bin/coverage`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use nanoprobe_session::{Coverage, Tactic, Wanted, plan_all};
use nanoprobe_symbols::files;
use nanoprobe_tests::left_out::left_out;

fn of(path: &str, wanted: Wanted) -> Option<Coverage> {
    if !Path::new(path).exists() {
        left_out("coverage by jumps", &format!("there is no {path}"));
        return None;
    }
    Some(plan_all(files::open(Path::new(path), Path::new(path)).unwrap(), wanted))
}

#[test]
fn nearly_all_of_a_program_is_had_by_jumps() {
    for path in ["/bin/bash", "/lib/x86_64-linux-gnu/libc.so.6"] {
        // The goals, in thousandths.
        for (wanted, goal) in [
            (Wanted::Entries, 999),
            (Wanted::Exits, 995),
            (Wanted::Instructions, 990),
        ] {
            let Some(coverage) = of(path, wanted) else { continue };
            let had: usize = coverage.tactics.values().sum();
            let traps = coverage.tactics.get(&Tactic::Trap).copied().unwrap_or(0);
            assert!(coverage.points > 1000, "{path} {wanted:?}: {}", coverage.points);
            assert_eq!(had, coverage.points, "{path} {wanted:?}: {:?}", coverage.refusals);
            assert!(
                (had - traps) * 1000 >= coverage.points * goal,
                "{path} {wanted:?}: {traps} traps"
            );
            // Each trap has a reason.
            let told: usize = coverage.traps.values().map(|class| class.points).sum();
            assert_eq!(told, traps, "{path} {wanted:?}");
        }
    }
}
