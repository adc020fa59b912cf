//! `profile-N` without a process: compares the samples of the whole system with the processes' own account of their
//! time, and with the clock.

use std::process::Command;
use std::time::{Duration, Instant};

use nanoprobe_tests::command::Running;
use nanoprobe_tests::in_time::InTime as _;
use nanoprobe_tests::left_out::{has_another_user, left_out};
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::{function_of, said, stacks, table, values};
use nanoprobe_tests::tracer::{Form, Traced, Tracer, Tracing, start_waiting, start_waiting_as, wait_until_tracing};

/// The rate of the samples.
const RATE: i64 = 997;

/// Starts to sample the whole system, and returns when it is sampled.
fn sample(clause: &str) -> Tracing {
    started(Tracer::new(Form::Default).argument("-qv").clause(clause))
}

fn started(tracer: Tracer) -> Tracing {
    let mut tracing = tracer.start();
    wait_until_tracing(&mut tracing.running);
    tracing
}

/// Ends the tracing, in which nothing may have been lost.
fn end(tracing: Tracing) -> Traced {
    let traced = tracing.interrupt();
    let stderr = &traced.finished.stderr;
    assert!(!stderr.contains("lost") && !stderr.contains("drop"), "{stderr}");
    traced
}

/// Whether the kernel lets us sample all processes. If not, reports that the test is left out.
fn sees_everything(traced: &Traced) -> bool {
    let stderr = &traced.finished.stderr;
    let is_refused = stderr.contains("others are not sampled") || stderr.contains("profile probes see no process");
    if is_refused {
        left_out("samples of the whole system", "the kernel does not permit them here");
    }
    !is_refused
}

/// Whether the kernel lets a user sample its own processes. If not, reports that the test is left out.
fn may_sample(traced: &Traced) -> bool {
    let is_refused = traced.finished.stderr.contains("profile probes see no process");
    if is_refused {
        left_out(
            "samples of a user's own processes",
            "perf_event_open is not allowed here",
        );
    }
    !is_refused
}

/// The processor time that `sampled` says it has used, in ms.
fn worked(running: Running) -> i64 {
    let stdout = running.finish().success().stdout;
    said(&stdout, "hot_ms") + said(&stdout, "cold_ms")
}

/// How many samples the kernel has not given, as nanoprobe says. Some virtual machines give none of an idle processor.
fn told_missing(traced: &Traced) -> i64 {
    let lines = traced.finished.stderr.lines();
    let of_line = |line: &str| {
        let (_, rest) = line.split_once("the kernel gave ")?;
        let (given, rest) = rest.split_once(" of the ")?;
        let (due, _) = rest.split_once(" samples that were due on processor ")?;
        Some(due.parse::<i64>().ok()? - given.parse::<i64>().ok()?)
    };
    lines.filter_map(of_line).sum()
}

/// Samples of a number of milliseconds, in per cent of those that the rate demands.
fn percent_of_rate(samples: i64, milliseconds: i64) -> i64 {
    samples * 100 * 1000 / (RATE * milliseconds.max(1))
}

/// Three processes work for known times, together on the processors.
#[test]
fn each_process_has_the_samples_of_its_time() {
    let mut targets: Vec<Running> = [300, 600, 1200]
        .map(|time| start_waiting(&program("sampled.c"), &format!("work {time} 1")))
        .into();
    let tracing = sample("profile-997 /execname == \"sampled\"/ { @[pid] = count(); }");
    let pids: Vec<i32> = targets.iter().map(Running::pid).collect();
    targets.iter_mut().for_each(Running::go);
    let times: Vec<i64> = targets.into_iter().map(worked).collect();
    let traced = end(tracing);
    if !sees_everything(&traced) {
        return;
    }
    let rows = table(&traced.results);
    let counts: Vec<i64> = pids
        .iter()
        .map(|pid| rows.get(&pid.to_string()).copied().unwrap_or(0))
        .collect();
    let (all, whole): (i64, i64) = (counts.iter().sum(), times.iter().sum());
    assert!(
        (60..=115).contains(&percent_of_rate(all, whole)),
        "{counts:?} in {times:?} ms"
    );
    for (count, time) in counts.iter().zip(&times) {
        let (found, right) = (count * 100 / all, time * 100 / whole);
        assert!((found - right).abs() <= 6, "{counts:?} in {times:?} ms");
    }
}

