//! Samples of Java and JavaScript: beside the threads' own clocks, and beside all calls that the programs make.

use std::path::Path;
use std::process::Command;

use nanoprobe_tests::command::Running;
use nanoprobe_tests::left_out::left_out;
use nanoprobe_tests::program::sources;
use nanoprobe_tests::results::{said, stacks};
use nanoprobe_tests::tracer::{Form, Traced, Tracer};

use super::java::{Program, javas};
use super::javascript::node;

/// Runs a program under samples with stacks. Yields its output and the results; `None`: samples are not allowed here.
pub(super) fn sampled(command: &mut Command, what: &str) -> Option<(String, Traced)> {
    let mut target = Running::start(command);
    target.wait_for("ready\n");
    let clause = "profile-997 /pid == $target/ { @[ustack(200)] = count(); }";
    let tracing = Tracer::new(Form::Default)
        .argument("-q")
        .clause(clause)
        .attach(target.pid());
    target.go();
    let stdout = target.finish().success().stdout;
    let traced = tracing.finish().success();
    if traced.finished.stderr.contains("the kernel permits no samples") {
        left_out(&format!("samples of {what}"), "perf_event_open is not allowed here");
        return None;
    }
    Some((stdout, traced))
}

/// A program that spends known shares of its time in functions `workKIND`.
struct Shares {
    file: &'static str,
    kinds: [&'static str; 5],
    /// All calls of the program: a function, and its callers.
    callers: &'static [(&'static str, &'static [&'static str])],
    /// An unknown frame begins with one of these.
    unknown: &'static [&'static str],
    /// The name of a function begins with this.
    class: &'static str,
}

const JAVA: Shares = Shares {
    file: "Shares.java",
    kinds: ["Direct", "Deep", "Lambda", "Sorted", "Short"],
    callers: &[
        ("small", &["churn"]),
        ("churn", &["spin"]),
        (
            "spin",
            &["workDirect", "workDeep", "lambda$workLambda$0", "lambda$workSorted$1"],
        ),
        ("workDeep", &["workDeep", "part"]),
        ("shortCall", &["workShort"]),
        ("workDirect", &["part"]),
        ("workLambda", &["part"]),
        ("workSorted", &["part"]),
        ("workShort", &["part"]),
        ("part", &["lambda$main$2"]),
    ],
    unknown: &["[java]", "[jit]", "[interpreter]"],
    class: "Shares.",
};

const JAVASCRIPT: Shares = Shares {
    file: "shares.js",
    kinds: ["Direct", "Deep", "Closure", "Loop", "Short"],
    callers: &[
        ("small", &["churn"]),
        ("churn", &["spin"]),
        ("spin", &["workDirect", "workDeep", "(anonymous)"]),
        ("workDeep", &["workDeep", "deep"]),
        ("deep", &["part"]),
        ("workDirect", &["part"]),
        ("workClosure", &["part"]),
        ("workLoop", &["part"]),
        ("workShort", &["part"]),
        ("short", &["workShort"]),
        ("(anonymous)", &["workClosure"]),
        ("part", &["main"]),
        ("main", &["(anonymous)"]),
    ],
    unknown: &["[javascript]", "[jit]"],
    class: "",
};

/// A frame of the program's file.
struct Own<'a> {
    /// `None`: it is only known between which lines.
    line: Option<usize>,
    function: &'a str,
    /// Functions that were inlined into it may be missing inside of it.
    may_miss: bool,
}

