//! The ready-made tools, each on a program that does known things a known number of times.

mod allocators;
mod calls;
mod real;
mod runtimes;
mod strace;
mod strace_signals;
mod system_calls;

use std::process::Command;

use nanoprobe_tests::command::{Running, as_ordinary_user, run};
use nanoprobe_tests::left_out::{left_out, need_command};
use nanoprobe_tests::postgres;
use nanoprobe_tests::program::{Build, need_program, program};
use nanoprobe_tests::results::{function_of, stacks};
use nanoprobe_tests::tracer::nanoprobe;

/// The output of a tool on `tools MODE`.
#[track_caller]
fn tool(name: &str, mode: &str, arguments: &[&str]) -> Vec<String> {
    tool_on(name, &format!("{} {mode}", program("tools.cpp").display()), arguments)
}

/// The output lines of a tool on a command that prints OK; words are separated by single blanks.
#[track_caller]
fn tool_on(name: &str, command: &str, arguments: &[&str]) -> Vec<String> {
    let (lines, stdout) = tool_and_command(name, command, arguments);
    assert!(stdout.lines().any(|line| line == "OK"), "{stdout}");
    lines
}

/// The output lines of a tool, and of the command itself.
#[track_caller]
fn tool_and_command(name: &str, command: &str, arguments: &[&str]) -> (Vec<String>, String) {
    let results = tempfile::NamedTempFile::new().expect("a temporary file");
    let mut traced = Command::new(nanoprobe());
    traced
        .args(["tool", name, "-o"])
        .arg(results.path())
        .args(["-c", command])
        .args(arguments);
    let finished = run(&mut traced).success();
    for sign in ["drop", "missed", "error on enabled probe"] {
        assert!(!finished.stderr.contains(sign), "{}", finished.stderr);
    }
    let text = std::fs::read_to_string(results.path()).expect("the results");
    let lines = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    (lines.filter(|line| !line.is_empty()).collect(), finished.stdout)
}

/// The lines that end with this place of the program, each without the place.
fn of<'l>(lines: &'l [String], place: &str) -> Vec<&'l str> {
    let begins = |line: &'l String| {
        let (before, after) = line.rsplit_once(&format!(" tools`{place}"))?;
        (after.is_empty() || after.starts_with('+')).then_some(before)
    };
    lines.iter().filter_map(begins).collect()
}

#[test]
fn the_tools_are_listed_and_explained() {
    let list = run(Command::new(nanoprobe()).arg("tools")).success().stdout;
    for name in [
        "argcount",
        "argdist",
        "dtruss",
        "execsnoop",
        "funccount",
        "funcgraph",
        "funclatency",
        "funcslower",
        "gcpause",
        "gethostlatency",
        "iosnoop",
        "killsnoop",
        "lockwait",
        "mallocstacks",
        "memleak",
        "nodegc",
        "opensnoop",
        "procsystime",
        "profile",
        "sqlslower",
        "stackcount",
        "strace",
        "syscount",
        "tcpaccept",
        "tcpconnect",
        "tcptop",
        "threadsnoop",
        "uobjnew",
    ] {
        assert_eq!(
            list.lines()
                .filter(|line| line.starts_with(&format!("{name} - ")))
                .count(),
            1,
            "{list}"
        );
        let help = run(Command::new(nanoprobe()).args(["tool", name, "-h"]))
            .success()
            .stdout;
        assert!(
            help.starts_with(&format!("{name} - ")) && help.contains("example:"),
            "{help}"
        );
    }
    let unknown = run(Command::new(nanoprobe()).args(["tool", "nothing", "-p", "1"]));
    assert!(
        unknown.code() == 2 && unknown.stderr.contains("nanoprobe tools"),
        "{unknown:?}"
    );
}