/// Every processor is sampled at the rate, whatever it does. What the kernel does not give is told.
#[test]
fn all_samples_together_are_the_rate() {
    let mut target = start_waiting(&program("sampled.c"), "work 700 1");
    let tracing = sample(
        "profile-997 { @ = count(); @idle[execname == strjoin(\"swapper/\", lltostr(cpu)), pid == 0] = count(); }",
    );
    let start = Instant::now();
    target.go();
    worked(target);
    let elapsed = start.elapsed();
    let traced = end(tracing);
    // What came between the two moments and the first and the last sample.
    let longest = start.elapsed();
    if !sees_everything(&traced) {
        return;
    }
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as i64);
    let (all, idle) = traced.results.trim().split_once('\n').expect("two aggregations");
    let all = values(all).first().copied().unwrap_or(0) + told_missing(&traced);
    let milliseconds = |time: Duration| time.as_millis() as i64 * processors;
    let (least, most) = (
        percent_of_rate(all, milliseconds(elapsed)),
        percent_of_rate(all, milliseconds(longest)),
    );
    assert!(
        least >= 60 && most <= 110,
        "{all} samples in {elapsed:?} to {longest:?}"
    );
    for (row, _) in table(idle) {
        assert!(row == "0 0" || row == "1 1", "an idle processor runs swapper: {idle}");
    }
}

