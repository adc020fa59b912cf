//! The command without a target. (Being in this crate, these tests also have the command built
//! before the whole-program tests run.)

use std::path::Path;
use std::process::{Command, Output};

use nanoprobe_tests::in_time::{EndsInTime, InTime};
use nanoprobe_tests::left_out::left_out;
use nanoprobe_tests::program::copy_program;

fn nanoprobe(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_nanoprobe"))
        .args(arguments)
        .output_in_time()
        .expect("running nanoprobe")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_program_without_a_target_prints_and_exits_with_its_status() {
    let output = nanoprobe(&[
        "-q",
        "-n",
        "BEGIN { printf(\"%d %s\\n\", $1 * 2, $$2); exit(7); }",
        "21",
        "x",
    ]);
    assert_eq!(text(&output.stdout), "42 x\n\n");
    assert_eq!(text(&output.stderr), "");
    assert_eq!(output.status.code(), Some(7));
}

/// Options may come after arguments, as in `script.d 5 -p PID`; after `--` there are only arguments.
#[test]
fn options_may_follow_arguments() {
    let program = "BEGIN { printf(\"%d %d\\n\", $1, $2); exit(0); }";
    for arguments in [["-n", program, "5", "-q", "6"], ["5", "-qn", program, "--", "6"]] {
        let output = nanoprobe(&arguments);
        assert_eq!(
            (text(&output.stdout), text(&output.stderr)),
            ("5 6\n\n".to_owned(), String::new())
        );
    }
    assert_eq!(text(&nanoprobe(&["-qn", program, "--", "5", "-6"]).stdout), "5 -6\n\n");
}

/// END, and ERROR for failures there, run after an `exit()`; the last status that they set counts.
#[test]
fn the_status_of_end_and_of_error_counts() {
    for (program, status) in [
        ("BEGIN { exit(1); } BEGIN { exit(2); }", 1),
        ("BEGIN { exit(1); } END { exit(2); }", 2),
        ("BEGIN { exit(0); } END { trace(*(int *)8); } ERROR { exit(3); }", 3),
        ("BEGIN { trace(*(int *)8); } BEGIN { exit(0); } ERROR { exit(3); }", 3),
    ] {
        assert_eq!(
            nanoprobe(&["-q", "-n", program]).status.code(),
            Some(status),
            "{program}"
        );
    }
}

/// A container's shell has its session and its group outside the container: the kernel calls them 0 there.
#[test]
fn a_group_and_a_session_outside_the_pid_namespace_are_0() {
    let inside = |arguments: &[&str]| {
        Command::new("unshare")
            .args(["--map-root-user", "--pid", "--fork", "--kill-child"])
            .args(arguments)
            .output_in_time()
    };
    match inside(&["true"]) {
        Ok(output) if output.status.success() => {}
        _ => return left_out("$pgid and $sid in a pid namespace", "no pid namespace can be made here"),
    }
    let program = "BEGIN { printf(\"%d %d %d\\n\", $ppid, $pgid, $sid); exit(0); }";
    let output = inside(&[env!("CARGO_BIN_EXE_nanoprobe"), "-q", "-n", program]).expect("running unshare");
    assert_eq!(
        (text(&output.stdout), text(&output.stderr)),
        ("0 0 0\n\n".into(), String::new())
    );
}

/// In DTrace's suite keys by `vtimestamp` differ in each firing; in the tracer's clauses they once
/// were all 0.
#[test]
fn vtimestamp_in_the_tracers_clauses_is_the_tracers() {
    let program =
        "BEGIN { first = vtimestamp; } BEGIN { printf(\"%d\\n\", first > 0 && vtimestamp >= first); exit(0); }";
    let output = nanoprobe(&["-q", "-n", program]);
    assert_eq!(
        (text(&output.stdout), text(&output.stderr)),
        ("1\n\n".into(), String::new())
    );
}

/// If the terminal cannot show drawings, an error is one line in DTrace's words.
#[test]
fn a_mistake_is_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("script.d");
    std::fs::write(&script, "BEGIN\n{\n\ttrace(nothing);\n}\n").expect("a script");
    let path = script.to_string_lossy().into_owned();
    let unknown = "failed to resolve nothing: Unknown variable name";
    for (arguments, right) in [
        (
            ["-n", "BEGIN { trace(nothing); }"],
            format!("invalid probe specifier BEGIN {{ trace(nothing); }}: [D_IDENT_UNDEF] in action list: {unknown}"),
        ),
        (
            ["-n", "BEGIN /nothing/ { }"],
            format!("invalid probe specifier BEGIN /nothing/ {{ }}: [D_IDENT_UNDEF] in predicate: {unknown}"),
        ),
        (
            ["-s", &path],
            format!("failed to compile script {path}: [D_IDENT_UNDEF] line 3: {unknown}"),
        ),
        (
            ["-n", "BEGIN { strlen((char)1); }"],
            "invalid probe specifier BEGIN { strlen((char)1); }: [D_PROTO_ARG] in action list: strlen( ) argument #1 is \
             incompatible with prototype: expected string, found char"
                .to_owned(),
        ),
    ] {
        let output = nanoprobe(&arguments);
        assert_eq!(text(&output.stderr), format!("nanoprobe: {right}\n"));
        assert_eq!(output.status.code(), Some(1));
    }
}

