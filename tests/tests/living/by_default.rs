//! `-c` without `-x follow`: everything that the command starts is traced, and a command that starts nothing is traced
//! as if it were alone.

use std::collections::BTreeMap;
use std::path::Path;

use nanoprobe_tests::program::program;
use nanoprobe_tests::results::{said_by_processes, table};
use nanoprobe_tests::tracer::{Form, Traced, Tracer, assert_nothing_lost};

const BY_PROCESS: &str = "pid$target:a.out:called:entry { @[pid] = count(); }";

fn with(options: &[&str]) -> Tracer {
    let options = options.iter();
    options.fold(Tracer::new(Form::Default), |tracer, option| tracer.argument(*option))
}

/// A shell's script.
fn script(folder: &Path, text: &str) -> String {
    let path = folder.join("script");
    std::fs::write(
        &path,
        text.replace("EXECUTES", &program("executes.c").display().to_string()),
    )
    .expect("a script");
    path.display().to_string()
}

fn of_shell(tracer: Tracer, script: &str) -> Traced {
    tracer.command(Path::new("/bin/sh"), script).run()
}

#[test]
fn all_that_a_command_starts_is_traced() {
    for how in ["fork", "vfork", "spawn"] {
        let traced = with(&[])
            .clause(BY_PROCESS)
            .command(&program("executes.c"), &format!("{how} 5 100"));
        let traced = traced.run().success();
        let said = said_by_processes(&traced.finished.stdout);
        assert_eq!((said.len(), said.values().sum::<i64>()), (5, 500));
        assert_eq!(table(&traced.results), said, "{}", traced.finished.stderr);
        assert_nothing_lost(&traced.finished.stderr);
    }
    // Nothing that is executed.
    let traced = with(&["-x", "follow=fork"])
        .clause(BY_PROCESS)
        .clause("END { printf(\"end\"); }");
    let traced = traced.command(&program("executes.c"), "fork 5 100").run().success();
    assert_eq!(table(&traced.results), BTreeMap::new(), "{}", traced.results);
}

/// The shell has no such function. That is a mistake, unless another program was meant.
#[test]
fn a_description_that_the_command_lacks_is_refused_without_z() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = script(folder.path(), "EXECUTES call 30\nEXECUTES call 12\n");
    let clause = "pid$target:executes:called:entry { @[pid] = count(); }";
    let refused = of_shell(with(&[]).clause(clause), &script);
    assert_eq!(refused.finished.code(), 1, "{}", refused.finished.stderr);
    assert!(
        refused.finished.stderr.contains("with -Z"),
        "{}",
        refused.finished.stderr
    );
    assert_eq!(refused.finished.stdout, "", "the command has run");
    for options in [&["-Z"][..], &["-x", "follow=all"], &["-x", "follow=exec"]] {
        let traced = of_shell(with(options).clause(clause), &script).success();
        let said = said_by_processes(&traced.finished.stdout);
        assert_eq!(said.values().sum::<i64>(), 42);
        assert_eq!(table(&traced.results), said, "{options:?}: {}", traced.finished.stderr);
    }
    // A mistake in one of two descriptions is told at the end if no program has it.
    let mistaken = "pid$target:executes:caled:entry { @[pid] = count(); }";
    let traced = of_shell(with(&["-Z"]).clause(clause).clause(mistaken), &script).success();
    let told = "pid$target:executes:caled:entry has matched no probe in any program";
    let told = told.replace("$target", "");
    let (start, end) = told.split_once(':').expect("a description");
    assert!(
        traced
            .finished
            .stderr
            .lines()
            .any(|line| line.contains(start) && line.ends_with(end)),
        "{}",
        traced.finished.stderr
    );
}

