//! Samples of CPython: beside the threads' own clocks, and beside all calls that the program makes.

use std::collections::BTreeMap;

use nanoprobe_tests::command::Running;
use nanoprobe_tests::left_out::left_out;
use nanoprobe_tests::program::sources;
use nanoprobe_tests::results::{said, stacks};
use nanoprobe_tests::tracer::{Form, Tracer};

use super::is_interpreted;
use super::python::{own_name, pythons};

const FILE: &str = "pyshares.py";
const KINDS: [&str; 5] = ["direct", "deep", "generator", "sorted", "short"];

/// All calls of the program: a function, and its callers.
fn callers(function: &str) -> &'static [&'static str] {
    match function {
        "main" => &["<module>"],
        "part" => &["run"],
        "spin" => &[
            "work_direct",
            "work_deep",
            "work_generator",
            "key",
            "work_short_left",
            "work_short_right",
        ],
        "work_direct" | "work_sorted" | "work_short" | "<genexpr>" => &["part"],
        "work_deep" => &["part", "work_deep"],
        "work_generator" => &["<genexpr>"],
        "key" => &["work_sorted"],
        "work_short_left" | "work_short_right" => &["work_short"],
        _ => &[],
    }
}

/// The file, the line and the function of a frame.
fn parts(frame: &str) -> Option<(String, usize, String)> {
    if frame == "[python]" {
        return None;
    }
    let frame = own_name(frame);
    let (place, function) = frame.split_once(' ')?;
    let (file, line) = place.rsplit_once(':').unwrap_or((place, "0"));
    Some((file.to_owned(), line.parse().ok()?, function.to_owned()))
}

/// Panics unless the frames, innermost first, are a chain of calls that the program has.
fn check(frames: &[String], source: &[String]) {
    let parts: Vec<_> = frames.iter().map(|frame| parts(frame)).collect();
    for pair in parts.windows(2) {
        let [Some((file, _, function)), Some((outer_file, line, caller))] = pair else {
            continue;
        };
        let possible = callers(function);
        if file != FILE || possible.is_empty() {
            continue;
        }
        assert!(
            outer_file == FILE && possible.contains(&caller.as_str()),
            "{function} from {caller}: {frames:#?}"
        );
        let text = line.checked_sub(1).and_then(|index| source.get(index));
        let calls = |text: &String| {
            text.contains(&format!("{function}(")) || matches!(function.as_str(), "key" | "<genexpr>" | "main")
        };
        // 0: the line is not known.
        assert!(
            *line == 0 || text.is_some_and(calls),
            "{function} from line {line} of {caller}: {frames:#?}"
        );
    }
}

/// Which kind of work the frames do.
fn kind_of(frames: &[String]) -> Option<&'static str> {
    let functions: Vec<String> = frames.iter().filter_map(|frame| Some(parts(frame)?.2)).collect();
    KINDS
        .into_iter()
        .find(|kind| functions.iter().any(|name| *name == format!("work_{kind}")))
}

#[test]
fn samples_show_the_functions_that_ran() {
    let source = std::fs::read_to_string(sources().join(FILE)).expect("the program");
    let source: Vec<String> = source.lines().map(str::to_owned).collect();
    for (version, python) in pythons().into_iter().filter(|(version, _)| (8..=13).contains(version)) {
        let mut command = std::process::Command::new(&python);
        command.args(["-S", "-E"]).arg(sources().join(FILE)).args(["1", "2"]);
        let mut target = Running::start(&mut command);
        target.wait_for("ready\n");
        let clause = "profile-997 /pid == $target && arg1/ { @[ustack(100)] = count(); }";
        let tracer = Tracer::new(Form::Default).argument("-q").clause(clause);
        let tracing = tracer.attach(target.pid());
        target.go();
        let stdout = target.finish().success().stdout;
        let traced = tracing.finish().success();
        if traced.finished.stderr.contains("the kernel permits no samples") {
            return left_out("samples of Python", "perf_event_open is not allowed here");
        }
        let (mut found, mut all, mut unknown) = (BTreeMap::new(), 0, 0);
        for (frames, count) in stacks(&traced.results) {
            let frames: Vec<String> = frames.into_iter().filter(|frame| is_interpreted(frame)).collect();
            check(&frames, &source);
            all += count;
            match kind_of(&frames) {
                Some(kind) => *found.entry(kind).or_insert(0) += count,
                None => unknown += count,
            }
        }
        let known: i64 = found.values().sum();
        let time: i64 = KINDS.iter().map(|kind| said(&stdout, kind)).sum();
        let told = format!("3.{version}: {all} samples, {unknown} without a kind: {found:?}");
        eprintln!("{told}");
        assert!(known > 0, "{told}: {}", traced.results);
        for kind in KINDS {
            let found = found.get(kind).copied().unwrap_or(0);
            let right = said(&stdout, kind) * 100 / time.max(1);
            // Samples without a kind may be of any. Of 350 samples, the deviation is 3 of a hundred.
            let possible = found * 100 / all - 15..=(found + unknown) * 100 / all + 15;
            assert!(
                possible.contains(&right),
                "{kind}: {right} per cent of the time. {told}"
            );
        }
    }
}
