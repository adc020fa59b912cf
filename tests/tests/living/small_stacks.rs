//! The stack that handlers use below a probed site. The figures are those of docs/design/stacks.md.

use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::{Build, need_program};
use nanoprobe_tests::results::said;
use nanoprobe_tests::tracer::{Form, Tracer, assert_nothing_lost};

use crate::traced_when_attached;

/// On Go's stacks, by jump: 16 bytes that Go may use and three words.
const SMALL: i64 = 40;
/// On Go's stacks, for a hit that must find the thread's context: three words more.
const SMALL_FIRST: i64 = 64;
/// On other stacks, by jump.
const ORDINARY: i64 = 768;
/// On other stacks, by trap, in addition to the signal's frame.
const ORDINARY_TRAP: i64 = 2048;

/// Kinds of clauses.
const CLAUSES: [(&str, &str); 15] = [
    ("count", "pid$target:a.out:painted:entry { @ = count(); }"),
    ("record", "pid$target:a.out:painted:entry { trace(arg1); }"),
    ("string", "pid$target:a.out:painted:entry { trace(copyinstr(arg0)); }"),
    ("ustack", "pid$target:a.out:painted:entry { @[ustack()] = count(); }"),
    ("recorded ustack", "pid$target:a.out:painted:entry { ustack(); }"),
    (
        "keys",
        "pid$target:a.out:painted:entry { @[arg1, copyinstr(arg0), probefunc] = sum(arg1); }",
    ),
    (
        "quantize",
        "pid$target:a.out:painted:entry { @[arg1 & 3] = quantize(arg1); @l = lquantize(arg1, 0, 50, 5); }",
    ),
    (
        "copyin",
        "pid$target:a.out:painted:entry { this->p = (char *)copyin(arg0, 4); @ = sum(this->p[1]); }",
    ),
    (
        "speculation",
        "pid$target:a.out:painted:entry { self->s = speculation(); speculate(self->s); trace(arg1); }
                     pid$target:a.out:painted:return /self->s/ { commit(self->s); self->s = 0; }",
    ),
    (
        "printf",
        "pid$target:a.out:painted:entry { printf(\"%s %d %s\", copyinstr(arg0), arg1, probefunc); }",
    ),
    (
        "associative array",
        "pid$target:a.out:painted:entry { n[arg1 & 7, copyinstr(arg0)]++; }",
    ),
    (
        "latency",
        "pid$target:a.out:painted:entry { self->t = timestamp; }
                 pid$target:a.out:painted:return /self->t/ { @ = avg(timestamp - self->t); self->t = 0; }",
    ),
    ("return", "pid$target:a.out:painted:return { @[arg1] = count(); }"),
    (
        "registers",
        "pid$target:a.out:painted:entry { trace(uregs[R_RSP]); trace(ucaller); }",
    ),
    (
        "strings",
        "pid$target:a.out:painted:entry { trace(strjoin(probefunc, substr(copyinstr(arg0), 1, 2))); trace(strtok(\"a b\", \" \")); }",
    ),
];

live_tests! {
    fn handlers_take_little_of_an_ordinary_stack(form) {
        let Some(path) = need_program("paint.c", Build::Usual) else { return };
        for (kind, clause) in CLAUSES {
            let traced = Tracer::new(form).clause(clause).command(&path, "").run().complete();
            assert_nothing_lost(&traced.finished.stderr);
            let stdout = &traced.finished.stdout;
            let most = said(stdout, "most").max(said(stdout, "first"));
            let limit = match form {
                Form::Default => ORDINARY,
                Form::Trap => said(stdout, "signal") + ORDINARY_TRAP,
            };
            assert!(most <= limit, "{kind}: {most} bytes");
        }
    }

    /// By a trap the signal's frame is on the alternate stack, which Go's threads have.
    fn handlers_take_a_few_words_of_a_small_stack(form) {
        let Some(path) = need_program("paint.c", Build::AsGo) else { return };
        for (kind, clause) in CLAUSES {
            let (target, traced) = traced_when_attached(form, clause, &path, "alternate");
            assert_nothing_lost(&traced.finished.stderr);
            let (first, most) = (said(&target.stdout, "first"), said(&target.stdout, "most"));
            assert!(first <= SMALL_FIRST, "{kind}: {first} bytes at the first hit");
            assert!(most <= SMALL, "{kind}: {most} bytes");
        }
    }

    /// At the end of a chain of functions that do not check the stack, with signals all the time.
    fn a_leaf_at_the_end_of_a_goroutines_stack_survives_its_handlers(form) {
        for build in [Build::Go, Build::GoPie] {
            let Some(path) = need_program("goleaf.go", build) else { continue };
            let clause = "pid$target:a.out:main.leaf:entry { @[ustack(5)] = count(); }
                          pid$target:a.out:main.leaf:return { @returns[strjoin(probefunc, probename)] = count(); }";
            let (target, traced) = traced_when_attached(form, clause, &path, "");
            let calls = said(&target.stdout, "calls").to_string();
            assert_nothing_lost(&traced.finished.stderr);
            let rows = traced.results.lines().filter(|line| line.split_whitespace().last() == Some(&calls));
            assert_eq!(rows.count(), 2, "{calls} calls: {}", traced.results);
        }
    }
}