impl Shares {
    fn own<'a>(&self, frame: &'a str) -> Option<Own<'a>> {
        let (place, name) = frame.split_once(' ')?;
        let rest = place.strip_prefix(self.file)?;
        let line = rest.strip_prefix(':').and_then(|line| line.parse().ok());
        let function = name.strip_prefix(self.class)?;
        Some(Own {
            line,
            function: function.split_once(' ').map_or(function, |(function, _)| function),
            may_miss: line.is_none(),
        })
    }

    /// Whether a function is called by another one; `far`: by way of others, too.
    fn is_called(&self, function: &str, caller: &str, far: bool) -> bool {
        let mut pending = vec![function];
        let mut seen = Vec::new();
        while let Some(function) = pending.pop() {
            let rows = self.callers.iter().filter(|(name, _)| *name == function);
            let callers: Vec<&str> = rows.flat_map(|(_, callers)| callers.iter().copied()).collect();
            if callers.contains(&caller) {
                return true;
            }
            seen.push(function);
            pending.extend(callers.into_iter().filter(|caller| far && !seen.contains(caller)));
        }
        false
    }

    /// Panics unless the frames, innermost first, are a chain of calls that the program has.
    fn check(&self, frames: &[String], source: &[&str]) {
        for pair in frames.windows(2) {
            let [Some(inner), Some(outer)] = [&pair[0], &pair[1]].map(|frame| self.own(frame)) else {
                continue;
            };
            if !self.callers.iter().any(|(name, _)| *name == inner.function) {
                continue;
            }
            assert!(
                self.is_called(inner.function, outer.function, outer.may_miss),
                "{} from {}: {frames:#?}",
                inner.function,
                outer.function
            );
            let text = outer.line.and_then(|line| source.get(line.checked_sub(1)?));
            let is_call = |text: &&str| text.contains(&format!("{}(", inner.function)) || text.contains("work(");
            assert!(
                outer.line.is_none() || inner.function.starts_with(['(', 'l']) || text.is_some_and(is_call),
                "{} from line {:?} of {}: {frames:#?}",
                inner.function,
                outer.line,
                outer.function
            );
        }
    }

    fn kind_of(&self, frames: &[String]) -> Option<usize> {
        let functions: Vec<&str> = frames
            .iter()
            .filter_map(|frame| Some(self.own(frame)?.function))
            .collect();
        self.kinds.iter().position(|kind| {
            let work = format!("work{kind}");
            functions
                .iter()
                .any(|name| *name == work || name.starts_with(&format!("lambda${work}$")))
        })
    }

    /// Whether a sample without a kind may be of a thread that works: it has a frame of the program, or its outermost
    /// frames are not known.
    fn may_be_work(&self, frames: &[String]) -> bool {
        let is_unknown = |frame: &String| self.unknown.iter().any(|unknown| frame.starts_with(unknown));
        let is_whole = frames
            .last()
            .is_some_and(|last| last.contains("clone") || last.contains("start"));
        !is_whole
            || frames
                .iter()
                .any(|frame| is_unknown(frame) || self.own(frame).is_some())
    }

    /// Runs the program, and compares the shares of its samples with the program's own account. `is_sure`: most of them
    /// have a kind.
    fn compare(&self, command: &mut Command, what: &str, is_sure: bool) {
        let source = std::fs::read_to_string(sources().join(self.file)).expect("the program");
        let source: Vec<&str> = source.lines().collect();
        let Some((stdout, traced)) = sampled(command, what) else {
            return;
        };
        let (mut found, mut unknown) = ([0; 5], 0);
        for (frames, count) in stacks(&traced.results) {
            self.check(&frames, &source);
            match self.kind_of(&frames).and_then(|kind| found.get_mut(kind)) {
                Some(found) => *found += count,
                None if self.may_be_work(&frames) => unknown += count,
                None => {}
            }
        }
        let known: i64 = found.iter().sum();
        let time: i64 = self.kinds.iter().map(|kind| said(&stdout, kind)).sum();
        let told = format!("{what}: {known} samples, {found:?}, and {unknown} without a kind");
        eprintln!("{told}");
        assert!(known > 0 && (!is_sure || known > unknown), "{told}: {}", traced.results);
        let all = known + unknown;
        for (kind, found) in self.kinds.iter().zip(found) {
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

#[test]
fn samples_show_the_functions_of_java() {
    let Some(program) = Program::build("Shares.java") else {
        return;
    };
    for java in javas() {
        for flags in [
            &[][..],
            &["-Xint"],
            &["-XX:TieredStopAtLevel=1"],
            &["-XX:-TieredCompilation", "-XX:+UseSerialGC"],
        ] {
            let mut command = Command::new(&java);
            command
                .args(flags)
                .arg("-cp")
                .arg(program.folder())
                .args(["Shares", "0.5", "2"]);
            JAVA.compare(&mut command, &format!("{} {flags:?}", java.display()), true);
        }
    }
}

fn compare_javascript(node: &Path, flags: &[&str], is_sure: bool) {
    let mut command = Command::new(node);
    command.args(flags).arg(sources().join(JAVASCRIPT.file)).arg("1");
    JAVASCRIPT.compare(&mut command, &format!("node {flags:?}"), is_sure);
}

#[test]
fn samples_show_the_functions_of_javascript() {
    let Some(node) = node() else { return };
    for flags in [
        &[][..],
        &["--jitless"],
        &["--always-sparkplug", "--no-opt"],
        &["--no-sparkplug"],
    ] {
        compare_javascript(&node, flags, true);
    }
}

/// Each collection moves objects: then samples have fewer names, and no wrong ones.
#[test]
fn samples_of_objects_that_are_moved_have_no_wrong_names() {
    let Some(node) = node() else { return };
    let flags = ["--stress-compaction", "--gc-interval=500", "--max-semi-space-size=1"];
    compare_javascript(&node, &flags, false);
}
