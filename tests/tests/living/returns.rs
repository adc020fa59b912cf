//! Return probes at every way out, with the values returned.

use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::{said, table};

use crate::traced_from_start;

/// For each function: its calls in a round, and the sum of its rax values in a round if no exit is a tail call.
const FUNCTIONS: [(&str, i64, Option<i64>); 24] = [
    (
        "plain",
        16,
        Some(5 + 9 + 13 + 101 + 1 + 2 + 3 + 4 + 5 + 4 + 6 + 8 + 12 + 14 + 18 + 20),
    ),
    ("tail_call", 1, None),
    ("tail_pointer", 1, None),
    ("several", 4, None),
    ("switched", 8, Some(8 + 18 + 40 + 84 + 154 + 234 + 340)),
    ("with_cold_part", 1, Some(45)),
    ("recursive", 11, Some(2047)),
    ("is_even", 11, None),
    ("is_odd", 10, None),
    ("returns_pair", 1, None),
    ("returns_big", 1, None),
    ("returns_double", 1, None),
    ("returns_long_double", 1, None),
    ("variadic", 1, Some(45)),
    ("variadic_double", 1, None),
    ("ten_arguments", 1, Some(385)),
    ("returns_nothing", 1, None),
    ("only_ret", 1, None),
    ("rep_ret", 1, None),
    ("short_zero", 1, Some(0)),
    ("ret_pops", 1, Some(35)),
    ("starts_rip_relative", 1, Some(14)),
    ("starts_with_jcc", 2, Some(3)),
    ("starts_with_jump", 1, Some(11)),
];

live_tests! {
    fn every_call_is_entered_and_left_once(form) {
        let names: Vec<String> = FUNCTIONS
            .iter()
            .flat_map(|(name, ..)| ["entry", "return"].map(|at| format!("pid$target:a.out:{name}:{at}")))
            .collect();
        let clause = format!("{} {{ @[probefunc, probename] = count(); }}", names.join(","));
        let rounds = form.scale(1000, 50) as i64;
        let traced = traced_from_start(form, &clause, &program("tails.c"), &rounds.to_string());
        let rows = table(&traced.results);
        for (name, calls, _) in FUNCTIONS {
            assert_eq!(rows.get(&format!("{name} entry")), Some(&(calls * rounds)), "{name} is entered");
            assert_eq!(rows.get(&format!("{name} return")), Some(&(calls * rounds)), "{name} is left");
        }
        assert_eq!(rows["plain entry"], said(&traced.finished.stdout, "plain"));
    }

    fn arg1_is_the_value_returned(form) {
        let names: Vec<String> = FUNCTIONS
            .iter()
            .filter(|(.., sum)| sum.is_some())
            .map(|(name, ..)| format!("pid$target:a.out:{name}:return"))
            .collect();
        let clause = format!("{} {{ @[probefunc] = sum(arg1); }}", names.join(","));
        let traced = traced_from_start(form, &clause, &program("tails.c"), "20");
        let rows = table(&traced.results);
        for (name, _, sum) in FUNCTIONS {
            if let Some(sum) = sum {
                assert_eq!(rows.get(name), Some(&(sum * 20)), "{name}");
            }
        }
    }

    /// arg0 of a return probe is the offset of the exit: inside the function, one for each exit taken.
    fn arg0_is_the_offset_of_the_exit(form) {
        let clause = "pid$target:a.out:starts_with_jcc:return { @[arg0] = count(); }";
        let traced = traced_from_start(form, clause, &program("tails.c"), "10");
        // test (3), js (2), mov (5), ret at 10; mov (5), ret at 16.
        let rows = table(&traced.results);
        assert_eq!(rows.into_iter().collect::<Vec<_>>(), [("10".to_owned(), 10), ("16".to_owned(), 10)]);
    }

    /// The stack of recursion: entries and returns nest.
    fn entries_and_returns_nest(form) {
        let clause = "pid$target:a.out:recursive:entry { self->depth++; @deepest = max(self->depth); }
                      pid$target:a.out:recursive:return { self->depth--; @shallowest = min(self->depth); }";
        let traced = traced_from_start(form, clause, &program("tails.c"), "10");
        let mut values = nanoprobe_tests::results::values(&traced.results);
        values.sort_unstable();
        assert_eq!(values, [0, 11]);
    }

    /// Instructions that are hard to move, each as the first one of a function.
    fn awkward_first_instructions(form) {
        let clause = "pid$target:a.out:loop_to_start:entry,pid$target:a.out:call_ret_pops:entry,
                      pid$target:a.out:starts_*:entry,pid$target:a.out:ret_pops:entry,pid$target:a.out:rep_ret:entry
                      { @[probefunc] = count(); }";
        let traced = traced_from_start(form, clause, &program("tails.c"), "100");
        let rows = table(&traced.results);
        // The loop jumps to the function's first instruction, and the probe is on that instruction.
        assert_eq!(rows["loop_to_start"], 500);
        assert_eq!(rows["starts_with_jcc"], 200);
        for name in ["call_ret_pops", "starts_with_call", "starts_with_jump", "starts_rip_relative", "ret_pops", "rep_ret"] {
            assert_eq!(rows[name], 100, "{name}");
        }
    }
}