/// living/sampled.rs checks the numbers themselves.
#[test]
fn profile_shows_the_stacks_that_are_met_most() {
    let results = tempfile::NamedTempFile::new().expect("a temporary file");
    let command = format!("{} work 300 1", program("sampled.c").display());
    let mut traced = Command::new(nanoprobe());
    traced.args(["tool", "profile", "-o"]).arg(results.path());
    let finished = run(traced.args(["-c", &command, "997", "3"])).success();
    if finished.stderr.contains("the kernel permits no samples") {
        left_out("the tool profile", "perf_event_open is not allowed here");
        return;
    }
    let text = std::fs::read_to_string(results.path()).expect("the results");
    let (found, all) = text.trim_end().rsplit_once('\n').expect("stacks, and how many samples");
    let all: i64 = all
        .strip_suffix(" samples")
        .and_then(|number| number.parse().ok())
        .expect(all);
    let found = stacks(found);
    let counts: Vec<i64> = found.iter().map(|(_, count)| *count).collect();
    assert!(counts.len() == 3 && counts.is_sorted(), "{text}");
    assert!(counts.iter().sum::<i64>() <= all && (50..=400).contains(&all), "{text}");
    let most = found.last().map_or(&[][..], |(frames, _)| frames);
    let names: Vec<&str> = most.iter().map(|frame| function_of(frame)).collect();
    assert!(names.contains(&"hot") && names.contains(&"main"), "{text}");
}

#[test]
fn funccount_counts() {
    let lines = tool("funccount", "calls", &["a.out:*er"]);
    assert_eq!(
        (of(&lines, "outer"), of(&lines, "inner")),
        (vec!["3"], vec!["12"]),
        "{lines:?}"
    );
}

/// Two recursions run at a time, and every call has its own time.
#[test]
fn funclatency_times_each_recursive_call() {
    let lines = tool("funclatency", "calls", &["inner"]);
    let found = of(&lines, "inner");
    assert!(found.len() == 1 && found[0].starts_with("12 "), "{lines:?}");
    let histogram: u64 = lines
        .iter()
        .filter(|line| line.contains('|'))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok())
        .sum();
    assert_eq!(histogram, 12, "{lines:?}");
}

#[test]
fn funcslower_shows_the_slow_ones() {
    let lines = tool("funcslower", "slow", &["slow", "50000"]);
    // Thread, time, returned value, and the call with the one parameter that the function has.
    let calls: Vec<Vec<&str>> = lines.iter().skip(1).map(|line| line.split(' ').collect()).collect();
    assert!(calls.iter().all(|call| call.len() == 4), "{lines:?}");
    assert!(
        calls
            .iter()
            .all(|call| call[3] == format!("tools`slow(ms={})", call[2])),
        "{lines:?}"
    );
    let values: Vec<&str> = calls.iter().map(|call| call[2]).collect();
    assert!(
        calls
            .iter()
            .all(|call| call[1].parse::<u64>().is_ok_and(|us| us >= 50_000)),
        "{lines:?}"
    );
    // The fast calls may have been slow on this machine at that moment.
    let slow: Vec<&str> = values.iter().copied().filter(|value| value.len() == 2).collect();
    assert_eq!(slow, ["70", "90"], "{lines:?}");
}

#[test]
fn funcgraph_draws_the_exact_tree() {
    let lines = tool("funcgraph", "calls", &["a.out:top", "a.out:*"]);
    let calls: Vec<String> = lines
        .iter()
        .skip(1)
        .map(|line| {
            let (_, call) = line.split_once(' ').unwrap_or_default();
            call.split(" (").next().unwrap_or_default().to_owned()
        })
        .collect();
    let mut expected = vec!["top() {"];
    for _ in 0..3 {
        expected.extend([
            "outer() {",
            "inner() {",
            "inner() {",
            "inner() {",
            "} = 0",
            "} = 1",
            "} = 2",
        ]);
        expected.extend(["inner() {", "} = 0", "} = 3"]);
    }
    expected.push("} = 9");
    assert_eq!(calls, expected);
}