/// Missing probes and types are reported whatever else is wrong with the clause. A text cannot define a type of a
/// module.
#[test]
fn missing_probes_and_types_are_reported_first() {
    for (program, right) in [
        (
            "nosuch:::x { trace(args[0]); }",
            "[D_PDESC_ZERO] probe description nosuch:::x does not match any probes",
        ),
        (
            "struct foo`bar { int a; }; BEGIN { exit(0); }",
            "[D_DECL_SCOPE] D scoping operator may not be used in a type name",
        ),
        (
            "enum foo`bar { RED }; BEGIN { exit(0); }",
            "[D_DECL_SCOPE] D scoping operator may not be used in a type name",
        ),
    ] {
        let output = nanoprobe(&["-q", "-n", program]);
        assert!(
            text(&output.stderr).contains(right),
            "{program}: {}",
            text(&output.stderr)
        );
        assert_eq!(output.status.code(), Some(1), "{program}");
    }
}

/// A library is not a program, so its probes are not enabled.
#[test]
fn libraries_match_no_probes() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("a.d"), "inline int FOO = 3;\n").expect("a library");
    let path = folder.path().to_string_lossy().into_owned();
    let program = "BEGIN { printf(\"%d\", FOO); exit(0); }";
    let output = nanoprobe(&["-L", &path, "-n", program]);
    assert_eq!(
        text(&output.stderr),
        "nanoprobe: description 'BEGIN ' matched 1 probe\n"
    );
    std::fs::write(folder.path().join("b.d"), "inline int BAR[int x] = nofunc(x);\n").expect("a library");
    let output = nanoprobe(&["-q", "-L", &path, "-n", program]);
    assert!(
        text(&output.stderr).contains("[D_FUNC_UNDEF]"),
        "{}",
        text(&output.stderr)
    );
    assert_eq!(output.status.code(), Some(1));
}

