//! Instructions that stay in place, with every instruction of a function probed: restartable sequences, and where the
//! stack pointer is no stack's. The program's results stay right, and refusals are reported.

use std::path::Path;

use nanoprobe_tests::left_out::left_out;
use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::{Build, need_program, program};
use nanoprobe_tests::results::value;
use nanoprobe_tests::tracer::{Form, Tracer};

/// Runs a program that increments a counter of each processor by restartable sequences, with every instruction of
/// `function` probed. Returns nanoprobe's messages; `None` if the C library has not registered its threads for such
/// sequences.
fn counters(form: Form, binary: &Path, how: &str, function: &str) -> Option<String> {
    let module = if how.starts_with('/') { "rseq.so" } else { "a.out" };
    let clause = format!("pid$target:{module}:{function}: {{ @ = count(); }}");
    let arguments = format!("{how} {}", form.scale(100_000, 20_000));
    let tracer = Tracer::new(form).argument("-v").argument("-Z").clause(&clause);
    let traced = tracer.command(binary, &arguments).run().success();
    let stdout = &traced.finished.stdout;
    if stdout.contains("no rseq") {
        left_out("restartable sequences", "the C library has not registered its threads");
        return None;
    }
    assert!(
        stdout.lines().any(|line| line == "OK"),
        "{stdout}\n{}",
        traced.finished.stderr
    );
    // At least twice a round: at the beginning of the function, and at its end.
    assert!(
        value(&traced.results) >= 8 * form.scale(100_000, 20_000) as i64,
        "{}",
        traced.results
    );
    Some(traced.finished.stderr)
}

fn assert_refused(told: &str) {
    assert!(told.contains("belongs to the restartable sequence"), "{told}");
}

live_tests! {
    fn i11_a_restartable_sequence_stays_atomic(form) {
        for build in [Build::Usual, Build::FixedAddress] {
            let Some(binary) = need_program("rseq.c", build) else { continue };
            let Some(told) = counters(form, &binary, "listed", "add_listed") else { return };
            assert_refused(&told);
        }
    }

    fn i11_a_library_s_restartable_sequence_stays_atomic(form) {
        let Some(library) = need_program("rseq.c", Build::Library) else { return };
        let library = library.display().to_string();
        if let Some(told) = counters(form, &program("rseq.c"), &library, "add_listed") {
            assert_refused(&told);
        }
    }

    /// A sequence that no file describes: a trap aborts it, and is then removed; a jump would remove its atomicity,
    /// silently.
    fn i11_a_trap_in_an_unlisted_sequence_is_survived(_form) {
        let binary = program("rseq.c");
        let clause = "pid$target:a.out:add_unlisted: { @ = count(); }";
        let tracer = Tracer::new(Form::Trap).clause(clause);
        let traced = tracer.command(&binary, "unlisted 20000").run().success();
        let stdout = &traced.finished.stdout;
        if stdout.contains("no rseq") {
            left_out("restartable sequences", "the C library has not registered its threads");
            return;
        }
        let stderr = &traced.finished.stderr;
        assert!(stdout.lines().any(|line| line == "OK"), "{stdout}\n{stderr}");
        assert!(stderr.contains("a trap aborted a restartable sequence"), "{stderr}");
        assert!(stderr.contains("missed"), "{stderr}");
    }

    fn nothing_is_probed_where_rsp_is_no_stack(form) {
        let rounds = form.scale(20_000, 2_000);
        let clause = "pid$target:a.out:stackless_*: { @[probefunc] = count(); }";
        let tracer = Tracer::new(form).argument("-v").clause(clause);
        let traced = tracer.command(&program("stackless.c"), &rounds.to_string()).run().complete();
        assert!(traced.finished.stderr.contains("rsp points to no stack"), "{}", traced.finished.stderr);
        let rows = nanoprobe_tests::results::table(&traced.results);
        // The entry, the return, and all of the 13 instructions on the other stack; of the other functions, the
        // instructions before and after.
        assert_eq!(rows["stackless_switch"], (2 + 13) * rounds as i64);
        assert_eq!(rows["stackless_product"], (2 + 6) * rounds as i64);
        assert_eq!(rows["stackless_sum"], (2 + 4) * rounds as i64);
    }
}