/// The results of one process do not depend on whether others would have been traced.
#[test]
fn one_process_is_printed_as_if_no_other_could_come() {
    let clause =
        "pid$target:a.out:called:entry { @stacks[ustack(1)] = count(); @functions[usym(uregs[R_RIP])] = count(); }";
    let results = |options: &[&str], arguments: &str| {
        let traced = with(options).argument("--json").clause(clause);
        traced.command(&program("member.c"), arguments).run().success().results
    };
    let fields = |json: &str| {
        let lines = json.lines().filter(|line| line.contains("`called"));
        // Numbers of processes and addresses differ in each run.
        let text: String = lines
            .flat_map(str::chars)
            .filter(|character| !character.is_ascii_digit())
            .collect();
        text
    };
    let (alone, by_default) = (results(&["-x", "follow=no"], "call 3"), results(&[], "call 3"));
    assert!(alone.contains("\"address\":"), "{alone}");
    assert_eq!(fields(&by_default), fields(&alone));
}

/// The variable has another address in each process, and another value.
#[test]
fn variables_are_those_of_the_program_that_was_executed() {
    let clause = "pid$target:a.out:called:entry { @[`times_left] = count(); }";
    for options in [&[][..], &["-x", "follow=exec"]] {
        let traced = with(options)
            .clause(clause)
            .command(&program("executes.c"), "self 3 10")
            .run()
            .success();
        let expected = [("0", 10), ("1", 10), ("2", 10), ("3", 10)];
        let expected: BTreeMap<String, i64> = expected.map(|(left, calls)| (left.to_owned(), calls)).into();
        assert_eq!(table(&traced.results), expected, "{}", traced.finished.stderr);
    }
}

/// A program that lacks the variable is left alone, which is told once.
#[test]
fn programs_without_the_types_of_the_text_are_left_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = script(folder.path(), "/bin/true\n/bin/true\nEXECUTES call 12\n");
    let arguments = format!("{} {script}", Path::new("/bin/sh").display());
    let clause = "pid$target:a.out:called:entry { @[`times_left] = count(); }";
    let run = |options: &[&str]| {
        let traced = with(options).clause(clause).argument("-Z");
        let traced = traced
            .command(&program("executes.c"), &format!("then {arguments}"))
            .run()
            .success();
        (table(&traced.results), traced.finished.stderr)
    };
    let once = BTreeMap::from([("0".to_owned(), 12)]);
    for (options, times) in [(&[][..], 1), (&["-x", "follow=all"], 3)] {
        let (counted, stderr) = run(options);
        assert_eq!(counted, once, "{stderr}");
        let told = stderr
            .lines()
            .filter(|line| line.contains("which is not traced") && line.contains("times_left"));
        assert_eq!(told.count(), times, "{stderr}");
    }
}

/// Each program counts in a variable of its own. Forked processes have a common one.
#[test]
fn global_variables_of_programs_are_told() {
    let clauses = [
        "int n; pid$target:a.out:called:entry { n++; }",
        "END { printf(\"%d\", n); }",
    ];
    let run = |program_name: &str, arguments: &str| {
        let tracer = clauses
            .iter()
            .fold(with(&["-q"]), |tracer, clause| tracer.clause(clause));
        let traced = tracer.command(&program(program_name), arguments).run().success();
        let is_told = traced.finished.stderr.contains("are each executed program's own");
        (traced.results.trim().to_owned(), is_told)
    };
    // The first program calls 10 times, and executes itself.
    assert_eq!(run("executes.c", "self 2 10"), ("10".to_owned(), true));
    assert_eq!(run("tree.c", "fork 1 10"), ("11".to_owned(), false));
}

/// Ticks are the run's, whatever becomes of its first process.
#[test]
fn ticks_go_on_when_the_command_executes_another_program() {
    let traced = with(&["-q"]).clause("tick-50ms { n++; } tick-50ms / n == 6 / { exit(3); }");
    let traced = traced.argument("-c").argument("sh -c 'exec sleep 1000'").run();
    assert_eq!(traced.finished.code(), 3, "{}", traced.finished.stderr);
}
