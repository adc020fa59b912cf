//! `profile-...`: compares the samples of the threads with the program's own account of its time.
//!
//! A sample is taken after a fixed amount of a thread's time on a processor, so the number of samples does not depend
//! on how busy the machine is; on a virtual machine some samples may be skipped.

use std::process::Command;

use nanoprobe_tests::command::run;
use nanoprobe_tests::left_out::left_out;
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::{function_of, said, stacks, table, value, values};
use nanoprobe_tests::tracer::{Form, Traced, Tracer, nanoprobe, start_waiting};

/// Whether the kernel permits samples. If not, reports that the test is left out.
fn may_sample(traced: &Traced) -> bool {
    let refused = traced.finished.stderr.contains("the kernel permits no samples");
    if refused {
        left_out("profile probes", "perf_event_open is not allowed here");
    }
    !refused
}

fn sampled(clause: &str, arguments: &str) -> Option<Traced> {
    let tracer = Tracer::new(Form::Default).argument("-q").clause(clause);
    let traced = tracer.command(&program("sampled.c"), arguments).run().complete();
    may_sample(&traced).then_some(traced)
}

/// Per cent of a whole.
fn percent(part: i64, whole: i64) -> i64 {
    part * 100 / whole.max(1)
}

#[test]
fn samples_are_proportional_to_time() {
    let clause = "profile-997 /pid == $target/ { @[ufunc(uregs[R_RIP])] = count(); }";
    let Some(traced) = sampled(clause, "work 600 1") else {
        return;
    };
    let rows = table(&traced.results);
    let (hot, cold) = (rows["sampled`hot"], rows["sampled`cold"]);
    let said = |name| said(&traced.finished.stdout, name);
    // Each of some 600 samples is in hot() with a probability of 3/4: the deviation is 2 of a hundred.
    let (found, right) = (
        percent(hot, hot + cold),
        percent(said("hot_ms"), said("hot_ms") + said("cold_ms")),
    );
    assert!(
        (found - right).abs() <= 10,
        "{found} per cent of the samples, {right} of the time: {rows:?}"
    );
    let taken = percent(rows.values().sum(), (said("hot_ms") + said("cold_ms")) * 997 / 1000);
    assert!((50..=115).contains(&taken), "{taken} per cent of the samples: {rows:?}");
}

