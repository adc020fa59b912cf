//! Attach and detach, again and again, on a busy program of several threads. After each cycle the
//! text is that of the file and the map is the same, and in the end nothing has grown.

use std::process::Command;
use std::time::Duration;

use nanoprobe_tests::command::Running;
use nanoprobe_tests::program::{Build, need_program, program};
use nanoprobe_tests::results::{said, table, value};
use nanoprobe_tests::text::Snapshot;
use nanoprobe_tests::tracer::{Form, Tracer, start_waiting};
use nanoprobe_tests::{live_tests, number_from_environment};

/// In turn: one function; both ends of all of the program's functions; hot functions of libc; stacks and strings;
/// records.
const CLAUSES: [&str; 5] = [
    "pid$target:a.out:busy_work:entry { @[probefunc] = count(); }",
    "pid$target:a.out::entry,pid$target:a.out::return { @[probefunc] = count(); }",
    "pid$target:libc:malloc:entry,pid$target:libc:malloc:return,pid$target:libc:free:entry,
     pid$target:libc:*printf*:entry,pid$target:libc:*printf*:return,pid$target:libc:strlen:entry { @[probefunc] = count(); }",
    "pid$target:a.out:busy_work:entry { @[copyinstr(arg1)] = count(); }
     pid$target:a.out:busy_compare:entry { @stacks[ustack(8)] = count(); }",
    "pid$target:a.out:busy_signal:entry { @[probefunc] = count(); }
     pid$target:a.out:busy_recursion:return { @values[arg1] = count(); }",
];

fn resident_kib(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("its status");
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .expect("a resident size");
    line.split_whitespace()
        .nth(1)
        .expect("a number")
        .parse()
        .expect("a number")
}

fn start_busy(threads: u32) -> Running {
    let mut busy = start_waiting(&program("busy.c"), &threads.to_string());
    busy.go();
    busy.wait_for("working\n");
    // After this, all threads have their stacks and malloc arenas, so the map is stable.
    busy
}

live_tests! {
    fn the_text_is_the_files_after_each(form) {
        let cycles = number_from_environment("NANOPROBE_CYCLES", 100);
        let cycles = if form == Form::Trap { cycles.div_ceil(5) } else { cycles };
        let mut busy = start_busy(4);
        let snapshot = Snapshot::take(busy.pid());
        let mut resident_early = 0;
        for cycle in 0..cycles {
            let clause = CLAUSES[cycle as usize % CLAUSES.len()];
            let tracing = Tracer::new(form).clause(clause).attach(busy.pid());
            // The lengths of tracing differ, so that the detach meets different places.
            std::thread::sleep(Duration::from_micros(cycle * 977 % 20_000));
            tracing.interrupt();
            snapshot.assert_identical(busy.pid());
            if cycle == cycles / 4 {
                resident_early = resident_kib(busy.pid());
            }
        }
        // Pages of text that were written stay private. This happens only once, so the memory does not grow with the
        // cycles.
        let resident = resident_kib(busy.pid());
        assert!(resident <= resident_early + 512, "{resident_early} KiB became {resident} KiB");
        busy.write("stop\n");
        assert!(said(&busy.finish().success().stdout, "calls") > 0);
    }
}

/// Hits happen in every cycle: a text could also be clean because it was never patched.
#[test]
fn every_cycle_counts() {
    let mut busy = start_busy(2);
    for _ in 0..10 {
        let tracing = Tracer::new(Form::Default).clause(CLAUSES[0]).attach(busy.pid());
        busy.wait_until_worked(Duration::from_millis(50));
        let traced = tracing.interrupt();
        assert!(table(&traced.results)["busy_work"] > 1000, "{}", traced.results);
    }
    busy.write("stop\n");
    busy.finish().success();
}

/// Go blocks signals by its own system calls, and its handlers run with all of them blocked. A thread may be in a
/// handler when we attach. It must not keep the mask of that handler, or the next nil dereference would kill the
/// process.
#[test]
fn a_go_program_full_of_signals_and_faults() {
    let Some(path) = need_program("gosignals.go", Build::Go) else {
        return;
    };
    let mut busy = Running::start(&mut Command::new(path));
    busy.wait_for("working\n");
    for cycle in 0..25 {
        let clause = "pid$target:::entry { @ = count(); }";
        let tracing = Tracer::new(Form::Default).clause(clause).attach(busy.pid());
        busy.wait_until_worked(Duration::from_millis(20 + cycle * 7));
        let traced = tracing.interrupt();
        assert!(value(&traced.results) > 1000, "{}", traced.results);
    }
    busy.close_input();
    let finished = busy.finish().success();
    assert!(finished.stdout.ends_with("OK\n"), "{}", finished.stdout);
}
