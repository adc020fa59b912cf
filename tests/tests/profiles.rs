//! Profiles of live programs: the files of `--flamegraph`, `--folded`, `--pprof` and `--speedscope`, and
//! `nanoprobe diff`.

use std::path::{Path, PathBuf};
use std::process::Command;

use nanoprobe_tests::command::{Finished, run};
use nanoprobe_tests::left_out::{left_out, need_command};
use nanoprobe_tests::program::program;
use nanoprobe_tests::tracer::nanoprobe;

const FORMATS: [&str; 4] = ["flamegraph", "folded", "pprof", "speedscope"];

/// The path of a format's file in a folder.
fn path(folder: &Path, name: &str, format: &str) -> PathBuf {
    folder.join(format!("{name}.{format}"))
}

/// Traces `shares ARGUMENTS`, and writes a profile of each format.
fn traced(folder: &Path, name: &str, trace: &[&str], arguments: &str, after: &[&str]) -> Finished {
    let mut traced = Command::new(nanoprobe());
    traced.args(trace);
    for format in FORMATS {
        traced.arg(format!("--{format}")).arg(path(folder, name, format));
    }
    let command = format!("{} {arguments}", program("shares.c").display());
    run(traced.args(["-c", &command]).args(after)).success()
}

/// The lines of folded stacks that end in a function of the program: how often each.
fn folded(folder: &Path, name: &str, function: &str) -> u64 {
    let text = std::fs::read_to_string(path(folder, name, "folded")).expect("the folded stacks");
    let values = text.lines().filter_map(|line| {
        let (stack, value) = line.rsplit_once(' ')?;
        stack
            .ends_with(&format!(";shares`{function}"))
            .then_some(value)?
            .parse::<u64>()
            .ok()
    });
    values.sum()
}

const COUNT: &str = "pid$target:a.out:left:entry,pid$target:a.out:right:entry { @[ustack()] = count(); }";

/// Each call is counted, so every format has the same exact values.
#[test]
fn every_format_has_every_call() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    traced(folder, "a", &["-q", "-n", COUNT], "700 300 1", &[]);
    assert_eq!((folded(folder, "a", "left"), folded(folder, "a", "right")), (700, 300));
    let picture = std::fs::read_to_string(path(folder, "a", "flamegraph")).expect("the picture");
    assert!(
        picture.contains("<title>shares`left (700 hits, 70.00%)</title>"),
        "{picture}"
    );
    assert!(
        picture.contains("<title>shares`work (1,000 hits, 100.00%)</title>"),
        "{picture}"
    );
    // The others are read again, and have no difference from the folded stacks.
    for format in ["pprof", "speedscope"] {
        let mut diff = Command::new(nanoprobe());
        diff.args(["diff", "--no-normalize"]);
        let diff = diff.args([path(folder, "a", "folded"), path(folder, "a", format)]);
        let text = run(diff).success().stdout;
        assert_eq!(text.matches("no difference").count(), 2, "{text}");
        assert!(
            text.starts_with("A       1000") && text.contains("\nB       1000"),
            "{text}"
        );
    }
}

/// Go's own tool reads the file, with functions, lines, the module and its build id.
#[test]
fn pprof_is_read_by_go() {
    let Some(go) = need_command("a profile in Go's tool", "go") else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    traced(folder, "a", &["-q", "-n", COUNT], "700 300 1", &[]);
    let tool = |flag: &str| {
        let mut tool = Command::new(&go);
        tool.args(["tool", "pprof", flag, "-symbolize=none"]);
        run(tool.arg(path(folder, "a", "pprof")).env("PPROF_TMPDIR", folder))
    };
    let top = tool("-top");
    if !top.status.success() && top.stderr.contains("no such tool") {
        return left_out("a profile in Go's tool", "this Go has no pprof");
    }
    let top = top.success().stdout;
    let row = |function: &str| {
        let row = top.lines().find(|line| line.ends_with(&format!("shares`{function}")));
        row.map(|row| row.split_whitespace().take(2).collect::<Vec<_>>().join(" "))
    };
    assert_eq!(row("left").as_deref(), Some("700 70.00%"), "{top}");
    assert_eq!(row("right").as_deref(), Some("300 30.00%"), "{top}");
    let raw = tool("-raw").success().stdout;
    assert!(raw.contains("shares.c:"), "{raw}");
    let mapping = raw.split("Mappings").nth(1).unwrap_or_default();
    assert!(mapping.lines().any(|line| line.contains("/shares")), "{raw}");
}

