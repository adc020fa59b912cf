//! Sets of processes (`-p A,B`, `-p NAME`): each call of each process is counted once, under its number, in one set of
//! aggregations, and the text of all is restored.

use std::collections::BTreeMap;
use std::process::Command;

use nanoprobe_tests::command::{Running, run};
use nanoprobe_tests::program::{copy_program, program};
use nanoprobe_tests::results::table;
use nanoprobe_tests::tracer::{Form, Tracer, assert_nothing_lost, nanoprobe, wait_until_tracing};
use nix::sys::signal::Signal;

use crate::told::{BY_PROCESS, Told, end, pids, trace};

#[test]
fn each_process_of_a_list_is_counted_under_its_number() {
    let mut told: Vec<Told> = (0..3).map(|_| Told::start()).collect();
    // One process is named twice.
    let list = format!("{},{}", pids(&told), told[0].pid());
    let more = told[1].pid().to_string();
    let tracing = trace(
        &["-p", &list, "-p", &more],
        &[
            BY_PROCESS,
            "BEGIN { printf(\"began\\n\"); } END { printf(\"ended\\n\"); }",
            "pid$target:a.out:called:entry / pid != $target || execname != \"member\" && 0 / { printf(\"wrong\\n\"); }",
        ],
    );
    for (calls, told) in [100, 2_000, 30_000].into_iter().zip(&mut told) {
        told.tell(&format!("call {calls}"));
        told.tell("call 7");
    }
    let listed = run(Command::new(nanoprobe()).args(["ps", "--json"]));
    for told in &told {
        let row = format!("\"pid\":{},", told.pid());
        let rows = listed
            .stdout
            .lines()
            .filter(|line| line.replace(' ', "").contains(&row));
        assert_eq!(rows.count(), 1, "{}", listed.stdout);
    }
    let traced = tracing.interrupt();
    for (once, times) in [("began", 1), ("ended", 1), ("wrong", 0)] {
        assert_eq!(traced.results.matches(once).count(), times, "{}", traced.results);
    }
    assert_nothing_lost(&traced.finished.stderr);
    let said = end(told);
    assert_eq!(said.values().sum::<i64>(), 32_100 + 21);
    assert_eq!(table(&traced.results), said, "{}", traced.finished.stderr);
}

#[test]
fn a_description_with_a_number_is_for_that_process() {
    let mut told: Vec<Told> = (0..3).map(|_| Told::start()).collect();
    let (one, list) = (told[1].pid(), pids(&told));
    let clause = format!("pid{one}:a.out:called:entry {{ @[pid] = count(); }}");
    let tracing = trace(
        &["-p", &list],
        &[&clause, "pid$target:a.out:called:entry { @all = count(); }"],
    );
    told.iter_mut().for_each(|told| told.tell("call 50"));
    let traced = tracing.interrupt();
    assert!(traced.results.contains("150"), "{}", traced.results);
    let counted = table(&traced.results);
    assert_eq!(counted.get(&one.to_string()), Some(&50), "{}", traced.results);
    for told in &told {
        assert_eq!(counted.contains_key(&told.pid().to_string()), told.pid() == one);
    }
    end(told);
}

/// BEGIN's values are there in each process, and each has its own from there on.
#[test]
fn variables_begin_as_begin_leaves_them() {
    let mut told: Vec<Told> = (0..2).map(|_| Told::start()).collect();
    let tracing = trace(
        &["-p", &pids(&told)],
        &[
            "BEGIN { first = 40; name = \"begun\"; of[3] = 2; }",
            "pid$target:a.out:called:entry { first++; @[pid, name] = max(first + of[3]); }",
        ],
    );
    told[0].tell("call 10");
    told[1].tell("call 100");
    let traced = tracing.interrupt();
    for (told, last) in told.iter().zip([52, 142]) {
        let line = traced
            .results
            .lines()
            .find(|line| line.contains(&told.pid().to_string()));
        let words: Vec<&str> = line.unwrap_or_default().split_whitespace().collect();
        assert_eq!(words[1..], ["begun", &last.to_string()], "{}", traced.results);
    }
    end(told);
}

