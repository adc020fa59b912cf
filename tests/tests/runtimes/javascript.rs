//! V8: the stack of a call beside what `Error` says of the same line.

use std::path::Path;

use nanoprobe_tests::command::{Running, run};
use nanoprobe_tests::left_out::{left_out, need_command};
use nanoprobe_tests::program::sources;
use nanoprobe_tests::tracer::{Form, Traced, Tracer};

use super::{recorded, told};

const CALLS: &str = "pid$target:libc:umask:entry { printf(\"call %d\\n\", arg0); ustack(); }";

/// The node whose frames are known, if it is installed.
pub fn node() -> Option<std::path::PathBuf> {
    let what = "stacks of JavaScript";
    let node = need_command(what, "node")?;
    let version = run(std::process::Command::new(&node).args(["-p", "process.versions.v8"])).stdout;
    if version.starts_with("11.3.") {
        return Some(node);
    }
    left_out(what, &format!("the frames of V8 {} are not known", version.trim()));
    None
}

/// Which functions V8 has inlined, the tracer says with their names, or with this.
const NOT_KNOWN: &str = " [inlined functions are not known]";

fn traced(node: &Path, program: &str, form: Form, flags: &[&str]) -> (String, Traced) {
    traced_by(node, program, form, flags, CALLS)
}

fn traced_by(node: &Path, program: &str, form: Form, flags: &[&str], clause: &str) -> (String, Traced) {
    let mut command = std::process::Command::new(node);
    command.args(flags).arg(sources().join(program));
    let mut target = Running::start(&mut command);
    target.wait_for("ready\n");
    let tracer = ["-q", "-xustackframes=1000"]
        .into_iter()
        .fold(Tracer::new(form), Tracer::argument);
    let tracing = tracer.clause(clause).attach(target.pid());
    target.go();
    target.wait_for("done\n");
    let traced = tracing.interrupt();
    target.go();
    (target.finish().success().stdout, traced)
}

/// `FILE`, the lines and `NAME` of a frame.
fn parts(frame: &str) -> (&str, (u32, u32), &str) {
    let (place, name) = frame.split_once(' ').unwrap_or((frame, ""));
    let name = name.strip_suffix(NOT_KNOWN).unwrap_or(name);
    let (file, lines) = place.rsplit_once(':').unwrap_or((place, "0-4294967295"));
    let (first, last) = lines.split_once('-').unwrap_or((lines, lines));
    let line = |text: &str| text.parse().expect("a line");
    (file, (line(first), line(last)), name)
}

/// Whether a frame is the frame that V8 reports. Where no line is known, the function's lines must contain V8's line. A
/// function without a name may have a name that V8 has inferred. Code that was made for one call may be gone too early.
fn is_same(found: &str, told: &str, may_be_gone: bool) -> bool {
    if found == "[javascript]" {
        return may_be_gone || told.starts_with("<anonymous>:") || told.starts_with("made.js:");
    }
    let (found, told) = (parts(found), parts(told));
    let contains = found.1.0 <= told.1.0 && told.1.0 <= found.1.1;
    found.0 == told.0 && contains && (found.2 == told.2 || ["(anonymous)", "eval"].contains(&told.2))
}

/// Compares two stacks from their outermost frames on. While a collection moves what describes optimised code, the
/// functions that were inlined into it are not known.
fn are_same(found: &[String], told: &[String], may_be_gone: bool) -> bool {
    let (mut told, mut may_miss) = (told.iter().rev(), false);
    for found in found.iter().rev() {
        let is_found = match may_miss {
            true => told.any(|told| is_same(found, told, may_be_gone)),
            false => told.next().is_some_and(|told| is_same(found, told, may_be_gone)),
        };
        if !is_found {
            return false;
        }
        may_miss = may_be_gone && found.ends_with(NOT_KNOWN);
    }
    may_miss || told.next().is_none()
}

fn has_line(frame: &str) -> bool {
    let (_, (first, last), _) = parts(frame);
    first == last
}

/// Compares all stacks; yields how many frames had their line, of how many.
fn compare(node: &Path, form: Form, flags: &[&str], may_be_gone: bool) -> (usize, usize) {
    let (stdout, traced) = traced(node, "frames.js", form, flags);
    let (told, found) = (told(&stdout), recorded(&traced));
    assert!(told.len() >= 60, "{stdout}");
    assert_eq!(found.len(), told.len(), "{}", traced.finished.stderr);
    let (mut exact, mut all) = (0, 0);
    for (found, told) in found.iter().zip(&told) {
        let of_umask = found.1.iter().take_while(|frame| frame.starts_with("node:")).count();
        let frames = found.1.get(of_umask..).unwrap_or_default();
        // The innermost frame may be that of umask, whose object has moved.
        let nameless = frames
            .split_first()
            .filter(|(first, _)| may_be_gone && *first == "[javascript]");
        let are_same = are_same(frames, &told.1, may_be_gone)
            || nameless.is_some_and(|(_, rest)| are_same(rest, &told.1, may_be_gone));
        assert!(
            found.0 == told.0 && are_same,
            "{flags:?}, {form:?}: {found:#?}\n{told:#?}"
        );
        exact += frames.iter().filter(|frame| has_line(frame)).count();
        all += frames.len();
    }
    (exact, all)
}

#[test]
fn a_stack_is_what_an_error_says() {
    let Some(node) = node() else { return };
    for form in [Form::Default, Form::Trap] {
        let (exact, all) = compare(&node, form, &[], false);
        assert!(exact * 10 > all * 9, "{exact} of {all} frames have a line");
    }
}

