//! The tracer is killed by SIGKILL, at many points of attach, trace and detach: the target runs on
//! unharmed, and `nanoprobe restore PID` restores everything.
//!
//! Two ways to choose the point. By time: a delay, spread over the length of each phase. By system call: strace kills
//! the tracer when it enters the Nth ptrace, pwrite64, ... - every step of the protocol exactly, on any machine.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;
use std::time::{Duration, Instant};

use nanoprobe_tests::busy::Target;
use nanoprobe_tests::command::{Running, run};
use nanoprobe_tests::left_out::need_command;
use nanoprobe_tests::program::program;
use nanoprobe_tests::text::{is_patched, ptracer};
use nanoprobe_tests::tracer::{Form, Tracer, nanoprobe, start_waiting};
use nanoprobe_tests::{live_tests, number_from_environment};
use nix::sys::signal::Signal;

const CLAUSE: &str = "pid$target:a.out::entry,pid$target:a.out::return,pid$target:libc:malloc:entry,
                      pid$target:libc:malloc:return { @[probefunc] = count(); }";

/// A tracer. For kills of an odd number nanoprobe chooses how the probes are written (in a stop, because they are few).
/// For the others they are written by the breakpoint protocol.
fn tracer(form: Form, kill: u64) -> Tracer {
    let stop = if kill.is_multiple_of(2) { "never" } else { "auto" };
    Tracer::new(form).argument("-x").argument(format!("stop={stop}"))
}

/// The state that a kill must leave.
trait Killed {
    #[track_caller]
    fn assert_survives_and_restore(&mut self, when: &str);
}

impl Killed for Target {
    /// After a kill the target is alive, released, and makes progress; then it is restored to the byte.
    #[track_caller]
    fn assert_survives_and_restore(&mut self, when: &str) {
        // The kernel releases a dead tracer's threads by itself; that takes a moment.
        self.busy.wait_until(&format!("being let go of ({when})"), |busy| {
            ptracer(busy.pid()) == Some(0) && threads_in_state(busy.pid(), &['T', 't']) == 0
        });
        assert!(self.busy.is_running(), "the target died: {when}");
        let before = processor_ticks(self.pid());
        self.busy.wait_until(&format!("working on ({when})"), |busy| {
            processor_ticks(busy.pid()) > before
        });
        let restored = run(Command::new(nanoprobe()).args(["restore", &self.pid().to_string()]));
        // A tracer that dies before its first change leaves nothing. Then a message that says so is a valid answer.
        let said = format!("{}{}", restored.stdout, restored.stderr);
        assert!(
            restored.code() == 0 || said.contains("nothing to restore"),
            "restore after {when}: {said}"
        );
        assert!(self.busy.is_running(), "the target died of restore: {when}");
        self.snapshot.assert_identical(self.pid());
    }
}

fn threads_in_state(pid: i32, states: &[char]) -> usize {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return 0;
    };
    tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("stat")).ok())
        .filter(|stat| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(states)))
        .count()
}

/// User and system time of a process, in clock ticks.
fn processor_ticks(pid: i32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat
        .rsplit_once(") ")
        .map_or(vec![], |(_, rest)| rest.split(' ').collect());
    [11, 12]
        .iter()
        .filter_map(|&index| fields.get(index)?.parse::<u64>().ok())
        .sum()
}

