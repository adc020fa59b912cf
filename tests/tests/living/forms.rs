//! The three forms of the trap: the same counts, the same program. (The other tests use the form that each instruction
//! has by itself.)

use nanoprobe_tests::program::program;
use nanoprobe_tests::results::{said, table};
use nanoprobe_tests::tracer::{Form, Traced, Tracer};

use crate::unprobed;

const FORMS: [&str; 3] = ["emulate", "boost", "step"];

/// As [`crate::traced_from_start`], with the given form of the trap.
#[track_caller]
fn traced_as(form: &str, clause: &str, name: &str, arguments: &str) -> Traced {
    let program = program(name);
    let right = unprobed(&program, arguments).success();
    let traced = Tracer::new(Form::Trap)
        .argument("-x")
        .argument(format!("trap={form}"))
        .clause(clause)
        .command(&program, arguments)
        .run()
        .complete();
    assert_eq!(crate::without_messages(&traced.finished.stdout), right.stdout, "{form}");
    traced
}

#[test]
fn every_form_counts_the_same() {
    let clause =
        "pid$target:a.out:plain:,pid$target:a.out:tail_*:,pid$target:a.out:several:,pid$target:a.out:switched:,
                  pid$target:a.out:recursive:,pid$target:a.out:is_*:
                  { @[probefunc, probename] = count(); @s[probefunc, probename] = sum(uregs[R_RSP] & 15); }";
    let mut results = FORMS.map(|form| traced_as(form, clause, "tails.c", "20").results);
    for result in &mut results {
        let mut lines: Vec<&str> = result.lines().collect();
        lines.sort_unstable();
        *result = lines.join("\n");
    }
    assert!(results[0].lines().count() > 40, "{}", results[0]);
    assert_eq!(results[0], results[1]);
    assert_eq!(results[0], results[2]);
}

#[test]
fn every_form_leaves_the_state_alone() {
    let clause = "pid$target:a.out:untouching*:entry,pid$target:a.out:red_zone*:,pid$target:a.out:carry_out:
                  { @[ustack(3)] = count(); @q = quantize(arg2); x[arg0 & 7] = uregs[R_RIP]; }";
    for form in FORMS {
        traced_as(form, clause, "machine.c", "20");
    }
}

#[test]
fn every_form_counts_ways_out_that_are_branches() {
    let clause = "pid$target:a.out:tail_*:return,pid$target:a.out:several:return,pid$target:a.out:switched:return,
                  pid$target:a.out:with_cold_part:return,pid$target:a.out:is_*:return { @[probefunc] = count(); }";
    let results = FORMS.map(|form| table(&traced_as(form, clause, "tails.c", "50").results));
    assert!(!results[0].is_empty());
    assert_eq!(results[0], results[1]);
    assert_eq!(results[0], results[2]);
}

/// The stack pointer is invalid at some of these sites. A detour would fault at its own pushes; a fire in the handler
/// does not.
#[test]
fn a_fault_in_the_handler_is_the_instructions() {
    for form in ["emulate", "step"] {
        let clause = "pid$target:a.out:fault_*:entry { @[probefunc] = count(); }";
        let rows = table(&traced_as(form, clause, "faults.c", "faults 50").results);
        assert_eq!(rows.len(), 10, "{form}");
        assert!(rows.values().all(|&count| count == 50), "{form}: {rows:?}");
    }
}

/// The program's own trap flag: the program sees all its own steps, and none of ours.
#[test]
fn a_program_that_steps_itself() {
    let clause = "pid$target:a.out:stepped: { @ = count(); }";
    traced_as("emulate", clause, "faults.c", "steps 50");
}

/// On the smallest alternate stack there is no room for fires in the handler: they run in the detour.
#[test]
fn every_form_on_a_small_stack() {
    for form in FORMS {
        for frames in [2, 8] {
            let clause = "pid$target:a.out:handled:entry { @[probefunc] = count(); }";
            let traced = traced_as(form, clause, "signals.c", &format!("small 200 {frames}"));
            assert_eq!(
                said(&traced.finished.stdout, "handled"),
                table(&traced.results)["handled"],
                "{form}"
            );
        }
    }
}