#[test]
fn the_interpreter_s_frames_have_their_lines_without_a_compiler() {
    let Some(node) = node() else { return };
    let (exact, all) = compare(&node, Form::Default, &["--jitless"], false);
    assert_eq!(exact, all);
}

#[test]
fn baseline_code_has_its_lines() {
    let Some(node) = node() else { return };
    let (exact, all) = compare(&node, Form::Default, &["--always-sparkplug", "--no-opt"], false);
    assert_eq!(exact, all);
}

/// Optimised code of a loop goes on in the frame of the interpreter, which says where the loop had begun.
#[test]
fn a_loop_that_becomes_optimised_code_has_no_wrong_line() {
    let Some(node) = node() else { return };
    let (exact, all) = compare(&node, Form::Default, &["--no-sparkplug"], false);
    assert!(exact * 10 > all * 9, "{exact} of {all} frames have a line");
}

#[test]
fn objects_that_are_moved_keep_their_names() {
    let Some(node) = node() else { return };
    let flags = ["--stress-compaction", "--gc-interval=500", "--max-semi-space-size=1"];
    let (exact, all) = compare(&node, Form::Default, &flags, true);
    assert!(exact * 2 > all, "{exact} of {all} frames have a line");
}

/// Each function that V8 has inlined into optimised code is in the stack, with its line: in code of functions and of
/// loops, and in code that has become invalid while it is on the stack.
#[test]
fn inlined_functions_are_where_an_error_says() {
    let Some(node) = node() else { return };
    let gc = "--expose-gc";
    let all = [
        &[gc][..],
        &[gc, "--stress-inline"],
        &[gc, "--no-concurrent-recompilation"],
    ];
    for (flags, form) in all.into_iter().zip([Form::Default, Form::Trap, Form::Default]) {
        let (stdout, traced) = traced(&node, "inlined.js", form, flags);
        let (told, found) = (told(&stdout), recorded(&traced));
        assert!(told.len() >= 70, "{stdout}");
        assert_eq!(found.len(), told.len(), "{}", traced.finished.stderr);
        for (found, told) in found.iter().zip(&told) {
            // The functions of umask itself come first.
            let of_umask = found.1.iter().take_while(|frame| frame.starts_with("node:")).count();
            let frames = found.1.get(of_umask..).unwrap_or_default();
            assert!(found.0 == told.0, "{found:?} {told:?}");
            assert_eq!(frames, told.1, "{flags:?}, {form:?}, call {}", told.0);
        }
    }
}

/// With few frames, the innermost functions are shown, of which some are inlined.
#[test]
fn a_short_stack_has_the_innermost_functions() {
    let Some(node) = node() else { return };
    let clause = "pid$target:libc:umask:entry { printf(\"call %d\\n\", arg0); ustack(12); }";
    let (stdout, traced) = traced_by(&node, "inlined.js", Form::Default, &["--expose-gc"], clause);
    let (told, found) = (told(&stdout), recorded(&traced));
    assert!(told.len() >= 70 && found.len() == told.len(), "{stdout}");
    let mut inlined = 0;
    for (found, told) in found.iter().zip(&told) {
        let of_umask = found.1.iter().take_while(|frame| frame.starts_with("node:")).count();
        let frames = found.1.get(of_umask..).unwrap_or_default();
        assert!(told.1.starts_with(frames), "{found:?} {told:?}");
        inlined += usize::from(frames.len() >= 2);
    }
    assert!(inlined >= 70, "{}", traced.results);
}

/// A copy of node that does not say where its structures are, as if it were of another version.
fn without_tables(node: &Path) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let mut bytes = std::fs::read(node).expect("node");
    let names = bytes.windows(6).enumerate().filter(|(_, window)| window == b"v8dbg_");
    let names: Vec<usize> = names.map(|(at, _)| at).collect();
    assert!(!names.is_empty());
    for at in names {
        bytes[at] = b'x';
    }
    // A child that another test forks could keep a file open that is written here, and no such file can be executed.
    let (written, copy) = (folder.path().join("written"), folder.path().join("node"));
    std::fs::write(&written, bytes).expect("a copy");
    run(std::process::Command::new("cp").arg(&written).arg(&copy)).success();
    run(std::process::Command::new("chmod").arg("755").arg(&copy)).success();
    folder
}

#[test]
fn code_of_an_unknown_version_is_jit() {
    let Some(node) = node() else { return };
    let folder = without_tables(&node);
    let (stdout, traced) = traced(&folder.path().join("node"), "frames.js", Form::Default, &[]);
    let frames: Vec<&str> = traced.results.lines().map(str::trim).collect();
    let calls = frames.iter().filter(|frame| frame.starts_with("call ")).count();
    assert_eq!(calls, told(&stdout).len(), "{}", traced.finished.stderr);
    let made: Vec<&&str> = frames
        .iter()
        .filter(|frame| !frame.contains(['`', ' ']) && !frame.is_empty())
        .collect();
    assert!(
        !made.is_empty() && made.iter().all(|frame| **frame == "[jit]"),
        "{made:#?}"
    );
    let said = &traced.finished.stderr;
    let advice = "functions that it has made are [jit] in stacks, and interpreted ones have the interpreter's name; \
                  node --perf-basic-prof --interpreted-frames-native-stack gives them names";
    assert_eq!(
        (said.matches(advice).count(), said.matches("[jit]").count()),
        (1, 1),
        "{said}"
    );
}