#[test]
fn stackcount_counts_by_stack() {
    let lines = tool("stackcount", "calls", &["inner"]);
    let counts: Vec<u64> = lines.iter().filter_map(|line| line.parse().ok()).collect();
    // It is called from two places of `outer`; recursion makes three stacks of one.
    assert_eq!(counts, [3, 3, 3, 3], "{lines:?}");
    assert_eq!(
        lines.iter().filter(|line| line.starts_with("tools`outer+")).count(),
        4,
        "{lines:?}"
    );
    assert_eq!(
        lines.iter().filter(|line| line.starts_with("tools`top+")).count(),
        4,
        "{lines:?}"
    );
}

#[test]
fn argdist_counts_values() {
    let lines = tool("argdist", "calls", &["inner"]);
    let rows: Vec<(&str, &str)> = lines
        .iter()
        .filter_map(|line| Some((line.split_once(' ')?.0, line.rsplit_once(' ')?.1)))
        .collect();
    for row in [("0", "6"), ("1", "3"), ("2", "3")] {
        assert!(rows.contains(&row), "{row:?} {lines:?}");
    }
    let lines = tool("argdist", "memory", &["leak", "arg1"]);
    let rows: Vec<(&str, &str)> = lines
        .iter()
        .filter_map(|line| Some((line.split_once(' ')?.0, line.rsplit_once(' ')?.1)))
        .collect();
    assert!(
        rows.contains(&("64", "12")) && rows.contains(&("512", "7")),
        "{lines:?}"
    );
}

#[test]
fn argcount_counts_each_argument_and_each_returned_value() {
    let lines = tool("argcount", "memory", &["leak", "arg1 * 10"]);
    assert_eq!(
        lines[1..],
        ["7 tools`leak 10000", "12 tools`leak 1000"].map(str::to_owned)[..],
        "{lines:?}"
    );
    let lines = tool("argcount", "calls", &["inner", "arg1", "return"]);
    for row in ["6 tools`inner 0", "3 tools`inner 1", "3 tools`inner 2"] {
        assert!(lines.iter().any(|line| line == row), "{lines:?}");
    }
}

#[test]
fn memleak_finds_what_was_leaked_and_nothing_else() {
    let lines = tool("memleak", "memory", &[]);
    allocators::assert_known_leaks(&lines);
}

/// Here the allocator belongs to the program, so its functions are in `a.out`. Without a linker everything is mapped
/// from the start.
#[test]
fn memleak_finds_what_a_static_program_leaked() {
    let Some(path) = need_program("tools.cpp", Build::Static) else {
        return;
    };
    let lines = tool_on("memleak", &format!("{} memory", path.display()), &[]);
    allocators::assert_known_leaks(&lines);
}

#[test]
fn mallocstacks_adds_bytes_up() {
    let lines = tool("mallocstacks", "memory", &[]);
    let at = lines
        .iter()
        .position(|line| line.starts_with("tools`frees+"))
        .expect("the stack of frees");
    let bytes = lines.iter().skip(at).find_map(|line| line.parse::<u64>().ok());
    assert_eq!(bytes, Some(500 * 50), "{lines:?}");
    let at = lines
        .iter()
        .position(|line| line.starts_with("tools`leak+"))
        .expect("the stack of leak");
    let bytes: u64 = lines.iter().skip(at).find_map(|line| line.parse().ok()).unwrap_or(0);
    assert!([1200, 7000, 8200].contains(&bytes), "{lines:?}");
    // With the argument 1, the tool shows only the largest stack.
    let one = tool("mallocstacks", "memory", &["libc", "1"]);
    assert_eq!(
        one.iter().filter(|line| line.parse::<u64>().is_ok()).count(),
        1,
        "{one:?}"
    );
}

/// Each time the holder has the mutex, and sleeps for 60 ms, before the waiter asks for it. The scheduler decides how
/// late the waiter is, but it is not late nine times in a row.
#[test]
fn lockwait_sees_each_wait() {
    let lines = tool("lockwait", "locks", &["libc", "0"]);
    let waits: Vec<Vec<&str>> = of(&lines, "waits")
        .iter()
        .map(|line| line.split(' ').collect())
        .filter(|line: &Vec<&str>| line[3] == "mutex")
        .collect();
    assert!(
        waits.len() == 1 && waits[0].len() == 5 && waits[0][0] == "9" && waits[0][4] == "tools`lock,",
        "{lines:?}"
    );
    assert!(
        waits[0][2].parse::<u64>().is_ok_and(|longest| longest >= 20_000),
        "{lines:?}"
    );
    // The limit is a quarter of an hour, and no thread waits that long.
    let lines = tool("lockwait", "locks", &["libc", "900000000"]);
    assert_eq!(lines.len(), 1, "{lines:?}");
}

