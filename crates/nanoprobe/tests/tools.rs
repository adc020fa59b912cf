//! All tools take `[INTERVAL [COUNT]]`, `-d`, `-T` and `--json`: each tool is tried on a program that runs and does
//! what the tool looks for.

use std::path::Path;
use std::process::Command;

use nanoprobe_tests::command::{Running, run};
use nanoprobe_tests::left_out::{left_out, need_command};
use nanoprobe_tests::postgres::Server;
use nanoprobe_tests::program::program;

/// A tool, its arguments, and the text that each report contains if something has happened in the interval.
struct Case {
    tool: &'static str,
    arguments: &'static [&'static str],
    has: &'static str,
    /// Whether the tool prints events as they happen.
    is_of_lines: bool,
}

const fn case(tool: &'static str, arguments: &'static [&'static str], has: &'static str) -> Case {
    Case {
        tool,
        arguments,
        has,
        is_of_lines: false,
    }
}

const fn lines(tool: &'static str, arguments: &'static [&'static str], has: &'static str) -> Case {
    Case {
        is_of_lines: true,
        ..case(tool, arguments, has)
    }
}

/// The tools for which the program `tools work` does something all the time.
const CASES: &[Case] = &[
    case("argcount", &["a.out:inner"], "inner"),
    case("argdist", &["a.out:inner", "arg0"], "Distribution"),
    case("funccount", &["a.out:inner"], "tools`inner"),
    lines("funcgraph", &["a.out:outer"], "inner() {"),
    case("funclatency", &["a.out:slow"], " ns    tools`slow"),
    case("funclatency", &["a.out:slow", "us"], " us    tools`slow"),
    lines("funcslower", &["a.out:slow", "10us"], "tools`slow"),
    case("lockwait", &["libc", "10us", "3"], "tools`waits+"),
    case("lockwait", &[], "tools`waits+"),
    case("mallocstacks", &[], "tools`frees+"),
    case("memleak", &[], "tools`frees+"),
    case("stackcount", &["inner"], "tools`top+"),
    lines("threadsnoop", &[], "tools`"),
    case("uobjnew", &[], "tools`make_shape+"),
];

fn started(case: &Case, pid: i32, flags: &[&str], words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nanoprobe"));
    command.args(["tool", case.tool, "-p", &pid.to_string()]).args(flags);
    command.args(case.arguments).args(words);
    command
}

/// Runs a tool, if need be again for longer: a busy machine may not let a program do anything in a short time. `seen`
/// says whether something has happened.
#[track_caller]
fn ended(case: &Case, run_for: &dyn Fn(&str) -> Command, seen: &dyn Fn(&str) -> bool) -> String {
    let mut text = String::new();
    for time in ["300ms", "3s", "30s"] {
        let finished = run(&mut run_for(time)).success();
        // A late tracer may miss ticks, and reports that.
        for sign in ["drops", "error on enabled probe"] {
            assert!(!finished.stderr.contains(sign), "{}", finished.stderr);
        }
        text = finished.stdout;
        if seen(&text) {
            return text;
        }
    }
    panic!("{} {:?}: nothing happens\n{text}", case.tool, case.arguments);
}

/// Each line is an object with a type, and the last one has the status.
#[track_caller]
fn is_json(text: &str) {
    for line in text.lines() {
        let parsed: Result<serde_json::Value, _> = serde_json::from_str(line);
        assert!(parsed.is_ok_and(|value| value["type"].is_string()), "{line}");
    }
    assert_eq!(text.lines().last(), Some(r#"{"type":"exit","status":0}"#));
}

fn stamps(text: &str) -> usize {
    text.lines().filter(|line| is_stamp(line)).count()
}

/// `2026 Nov 24 13:30:00`
fn is_stamp(text: &str) -> bool {
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_clock = |word: &str| word.len() == 8 && word.matches(':').count() == 2;
    matches!(words[..], [year, _, _, clock] if year.parse::<u32>().is_ok() && is_clock(clock))
}

/// Runs a tool in every way, on a process in which something happens all the time.
#[track_caller]
fn check(case: &Case, pid: i32) {
    let what = format!("{} {:?}", case.tool, case.arguments);
    // Each interval has a report with its time, and after three reports the tool ends.
    let reports = if case.is_of_lines { 1 } else { 3 };
    let run_for = |time: &str| started(case, pid, &["-T"], &[time, "3"]);
    let text = ended(case, &run_for, &|text| text.matches(case.has).count() >= reports);
    assert_eq!(stamps(&text), 3, "{what}\n{text}");
    if case.is_of_lines {
        let line = text.lines().find(|line| line.contains(case.has)).unwrap_or_default();
        assert!(line.get(..20).is_some_and(is_stamp), "{what}\n{text}");
    }
    // An end after some time, as JSON lines.
    let run_for = |time: &str| started(case, pid, &["-d", time, "--json"], &[]);
    is_json(&ended(case, &run_for, &|text| text.lines().count() >= 3));
    // With `-d` the text has no times. Its lines fit 80 columns, as long as the names are not too long.
    let run_for = |time: &str| started(case, pid, &["-d", time], &[]);
    let text = ended(case, &run_for, &|text| text.contains(case.has));
    assert_eq!(stamps(&text), 0, "{what}\n{text}");
    let columns = |line: &&str| line.split('`').next().unwrap_or_default().chars().count();
    let wide = text.lines().find(|line| columns(line) > 80);
    assert_eq!(wide, None, "{what}\n{text}");
}

#[test]
fn every_tool_reports_at_intervals_and_ends_in_time() {
    let mut tools = Running::start(Command::new(program("tools.cpp")).arg("work"));
    tools.wait_for("working\n");
    for case in CASES {
        check(case, tools.pid());
    }
    tools.go();
    assert!(tools.finish().success().stdout.contains("OK\n"));
}

/// On this machine, sampling may not be allowed.
#[test]
fn profile_reports_at_intervals() {
    let mut spins = Running::start(Command::new("sh").args(["-c", "while :; do :; done"]));
    let case = case("profile", &["997", "3"], " samples");
    let finished = run(&mut started(&case, spins.pid(), &["-d", "100ms"], &[]));
    if finished.stderr.contains("the kernel lets us have no samples") {
        return left_out("profile at intervals", "perf_event_open is not allowed here");
    }
    check(&case, spins.pid());
    assert!(spins.is_running());
}

#[test]
fn collections_of_python_are_reported_at_intervals() {
    let Some(python) = need_command("gcpause at intervals", "python3") else {
        return;
    };
    let listed = run(Command::new(env!("CARGO_BIN_EXE_nanoprobe"))
        .args(["-l", "-n", "python$target:::gc-start", "-c"])
        .arg(&python));
    if !listed.stdout.contains("gc-start") {
        return left_out("gcpause at intervals", "this python3 has no static probes");
    }
    let text = "import gc, select, sys\nprint('working', flush=True)\n\
                while not select.select([sys.stdin], [], [], 0)[0]: gc.collect(1)\n";
    collected(
        &python,
        &["-S", "-E", "-c", text],
        &case("gcpause", &["10s"], "COLLECTIONS AVERAGE us"),
    );
}

#[test]
fn collections_of_node_are_reported_at_intervals() {
    let Some(node) = need_command("nodegc at intervals", "node") else {
        return;
    };
    let text = "console.log('working'); let over = false; process.stdin.on('data', () => { over = true; });\n\
                function work() { global.gc(); if (over) process.exit(0); setImmediate(work); } work();";
    collected(
        &node,
        &["--expose-gc", "-e", text],
        &case("nodegc", &["10s"], "PAUSES AVERAGE us"),
    );
}

/// Columns are parted by as many blanks as it takes.
#[track_caller]
fn collected(program: &Path, arguments: &[&str], case: &Case) {
    let mut running = Running::start(Command::new(program).args(arguments));
    running.wait_for("working\n");
    let pid = running.pid();
    let heads = |text: &str| {
        let lines = text
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        lines.filter(|line| line.contains(case.has)).count()
    };
    let text = ended(case, &|time| started(case, pid, &["-T"], &[time, "2"]), &|_| true);
    assert_eq!((heads(&text), stamps(&text)), (2, 2), "{text}");
    let run_for = |time: &str| started(case, pid, &["-d", time, "--json"], &[]);
    is_json(&ended(case, &run_for, &|text| text.contains(r#""name":"@average_us""#)));
    running.go();
    running.finish().success();
}

#[test]
fn queries_are_reported_until_the_time_is_over() {
    let Some(server) = Server::start("sqlslower for some time") else {
        return;
    };
    let mut client = server.connect();
    let case = lines("sqlslower", &["0"], "select 'a query'");
    let mut shown = |flags: &[&str], words: &[&str]| {
        let mut tool = Running::start(&mut started(&case, client.pid, flags, words));
        while tool.is_running() {
            client.query("select 'a query'");
        }
        let text = tool.finish().success().stdout;
        text.contains(case.has).then_some(text)
    };
    let times = ["300ms", "3s", "30s"];
    let text = times.iter().find_map(|time| shown(&["-T"], &[time, "2"]));
    let text = text.expect("a query");
    assert_eq!(stamps(&text), 2, "{text}");
    let line = text.lines().find(|line| line.contains(case.has)).unwrap_or_default();
    assert!(line.get(..20).is_some_and(is_stamp), "{text}");
    let text = times.iter().find_map(|time| shown(&["-d", time, "--json"], &[]));
    is_json(&text.expect("a query"));
    server.stop();
}
