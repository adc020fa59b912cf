//! CPython: the stack of a call, compared with `traceback.extract_stack()` on the same line.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use nanoprobe_tests::command::{Running, run};
use nanoprobe_tests::left_out::{find_command, left_out};
use nanoprobe_tests::program::sources;
use nanoprobe_tests::results::stacks;
use nanoprobe_tests::tracer::{Form, Traced, Tracer};

use super::{recorded, told};

const CALLS: &str =
    "pid$target:libc:strerror:entry /arg0 >= 1000 && arg0 < 4000/ { printf(\"call %d\\n\", arg0); ustack(); }";

/// The Pythons that are installed, each version once: those of the path, and those of pyenv.
pub fn pythons() -> Vec<(u32, PathBuf)> {
    let home = std::env::var_os("PYENV_ROOT").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".pyenv")));
    let folder = home.and_then(|home| std::fs::read_dir(home.join("versions")).ok());
    let built = folder
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path().join("bin/python3"));
    let named = ["/usr/bin/python3"]
        .map(PathBuf::from)
        .into_iter()
        .chain(find_command("python3"));
    let mut found: Vec<(u32, PathBuf)> = Vec::new();
    for path in named.chain(built).filter(|path| path.is_file()) {
        let script = "import sys, ctypes; print(sys.implementation.name, sys.version_info[1], sys.executable)";
        let told = run(std::process::Command::new(&path).args(["-c", script])).stdout;
        let mut words = told.split_whitespace();
        if words.next() != Some("cpython") {
            continue;
        }
        let version = words.next().and_then(|word| word.parse().ok());
        // A wrapper of the shell is not the program that is traced.
        if let (Some(version), Some(program)) = (version, words.next().map(PathBuf::from))
            && !found.iter().any(|(_, known)| *known == program)
        {
            found.push((version, program));
        }
    }
    found
}

/// Runs the program under a clause; yields its output, and the records.
fn traced(python: &Path, clause: &str, form: Form, flags: Vec<OsString>) -> (String, Traced) {
    let mut command = std::process::Command::new(python);
    command.args(["-S", "-E"]).arg(sources().join("frames.py"));
    let mut target = Running::start(&mut command);
    target.wait_for("ready\n");
    let flags = flags.into_iter().chain(["-q".into(), "-xustackframes=1000".into()]);
    let tracer = flags.fold(Tracer::new(form), Tracer::argument).clause(clause);
    let tracing = tracer.attach(target.pid());
    target.go();
    target.wait_for("done\n");
    let traced = tracing.interrupt();
    target.go();
    (target.finish().success().stdout, traced)
}

/// `FILE:LINE FUNCTION` with the function's own name only: the traceback module has no other.
pub fn own_name(frame: &str) -> String {
    let (place, function) = frame.split_once(' ').unwrap_or((frame, ""));
    let function = function.rsplit('.').next().unwrap_or(function);
    format!("{place} {function}")
}

/// A key has a frame for each line; a flame graph joins the lines of a function.
#[test]
fn a_flame_graph_joins_the_lines_of_a_function() {
    let Some((version, python)) = pythons().into_iter().find(|(version, _)| (8..=13).contains(version)) else {
        return left_out("flame graphs of Python", "no Python from 3.8 to 3.13 is installed");
    };
    let picture = tempfile::NamedTempFile::new().expect("a temporary file");
    let flags = vec!["--flamegraph".into(), picture.path().as_os_str().to_owned()];
    let clause = "pid$target:libc:strerror:entry /arg0 >= 1000 && arg0 < 4000/ { @[ustack()] = count(); }";
    let (stdout, traced) = traced(&python, clause, Form::Default, flags);
    let calls = told(&stdout).len() as i64;
    let rows = stacks(&traced.results);
    let counted: i64 = rows.iter().map(|(_, count)| count).sum();
    assert_eq!(counted, calls, "3.{version}: {}", traced.results);
    let lines = |function: &str| {
        let frames = rows.iter().flat_map(|(frames, _)| frames);
        let of_function = frames.filter(|frame| own_name(frame).ends_with(&format!(" {function}")));
        of_function.collect::<std::collections::BTreeSet<_>>().len()
    };
    assert!(lines("all_kinds") > 10 && lines("recursion") == 2, "{rows:?}");
    let drawn = std::fs::read_to_string(picture.path()).expect("a picture");
    assert!(
        drawn.contains("frames.py all_kinds") && drawn.contains("frames.py recursion"),
        "{drawn}"
    );
    assert!(!drawn.contains("frames.py:"), "{drawn}");
}

/// Code that was freed right after the call may be shown without its name, but not with another one.
fn is_gone(found: &str, told: &str) -> bool {
    found == "[python] " && told.starts_with("<string>:")
}

#[test]
fn a_stack_is_what_the_traceback_module_says() {
    let mut versions = Vec::new();
    for (version, python) in pythons().into_iter().filter(|(version, _)| (8..=13).contains(version)) {
        for form in [Form::Default, Form::Trap] {
            let (stdout, traced) = traced(&python, CALLS, form, Vec::new());
            let mut found = recorded(&traced);
            for (_, frames) in &mut found {
                frames.iter_mut().for_each(|frame| *frame = own_name(frame));
            }
            let told = told(&stdout);
            assert!(told.len() >= 60, "3.{version}: {stdout}");
            assert_eq!(found.len(), told.len(), "3.{version}: {}", traced.finished.stderr);
            for (found, told) in found.iter().zip(&told) {
                let are_equal = found.0 == told.0 && found.1.len() == told.1.len();
                let mut frames = found.1.iter().zip(&told.1);
                assert!(
                    are_equal && frames.all(|(found, told)| found == told || is_gone(found, told)),
                    "3.{version}, {form:?}, {}: {found:#?}\n{told:#?}",
                    python.display()
                );
            }
        }
        versions.push(version);
    }
    for version in 8..=13 {
        if !versions.contains(&version) {
            left_out(&format!("stacks of Python 3.{version}"), "it is not installed");
        }
    }
}
