//! Tests of command lines, and of the requests that they become.

use super::*;
use crate::arguments::ProgramText;

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn programs_keep_the_order_of_the_command_line() {
    let Ok(Request::Trace(arguments)) = parse(&words("nanoprobe -s a.d -n BEGIN -s b.d 1 -q -- -2")) else {
        panic!("not a trace request");
    };
    let expected = vec![
        ProgramText::Script("a.d".into()),
        ProgramText::Inline("BEGIN".into()),
        ProgramText::Script("b.d".into()),
    ];
    assert_eq!(arguments.programs, expected);
    assert!(arguments.quiet);
    assert_eq!(arguments.macro_arguments, ["1", "-2"]);
}

#[test]
fn clustered_flags_as_in_a_script_s_first_line() {
    let Ok(Request::Trace(arguments)) = parse(&words("nanoprobe -qs script.d 42")) else {
        panic!("not a trace request");
    };
    assert_eq!(arguments.programs, [ProgramText::Script("script.d".into())]);
    assert_eq!(arguments.macro_arguments, ["42"]);
}

#[test]
fn a_process_and_a_command_exclude_each_other() {
    assert!(parse(&words("nanoprobe -p 1 -c true -n BEGIN")).is_err());
}

#[test]
fn the_preprocessor_gets_its_flags() {
    let Ok(Request::Trace(arguments)) = parse(&words("nanoprobe -C -DA=1 -D B -U C -I /tmp -H -s a.d")) else {
        panic!("not a trace request");
    };
    let expected = ["-DA=1", "-DB", "-UC", "-I/tmp", "-H"].map(str::to_owned).to_vec();
    assert_eq!(arguments.preprocessor, Some(expected));
}

#[test]
fn the_preprocessor_can_be_asked_for_by_options() {
    let line =
        "nanoprobe -x cpp -x define=A=1 -x undef=C -x incdir=/tmp -x cpphdrs -x cpppath=/bin/cpp -x quiet -s a.d";
    let mut line = words(line);
    line.insert(1, "-xcppargs=-dD -P".to_owned());
    let Ok(Request::Trace(arguments)) = parse(&line) else {
        panic!("not a trace request");
    };
    let expected = ["-DA=1", "-UC", "-I/tmp", "-H", "-dD", "-P"]
        .map(str::to_owned)
        .to_vec();
    assert_eq!(arguments.preprocessor, Some(expected));
    assert_eq!(arguments.preprocessor_path.as_deref(), Some("/bin/cpp"));
    assert_eq!(arguments.options, ["quiet"]);
}

#[test]
fn flags_that_only_dtrace_has_are_refused_by_name() {
    for (line, name) in [("-A -n BEGIN", "-A"), ("-a", "-a"), ("-32 -n BEGIN", "-32")] {
        let error = parse(&words(&format!("nanoprobe {line}"))).unwrap_err();
        assert!(error.to_string().contains(name), "{line}");
    }
}

#[test]
fn the_last_of_a_flag_counts_and_what_changes_nothing_is_taken() {
    let line = "nanoprobe -b 1g -o one -64 -Xa -b 2g -X s -o two -n BEGIN";
    let Ok(Request::Trace(arguments)) = parse(&words(line)) else {
        panic!("not a trace request");
    };
    assert_eq!(arguments.options, ["bufsize=2g"]);
    assert_eq!(arguments.output.as_deref(), Some("two"));
    assert!(parse(&words("nanoprobe -Xq -n BEGIN")).is_err());
    assert!(parse(&words("nanoprobe -65 -n BEGIN")).is_err());
}

/// A flag may be repeated, as in `nanoprobe -qZm one -qm two`.
#[test]
fn a_flag_may_be_given_again() {
    for flag in ["-C", "-H", "-S", "-l", "-q", "-F", "-e", "-v", "-w", "-Z"] {
        let Ok(Request::Trace(arguments)) = parse(&words(&format!("nanoprobe {flag} -n BEGIN {flag} -n END"))) else {
            panic!("{flag} is taken once only");
        };
        assert_eq!(arguments.programs.len(), 2, "{flag}");
    }
    assert!(matches!(parse(&words("nanoprobe -V -V")), Ok(Request::Version)));
    let line = "nanoprobe -qZm one -qm two";
    let Ok(Request::Trace(arguments)) = parse(&words(line)) else {
        panic!("not a trace request");
    };
    assert!(arguments.quiet && arguments.allow_zero_matches);
}

#[test]
fn all_that_there_is_is_listed_without_a_program() {
    for (line, expected) in [
        ("-l", 1),
        ("-l -c ./program", 1),
        ("-l -n BEGIN -n END", 2),
        ("-l -p 12", 0),
        ("-q", 0),
    ] {
        let Ok(Request::Trace(arguments)) = parse(&words(&format!("nanoprobe {line}"))) else {
            panic!("not a trace request");
        };
        assert_eq!(arguments.programs.len(), expected, "{line}");
    }
}

#[test]
fn an_unknown_flag_is_no_macro_argument() {
    assert!(parse(&words("nanoprobe -K -n BEGIN")).is_err());
    let Ok(Request::Trace(arguments)) = parse(&words("nanoprobe -F -b 64k -n BEGIN")) else {
        panic!("not a trace request");
    };
    assert_eq!(arguments.options, ["flowindent", "bufsize=64k"]);
}

