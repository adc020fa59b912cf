//! A program that turns Syscall User Dispatch on while it is traced sees only calls of its own.

use std::process::Command;

use nanoprobe_tests::command::run;
use nanoprobe_tests::left_out::left_out;
use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::{said, table};

use crate::{traced_from_start, traced_when_attached};

live_tests! {
    fn a_program_that_dispatches_calls_is_left(form) {
        let program = program("dispatched.c");
        let alone = run(Command::new(&program).arg("5"));
        if said(&alone.stdout, "turned") == 0 {
            return left_out("dispatched", "the kernel has no Syscall User Dispatch");
        }
        let rounds = form.scale(2_000, 50);
        let alone = run(Command::new(&program).arg(rounds.to_string())).stdout;
        let clause = "#pragma D option quiet
            pid$target:a.out:before:entry,pid$target:a.out:after:entry { @[probefunc] = sum(1); }
            pid$target::pthread_sigmask:return { self->last = arg1; }
            syscall:::entry { @calls = count(); self->call = probefunc; }
            END { printa(\"%s %@d\\n\", @); }";
        for attached in [false, true] {
            let (stdout, traced) = if attached {
                let (target, traced) = traced_when_attached(form, clause, &program, &rounds.to_string());
                (target.stdout, traced)
            } else {
                let traced = traced_from_start(form, clause, &program, &rounds.to_string());
                (traced.finished.stdout.clone(), traced)
            };
            // The checksum, and the signals that it has seen.
            let own = |text: &str| text.lines().map(str::to_owned).filter(|line| alone.contains(line)).collect::<Vec<_>>();
            assert_eq!(own(&stdout), own(&alone), "{stdout}");
            let told = &traced.finished.stderr;
            assert_eq!(told.matches("turns Syscall User Dispatch on").count(), 1, "{told}");
            let rows = table(&traced.results.lines().map(|line| format!("  {line}\n")).collect::<String>());
            assert_eq!(rows["before"], said(&stdout, "before"), "{rows:?}");
            assert!(!rows.contains_key("after"), "{rows:?}");
        }
    }
}
