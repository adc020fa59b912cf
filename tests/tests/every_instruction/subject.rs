//! A command with every instruction of a module probed, compared with the same command without probes.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nanoprobe_tests::LIMIT;
use nanoprobe_tests::command::{Finished, Running};
use nanoprobe_tests::left_out::left_out;
use nanoprobe_tests::results::{matched, table, value};
use nanoprobe_tests::tracer::{Form, Tracer, assert_nothing_lost};

/// A command, and its output without probes.
pub struct Subject {
    line: String,
    pub expected: Finished,
}

impl Subject {
    /// A program that exits with status 0.
    pub fn new(program: &Path, arguments: &[&str]) -> Subject {
        Subject::ending(program, arguments, 0)
    }

    /// A program that exits with this status. Paths among the arguments are absolute.
    pub fn ending(program: &Path, arguments: &[&str], code: i32) -> Subject {
        let mut command = Command::new(program);
        command.args(arguments);
        let mut running = Running::start(&mut command);
        running.close_input();
        let expected = running.finish();
        assert_eq!(
            expected.code(),
            code,
            "{arguments:?}: {}\n{}",
            expected.stdout,
            expected.stderr
        );
        let quoted = arguments.iter().map(|argument| format!(" '{argument}'"));
        Subject {
            line: format!("{}{}", program.display(), quoted.collect::<String>()),
            expected,
        }
    }

    /// The same command with every instruction of `module` counted by `clause`.
    pub fn probed(&self, form: Form, module: &str, clause: &str) -> String {
        let tracer = Tracer::new(form).clause(&format!("pid$target:{module}:: {clause}"));
        let mut tracing = tracer.argument("-c").argument(&self.line).start();
        tracing.running.close_input();
        let traced = tracing.finish_within(limit());
        let Finished { stdout, stderr, .. } = &traced.finished;
        assert_eq!(
            traced.finished.code(),
            0,
            "{module} of {}: {stdout}\n{stderr}",
            self.line
        );
        let said = match self.expected.code() {
            0 => !stderr.contains("(status"),
            code => stderr.contains(&format!("(status {code})")),
        };
        assert!(
            said && !stderr.contains("killed by"),
            "{module} of {}: {stderr}",
            self.line
        );
        assert_eq!(*stdout, self.expected.stdout, "{module} of {}", self.line);
        assert_nothing_lost(stderr);
        assert!(matched(stderr) > 1000, "{stderr}");
        // After a minute without an answer, a program stops waiting for the probes in its libraries; stderr reports
        // that.
        assert!(!traced.results.trim().is_empty(), "no hits: {stderr}");
        traced.results
    }

    /// The number of hits in a module, which must be large.
    pub fn sum(&self, form: Form, module: &str) -> i64 {
        let sum = value(&self.probed(form, module, "{ @ = count(); }"));
        assert!(sum > 1000, "{sum} hits in {module} of {}", self.line);
        sum
    }

    /// Hits by function.
    pub fn functions(&self, form: Form, module: &str) -> std::collections::BTreeMap<String, i64> {
        table(&self.probed(form, module, "{ @[probefunc] = count(); }"))
    }
}

/// Whether the tests that take minutes are requested.
pub fn all() -> bool {
    std::env::var("NANOPROBE_EVERY_INSTRUCTION").is_ok_and(|value| value == "all")
}

/// Whether these tests are requested. If not, reports that they are left out.
pub fn all_is_asked_for(what: &str) -> bool {
    if !all() {
        left_out(what, "takes minutes; NANOPROBE_EVERY_INSTRUCTION=all asks for it");
    }
    all()
}

/// The time limit of a command with every instruction probed.
pub fn limit() -> Duration {
    if all() { 8 * LIMIT } else { LIMIT }
}

/// A file with this text, which lives as long as the value.
pub fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), text).expect("its text");
    file
}

pub fn path(file: &tempfile::NamedTempFile) -> &str {
    file.path().to_str().expect("a path in UTF-8")
}
