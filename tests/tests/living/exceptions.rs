//! C++ exceptions and longjmp through probed frames.

use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::{said, table};
use nanoprobe_tests::tracer::{Form, Tracer};

use crate::traced_from_start;

live_tests! {
    /// A frame left by an exception or a longjmp does not return.
    fn frames_that_are_thrown_through(form) {
        let clause = "pid$target:a.out:frame_outer:entry,pid$target:a.out:frame_outer:return,
                      pid$target:a.out:frame_bottom:entry,pid$target:a.out:frame_bottom:return
                      { @[probefunc, probename] = count(); }";
        let rounds = form.scale(2000, 100).to_string();
        let traced = traced_from_start(form, clause, &program("exceptions.cpp"), &rounds);
        let rows = table(&traced.results);
        let stdout = &traced.finished.stdout;
        assert_eq!(rows["frame_outer entry"], said(stdout, "outer_entries"));
        assert_eq!(rows["frame_outer return"], said(stdout, "outer_returns"));
        assert_eq!(rows["frame_bottom entry"], said(stdout, "bottom_entries"));
        assert_eq!(rows["frame_bottom return"], said(stdout, "bottom_returns"));
    }

    /// Every function of the program, the C++ library's throwing machinery and the unwinder.
    fn the_unwinder_itself_is_probed(form) {
        let clause = "pid$target:a.out::entry,pid$target:a.out::return,
                      pid$target:libgcc_s::entry,pid$target:libstdc++:__cxa*:entry,pid$target:libstdc++:__cxa*:return
                      { @[probemod] = count(); }";
        let program = program("exceptions.cpp");
        let traced = traced_from_start(form, clause, &program, &form.scale(200, 10).to_string());
        let rows = table(&traced.results);
        for library in ["libgcc_s", "libstdc++"] {
            let hits: i64 = rows.iter().filter(|(name, _)| name.starts_with(library)).map(|(_, hits)| hits).sum();
            assert!(hits > 0, "no hit in {library}: {rows:?}");
        }
    }

    /// A stack taken inside frames through which an exception will pass, and handlers that record.
    fn stacks_before_a_throw(form) {
        let clause = "pid$target:a.out:frame_bottom:entry { @[ustack()] = count(); }";
        let program = program("exceptions.cpp");
        let traced = Tracer::new(form).clause(clause).command(&program, "50").run().complete();
        let all = nanoprobe_tests::results::stacks(&traced.results);
        let total: i64 = all.iter().map(|(_, count)| count).sum();
        assert_eq!(total, said(&traced.finished.stdout, "bottom_entries"));
        for (frames, _) in &all {
            // The stack has frame_bottom, twenty more frames, and their callers.
            assert!(frames.len() >= 22, "{frames:#?}");
        }
    }
}

/// Return addresses are restored for an unwinder on its own stack only. On another stack, in the middle of this, a call
/// might return and another call be made from elsewhere. The new call would then return to the caller of the first
/// call.
#[test]
fn calls_beside_exceptions_return_to_their_callers() {
    let clause = "pid$target:a.out:third:return, pid$target:a.out:fifth:return, pid$target:a.out:between:return
                  { @[probefunc] = count(); }";
    let traced = Tracer::new(Form::Default)
        .clause(clause)
        .argument("-x")
        .argument("return=address")
        .command(&program("beside.cpp"), "16 2000")
        .run()
        .success();
    let stdout = &traced.finished.stdout;
    assert!(
        stdout.lines().any(|line| line == "OK"),
        "{stdout}{}",
        traced.finished.stderr
    );
    let calls = said(stdout, "calls");
    assert!(said(stdout, "thrown") > calls / 4);
    let rows = table(&traced.results);
    // No exception passes through these functions.
    assert_eq!((rows["third"], rows["fifth"]), (3 * calls, 3 * calls));
}

/// Calls that other threads are making keep their replaced addresses, and are seen when they return.
#[test]
fn exceptions_of_one_thread_leave_the_calls_of_others_alone() {
    let clause = "pid$target:a.out:waiting:return, pid$target:a.out:thrower:return, pid$target:a.out:catcher:return
                  { @[probefunc] = count(); }";
    let traced = Tracer::new(Form::Default)
        .clause(clause)
        .argument("-x")
        .argument("return=address")
        .command(&program("throws.cpp"), "100000 900")
        .run()
        .success();
    let stdout = &traced.finished.stdout;
    assert!(
        stdout.lines().any(|line| line == "OK"),
        "{stdout}{}",
        traced.finished.stderr
    );
    assert_eq!(table(&traced.results)["waiting"], said(stdout, "waited"));
}
