//! Names of C++ and Rust: matched and printed either way, in descriptions, stacks and lists.

use std::process::Command;

use nanoprobe_tests::command::{Running, run};
use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::{Build, need_program, program};
use nanoprobe_tests::tracer::{Tracer, nanoprobe};

use crate::printed;

const AREA: &str = "_ZNK6shapes6Circle4areaEi";

/// The output of a clause on the C++ program, with the option.
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
            ("pid$target:a.out:_ZNK6shapes6Circle4areaEi:entry", "shapes::Circle::area"),
            ("pid$target:a.out:*Circle*area*:entry", "shapes::Circle::area"),
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
            ("demangle=never", "*Circle*area*", AREA),
            ("demangle=auto", "*Circle*area*", "shapes::Circle::area"),
        ] {
            let clause = format!("pid$target:a.out:{function}:entry {{ printf(\"%s\\n\", probefunc); }}");
            assert_eq!(with_option(form, option, &clause), [wanted], "{option} {function}");
        }
    }

    /// Only printed names change. The D program still computes with the linker's name, by which it can distinguish
    /// overloaded functions.
    fn probefunc_is_the_linker_s_where_the_program_uses_it(form) {
        let path = program("overloads.cpp");
        let clause = "pid$target:a.out:*price*:entry /probefunc == \"_Z5priced\"/ { trace(strlen(probefunc)); trace(probefunc); }";
        assert_eq!(printed(form, &path, "1", &[clause]), ["9price(double)"]);
        // Two functions with the same name are shown with their parameters. A function with a unique name is shown
        // without them.
        for (description, wanted) in [
            ("pid$target:a.out:*price*:entry", &["price(double) 4", "price(int) 4"][..]),
            ("pid$target:a.out:_Z5pricei:entry", &["price 4"]),
        ] {
            let found = printed(form, &path, "4", &[&format!("{description} {{ @[probefunc] = count(); }}")]);
            let found: Vec<String> = found
                .iter()
                .filter(|line| *line != "OK")
                .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
                .collect();
            assert_eq!(found, wanted, "{description}");
        }
    }

    /// However a description spells a function, its entry and its return have one name.
    fn a_flow_opens_and_closes_with_one_name(form) {
        let entries = "pid$target:a.out:process_order:entry,pid$target:a.out:_Z5pricei:entry";
        let returns = "pid$target:a.out:*price*:return,pid$target:a.out:*process*:return";
        let tracer = Tracer::new(form).argument("-F").clause(&format!("{entries},{returns} {{ }}"));
        let traced = tracer.command(&program("overloads.cpp"), "1").run().complete();
        let flow: Vec<&str> = traced.results.lines().skip(1).filter_map(|line| line.trim().split_once(' ')).map(|(_, flow)| flow.trim()).collect();
        let flow: Vec<&str> = flow.into_iter().filter(|line| !line.is_empty()).collect();
        assert_eq!(flow, ["-> process_order", "-> price", "<- price", "<- price", "<- process_order"], "{}", traced.results);
    }

    /// Programs that read the output get both names.
    fn json_has_the_linker_s_name_and_the_source_s(form) {
        for description in ["pid$target:a.out:process_order:entry", "pid$target:a.out:*process*:entry"] {
            let clause = format!("{description} {{ @[probefunc] = count(); printf(\"%s\", probefunc); }}");
            let tracer = Tracer::new(form).argument("--format").argument("json").clause(&clause);
            let traced = tracer.command(&program("overloads.cpp"), "1").run().complete();
            let both = r#""function":"_Z13process_orderP5Order","demangled":"process_order","name":"entry""#;
            assert!(traced.results.contains(both), "{}", traced.results);
            assert!(traced.results.contains(r#""text":"process_order""#), "{}", traced.results);
        }
        let tracer = Tracer::new(form).argument("--format").argument("json").clause("pid$target:a.out:main:entry { }");
        let traced = tracer.command(&program("overloads.cpp"), "1").run().complete();
        assert!(traced.results.contains(r#""function":"main","name":"entry""#), "{}", traced.results);
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

/// All tools that name functions show the source's names, in whatever form the function was given.
#[test]
fn tools_show_the_source_s_names() {
    let path = program("overloads.cpp");
    for (tool, arguments) in [
        ("funccount", &["a.out:*process*"][..]),
        ("funclatency", &["a.out:*process*"]),
        ("funcslower", &["a.out:*process*", "0"]),
        ("funcgraph", &["a.out:*process*"]),
        ("argcount", &["a.out:*process*"]),
        ("argdist", &["a.out:*process*"]),
        ("stackcount", &["a.out:*process*"]),
    ] {
        let mut command = Command::new(nanoprobe());
        command
            .args(["tool", tool, "-c"])
            .arg(format!("{} 3", path.display()))
            .args(arguments);
        let said = run(&mut command).success().stdout;
        assert!(said.contains("process_order") && !said.contains("_Z"), "{tool}: {said}");
    }
}

/// `cost` shows functions by their names in the source.
#[test]
fn costs_have_the_source_s_names() {
    let path = program("overloads.cpp");
    let busy = Running::start(Command::new(&path).arg("2000000000"));
    let mut command = Command::new(nanoprobe());
    command.args(["cost", "-n", "pid$target:a.out:*process*:entry { @ = count(); }", "-p"]);
    command.arg(busy.pid().to_string());
    let said = run(&mut command).success().stdout;
    assert!(
        said.contains(":overloads:process_order:entry") && !said.contains("_Z"),
        "{said}"
    );
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
