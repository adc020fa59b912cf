//! Names of C++ and Rust: matched and printed either way, in descriptions, stacks and lists.

use std::process::Command;

use nanoprobe_tests::command::run;
use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::{Build, need_program, program};
use nanoprobe_tests::tracer::{Tracer, nanoprobe};

use crate::printed;

const AREA: &str = "_ZNK6shapes6Circle4areaEi";

/// What a clause prints of the C++ program, with the option.
fn with_option(form: nanoprobe_tests::tracer::Form, option: &str, clause: &str) -> Vec<String> {
    let tracer = Tracer::new(form)
        .argument("-q")
        .argument("-x")
        .argument(option)
        .clause(clause);
    let traced = tracer.command(&program("typed.cpp"), "1").run().complete();
    let lines = traced.results.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.map(str::to_owned).collect()
}

/// The function column of a list of probes.
fn listed(arguments: &[&str]) -> Vec<String> {
    let finished = run(Command::new(nanoprobe())
        .args(arguments)
        .arg("-c")
        .arg(program("typed.cpp")));
    let lines = finished.stdout.lines().filter(|line| line.contains(" pid"));
    let functions = lines.filter_map(|line| line.split_whitespace().nth(3));
    functions.map(str::to_owned).collect()
}

live_tests! {
    fn a_function_answers_to_either_name(form) {
        for (description, shown) in [
            ("pid$target:a.out:shapes::Circle::area:entry", "shapes::Circle::area"),
            ("pid$target:a.out:shapes::C*::area:entry", "shapes::Circle::area"),
            ("pid$target::shapes::Circle::area:entry", "shapes::Circle::area"),
            ("pid$target:a.out:shapes::Circle::area?int??const:entry", "shapes::Circle::area(int) const"),
            ("pid$target:a.out:*Circle??area:entry", "shapes::Circle::area"),
            ("pid$target:a.out:_ZNK6shapes6Circle4areaEi:entry", AREA),
            ("pid$target:a.out:*Circle*area*:entry", AREA),
        ] {
            let found = printed(form, &program("typed.cpp"), "3", &[&format!("{description} {{ @[probefunc] = count(); }}")]);
            let fields: Vec<Vec<&str>> = found.iter().map(|line| line.split_whitespace().collect()).collect();
            let (count, name) = fields[0].split_last().expect("a line");
            assert_eq!((name.join(" ").as_str(), *count), (shown, "3"), "{description}: {found:?}");
            assert_eq!(found.len(), 1, "{description}: {found:?}");
        }
    }

    fn stacks_and_addresses_have_the_source_s_names(form) {
        let clause = "pid$target:a.out:shapes::Circle::area:entry { ustack(2); printf(\"%A\\n\", uregs[R_RIP]); usym(ucaller); }";
        let plain = ["typed`shapes::Circle::area", "typed`shapes::measure+0x", "typed`shapes::Circle::area", "typed`shapes::measure"];
        let mangled = [AREA, "_ZN6shapes7measure", AREA, "_ZN6shapes7measure"];
        for (option, wanted) in [("demangle=auto", plain), ("demangle=always", plain), ("demangle=never", mangled)] {
            let found = with_option(form, option, clause);
            assert_eq!(found.len(), wanted.len(), "{found:?}");
            for (line, part) in found.iter().zip(wanted) {
                assert!(line.contains(part), "{option}: {found:?}");
            }
        }
    }

    fn the_probe_s_function_is_shown_as_it_is_asked_for(form) {
        for (option, function, wanted) in [
            ("demangle=always", "*Circle*area*", "shapes::Circle::area"),
            ("demangle=always", AREA, "shapes::Circle::area"),
            ("demangle=never", "shapes::Circle::area", AREA),
            ("demangle=auto", "*Circle*area*", AREA),
        ] {
            let clause = format!("pid$target:a.out:{function}:entry {{ printf(\"%s\\n\", probefunc); }}");
            assert_eq!(with_option(form, option, &clause), [wanted], "{option} {function}");
        }
    }

    fn rust_s_names_have_no_hash(form) {
        let Some(path) = need_program("typed.rs", Build::Rust) else { return };
        let found = printed(form, &path, "2", &["pid$target:a.out:typed::draw:entry { @[probefunc] = count(); ustack(1); }"]);
        let wanted = ["typed`typed::draw", "typed`typed::draw", "typed::draw 2"];
        let found: Vec<String> =
            found.iter().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(found, wanted);
    }
}

#[test]
fn lists_have_either_name() {
    let pattern = "pid$target:a.out:*Circle*area*:entry";
    assert_eq!(listed(&["-l", "-n", pattern]), [AREA]);
    assert_eq!(
        listed(&["-l", "-x", "demangle=always", "-n", pattern]),
        ["shapes::Circle::area"]
    );
    assert_eq!(
        listed(&["-l", "-n", "pid$target:a.out:shapes::Circle::area:entry"]),
        ["shapes::Circle::area"]
    );
}