#[test]
fn threadsnoop_shows_every_thread() {
    let lines = tool("threadsnoop", "threads", &[]);
    assert_eq!(lines.len(), 8, "{lines:?}");
    assert_eq!(of(&lines, "starts_here").len(), 4, "{lines:?}");
    assert_eq!(
        lines
            .iter()
            .filter(|line| line.contains("tools`") && line.contains("waiter"))
            .count(),
        3,
        "{lines:?}"
    );
}

#[test]
fn uobjnew_counts_objects() {
    let lines = tool("uobjnew", "objects", &[]);
    assert_eq!(of(&lines, "make_shape"), ["40 10 400"], "{lines:?}");
    assert_eq!(
        lines.iter().filter(|line| line.starts_with("4096 3 12288 ")).count(),
        1,
        "{lines:?}"
    );
}

#[test]
fn gcpause_counts_collections() {
    let Some(python) = need_command("gcpause", "python3") else {
        return;
    };
    let listed = run(Command::new(nanoprobe())
        .args(["-l", "-n", "python$target:::gc-start", "-c"])
        .arg(&python));
    if !listed.stdout.contains("gc-start") {
        return left_out("gcpause", "this python3 has no static probes");
    }
    let script = tempfile::NamedTempFile::new().expect("a file");
    // The interpreter's own collections at its end come in addition: they are of the oldest generation.
    let text = "import gc\ngc.disable()\nfor n in range(13):\n    gc.collect(1)\nprint('OK')\n";
    std::fs::write(script.path(), text).expect("the script");
    let lines = tool_on(
        "gcpause",
        &format!("{} -S -E {}", python.display(), script.path().display()),
        &["0"],
    );
    let summary = lines
        .iter()
        .position(|line| line.starts_with("COLLECTIONS"))
        .expect("the summary");
    let row = lines.iter().skip(summary).find(|line| line.ends_with(" 1 (middle)"));
    assert!(row.is_some_and(|row| row.starts_with("13 ")), "{lines:?}");
    let singly = lines.iter().take(summary).filter(|line| line.ends_with(" 1 (middle)"));
    assert_eq!(singly.count(), 13, "{lines:?}");
}

/// A single-user server with its own database, and queries from the standard input.
#[test]
fn sqlslower_shows_the_slow_query() {
    let Some((initdb, postgres)) = postgres::need_programs("sqlslower") else {
        return;
    };
    let folder = postgres::open_folder();
    let data = folder.path().join("data");
    postgres::make_database(&initdb, &data);
    let mut command = Command::new(nanoprobe());
    command.args(["tool", "sqlslower", "-c"]);
    command.arg(format!(
        "{} --single -D {} postgres",
        postgres.display(),
        data.display()
    ));
    command.arg("1000");
    let mut running = Running::start(&mut as_ordinary_user(&command));
    running.write("select 1;\nselect pg_sleep(1.1);\nselect count(*) from pg_class;\nselect pg_sleep(1.2);\n");
    running.close_input();
    let finished = running.finish().success();
    // Its prompts and answers are on the same output.
    let shown: Vec<&str> = ["select pg_sleep(1.1);", "select pg_sleep(1.2);", "select 1;"]
        .into_iter()
        .filter(|query| {
            finished
                .stdout
                .lines()
                .any(|line| line.ends_with(&format!("  {query}")))
        })
        .collect();
    assert_eq!(
        shown,
        ["select pg_sleep(1.1);", "select pg_sleep(1.2);"],
        "{}",
        finished.stdout
    );
}
