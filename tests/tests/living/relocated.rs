//! The displaced instructions have the same effect as in place (I3): faults are reported at the original address,
//! system calls return and are restarted, children continue where their parents do.

use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::{Build, need_program, program};
use nanoprobe_tests::results::{said, table};

use crate::traced_from_start;

/// Functions, and the number of their calls in a round.
const FUNCTIONS: [(&str, i64); 7] = [
    ("moved_load", 2),
    ("moved_call", 2),
    ("moved_call_register", 2),
    ("moved_divide", 2),
    ("moved_time", 1),
    ("moved_flags", 1),
    ("moved_gate", 1),
];

live_tests! {
    fn every_instruction_that_notices_its_place_is_probed(form) {
        let clause = "pid$target:a.out:moved_*: { @[probefunc, probename] = count(); }";
        let rounds = form.scale(200, 20);
        let traced = traced_from_start(form, clause, &program("relocated.c"), &rounds.to_string());
        let rows = table(&traced.results);
        for (function, in_a_round) in FUNCTIONS {
            let right = form.scale(200, 20) as i64 * in_a_round;
            assert_eq!(rows[&format!("{function} entry")], right, "{function}: {}", traced.results);
        }
    }

    /// One site is probed at a time, so that each site has its own detour.
    fn entries_and_returns_of_instructions_that_notice_their_place(form) {
        let names = ["load", "call", "divide", "syscall", "vfork", "clone", "gate", "copy", "time", "transaction", "wide"];
        let probes = names.map(|name| format!("pid$target:a.out:moved_{name}:entry,pid$target:a.out:moved_{name}:return"));
        let clause = format!("{} {{ @[probefunc] = count(); }}", probes.join(","));
        traced_from_start(form, &clause, &program("relocated.c"), "50");
    }

    /// Go's runtime turns faults into panics, by the address of the fault. Every instruction that may fault is
    /// displaced.
    fn go_panics_on_faults(form) {
        let Some(path) = need_program("gopanic.go", Build::Go) else { return };
        let clause = "pid$target:a.out:main.readField:,pid$target:a.out:main.callFunction:,pid$target:a.out:main.divide:
                      { @[probefunc, probename] = count(); }";
        let traced = traced_from_start(form, clause, &path, "");
        assert_eq!(said(&traced.finished.stdout, "faults"), 3 * 4 * 200);
        let rows = table(&traced.results);
        let entries = |function: &str| rows[&format!("main.{function} entry")];
        assert_eq!((entries("readField"), entries("divide")), (2 * 4 * 200, 2 * 4 * 200), "{}", traced.results);
        // This function is entered again at its start after its stack has grown, or after another goroutine had its
        // turn.
        assert!(entries("callFunction") >= 2 * 4 * 200, "{}", traced.results);
    }
}