/// A function that takes 70 percent of one run and 30 percent of the other is at the head of the table.
#[test]
fn a_known_difference_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    traced(folder, "a", &["-q", "-n", COUNT], "700 300 1", &[]);
    traced(folder, "b", &["-q", "-n", COUNT], "60 140 1", &[]);
    let picture = folder.join("diff.html");
    let mut diff = Command::new(nanoprobe());
    diff.arg("diff")
        .args([path(folder, "a", "pprof"), path(folder, "b", "speedscope")]);
    let text = run(diff.arg("--flamegraph").arg(&picture)).success().stdout;
    for row in [
        "700 60 70.0 30.0 -40.0% shares`left",
        "300 140 30.0 70.0 +40.0% shares`right",
    ] {
        let is_row = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ") == row;
        assert!(text.lines().any(is_row), "{row}: {text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let page = std::fs::read_to_string(&picture).expect("the page");
    assert!(
        page.contains("<title>shares`right (140 hits, 70.00%; self +40.00%)</title>"),
        "{page}"
    );
    let mut refused = Command::new(nanoprobe());
    let refused = run(refused
        .arg("diff")
        .args([path(folder, "a", "flamegraph"), path(folder, "b", "folded")]));
    assert!(
        refused.code() == 1 && refused.stderr.contains("a.flamegraph: "),
        "{refused:?}"
    );
    let refused = run(Command::new(nanoprobe()).args(["diff", "one"]));
    assert!(
        refused.code() == 2 && refused.stderr.contains("usage: nanoprobe diff"),
        "{refused:?}"
    );
}

/// The samples of the tool `profile` move with the time. Their number is not exact, but 70 and 30 are far apart.
#[test]
fn samples_move_with_the_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    for (name, arguments) in [("a", "700 300 300000"), ("b", "300 700 300000")] {
        let finished = traced(folder, name, &["tool", "profile"], arguments, &["997", "1"]);
        if finished.stderr.contains("the kernel permits no samples") {
            return left_out("profiles of samples", "perf_event_open is not allowed here");
        }
    }
    let counts = |name| (folded(folder, name, "left"), folded(folder, name, "right"));
    let (before, after) = (counts("a"), counts("b"));
    // The profile has all stacks, although the tool prints only one.
    assert!(before.0 > before.1 && before.1 > 0, "{before:?}");
    assert!(after.1 > after.0 && after.0 > 0, "{after:?}");
    let mut diff = Command::new(nanoprobe());
    diff.args(["diff", "--json"]);
    let json = run(diff.args([path(folder, "a", "folded"), path(folder, "b", "folded")]))
        .success()
        .stdout;
    assert!(
        json.contains("\"function\":\"shares`left\"") && json.contains("\"function\":\"shares`right\""),
        "{json}"
    );
}

/// A tool without stacks has the places that it counts.
#[test]
fn memleak_is_a_profile_of_places() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("leaks");
    let mut traced = Command::new(nanoprobe());
    let command = format!("{} memory", program("tools.cpp").display());
    run(traced
        .args(["tool", "memleak", "--folded"])
        .arg(&file)
        .args(["-c", &command]))
    .success();
    let text = std::fs::read_to_string(&file).expect("the folded stacks");
    assert!(text.lines().any(|line| line.starts_with("@bytes;tools`")), "{text}");
    assert!(text.lines().any(|line| line.starts_with("@blocks;tools`")), "{text}");
}