live_tests! {
    fn killed_during_attach(form) {
        let mut target = Target::start();
        let started = Instant::now();
        Tracer::new(form).clause(CLAUSE).attach(target.pid()).interrupt();
        let length = started.elapsed();
        let kills = number_from_environment("NANOPROBE_KILLS", 20);
        for kill in 0..kills {
            let delay = length.mul_f64((kill as f64 + 0.5) / kills as f64);
            let tracing = tracer(form, kill).clause(CLAUSE).process(target.pid()).start();
            std::thread::sleep(delay);
            tracing.running.signal(Signal::SIGKILL);
            tracing.finish();
            target.assert_survives_and_restore(&format!("kill -9 {delay:?} after the start"));
        }
        target.finish();
    }

    /// `restore` learns from the arena what the dead tracer has done.
    fn i8_killed_while_tracing(form) {
        let mut target = Target::start();
        for _ in 0..number_from_environment("NANOPROBE_KILLS", 20).div_ceil(4) {
            let tracing = Tracer::new(form).clause(CLAUSE).attach(target.pid());
            std::thread::sleep(Duration::from_millis(20));
            tracing.running.signal(Signal::SIGKILL);
            tracing.finish();
            assert!(is_patched(target.pid()), "a killed tracer cannot have restored the text");
            target.assert_survives_and_restore("kill -9 while tracing");
        }
        target.finish();
    }

    fn killed_during_detach(form) {
        let mut target = Target::start();
        let tracing = Tracer::new(form).clause(CLAUSE).attach(target.pid());
        let started = Instant::now();
        tracing.interrupt();
        let length = started.elapsed();
        let kills = number_from_environment("NANOPROBE_KILLS", 20);
        for kill in 0..kills {
            let delay = length.mul_f64((kill as f64 + 0.5) / kills as f64);
            let tracing = tracer(form, kill).clause(CLAUSE).attach(target.pid());
            tracing.running.signal(Signal::SIGINT);
            std::thread::sleep(delay);
            tracing.running.signal(Signal::SIGKILL);
            tracing.finish();
            target.assert_survives_and_restore(&format!("kill -9 {delay:?} after Ctrl-C"));
        }
        target.finish();
    }

    /// The next attach also cleans up, without `restore`.
    fn the_next_attach_cleans_up(form) {
        let mut target = Target::start();
        for _ in 0..3 {
            let tracing = Tracer::new(form).clause(CLAUSE).attach(target.pid());
            tracing.running.signal(Signal::SIGKILL);
            tracing.finish();
            let clause = "pid$target:a.out:busy_work:entry { @ = count(); } tick-50ms { exit(0); }";
            Tracer::new(form).clause(clause).process(target.pid()).run().success();
            target.snapshot.assert_identical(target.pid());
        }
        target.assert_survives_and_restore("an attach that cleaned up");
        target.finish();
    }

    /// A target that ends, forks and loads libraries while its tracer is dead: the patches continue to work.
    fn an_orphaned_target_ends_well(form) {
        let mut target = start_waiting(&program("forkstorm.c"), "10 200");
        let clause = "pid$target:a.out::entry,pid$target:a.out::return { @[probefunc] = count(); }";
        let tracing = Tracer::new(form).clause(clause).attach(target.pid());
        tracing.running.signal(Signal::SIGKILL);
        tracing.finish();
        target.go();
        assert!(target.finish().success().stdout.ends_with("OK\n"));
    }
}