/// Samples show threads from before and after the attach, each with its whole stack.
#[test]
fn a_sample_has_its_threads_stack() {
    let mut target = start_waiting(&program("sampled.c"), "work 150 6");
    let clause = "profile-997 /pid == $target && arg1/ { @stacks[ustack()] = count(); @threads[tid] = count(); }
                  END { printa(@stacks); printf(\"\\nthreads\\n\"); printa(@threads); }";
    let tracing = Tracer::new(Form::Default)
        .argument("-q")
        .clause(clause)
        .attach(target.pid());
    target.go();
    target.finish().success();
    let traced = tracing.finish().success();
    if !may_sample(&traced) {
        return;
    }
    let (found, threads) = traced.results.split_once("threads\n").expect("both aggregations");
    assert_eq!(table(threads).len(), 6, "{threads}");
    let (mut whole, mut cut) = (0, 0);
    for (frames, count) in stacks(found) {
        let names: Vec<&str> = frames.iter().map(|frame| function_of(frame)).collect();
        let Some(work) = names.iter().position(|name| *name == "work") else {
            // The sample is at the beginning or end of a thread.
            cut += count;
            continue;
        };
        let above = names.get(work + 1).copied().unwrap_or_default();
        assert!(
            ["main", "in_thread"].contains(&above),
            "work() is called there: {names:?}"
        );
        assert!(names.len() > work + 2, "somebody started the thread: {names:?}");
        let within = names.get(..work).unwrap_or_default();
        assert!(
            within.iter().any(|name| ["hot", "cold"].contains(name)) || within.len() <= 4,
            "{names:?}"
        );
        whole += count;
    }
    assert!(whole > 10 * cut, "{whole} whole stacks, {cut} others: {found}");
}

#[test]
fn a_sample_is_of_its_thread() {
    let clause = "profile-499 /pid == $target && execname == \"sampled\" && progenyof($target)/
                  { @[tid == $target, arg0 != 0 || arg1 == uregs[R_PC], cpu < 4096,
                      curpsinfo->pr_psargs == \"\", ppid == $ppid] = count(); @time = max(vtimestamp); }
                  END { printa(@); printa(\"time %@d\\n\", @time); }";
    let Some(traced) = sampled(clause, "work 300 1") else {
        return;
    };
    let (rows, time) = traced.results.split_once("time").expect("both aggregations");
    let rows = table(rows);
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert!(rows["1 1 1 0 0"] > 50, "{rows:?}");
    assert!(value(time) > 10_000_000, "ns on a processor: {time}");
}

/// The program's own probes and the samples see the same variables.
#[test]
fn a_sample_sees_its_threads_variables() {
    let clause = "pid$target:a.out:work:entry { self->depth = 5; self->known[3] = 7; before = 11; }
                  profile-499 /pid == $target/ { self->seen++; @[self->depth, self->known[3], before] = count(); }
                  pid$target:a.out:work:return { @seen = sum(self->seen); }
                  END { printa(@); printa(\"seen %@d\\n\", @seen); }";
    let Some(traced) = sampled(clause, "work 150 3") else {
        return;
    };
    let (rows, seen) = traced.results.split_once("seen").expect("both aggregations");
    let rows = table(rows);
    assert!(rows["5 7 11"] > 100, "{rows:?}");
    // Values that were added after work() has been left are not in the sum any more.
    let all: i64 = rows.values().sum();
    assert!((1..=all).contains(&value(seen)), "{seen} of {rows:?}");
}

#[test]
fn a_forked_child_is_not_sampled() {
    let clause = "profile-997 /pid == $target/ { @ = count(); }";
    let Some(traced) = sampled(clause, "fork 300") else {
        return;
    };
    let count = values(&traced.results).first().copied().unwrap_or(0);
    assert!(count < 60, "the parent sleeps: {}", traced.results);
}

/// If the process executes another program there, this program is sampled, too, with its own name and functions.
#[test]
fn a_program_that_is_executed_is_sampled() {
    let clause = "profile-997 /pid == $target && arg1/ { @[execname, ufunc(arg1)] = count(); }";
    let tracer = Tracer::new(Form::Default).argument("-q").clause(clause);
    let traced = tracer.command(&program("sampled.c"), "exec 400").run().success();
    if !may_sample(&traced) {
        return;
    }
    let rows = table(&traced.results);
    assert!(
        rows.get("exe sampled`hot").is_some_and(|count| *count > 100),
        "{rows:?}"
    );
}

/// The probe also fires if no thread of the target is on a processor; then it fires in the tracer.
#[test]
fn a_profile_fires_for_every_processor() {
    let clause = "profile-97 { @[pid == $target] = count(); } tick-97 { ticks++; }
                  END { printa(@); printf(\"ticks %d\\n\", ticks); }";
    let Some(traced) = sampled(clause, "sleep 700") else {
        return;
    };
    let (rows, ticks) = traced.results.split_once("ticks").expect("the number of ticks");
    let (rows, ticks) = (table(rows), value(ticks));
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as i64;
    assert!(rows.get("1").copied().unwrap_or(0) < 10, "it sleeps: {rows:?}");
    let all = rows.values().sum::<i64>();
    assert!(
        (all - ticks * processors).abs() <= 4 * processors,
        "{rows:?} of {ticks} ticks, {processors} processors"
    );
}

#[test]
fn too_few_descriptors_are_reported() {
    let mut target = start_waiting(&program("threads.c"), "60 1000 early");
    let script =
        "ulimit -Hn 40; ulimit -n 40; exec \"$0\" -q -n 'profile-97 { @ = count(); } tick-300ms { exit(0); }' -p $1";
    let pid = target.pid().to_string();
    let finished = run(Command::new("sh").args(["-c", script]).arg(nanoprobe()).arg(&pid));
    let refused = finished.stderr.contains("the kernel permits no samples");
    assert!(refused || finished.stderr.contains("ulimit -n"), "{}", finished.stderr);
    assert_eq!(finished.code(), 0, "the probe fires in the tracer: {}", finished.stderr);
    target.go();
    target.finish().success();
}