/// Each process's addresses have the names of its own code, also when it has ended. Both programs lie anywhere in their
/// address spaces (PIE).
#[test]
fn stacks_have_the_names_of_each_process() {
    let mut target = start_waiting(&program("sampled.c"), "work 400 2");
    let tracing = sample(
        "profile-997 /execname == \"sampled\" && arg1/ { @stacks[ustack()] = count(); @functions[ufunc(arg1)] = count(); }
         profile-997 /execname == \"shares\" && arg1/ { @stacks[ustack()] = count(); @functions[ufunc(arg1)] = count(); }
         END { printa(@stacks); printf(\"\\nfunctions\\n\"); printa(@functions); }",
    );
    target.go();
    let other = Command::new(program("shares.c"))
        .args(["70", "30", "4000000"])
        .status_in_time();
    assert!(other.expect("it runs").success());
    worked(target);
    let traced = end(tracing);
    if !sees_everything(&traced) {
        return;
    }
    let (found, functions) = traced.results.split_once("functions\n").expect("both aggregations");
    let functions = table(functions);
    let (left, right) = (functions["shares`left"], functions["shares`right"]);
    assert!((left * 100 / (left + right) - 70).abs() <= 8, "{functions:?}");
    let (hot, cold) = (functions["sampled`hot"], functions["sampled`cold"]);
    assert!((hot * 100 / (hot + cold) - 75).abs() <= 10, "{functions:?}");
    let (mut whole, mut all) = (0, 0);
    for (frames, count) in stacks(found) {
        let names: Vec<&str> = frames.iter().map(|frame| function_of(frame)).collect();
        all += count;
        let work = names.iter().position(|name| *name == "work");
        let above = work.and_then(|work| names.get(work + 1)).copied().unwrap_or_default();
        if ["main", "in_thread"].contains(&above) {
            whole += count;
        }
    }
    assert!(whole * 10 >= all * 9, "{whole} whole stacks of {all}: {found}");
}

/// The user's own processes are sampled without rights, with the children that they have meanwhile, and no others.
#[test]
fn a_user_samples_its_own_processes() {
    if !has_another_user() {
        return left_out("samples of a user's own processes", "there is no other user");
    }
    let mut of_root = start_waiting(&program("sampled.c"), "work 200 1");
    let mut own = start_waiting_as(&program("sampled.c"), "work 300 2", true);
    let mut parent = start_waiting_as(&program("sampled.c"), "fork 400", true);
    let clause = "profile-997 /execname == \"sampled\"/ { @[pid, ppid] = count(); @uid[uid] = count(); }
                  END { printa(@); printf(\"\\nusers\\n\"); printa(@uid); }";
    let tracer = Tracer::new(Form::Default)
        .argument("-qv")
        .clause(clause)
        .as_ordinary_user();
    let tracing = started(tracer);
    let (root_pid, own_pid) = (of_root.pid(), own.pid());
    let parent_pid = parent.pid();
    for target in [&mut of_root, &mut own, &mut parent] {
        target.go();
    }
    worked(of_root);
    let own_time = worked(own);
    parent.finish().success();
    let traced = end(tracing);
    if !may_sample(&traced) {
        return;
    }
    let stderr = &traced.finished.stderr;
    let told = stderr.lines().find(|line| line.contains("others are not sampled"));
    assert!(
        told.is_some_and(|line| line.contains("processes that you may trace")),
        "{stderr}"
    );
    let (rows, users) = traced.results.split_once("users\n").expect("both aggregations");
    assert_eq!(table(users).keys().collect::<Vec<_>>(), ["65534"], "{users}");
    let (mut own_count, mut of_child) = (0, 0);
    for (key, count) in table(rows) {
        let mut numbers = key.split(' ').map(|word| word.parse::<i32>().unwrap_or(0));
        match (numbers.next(), numbers.next()) {
            (Some(pid), _) if pid == own_pid => own_count = count,
            (_, Some(ppid)) if ppid == parent_pid => of_child = count,
            // The parent waits for its child.
            (Some(pid), _) if pid == parent_pid => assert!(count < 60, "{rows}"),
            (Some(pid), _) => assert_ne!(pid, root_pid, "{rows}"),
            (None, _) => panic!("no process: {rows}"),
        }
    }
    assert!(
        (60..=115).contains(&percent_of_rate(own_count, own_time)),
        "{own_count} in {own_time} ms: {rows}"
    );
    assert!(
        (60..=115).contains(&percent_of_rate(of_child, 400)),
        "{of_child} of a child: {rows}"
    );
}

/// A process that comes while the system is sampled, and is no child of one that is known, is counted once.
#[test]
fn a_process_that_comes_is_found() {
    if !has_another_user() {
        return left_out("samples of a user's own processes", "there is no other user");
    }
    let clause = "profile-997 /execname == \"sampled\"/ { @[pid] = count(); }";
    let tracer = Tracer::new(Form::Default)
        .argument("-qv")
        .clause(clause)
        .as_ordinary_user();
    let tracing = started(tracer);
    let mut target = start_waiting_as(&program("sampled.c"), "work 300 1", true);
    let pid = target.pid();
    // Two looks at least.
    std::thread::sleep(Duration::from_secs(2));
    target.go();
    let time = worked(target);
    let traced = end(tracing);
    if !may_sample(&traced) {
        return;
    }
    let count = table(&traced.results).get(&pid.to_string()).copied().unwrap_or(0);
    assert!(
        (60..=115).contains(&percent_of_rate(count, time)),
        "{count} in {time} ms"
    );
}

/// A process's name is the one that it had when it was sampled.
#[test]
fn a_program_that_is_executed_has_its_own_name() {
    let mut target = start_waiting(&program("sampled.c"), "exec 400");
    let clause = format!("profile-997 /pid == {}/ {{ @[execname] = count(); }}", target.pid());
    let tracing = sample(&clause);
    target.go();
    let time = worked(target);
    let traced = end(tracing);
    if !sees_everything(&traced) {
        return;
    }
    // execl() of /proc/self/exe makes this the name.
    let rows = table(&traced.results);
    assert!(
        (60..=115).contains(&percent_of_rate(rows["exe"], time)),
        "{rows:?} in {time} ms"
    );
    let others: i64 = rows
        .iter()
        .filter(|(name, _)| *name != "exe")
        .map(|(_, count)| count)
        .sum();
    assert!(others < 60, "{rows:?}");
}