#[test]
fn the_run_ends_with_the_last_process_and_the_results_of_all_stay() {
    let mut told: Vec<Told> = (0..3).map(|_| Told::start()).collect();
    let tracing = trace(&["-p", &pids(&told)], &[BY_PROCESS]);
    let mut said = BTreeMap::new();
    // The first one, which has given the program its types, ends first.
    while !told.is_empty() {
        told.iter_mut().for_each(|told| told.tell("call 1000"));
        let mut first = told.remove(0);
        said.extend(first.said());
        first.running.close_input();
        first.running.finish().success();
    }
    let traced = tracing.finish().success();
    assert_eq!(
        said.values().copied().collect::<std::collections::BTreeSet<_>>(),
        [1000, 2000, 3000].into()
    );
    assert_eq!(table(&traced.results), said, "{}", traced.finished.stderr);
    assert_eq!(
        traced.finished.stderr.matches("has ended").count(),
        3,
        "{}",
        traced.finished.stderr
    );
}

#[test]
fn different_programs_are_counted_in_one_table() {
    let folder = tempfile::tempdir().expect("a folder");
    let other = folder.path().join("another");
    copy_program(&program("member.c"), &other);
    let mut told = vec![Told::start(), Told::of(&other)];
    let mut bash = Running::start(Command::new("/bin/sh").args(["-c", "read line"]));
    let list = format!("{},{}", pids(&told), bash.pid());
    let tracing = trace(
        &["-p", &list],
        &["pid$target:libc:malloc:entry { @[execname, pid] = count(); }"],
    );
    told[0].tell("allocate 500");
    told[1].tell("allocate 900");
    let traced = tracing.interrupt();
    bash.close_input();
    bash.finish();
    for (told, calls) in told.iter().zip(["500", "900"]) {
        let line = traced
            .results
            .lines()
            .find(|line| line.contains(&told.pid().to_string()));
        let line = line.unwrap_or_else(|| panic!("{}", traced.results));
        assert!(line.trim_end().ends_with(calls), "{line}");
        let name = std::fs::read_to_string(format!("/proc/{}/comm", told.pid())).expect("a name");
        assert!(line.contains(name.trim_end()), "{line}");
    }
    end(told);
}

#[test]
fn one_that_cannot_be_attached_is_told_and_the_others_are_traced() {
    let mut told: Vec<Told> = (0..2).map(|_| Told::start()).collect();
    let gone = {
        let mut told = Told::start();
        told.running.close_input();
        let pid = told.pid();
        told.running.finish().success();
        pid
    };
    let list = format!("{},{gone},{}", told[0].pid(), told[1].pid());
    let tracing = trace(&["-p", &list], &[BY_PROCESS]);
    told.iter_mut().for_each(|told| told.tell("call 33"));
    let traced = tracing.interrupt();
    let said = format!("process {gone} is not traced: ");
    assert!(traced.finished.stderr.contains(&said), "{}", traced.finished.stderr);
    assert_eq!(table(&traced.results), end(told));
    let list = format!("{gone},{}", i32::MAX);
    let none = Tracer::new(Form::Default)
        .argument("-p")
        .argument(&list)
        .clause(BY_PROCESS)
        .run();
    assert_eq!(none.finished.code(), 1, "{}", none.finished.stderr);
    assert!(
        none.finished.stderr.contains("none of the processes"),
        "{}",
        none.finished.stderr
    );
}

#[test]
fn a_description_that_matches_in_no_process_is_refused() {
    let told: Vec<Told> = (0..2).map(|_| Told::start()).collect();
    let refused = |clause: &str| {
        let tracer = Tracer::new(Form::Default).argument("-p").argument(pids(&told));
        let traced = tracer.clause(clause).run();
        assert_eq!(traced.finished.code(), 1, "{clause}: {}", traced.finished.stderr);
        traced.finished.stderr
    };
    let said = refused("BEGIN { printf(\"began\"); } pid$target:a.out:caled:entry { @ = count(); }");
    assert!(said.contains("did you mean called"), "{said}");
    let said = refused(&format!(
        "pid{}:a.out:nothing_such:entry {{ @ = count(); }}",
        told[1].pid()
    ));
    assert!(said.contains("nothing_such"), "{said}");
    let said = refused("pid1:a.out:called:entry { @ = count(); }");
    assert!(said.contains("name it by -p"), "{said}");
    end(told);
}

#[test]
fn exit_in_one_process_ends_the_run_of_all() {
    let mut told: Vec<Told> = (0..3).map(|_| Told::start()).collect();
    let last = told[2].pid();
    let tracing = trace(
        &["-p", &pids(&told)],
        &[BY_PROCESS, &format!("pid{last}:a.out:called:entry {{ exit(7); }}")],
    );
    told.iter_mut().for_each(|told| told.tell("call 1"));
    let traced = tracing.finish();
    assert_eq!(traced.finished.code(), 7, "{}", traced.finished.stderr);
    let said = end(told);
    assert_eq!(table(&traced.results), said);
}