#[test]
fn restore_takes_one_number_or_all() {
    assert!(matches!(
        parse(&words("nanoprobe restore --all")),
        Ok(Request::RestoreAll)
    ));
    assert!(parse(&words("nanoprobe restore --all 12")).is_err());
    assert!(matches!(
        parse(&words("nanoprobe restore 12")),
        Ok(Request::Restore { pid: 12 })
    ));
    assert!(parse(&words("nanoprobe restore")).is_err());
    assert!(parse(&words("nanoprobe restore x")).is_err());
}

#[test]
fn ps_takes_only_its_flag() {
    for (line, expected) in [("nanoprobe ps", false), ("nanoprobe ps --json", true)] {
        assert!(
            matches!(parse(&words(line)), Ok(Request::Ps { as_json }) if as_json == expected),
            "{line}"
        );
    }
    assert!(parse(&words("nanoprobe ps 12")).is_err());
}

#[test]
fn cost_takes_the_flags_of_tracing() {
    let Ok(Request::Cost(arguments)) = parse(&words("nanoprobe cost -x maxcost=5% -p 12 -n BEGIN")) else {
        panic!("not a cost request");
    };
    assert_eq!(
        (arguments.processes.pid(), arguments.options),
        (Some(12), vec!["maxcost=5%".to_owned()])
    );
    assert_eq!(arguments.programs, [ProgramText::Inline("BEGIN".into())]);
}

#[test]
fn flags_are_consistent() {
    Flags::command().debug_assert();
}

#[test]
fn a_tool_may_be_named_without_the_word() {
    for line in [
        "nanoprobe tool funccount -p 1 malloc",
        "nanoprobe funccount -p 1 malloc",
    ] {
        let Ok(Request::Trace(arguments)) = parse(&words(line)) else {
            panic!("{line}: not a trace request");
        };
        assert!(matches!(&arguments.programs[..], [ProgramText::Carried { name, .. }] if name == "tools/funccount.d"));
    }
    // With another program, the word is that program's argument.
    let Ok(Request::Trace(arguments)) = parse(&words("nanoprobe funccount -n BEGIN")) else {
        panic!("not a trace request");
    };
    assert_eq!(arguments.programs, [ProgramText::Inline("BEGIN".into())]);
    assert_eq!(arguments.macro_arguments, ["funccount"]);
}

#[test]
fn help_and_the_version_are_printed_by_words_too() {
    let printed = |line: &str| match parse(&words(line)) {
        Ok(Request::Print(text)) => text,
        other => panic!("{line}: {other:?}"),
    };
    assert!(printed("nanoprobe help").contains("Usage: nanoprobe"));
    assert!(printed("nanoprobe help cost").contains("Usage: nanoprobe"));
    assert_eq!(
        printed("nanoprobe help funccount"),
        printed("nanoprobe funccount --help")
    );
    for word in ["ps", "restore"] {
        let help = printed(&format!("nanoprobe help {word}"));
        assert!(help.starts_with(&format!("usage: nanoprobe {word} ")), "{help}");
        assert_eq!(printed(&format!("nanoprobe {word} --help")), help);
    }
    for line in ["nanoprobe --version", "nanoprobe version", "nanoprobe -V"] {
        assert!(matches!(parse(&words(line)), Ok(Request::Version)), "{line}");
    }
}

#[test]
fn a_wrong_command_line_is_two_lines_with_what_was_meant() {
    let said = |line: &str| misuse(&parse(&words(line)).expect_err(line));
    for (line, what) in [
        (
            "nanoprobe funclatncy -p 1 malloc",
            "there is no command or tool funclatncy; did you mean funclatency?",
        ),
        (
            "nanoprobe tool funclatncy",
            "there is no tool funclatncy; did you mean funclatency?",
        ),
        (
            "nanoprobe help cots",
            "there is no command or tool cots; did you mean cost?",
        ),
        (
            "nanoprobe restor 1",
            "there is no command or tool restor; did you mean restore?",
        ),
        ("nanoprobe --wrong", "unexpected argument '--wrong' found"),
        (
            "nanoprobe --formta json -n BEGIN",
            "unexpected argument '--formta' found; did you mean --format?",
        ),
        (
            "nanoprobe -n",
            "a value is required for '-n <program>' but none was supplied",
        ),
        ("nanoprobe restore", "which process? nanoprobe restore PID"),
        (
            "nanoprobe restore --al",
            "unexpected argument '--al' found; did you mean --all?",
        ),
        ("nanoprobe ps 12", "unexpected argument '12' found"),
        (
            "nanoprobe -p 12x -n BEGIN",
            "-p 12x: this is neither a process's number nor its name",
        ),
        ("nanoprobe funccount -p 1", "funccount: which function?"),
    ] {
        let said = said(line);
        assert!(said.starts_with(what), "{line}: {said}");
        let lines: Vec<&str> = said.lines().collect();
        assert!(
            lines.len() == 2 && lines[1].starts_with("usage: nanoprobe "),
            "{line}: {said}"
        );
        assert!(!said.contains("error:"), "{line}: {said}");
    }
}
