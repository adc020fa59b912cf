//! The merged results of several processes: stacks and symbols by name, samples, tools, JSON, and fifty processes at
//! once.

use std::collections::BTreeMap;
use std::process::Command;

use nanoprobe_tests::command::run;
use nanoprobe_tests::left_out::left_out;
use nanoprobe_tests::program::{copy_program, program};
use nanoprobe_tests::results::{stacks, table};
use nanoprobe_tests::tracer::{assert_nothing_lost, nanoprobe};

use crate::told::{BY_PROCESS, Told, end, pids, trace};

/// The processes have their text at different addresses, and equal names are one line.
#[test]
fn stacks_and_symbols_of_all_are_merged_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let other = folder.path().join("other");
    copy_program(&program("member.c"), &other);
    let mut told = vec![Told::start(), Told::start(), Told::of(&other)];
    let own = std::fs::read_link(format!("/proc/{}/exe", told[0].pid())).expect("a link");
    let own = own.file_name().expect("a name").to_string_lossy().into_owned();
    let tracing = trace(
        &["-p", &pids(&told), "-x", "aggsortkey"],
        &[
            "pid$target:a.out:called:entry { @stacks[ustack(2)] = count(); }",
            "pid$target:a.out:called:entry { @functions[ufunc(uregs[R_RIP])] = count(); @modules[umod(uregs[R_RIP])] = sum(2); }",
        ],
    );
    for (told, calls) in told.iter_mut().zip([10, 200, 3000]) {
        told.tell(&format!("call {calls}"));
    }
    let traced = tracing.interrupt();
    end(told);
    let counted = |calls: i64| BTreeMap::from([(own.clone(), 210 * calls), ("other".to_owned(), 3000 * calls)]);
    let functions = counted(1)
        .into_iter()
        .map(|(module, calls)| (format!("{module}`called"), calls));
    let rows = table(&traced.results);
    for (name, calls) in functions.chain(counted(2)) {
        assert_eq!(rows.get(&name), Some(&calls), "{name}: {}", traced.results);
    }
    let found = stacks(&traced.results);
    let found: BTreeMap<String, i64> = found
        .into_iter()
        .filter(|(frames, _)| frames.len() == 2 && frames[0].ends_with("`called"))
        .map(|(frames, calls)| (frames[0].replace("`called", ""), calls))
        .collect();
    assert_eq!(found, counted(1), "{}", traced.results);
}

/// The same for programs that are executed.
#[test]
fn stacks_of_executed_programs_are_merged_by_name() {
    let mut told = vec![Told::start()];
    let (file, pid) = (program("member.c").display().to_string(), told[0].pid().to_string());
    let clause = "pid$target:a.out:called:entry { @[ustack(1)] = count(); }";
    let tracing = trace(&["-p", &pid, "-x", "follow=exec"], &[clause]);
    told[0].tell("call 40");
    told[0].tell(&format!("execute {file} 300"));
    let traced = tracing.interrupt();
    end(told);
    let found = stacks(&traced.results);
    assert_eq!(
        found.iter().map(|(_, calls)| *calls).collect::<Vec<i64>>(),
        [340],
        "{}",
        traced.results
    );
}

#[test]
fn samples_are_of_all_processes() {
    let mut told: Vec<Told> = (0..2).map(|_| Told::start()).collect();
    let clause = "profile-997 { @[pid] = count(); @functions[ufunc(uregs[R_RIP])] = count(); }";
    let tracing = trace(&["-p", &pids(&told)], &[clause]);
    // Some tenths of a second.
    told.iter_mut().for_each(|told| told.tell("call 100000000"));
    let traced = tracing.interrupt();
    if traced.finished.stderr.contains("the kernel permits no samples") {
        left_out("samples of several processes", "perf_event_open is not allowed here");
        return;
    }
    let counted = table(&traced.results);
    for told in &told {
        let samples = counted.get(&told.pid().to_string()).copied().unwrap_or(0);
        assert!(samples > 0, "{}", traced.results);
    }
    // Idle processors are no samples.
    assert!(!counted.contains_key("0"), "{}", traced.results);
    end(told);
}

#[test]
fn tools_trace_sets() {
    let mut told: Vec<Told> = (0..2).map(|_| Told::start()).collect();
    let tool = ["tool", "funccount", "-v", "-p", &pids(&told), "a.out:called"].map(str::to_owned);
    let mut tracer = nanoprobe_tests::command::Running::start(Command::new(nanoprobe()).args(tool));
    nanoprobe_tests::tracer::wait_until_tracing(&mut tracer);
    told[0].tell("call 1234");
    told[1].tell("call 4321");
    tracer.signal(nix::sys::signal::Signal::SIGINT);
    let finished = tracer.finish().success();
    assert!(finished.stdout.contains("5555"), "{}", finished.stdout);
    end(told);
}

#[test]
fn json_has_one_object_for_each_process_that_ends() {
    let mut told: Vec<Told> = (0..2).map(|_| Told::start()).collect();
    let pids: Vec<i32> = told.iter().map(Told::pid).collect();
    let tracing = trace(
        &["-p", &crate::told::pids(&told), "--json"],
        &["pid$target:a.out:called:entry { trace(pid); @[ustack(1)] = count(); }"],
    );
    for mut told in told.drain(..) {
        told.tell("call 3");
        told.running.close_input();
        told.running.finish().success();
    }
    let traced = tracing.finish().success();
    let lines: Vec<&str> = traced.results.lines().collect();
    let of = |kind: &str, pid: i32| {
        let (kind, pid) = (format!("\"{kind}\""), pid.to_string());
        lines
            .iter()
            .filter(|line| line.contains(&kind) && line.contains(&pid))
            .count()
    };
    for pid in pids {
        assert_eq!((of("exited", pid), of("record", pid)), (1, 3), "{}", traced.results);
    }
    // A name that stands for several addresses has none.
    let stacks: Vec<&&str> = lines.iter().filter(|line| line.contains("`called")).collect();
    assert!(
        stacks.len() == 1 && !stacks[0].contains("address"),
        "{}",
        traced.results
    );
    assert!(stacks[0].contains("\"value\":6"), "{}", traced.results);
}

#[test]
fn fifty_processes_are_traced_at_once() {
    let mut told: Vec<Told> = (0..50).map(|_| Told::start()).collect();
    let tracing = trace(&["-p", &pids(&told)], &[BY_PROCESS]);
    for (index, told) in told.iter_mut().enumerate() {
        told.tell(&format!("call {}", 1 + 100 * index));
    }
    let listed = run(Command::new(nanoprobe()).args(["ps"]));
    for told in &told {
        let pid = told.pid().to_string();
        let is_it = |line: &&str| line.split_whitespace().next() == Some(&pid);
        assert_eq!(listed.stdout.lines().filter(is_it).count(), 1, "{}", listed.stdout);
    }
    let traced = tracing.interrupt();
    assert_nothing_lost(&traced.finished.stderr);
    let said = end(told);
    assert_eq!(said.len(), 50);
    assert_eq!(table(&traced.results), said, "{}", traced.finished.stderr);
}
