//! The counts of the provider `syscall` are those of `strace -f -c`, in programs that do the same in every run, and the
//! programs' results are those of untraced runs.

mod programs;
mod servers;

use std::collections::BTreeMap;
use std::process::Command;

use nanoprobe_tests::command::{Finished, Running, run};
use nanoprobe_tests::left_out::{left_out, need_command};
use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::table;
use nanoprobe_tests::tracer::{Form, Tracer, assert_nothing_lost};

/// Calls whose number depends on where the kernel has put things, and on which thread is first.
const VARYING: [&str; 7] = ["brk", "mmap", "munmap", "mremap", "mprotect", "madvise", "futex"];
/// Calls that do not return, and those that are made before the tracer can know of them: the command's own execve, and
/// the call that glibc makes before the linker has announced the libraries.
const OTHERS: [&str; 4] = ["execve", "exit", "exit_group", "prlimit64"];
/// strace counts a call when it returns. This one does not.
const CLAUSES: &str = "syscall:::return { @[probefunc] = count(); }
    syscall::rt_sigreturn:entry { @[probefunc] = count(); }";

/// What Go's scheduler does by the clock: it looks how many processors there are, and interrupts goroutines.
const VARIABLES: [(&str, &str); 2] = [("GODEBUG", "updatemaxprocs=0,asyncpreemptoff=1"), ("GOMAXPROCS", "1")];

/// A program that does the same in every run.
struct Subject {
    /// The program and its arguments.
    words: Vec<String>,
    /// The calls that vary besides [`VARYING`].
    varies: &'static [&'static str],
    /// The value of `-x syscalls`.
    calls: &'static str,
    /// What others do with the program while it runs; yields what they have seen.
    client: Box<dyn Fn() -> String>,
}

impl Subject {
    fn new(words: &[&str], varies: &'static [&'static str]) -> Subject {
        Subject {
            words: words.iter().map(|word| (*word).to_owned()).collect(),
            varies,
            calls: "files",
            client: Box::new(String::new),
        }
    }

    /// Runs the program behind `prefix`; yields the client's view, too.
    fn run(&self, prefix: &[&str]) -> (Finished, String) {
        let all: Vec<&str> = prefix
            .iter()
            .copied()
            .chain(self.words.iter().map(String::as_str))
            .collect();
        let (first, others) = all.split_first().expect("a program");
        let running = Running::start(Command::new(first).args(others).envs(VARIABLES));
        let seen = (self.client)();
        (running.finish(), seen)
    }

    /// The counts of one run under strace.
    fn by_strace(&self) -> BTreeMap<String, i64> {
        let counts = tempfile::NamedTempFile::new().expect("a temporary file");
        let path = counts.path().to_str().expect("a path");
        let (finished, _) = self.run(&["strace", "-f", "-c", "-o", path]);
        let text = std::fs::read_to_string(counts.path()).expect("the counts");
        assert_eq!(
            finished.code(),
            0,
            "{:?}: {} {}",
            self.words,
            finished.stdout,
            finished.stderr
        );
        // % time, seconds, usecs/call, calls, perhaps errors, syscall
        let row = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let name = words.last().filter(|name| **name != "total")?;
            Some(((*name).to_owned(), words.get(3)?.parse().ok()?))
        };
        text.lines().filter_map(row).collect()
    }

    /// The counts by nanoprobe; `untraced`: what the program has said, and its clients, without a tracer.
    fn by_nanoprobe(&self, form: Form, untraced: &(Finished, String)) -> BTreeMap<String, i64> {
        let quoted = self
            .words
            .iter()
            .map(|word| format!("'{}'", word.replace('\'', "'\\''")));
        let variables = VARIABLES.map(|(name, value)| (name, std::path::Path::new(value)));
        let tracer = Tracer::new(form).clause(CLAUSES).argument("-x").argument("follow=all");
        let tracer = tracer.argument("-x").argument(format!("syscalls={}", self.calls));
        let tracer = tracer.environment(&variables).argument("-c");
        let tracing = tracer.argument(quoted.collect::<Vec<_>>().join(" ")).start();
        let seen = (self.client)();
        let traced = tracing.finish().success();
        let what = &self.words;
        assert_nothing_lost(&traced.finished.stderr);
        assert_eq!(traced.finished.stdout, untraced.0.stdout, "{what:?}");
        assert_eq!(
            (seen, traced.finished.code()),
            (untraced.1.clone(), untraced.0.code()),
            "{what:?}"
        );
        table(&traced.results)
    }

    /// Compares each call that two runs under strace agree on.
    fn compare(&self, form: Form) {
        let untraced = self.run(&[]);
        assert_eq!(untraced.0.code(), 0, "{:?}: {}", self.words, untraced.0.stderr);
        let (first, second) = (self.by_strace(), self.by_strace());
        let rows = self.by_nanoprobe(form, &untraced);
        let what = &self.words;
        let is_compared =
            |name: &str| !VARYING.contains(&name) && !OTHERS.contains(&name) && !self.varies.contains(&name);
        let mut compared = 0;
        for (name, count) in first.iter().filter(|(name, _)| is_compared(name)) {
            if second.get(name) == Some(count) {
                assert_eq!(rows.get(name), Some(count), "{name} of {what:?}: {rows:?}");
                compared += 1;
            }
        }
        // Nor does nanoprobe see a call that strace does not see.
        for name in rows.keys().filter(|name| is_compared(name)) {
            assert!(
                first.contains_key(name) || second.contains_key(name),
                "{name} of {what:?}"
            );
        }
        assert!(compared >= 6, "{what:?}: {first:?} {second:?}");
    }
}

/// Whether strace is here, and can trace.
fn has_strace() -> bool {
    let Some(strace) = need_command("counts of strace", "strace") else {
        return false;
    };
    let tried = run(Command::new(strace).args(["-f", "-c", "true"]));
    if tried.code() != 0 {
        left_out(
            "counts of strace",
            tried.stderr.lines().next().unwrap_or("it cannot trace"),
        );
    }
    tried.code() == 0
}

live_tests! {
    /// Calls of code that the program makes, also in its children.
    fn a_program_that_makes_code(form) {
        if !has_strace() {
            return;
        }
        let program = program("made_stubs.c");
        let program = program.to_str().expect("a path");
        for what in ["wtb", "c"] {
            let subject = Subject {
                calls: "all",
                ..Subject::new(&[program, "20", what], &[])
            };
            subject.compare(form);
        }
    }

    fn programs_that_do_the_same_in_every_run(form) {
        if !has_strace() {
            return;
        }
        let folder = programs::folder();
        let subjects = programs::subjects(folder.path()).into_iter().chain(servers::subjects(folder.path()));
        for subject in subjects {
            subject.compare(form);
        }
    }
}
