//! Live programs: whatever the target does, its results are the same as in an unprobed run, and the counts are exact.

mod apart;
mod blocked;
mod buffers;
mod by_address;
mod by_default;
mod counted_by_strace;
mod disk;
mod dispatched;
mod effects;
mod embedded;
mod ends;
mod errno;
mod ever_new;
mod exceptions;
mod execs;
mod executed;
mod extremes;
mod families;
mod files;
mod filtered;
mod forks;
mod forms;
mod found;
mod go_arguments;
mod go_tasks;
mod goroutines;
mod handlers;
mod ifuncs;
mod interrupts;
mod latencies;
mod left;
mod loading;
mod locked;
mod machine;
mod made_calls;
mod merged;
mod middle;
mod network;
mod odd;
mod others;
mod procs;
mod relocated;
mod remains;
mod remapped;
mod returns;
mod reused;
mod sampled;
mod scripts;
mod semaphores;
mod sets;
mod several;
mod signals;
mod small_stacks;
mod stacks;
mod statics;
mod strings;
mod system_calls;
mod tail_calls;
mod thread_keys;
mod threads;
mod told;
mod trees;
mod turned_off;
mod unseen_calls;
mod users;
mod waits;

use std::path::Path;

use nanoprobe_tests::command::{Finished, run};
use nanoprobe_tests::results::{said, table};
use nanoprobe_tests::tracer::{Form, Traced, Tracer, assert_nothing_lost, start_waiting};

/// The output of the unprobed run.
#[track_caller]
fn unprobed(program: &Path, arguments: &str) -> Finished {
    run(std::process::Command::new(program).args(arguments.split_whitespace()))
}

/// Counts all system calls of a program, from its start and when attached. Asserts that those with these names are as
/// many as the program itself says.
fn assert_calls_are_counted_once(form: Form, program: &Path, arguments: &str, names: &[&str]) {
    let clause = "syscall:::entry { @[probefunc] = count(); }";
    for attached in [false, true] {
        let (stdout, traced) = if attached {
            let (target, traced) = traced_when_attached(form, clause, program, arguments);
            (target.stdout, traced)
        } else {
            let traced = traced_from_start(form, clause, program, arguments);
            (traced.finished.stdout.clone(), traced)
        };
        let rows = table(&traced.results);
        for name in names {
            assert_eq!(rows[*name], said(&stdout, name), "{name}");
        }
        assert_nothing_lost(&traced.finished.stderr);
    }
}

/// Traces a program from its start by `-c`, and asserts that its output is that of the unprobed run.
#[track_caller]
fn traced_from_start(form: Form, clause: &str, program: &Path, arguments: &str) -> Traced {
    let right = unprobed(program, arguments).success();
    let traced = Tracer::new(form)
        .clause(clause)
        .command(program, arguments)
        .run()
        .complete();
    assert_eq!(without_messages(&traced.finished.stdout), right.stdout);
    traced
}

/// Attaches to a waiting program, lets it run, and asserts that its output is that of the unprobed run. The caller
/// checks the losses that nanoprobe reports.
#[track_caller]
fn traced_when_attached(form: Form, clause: &str, program: &Path, arguments: &str) -> (Finished, Traced) {
    let mut target = start_waiting(program, arguments);
    // If return addresses are replaced, hooks come before the probes, so the text alone does not show when everything
    // is in place.
    let tracing = Tracer::new(form).clause(clause).trace(target.pid());
    target.go();
    let finished = target.finish().success();
    assert!(finished.stdout.ends_with("OK\n"), "{}", finished.stdout);
    (finished, tracing.finish().success())
}

/// Standard output without nanoprobe's own lines.
fn without_messages(stdout: &str) -> String {
    stdout
        .lines()
        .filter(|line| !line.starts_with("nanoprobe: "))
        .map(|line| format!("{line}\n"))
        .collect()
}

/// How many hits nanoprobe said were missed: the sum over its lines `... N missed ...` or `... missed N ...`.
fn missed(stderr: &str) -> i64 {
    let lines = stderr.lines().filter(|line| line.contains("missed"));
    lines
        .filter_map(|line| line.split_whitespace().find_map(|word| word.parse::<i64>().ok()))
        .sum()
}