/// Processes end while they are attached to, one after the other.
#[test]
fn processes_that_end_meanwhile_harm_nobody() {
    for end_at in 0..8 {
        let mut told: Vec<Told> = (0..4).map(|_| Told::start()).collect();
        let mut tracer = Tracer::new(Form::Default)
            .argument("-v")
            .argument("-p")
            .argument(pids(&told));
        tracer = tracer.clause(BY_PROCESS);
        let mut tracing = tracer.start();
        // At different moments of attaching: no result depends on which.
        std::thread::sleep(std::time::Duration::from_millis(10 * end_at));
        for told in told.drain(1..3) {
            told.running.signal(Signal::SIGKILL);
            told.running.finish();
        }
        wait_until_tracing(&mut tracing.running);
        told.iter_mut().for_each(|told| told.tell("call 12"));
        let traced = tracing.interrupt();
        assert_eq!(table(&traced.results), end(told), "{}", traced.finished.stderr);
    }
}

#[test]
fn all_processes_of_a_killed_tracer_are_restored() {
    let mut told: Vec<Told> = (0..3).map(|_| Told::start()).collect();
    let tracing = trace(&["-p", &pids(&told)], &[BY_PROCESS]);
    told.iter_mut().for_each(|told| told.tell("call 100"));
    tracing.running.signal(Signal::SIGKILL);
    tracing.finish();
    told.iter_mut().for_each(|told| told.tell("call 100"));
    // Not `--all`: other tests have dead tracers, too.
    for told in &told {
        run(Command::new(nanoprobe()).args(["restore", &told.running.pid().to_string()])).success();
    }
    told.iter_mut().for_each(|told| told.tell("call 100"));
    end(told);
}

#[test]
fn a_name_means_all_processes_that_have_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let name = format!("named{}", std::process::id());
    let path = folder.path().join(&name);
    copy_program(&program("member.c"), &path);
    let mut told: Vec<Told> = (0..3).map(|_| Told::of(&path)).collect();
    let tracing = trace(&["-p", &name], &[BY_PROCESS]);
    told.iter_mut().for_each(|told| told.tell("call 40"));
    let traced = tracing.interrupt();
    // Commands for one process ask for its number.
    for arguments in [
        "restore NAME",
        "-l -n pid$target:::entry -p NAME",
        "cost -n BEGIN -p NAME",
    ] {
        let arguments = arguments.replace("NAME", &name);
        let one = run(Command::new(nanoprobe()).args(arguments.split(' ')));
        for told in &told {
            let line = format!("{:>9} ", told.pid());
            assert!(one.stderr.contains(&line), "{arguments}: {}", one.stderr);
        }
        assert!(
            one.stderr.contains("by its number") && one.code() == 2,
            "{arguments}: {}",
            one.stderr
        );
    }
    assert_eq!(table(&traced.results), end(told), "{}", traced.finished.stderr);
}

/// What was looked at in which processes, and the children that are not traced.
#[test]
fn a_set_in_which_nothing_is_seen_says_what_was_probed() {
    let mut told: Vec<Told> = (0..3).map(|_| Told::start()).collect();
    let mut shell = Running::start(Command::new("/bin/sh").args(["-c", "cat; true"]));
    // The answer is the child's.
    shell.write("begun\n");
    shell.wait_for("begun");
    let shell_pid = shell.pid();
    let list = format!("{},{shell_pid}", pids(&told));
    let tracing = trace(
        &["-p", &list],
        &["pid$target:libc:nanosleep:entry { @[pid] = count(); }"],
    );
    told[0].tell("call 10");
    let said = tracing.interrupt().finished.stderr;
    shell.close_input();
    shell.finish();
    assert!(said.contains("nanoprobe: tracing 4 processes: "), "{said}");
    for told in &told {
        assert!(said.contains(&format!("{} (member)", told.pid())), "{said}");
    }
    assert!(said.contains("nothing was seen in "), "{said}");
    assert!(
        said.contains(&format!("process {shell_pid} has 1 child that is not traced: ")),
        "{said}"
    );
    assert!(
        said.contains("4 probes in ") && said.contains(" of 4 processes did not fire"),
        "{said}"
    );
    end(told);
}
