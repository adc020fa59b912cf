//! Lines of the source as sites: in all copies of their code, with exact counts.

use std::process::Command;

use nanoprobe_tests::command::run;
use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::{Build, need_program, program, sources, try_program};
use nanoprobe_tests::tracer::{Form, Tracer, nanoprobe};

use crate::printed;

/// The number of the line of a program's source that has this text.
fn line_of(source: &str, text: &str) -> usize {
    let source = std::fs::read_to_string(sources().join(source)).expect("the source");
    let found = source.lines().position(|line| line.contains(text));
    1 + found.expect("the line")
}

/// How often a line's probe fires in each function, as `function count`.
fn counts(form: Form, source: &str, build: Build, text: &str, rounds: &str) -> Vec<String> {
    let Some(path) = need_program(source, build) else {
        return Vec::new();
    };
    let line = line_of(source, text);
    let clause = format!("pid$target:a.out:{source}@{line}: {{ @[probefunc, probename] = count(); }}");
    let name = format!("{source}@{line}");
    let mut found: Vec<String> = printed(form, &path, rounds, &[&clause])
        .iter()
        .map(|line| {
            line.split_whitespace()
                .filter(|word| *word != name)
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect();
    found.sort_unstable();
    found
}

/// The command's message for a description that matches nothing.
fn refused(description: &str) -> String {
    let finished = run(Command::new(nanoprobe())
        .args(["-n", description, "-c"])
        .arg(program("inlined.c")));
    assert_ne!(finished.status.code(), Some(0), "{description}");
    finished.stderr
}

live_tests! {
    fn a_line_fires_in_every_copy_of_its_code(form) {
        // In `once`, three times in the loop of `thrice`.
        assert_eq!(counts(form, "inlined.c", Build::Usual, "line: add", "7"), ["once 7", "thrice 21"]);
        // The function is inlined in `plain`, and called by its address elsewhere.
        assert_eq!(counts(form, "inlined.c", Build::Usual, "line: both", "7"), ["both 7", "plain 7"]);
    }

    fn a_line_is_found_without_the_file_s_own_symbols(form) {
        assert_eq!(counts(form, "inlined.c", Build::FixedAddress, "line: add", "7"), ["once 7", "thrice 21"]);
        assert_eq!(counts(form, "inlined.c", Build::Static, "line: both", "7"), ["both 7", "plain 7"]);
    }

    fn lines_of_cpp_and_rust_have_all_their_instances(form) {
        // The template has two instances.
        assert_eq!(counts(form, "inlined.cpp", Build::Usual, "line: price", "6"), ["buy 12"]);
        if let Some(path) = need_program("inlined.rs", Build::Rust) {
            let line = line_of("inlined.rs", "before + add");
            let clause = format!("pid$target:a.out:inlined::twice:inlined.rs@{line} {{ @ = count(); }}");
            let found = printed(form, &path, "6", &[&clause]);
            // The two sums begin in different places; between them is inlined code of other lines.
            assert_eq!(found.iter().map(|line| line.trim()).collect::<Vec<_>>(), ["12"]);
        }
    }

    fn a_line_of_a_library_that_comes_and_goes_fires_each_time(form) {
        let plugin = try_program("plugin.c", Build::Library).expect("a shared library");
        let line = line_of("plugin.c", "return value * 3");
        let clause = format!("pid$target::plugin.c@{line}: {{ @ = count(); }}");
        let tracer = Tracer::new(form).argument("-Z").argument("-q").clause(&clause);
        let arguments = format!("{} 20 50", plugin.display());
        let traced = tracer.command(&program("dlopen.c"), &arguments).run().complete();
        assert_eq!(traced.results.trim(), "1000");
    }
}

#[test]
fn a_line_without_code_is_refused_with_the_nearest_that_have_some() {
    let line = line_of("inlined.c", "no code on this line");
    let message = refused(&format!("pid$target:a.out:inlined.c@{line}: {{ trace(1); }}"));
    assert!(message.contains("[D_PROC_OFF]"), "{message}");
    let nearest = format!("the nearest lines with code are {} and {}", line - 2, line + 1);
    assert!(message.contains(&nearest), "{message}");

    let message = refused("pid$target:a.out:nobody.c@12: { trace(1); }");
    assert!(
        message.contains("[D_PROC_LINE]") && message.contains("has no code from such a file"),
        "{message}"
    );
}

#[test]
fn lines_are_listed_as_they_can_be_written() {
    let line = line_of("inlined.c", "line: add");
    let list = |description: &str| {
        let finished = run(Command::new(nanoprobe())
            .args(["-l", "-n", description, "-c"])
            .arg(program("inlined.c")));
        let fields = |line: &str| {
            line.split_whitespace()
                .skip(3)
                .map(str::to_owned)
                .collect::<Vec<_>>()
                .join(" ")
        };
        finished
            .stdout
            .lines()
            .filter(|line| line.contains(" pid"))
            .map(fields)
            .collect::<Vec<_>>()
    };
    let place = format!("inlined.c@{line}");
    let all = [format!("once {place}"), format!("thrice {place}")];
    assert_eq!(list(&format!("pid$target:a.out:{place}:")), all);
    assert_eq!(list(&format!("pid$target:a.out:t*:{place}")), all[1..]);
}

#[test]
fn a_line_has_no_arguments() {
    let line = line_of("inlined.c", "line: add");
    let message = refused(&format!("pid$target:a.out:inlined.c@{line}: {{ trace(args[0]); }}"));
    assert!(message.contains("[D_ARGS_NONE]"), "{message}");
}