/// Kills at the Nth call of every kind of system call that the tracer makes from attach to detach.
#[test]
fn killed_at_every_kind_of_system_call() {
    let Some(strace) = need_command("SIGKILL at exact system calls", "strace") else {
        return;
    };
    let mut target = Target::start();
    let clause = format!("{CLAUSE} tick-100ms {{ exit(0); }}");
    let calls =
        "ptrace,pwrite64,pwritev,process_vm_writev,write,wait4,waitid,kill,tgkill,mmap,munmap,memfd_create,sendmsg";
    let strace_nanoprobe = |pid: i32, extra: &[&str], log: &std::path::Path| {
        let pid = pid.to_string();
        let mut command = Command::new(&strace);
        // Without -f, because the injection must count only the main thread's calls, and -f would also follow our
        // children.
        command
            .args(["-qq", "-e", &format!("trace={calls}")])
            .args(extra)
            .arg("-o")
            .arg(log);
        command
            .arg("--")
            .arg(nanoprobe())
            .args(["-q", "-x", "stop=never", "-n", &clause, "-p", &pid]);
        command
    };

    // The number of calls of each kind in a whole run.
    let log = tempfile::NamedTempFile::new().expect("a temporary file");
    run(&mut strace_nanoprobe(target.pid(), &[], log.path())).success();
    let text = std::fs::read_to_string(log.path()).expect("the log");
    let mut totals: BTreeMap<&str, u64> = BTreeMap::new();
    for line in text.lines() {
        if let Some((name, _)) = line.split_once('(') {
            *totals.entry(name).or_default() += 1;
        }
    }
    assert!(
        totals.contains_key("ptrace"),
        "the tracer made no ptrace call:\n{totals:?}"
    );
    target.snapshot.assert_identical(target.pid());

    let points = number_from_environment("NANOPROBE_KILLS", 20);
    let kills: Vec<(&str, u64)> = totals
        .iter()
        .flat_map(|(&name, &total)| {
            let points = points.min(total);
            (0..points).map(move |point| (name, 1 + point * (total - 1) / points.max(2).saturating_sub(1)))
        })
        .filter(|&(name, at)| at <= totals[name])
        .collect();
    let mut failures = Vec::new();
    for (name, at) in kills {
        let when = format!("kill -9 at {name} number {at} of {}", totals[name]);
        let inject = format!("inject={name}:signal=KILL:when={at}");
        let mut running = Running::start(&mut strace_nanoprobe(target.pid(), &["-e", &inject], log.path()));
        running.close_input();
        running.finish();
        // Each point is judged separately: a target that was harmed is replaced.
        let outcome = catch_unwind(AssertUnwindSafe(|| target.assert_survives_and_restore(&when)));
        if let Err(reason) = outcome {
            failures.push(format!(
                "{when}: {}",
                reason.downcast_ref::<String>().map_or("", String::as_str)
            ));
            target = Target::start();
        }
    }
    target.finish();
    assert!(
        failures.is_empty(),
        "{} points:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

/// The target is killed at any moment of the attach: the tracer ends by itself, and reports the target's end.
#[test]
fn the_target_is_killed_during_attach() {
    let mut before = 0;
    let mut length = Duration::from_millis(300);
    let kills = number_from_environment("NANOPROBE_KILLS", 20).div_ceil(2);
    for kill in 0..kills {
        let mut busy = start_waiting(&program("busy.c"), "3");
        busy.go();
        busy.wait_for("working\n");
        let started = Instant::now();
        if kill == 0 {
            Tracer::new(Form::Default).clause(CLAUSE).attach(busy.pid()).interrupt();
            length = started.elapsed();
        }
        let delay = length.mul_f64((kill as f64 + 0.5) / kills as f64);
        let tracing = tracer(Form::Default, kill).clause(CLAUSE).process(busy.pid()).start();
        std::thread::sleep(delay);
        busy.signal(Signal::SIGKILL);
        assert_eq!(busy.finish().code(), 137);
        let finished = tracing.finish().finished;
        // If the tracer was already attached, the target's end ends the session.
        let gone = [
            "has ended",
            " ended in the middle",
            "its memory is gone",
            "No such process",
            // The tracer had not even looked at the target yet.
            "does not exist",
        ];
        let says_so = gone.iter().any(|words| finished.stderr.contains(words));
        match finished.code() {
            0 => {}
            1 if says_so => before += 1,
            _ => panic!("killed after {delay:?}: {finished:?}"),
        }
    }
    assert!(before > 0, "no kill came before the probes");
}

/// `restore` harms nothing if there is nothing to restore, or if it runs twice.
#[test]
fn restore_of_an_untouched_program() {
    let mut target = Target::start();
    for _ in 0..2 {
        target.assert_survives_and_restore("nothing");
    }
    target.finish();
    let gone = run(Command::new(nanoprobe()).args(["restore", "1073741808"]));
    assert_ne!(gone.code(), 0);
    assert!(gone.stderr.contains("1073741808"), "{}", gone.stderr);
}