/// Probes are listed without a rate, and by ranges of numbers.
#[test]
fn listings_of_the_tracers_probes() {
    let names = |arguments: &[&str]| -> Vec<String> {
        let listed = text(&nanoprobe(arguments).stdout);
        let lines = listed.lines().skip(1);
        lines
            .filter_map(|line| line.split_whitespace().last())
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(names(&["-l", "-i", "1-3"]), ["BEGIN", "END", "ERROR"]);
    assert_eq!(names(&["-l", "-i", "2-3"]), ["END", "ERROR"]);
    let profile = names(&["-l", "-n", "profile:::"]);
    assert_eq!(profile.len(), 13, "{profile:?}");
    assert_eq!((&*profile[0], &*profile[12]), ("profile-97", "tick-5000"));
    assert_eq!(
        names(&["-l", "-n", "profile:::tick-1*"]),
        ["tick-1", "tick-10", "tick-100", "tick-1000"]
    );
    let both = nanoprobe(&["-q", "-i", "1-2 { printf(\"%s\", probename); exit(0); }"]);
    assert_eq!(text(&both.stdout), "BEGINEND\n");
}

#[test]
fn a_wrong_command_line_has_another_status_than_a_failure() {
    assert_eq!(nanoprobe(&["-K"]).status.code(), Some(2));
    assert_eq!(nanoprobe(&[]).status.code(), Some(2));
    assert_eq!(nanoprobe(&["--help"]).status.code(), Some(0));
    assert_eq!(
        nanoprobe(&["-p", "1", "-c", "true", "-n", "BEGIN"]).status.code(),
        Some(2)
    );
}

#[test]
fn a_provider_that_is_not_there_is_named() {
    let output = nanoprobe(&["-n", "pid$target:::entry"]);
    assert!(
        text(&output.stderr).contains("D_MACRO_UNDEF"),
        "{}",
        text(&output.stderr)
    );
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn arguments_are_there_and_used() {
    let error = |arguments: &[&str]| {
        let output = nanoprobe(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        text(&output.stderr)
    };
    let program = "BEGIN { printf(\"[%d %s %s]\\n\", $1, $$2, $$0); exit(0); }";
    let inline = nanoprobe(&["-q", "-n", program, "1", "2"]);
    assert_eq!(text(&inline.stdout), "[1 2 nanoprobe]\n\n");
    assert!(error(&["-q", "-n", program, "1"]).contains("[D_MACRO_UNDEF] macro argument $2 is not defined"));
    let unused = error(&["-q", "-n", program, "1", "2", "more"]);
    assert!(
        unused.contains("[D_MACRO_UNUSED] extraneous argument 'more' ($3 is not used)"),
        "{unused}"
    );
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("script.d");
    std::fs::write(&script, program).expect("a script");
    let path = script.to_string_lossy().into_owned();
    for (arguments, right) in [
        (
            &["-qs", &path, "7", "two words"][..],
            format!("[7 two words {path}]\n\n"),
        ),
        (&["-q", "-x", "defaultargs", "-s", &path], format!("[0  {path}]\n\n")),
        (
            &["-q", "-x", "argref", "-s", &path, "1", "2", "3"],
            format!("[1 2 {path}]\n\n"),
        ),
    ] {
        let output = nanoprobe(arguments);
        assert_eq!((text(&output.stdout), text(&output.stderr)), (right, String::new()));
        assert_eq!(output.status.code(), Some(0));
    }
}

#[test]
fn an_empty_program_is_an_error() {
    let refused = nanoprobe(&["-n", "/* nothing */"]);
    assert!(text(&refused.stderr).contains("[D_EMPTY] empty D program translation unit"));
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(
        nanoprobe(&["-x", "empty", "-e", "-n", "/* nothing */"]).status.code(),
        Some(0)
    );
    // The program compiles, but it would wait for ever.
    let endless = nanoprobe(&["-x", "empty", "-n", "int x;"]);
    let expected = "nanoprobe: description 'int x;' matched 0 probes\nnanoprobe: no probes matched\n";
    assert_eq!(
        (text(&endless.stderr), endless.status.code()),
        (expected.into(), Some(1))
    );
}

#[test]
fn drops_are_reported_by_kind_and_by_tag() {
    let mut program = String::from("BEGIN { s = speculation(); t = speculation(); ");
    (0..500).for_each(|key| program.push_str(&format!("a[{key}] = 1; ")));
    program.push_str("} BEGIN { speculate(s); printf(\"a long text that takes room\"); } BEGIN { exit(0); }");
    let told = |options: &[&str]| {
        let arguments = [
            &["-q", "-x", "dynvarsize=4k", "-x", "specsize=8"],
            options,
            &["-n", &program],
        ]
        .concat();
        text(&nanoprobe(&arguments).stderr)
    };
    let plain = told(&[]);
    assert!(
        plain.contains("nanoprobe: 1 failed speculation (no speculative buffer available)\n"),
        "{plain}"
    );
    assert!(
        plain.contains("nanoprobe: 1 speculative drop (increase specsize)\n"),
        "{plain}"
    );
    assert!(
        plain.contains(" dynamic variable drops (increase dynvarsize)\n"),
        "{plain}"
    );
    let tagged = told(&["-x", "droptags"]);
    for tag in ["DTRACEDROP_SPECUNAVAIL", "DTRACEDROP_SPEC", "DTRACEDROP_DYNAMIC"] {
        assert!(tagged.contains(&format!("nanoprobe: [{tag}] ")), "{tagged}");
    }
}

#[test]
fn an_error_of_an_error_clause_is_counted() {
    let program = "BEGIN { trace(*(int *)0); } ERROR { printf(\"%d\\n\", arg4); trace(*(int *)1); } \
                   BEGIN { printf(\"on\\n\"); exit(0); }";
    let output = nanoprobe(&["-q", "-x", "droptags", "-n", program]);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(stdout, "on\n\n");
    assert_eq!(
        stderr,
        "nanoprobe: error on enabled probe ID 1 (ID 1: dtrace:::BEGIN): invalid address (0x0) in action #1\n\
         nanoprobe: [DTRACEDROP_DBLERROR] 1 error in ERROR probe enabling\n"
    );
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn destructive_actions_need_permission() {
    let program = "BEGIN { system(\"echo done %d\", 1 + 1); exit(0); }";
    let refused = nanoprobe(&["-q", "-n", program]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("[N_DESTRUCTIVE] Destructive actions not allowed: system( )"));
    assert_eq!(text(&refused.stdout), "");
    let pragma = format!("#pragma D option destructive\n{program}");
    for permitted in [
        &["-qw", "-n", program][..],
        &["-q", "-x", "destructive", "-n", program],
        &["-q", "-n", &pragma],
    ] {
        let output = nanoprobe(permitted);
        assert_eq!(
            (text(&output.stdout), text(&output.stderr)),
            ("done 2\n\n".into(), String::new())
        );
    }
}

#[test]
fn output_goes_where_freopen_says_and_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("out.5");
    let name = folder.path().display();
    let program = format!(
        "BEGIN {{ printf(\"first\\n\"); freopen(\"{name}/out.%d\", 5); printf(\"second\\n\"); freopen(\"\"); \
         printf(\"third\\n\"); exit(0); }}"
    );
    let output = nanoprobe(&["-qw", "-n", &program]);
    assert_eq!(text(&output.stdout), "first\nthird\n\n");
    assert_eq!(std::fs::read_to_string(path).expect("the file"), "second\n");
}

#[test]
fn speculations_without_a_target() {
    let program = "BEGIN { a = speculation(); b = speculation(); } \
                   BEGIN { speculate(a); printf(\"kept %d %d\\n\", a, b); } \
                   BEGIN { printf(\"first\\n\"); } BEGIN { commit(a); } BEGIN { exit(0); }";
    let output = nanoprobe(&["-q", "-n", program]);
    assert_eq!(text(&output.stdout), "first\nkept 1 0\n\n");
    assert!(text(&output.stderr).contains("1 failed speculation (no speculative buffer available)"));
}

#[test]
fn without_a_program_e_has_nothing_to_compile_and_the_last_b_counts() {
    let output = nanoprobe(&["-b", "1g", "-b", "2g", "-e"]);
    assert_eq!((text(&output.stderr), output.status.code()), (String::new(), Some(0)));
    let output = nanoprobe(&["-b", "2g"]);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn the_option_verbose_is_the_listing() {
    let output = nanoprobe(&["-x", "verbose", "-e", "-n", "BEGIN { exit(3); }"]);
    let listed = nanoprobe(&["-S", "-e", "-n", "BEGIN { exit(3); }"]);
    assert_eq!(text(&output.stderr), text(&listed.stderr));
    assert!(text(&output.stderr).contains("exit 3"));
}

/// As with getopt, the word after a flag with a value is that value, whatever it looks like.
#[test]
fn a_value_may_begin_with_a_hyphen() {
    for (arguments, expected) in [
        (
            ["-b", "-1", "-n", "BEGIN"],
            "failed to set -x bufsize: Invalid value for specified option: -1",
        ),
        (["-n", "BEGIN", "-p", "-1"], "process -1 does not exist"),
        (["-n", "BEGIN", "-c", "-q"], "cannot run `-q`"),
    ] {
        let output = nanoprobe(&arguments);
        assert!(text(&output.stderr).contains(expected), "{}", text(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    }
}

#[test]
fn the_compiled_program_can_be_listed() {
    let output = nanoprobe(&["-S", "-e", "-n", "BEGIN { x = 1; exit(x); }"]);
    assert_eq!(output.status.code(), Some(0));
    let listing = text(&output.stderr);
    assert!(
        listing.contains("clause :::BEGIN\n") && listing.contains("  exit "),
        "{listing}"
    );
}

/// A reader that has seen enough is no error: `nanoprobe ... | head`.
#[test]
fn a_closed_pipe_ends_it_silently() {
    let command = env!("CARGO_BIN_EXE_nanoprobe");
    for program in [
        "-q -n 'tick-1ms { printf(\"%d some words to fill the pipe\\n\", timestamp); }'",
        "-n 'tick-1ms'",
        "tools",
        "--help",
        "-l -n '*:::'",
    ] {
        let line = format!("{command} {program} 2>errors | head -n 1 >/dev/null; echo ${{PIPESTATUS[0]}}; cat errors");
        let folder = tempfile::tempdir().expect("a folder");
        let output = Command::new("bash")
            .args(["-c", &line])
            .current_dir(folder.path())
            .output_in_time()
            .expect("running bash");
        let said = text(&output.stdout);
        let errors: Vec<&str> = said.lines().skip(1).filter(|line| !line.contains("matched")).collect();
        assert_eq!(
            (said.lines().next(), &errors[..]),
            (Some("0"), &[][..]),
            "{program}: {said}"
        );
    }
}

#[test]
fn a_process_is_found_by_its_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = format!("sleeper{}", std::process::id());
    let program = folder.path().join(&name);
    copy_program(Path::new("/bin/sleep"), &program);
    let start = || {
        Command::new(&program)
            .arg("1000")
            .spawn_in_group()
            .expect("starting it")
    };
    let mut first = start();
    let one = nanoprobe(&["-q", "-p", &name, "-n", "BEGIN { printf(\"%d\", $target); exit(0); }"]);
    assert_eq!(text(&one.stdout), format!("{}\n", first.id()), "{}", text(&one.stderr));
    let mut second = start();
    let two = nanoprobe(&["-v", "-p", &name, "-n", "tick-1ms { exit(0); }"]);
    let said = text(&two.stderr);
    for child in [&first, &second] {
        assert!(
            said.contains(&format!("process {} ({name:.15}) is traced", child.id())),
            "{said}"
        );
    }
    assert_eq!(two.status.code(), Some(0), "{said}");
    for child in [&mut first, &mut second] {
        child.kill().expect("it lives");
        child.wait_in_time().expect("its end");
    }
    let none = nanoprobe(&["-p", &name, "-n", "BEGIN { exit(0); }"]);
    assert!(
        text(&none.stderr).contains("no process has this name"),
        "{}",
        text(&none.stderr)
    );
}
