//! Inlined copies of functions as sites: counts, and arguments where debug information tells them.

use std::process::Command;

use nanoprobe_tests::command::run;
use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::{Build, need_program, program};
use nanoprobe_tests::tracer::nanoprobe;

use crate::printed;

live_tests! {
    fn an_entry_fires_at_every_copy(form) {
        for (function, count) in [("add", 4 * 9), ("both", 2 * 9), ("many", 9)] {
            let clause = format!("pid$target:a.out:{function}:entry {{ @[probefunc, probename] = count(); }}");
            let found = printed(form, &program("inlined.c"), "9", &[&clause]);
            let words: Vec<Vec<&str>> = found.iter().map(|line| line.split_whitespace().collect()).collect();
            assert_eq!(words, [[function, "entry", count.to_string().as_str()]], "{found:?}");
        }
    }

    fn arguments_are_where_the_compiler_has_them(form) {
        let found = printed(form, &program("inlined.c"), "2", &[
            r#"pid$target:a.out:add:entry { printf("%d %s %d ", args[0], stringof(args[1]), args[2]); print(args[3]); }"#,
        ]);
        let calls = |round: &str| {
            [format!("{round} one 2 enum way UP"), "100 three -1 enum way DOWN".to_owned(),
             "101 three -1 enum way DOWN".to_owned(), "102 three -1 enum way DOWN".to_owned()]
        };
        assert_eq!(found, [calls("0"), calls("1")].concat());
    }

    fn copies_of_cpp_and_rust_answer_to_their_names(form) {
        let found = printed(form, &program("inlined.cpp"), "6", &[
            "pid$target:a.out:shop::Cart::put:entry { @[probefunc, args[1]] = count(); }",
        ]);
        let words: Vec<Vec<&str>> = found.iter().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(words, [["shop::Cart::put", "7", "6"]], "{found:?}");
        if let Some(path) = need_program("inlined.rs", Build::Rust) {
            let found = printed(form, &path, "6", &["pid$target:a.out:inlined::add:entry { @[probefunc] = sum(arg0); }"]);
            let words: Vec<Vec<&str>> = found.iter().map(|line| line.split_whitespace().collect()).collect();
            // 0 to 5, and 1 to 6.
            assert_eq!(words, [["inlined::add", "36"]], "{found:?}");
        }
    }
}

#[test]
fn arguments_that_a_copy_lacks_are_refused() {
    for (argument, reason) in [(6, "no arguments on the stack"), (7, "%xmm0")] {
        let clause = format!("pid$target:a.out:many:entry {{ trace(args[{argument}]); }}");
        let finished = run(Command::new(nanoprobe())
            .args(["-n", &clause, "-c"])
            .arg(program("inlined.c")));
        assert_ne!(finished.status.code(), Some(0), "{clause}");
        let message = finished.stderr;
        assert!(
            message.contains("[D_ARGS_TYPE]") && message.contains(reason),
            "{clause}: {message}"
        );
    }
}

#[test]
fn globs_and_returns_mean_no_copies() {
    let list = |description: &str| {
        let finished = run(Command::new(nanoprobe())
            .args(["-l", "-n", description, "-c"])
            .arg(program("inlined.c")));
        // The program may also print something itself.
        finished.stdout.lines().filter(|line| line.contains(" pid")).count()
    };
    assert_eq!(list("pid$target:a.out:both:entry"), 2);
    assert_eq!(list("pid$target:a.out:bot?:entry"), 1);
    assert_eq!(list("pid$target::both:entry"), 1);
    assert_eq!(list("pid$target:a.out:both:return"), 1);
}
