use super::*;

fn parsed(line: &str) -> Result<Wanted, String> {
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    parse(&words).map_err(|error| error.to_string())
}

fn arguments(line: &str) -> Vec<String> {
    match parsed(line) {
        Ok(Wanted::Run(arguments)) => arguments.macro_arguments,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn every_tool_has_its_summary_help_and_example() {
    for tool in &TOOLS {
        let help = tool.help();
        assert!(tool.summary().starts_with(&format!("{} - ", tool.name)), "{help}");
        assert!(
            help.contains(&format!(
                "\nusage: nanoprobe tool {} {{-p PID | -c COMMAND}}",
                tool.name
            )),
            "{help}"
        );
        assert!(
            help.contains("\nexample:") && help.contains(&format!("# nanoprobe tool {}", tool.name)),
            "{help}"
        );
        assert!(list().contains(&tool.summary()));
        assert!(matches!(parsed(&format!("{} -h", tool.name)), Ok(Wanted::Print(text)) if text == help));
    }
    // Each is a script, but for strace, whose program is made.
    let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools")).unwrap();
    let scripts = files.filter(|file| file.as_ref().unwrap().path().extension().is_some_and(|end| end == "d"));
    assert_eq!(scripts.count() + 1, TOOLS.len());
}

#[test]
fn arguments_are_completed() {
    assert_eq!(arguments("funccount -p 1 malloc"), [":malloc"]);
    assert_eq!(arguments("funccount -p 1 libc:str*"), ["libc:str*"]);
    assert_eq!(arguments("funcgraph -p 1 a.out:main"), ["a.out:main", "a.out:*"]);
    assert_eq!(arguments("funcgraph -p 1 main libc:"), [":main", "libc:"]);
    assert_eq!(arguments("funcslower -c true main 5"), [":main", "5"]);
    assert_eq!(arguments("lockwait -p 1"), ["libc", "10", "0"]);
    assert_eq!(arguments("argdist -p 1 read"), [":read", "arg0", "entry"]);
    assert_eq!(arguments("argdist -p 1 read arg2"), [":read", "arg2", "entry"]);
    assert_eq!(arguments("argcount -p 1 read arg1 return"), [":read", "arg1", "return"]);
    assert_eq!(arguments("lockwait -p 1 libc 0"), ["libc", "0", "0"]);
    assert_eq!(arguments("lockwait -p 1 libc 5ms 3"), ["libc", "5000", "3"]);
    assert_eq!(arguments("funcslower -p 1 read 3000ns"), [":read", "3"]);
    assert_eq!(arguments("funcslower -p 1 read 20us"), [":read", "20"]);
    assert_eq!(arguments("sqlslower -p 1 2s"), ["2000"]);
    assert_eq!(arguments("sqlslower -p 1 30"), ["30"]);
    assert_eq!(arguments("offcpu -p 1"), ["1", "20"]);
    assert_eq!(arguments("offcpu -p 1 2ms 5"), ["2000", "5"]);
    assert_eq!(arguments("wakeuptime -p 1 2ms 5"), ["2000", "5"]);
    assert_eq!(arguments("memleak -p 1"), ["*", "a.out:no_allocator_of_its_own"]);
    assert_eq!(
        arguments("memleak -p 1 a.out"),
        ["a.out", "a.out:no_allocator_of_its_own"]
    );
    assert_eq!(arguments("memleak -p 1 libc a.out:xmalloc"), ["libc", "a.out:xmalloc"]);
    assert_eq!(
        arguments("funccount -p 1 shapes::Circle::area"),
        [":shapes::Circle::area"]
    );
    assert_eq!(arguments("funccount -p 1 a.out:*::area"), ["a.out:*::area"]);
    assert_eq!(arguments("funccount -p 1 a.out:"), ["a.out:"]);
}

#[test]
fn an_expression_is_put_into_the_text() {
    let words = ["argdist", "-p", "1", "read", "args[0]->port + 1"].map(str::to_owned);
    let Ok(Wanted::Run(arguments)) = parse(&words) else {
        panic!("refused");
    };
    assert!(
        matches!(&arguments.programs[..], [ProgramText::Carried { text, .. }] if text.contains("quantize(args[0]->port + 1);"))
    );
}

#[test]
fn missing_and_superfluous_arguments_are_reported() {
    for (line, what) in [
        ("funccount -p 1", "which function?"),
        ("funccount malloc", "-p PID, or -c COMMAND"),
        ("funccount -p 1 a b", "one argument too many: b"),
        ("funccount -p 1 pid1:a:b:entry", "no [MODULE:]FUNCTION"),
        ("funccount -p 1 pid1:::entry", "no [MODULE:]FUNCTION"),
        ("funcslower -p 1 read abc", "`abc` is no number of microseconds"),
        ("funcslower -p 1 read 1.5", "no number of microseconds"),
        ("funcslower -p 1 read -- -5", "no number of microseconds"),
        ("lockwait -p 1 libc 99999999999999999999", "no number of microseconds"),
        ("mallocstacks -p 1 libc few", "`few` is no number of stacks"),
        ("sqlslower -p 1 1h", "`1h` is no number of milliseconds"),
        ("sqlslower -p 1 1us", "`1us` is no number of milliseconds"),
        ("sqlslower -p 1 ms", "`ms` is no number of milliseconds"),
        ("funcslower -p 1 read 99999999s", "no number of microseconds"),
        ("funcslower -p 1 read 5µs", "no number of microseconds"),
        ("argdist -p 1 read arg2 exit", "`exit` is neither entry nor return"),
        (
            "argdist -p 1",
            "usage: nanoprobe tool argdist {-p PID | -c COMMAND} [MODULE:]FUNCTION [EXPRESSION",
        ),
        ("gcpause -p 1 x", "`x` is no number of microseconds"),
        ("funccount -p 1 -n BEGIN malloc", "its own program"),
        ("nothing -p 1", "there is no tool nothing"),
    ] {
        assert!(parsed(line).is_err_and(|error| error.contains(what)), "{line}");
    }
}

fn script(line: &str) -> String {
    match parsed(line) {
        Ok(Wanted::Run(arguments)) => match &arguments.programs[..] {
            [ProgramText::Carried { text, .. }] => text.to_string(),
            other => panic!("{line}: {other:?}"),
        },
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn every_tool_takes_intervals_durations_and_stamps() {
    // The flags of strace are its own.
    for tool in TOOLS.iter().filter(|tool| tool.name != "strace") {
        let own = if tool.arguments.iter().any(|argument| matches!(argument, Function)) {
            " read"
        } else {
            ""
        };
        let plain = script(&format!("{} -p 1{own}", tool.name));
        assert_eq!(plain, tool.filled_in(&arguments(&format!("{} -p 1{own}", tool.name))));
        let timed = script(&format!("{} -p 1 -d 7 -T -i 2s{own}", tool.name));
        assert!(
            timed.contains("tick-2000ms\n") && timed.contains("tick-7000ms\n"),
            "{timed}"
        );
        assert!(timed.contains("walltimestamp"), "{timed}");
        let counted = script(&format!("{} -p 1 -i 250ms{own}", tool.name));
        assert!(
            counted.contains("tick-250ms\n") && !counted.contains("exit(0)"),
            "{counted}"
        );
    }
}

#[test]
fn a_time_where_only_a_name_can_be_is_an_interval() {
    for (line, own) in [
        ("funccount -p 1 read 1 5", &[":read"][..]),
        ("memleak -p 1 1 5", &["*", "a.out:no_allocator_of_its_own"]),
        ("memleak -p 1 a.out 1 5", &["a.out", "a.out:no_allocator_of_its_own"]),
        ("mallocstacks -p 1 libc 3 1 5", &["libc", "3"]),
        ("mallocstacks -p 1 1 5", &["libc", "20"]),
        ("argdist -p 1 read arg2 1 5", &[":read", "arg2", "entry"]),
        ("argdist -p 1 read arg2 return 1 5", &[":read", "arg2", "return"]),
        ("argdist -p 1 read 1s 5", &[":read", "arg0", "entry"]),
        ("argdist -p 1 read 1 1 5", &[":read", "1", "entry"]),
        ("mallocstacks -p 1 libc 1s 5", &["libc", "20"]),
        ("funclatency -p 1 read us 1 5", &[":read", "us"]),
        ("funclatency -p 1 read 1 5", &[":read", "ns"]),
        ("lockwait -p 1 libc 10 0 1 5", &["libc", "10", "0"]),
        ("profile -p 1 97 20 1 5", &["97", "20"]),
        ("nodegc -p 1 1000 1 5", &["1000", "a.out"]),
        ("threadsnoop -p 1 -i 1 5", &["libc"]),
    ] {
        assert_eq!(arguments(line), own, "{line}");
        let script = script(line);
        assert!(script.contains("tick-1000ms\n/intervals >= 5/"), "{line}\n{script}");
    }
    assert!(parsed("funccount -p 1 5").is_err_and(|error| error.contains("which function?")));
    assert!(parsed("funccount -p 1 read 5 6 7").is_err_and(|error| error.contains("one argument too many: 7")));
    assert!(parsed("funccount -p 1 read 5 x").is_err_and(|error| error.contains("`x` is no number of intervals")));
    assert!(parsed("funccount -p 1 -d x read").is_err_and(|error| error.contains("`x` is no time")));
}
