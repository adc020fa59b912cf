//! Minima and maxima of several processes: by places in the code as keys, and since the last `clear()` or `trunc()` in
//! all processes, whichever of them has cleared.

use nanoprobe_tests::program::{copy_program, program};
use nanoprobe_tests::tracer::{Tracing, assert_nothing_lost};

use crate::told::{Told, end, pids, trace};

/// Minima and maxima by a stack and by a function.
const BY_PLACE: &str = "pid$target:a.out:called:entry {
    @least[ustack(1)] = min(arg0); @most[ufunc(uregs[R_RIP])] = max(arg0); }";
/// Prints them, and begins anew.
const MARK: &str = "pid$target:a.out:marked:entry {
    printf(\"mark %d\\n\", arg0); printa(@least); printa(@most); clear(@least); clear(@most); }";

/// The values that were printed at each mark, and at the end.
fn values(results: &str) -> Vec<Vec<i64>> {
    let mut all = vec![Vec::new()];
    for line in results.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match line.strip_prefix("mark ") {
            Some(_) => all.push(Vec::new()),
            // The value follows the name, or the stack's line.
            None => all
                .last_mut()
                .expect("a list")
                .extend(line.split_whitespace().last().and_then(|word| word.parse::<i64>().ok())),
        }
    }
    all.split_off(1)
}

/// Has a process mark, and waits until the tracer has printed that.
fn mark(told: &mut Told, tracing: &mut Tracing, number: usize) {
    told.tell(&format!("mark {number}"));
    let text = format!("mark {number}\n");
    // Two values follow it.
    tracing.wait_for_results("a mark", |printed| {
        printed
            .split_once(&text)
            .is_some_and(|(_, rest)| values(&format!("{text}{rest}"))[0].len() >= 2)
    });
}

/// The processes have their text at different addresses. Each in its turn has the least and the greatest value, and
/// marks.
#[test]
fn extremes_by_place_are_those_since_the_last_clear_in_any_process() {
    let mut told: Vec<Told> = (0..3).map(|_| Told::start()).collect();
    let mut tracing = trace(&["-q", "-p", &pids(&told)], &[BY_PLACE, MARK]);
    let rounds = [
        // The values of each process, who marks, and the extremes of all.
        ([&[5, 9][..], &[3, 20], &[7]], 1, [3, 20]),
        ([&[6], &[], &[8]], 0, [6, 8]),
        ([&[], &[40], &[]], 2, [40, 40]),
        ([&[100], &[60], &[80]], 1, [60, 100]),
    ];
    for (number, (each, marks, _)) in rounds.iter().enumerate() {
        for (told, values) in told.iter_mut().zip(each) {
            values.iter().for_each(|value| told.tell(&format!("with {value}")));
        }
        mark(&mut told[*marks], &mut tracing, number);
    }
    let traced = tracing.interrupt();
    let mut printed = values(&traced.results);
    let last = printed.last_mut().expect("a mark");
    // What is printed at the end follows: nothing was called since.
    last.truncate(2);
    let expected: Vec<Vec<i64>> = rounds.iter().map(|(.., extremes)| extremes.to_vec()).collect();
    assert_eq!(printed, expected, "{}", traced.results);
    assert_nothing_lost(&traced.finished.stderr);
    end(told);
}

/// The first session and the sessions of executed programs.
#[test]
fn extremes_of_executed_programs_begin_anew_too() {
    let mut told = vec![Told::start()];
    let (file, pid) = (program("member.c").display().to_string(), told[0].pid().to_string());
    let mut tracing = trace(&["-q", "-x", "follow=all", "-p", &pid], &[BY_PLACE, MARK]);
    told[0].tell("with 500");
    // Its values are 1, 38, 1185.
    told[0].tell(&format!("execute {file} 3"));
    mark(&mut told[0], &mut tracing, 0);
    told[0].tell("with 20");
    told[0].tell(&format!("execute {file} 2"));
    mark(&mut told[0], &mut tracing, 1);
    told[0].tell("with 300");
    mark(&mut told[0], &mut tracing, 2);
    let traced = tracing.interrupt();
    let mut printed = values(&traced.results);
    printed.last_mut().expect("a mark").truncate(2);
    assert_eq!(
        printed,
        [[1, 1185], [1, 38], [300, 300]],
        "{}\n{}",
        traced.results,
        traced.finished.stderr
    );
    end(told);
}

/// The first call of a process has the value 1, and millions follow. The tracer prints and clears meanwhile. A minimum
/// that came back after its `clear()` would be printed again.
#[test]
fn an_extreme_is_printed_once_while_its_process_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let other = folder.path().join("other");
    copy_program(&program("member.c"), &other);
    let mut told = vec![Told::start(), Told::of(&other)];
    let clauses = [
        "pid$target:a.out:called:entry { @[pid, ufunc(uregs[R_RIP])] = min(arg0 == 1 ? 1 : 2); }",
        "tick-5ms { printa(@); clear(@); }",
    ];
    let tracing = trace(&["-q", "-p", &pids(&told)], &clauses);
    for told in &mut told {
        told.running.write("call 40000000\n");
    }
    for told in &mut told {
        told.wait_for_answer("millions of calls");
    }
    let traced = tracing.interrupt();
    for told in &told {
        let pid = told.pid().to_string();
        let lines = traced.results.lines().filter(|line| line.contains(&pid));
        let minima: Vec<&str> = lines.filter_map(|line| line.split_whitespace().last()).collect();
        let of = |value: &str| minima.iter().filter(|minimum| **minimum == value).count();
        assert_eq!(of("1"), 1, "{}", traced.results);
        assert!(of("2") >= 2, "{}", traced.results);
    }
    end(told);
}

/// `trunc()` with a number keeps one line: the others begin anew, the line that was kept does not.
#[test]
fn extremes_that_were_truncated_do_not_come_back() {
    let mut told: Vec<Told> = (0..2).map(|_| Told::start()).collect();
    let clauses = [
        "pid$target:a.out:called:entry { @least[ufunc(uregs[R_RIP])] = min(arg0); }",
        "pid$target:a.out:marked:entry { @least[ufunc(uregs[R_RIP])] = min(arg0 + 1000); }",
        // The greatest minimum is kept: that of `marked`.
        "pid$target:libc:malloc:entry { trunc(@least, 1); printf(\"truncated\\n\"); }",
    ];
    let mut tracing = trace(&["-q", "-p", &pids(&told)], &clauses);
    told[0].tell("with 5");
    told[1].tell("with 9");
    told[0].tell("mark 10");
    told[1].tell("mark 20");
    told[1].tell("allocate 1");
    tracing.wait_for_results("the truncation", |text| text.contains("truncated\n"));
    told[0].tell("with 700");
    told[1].tell("with 600");
    told[0].tell("mark 40");
    let traced = tracing.interrupt();
    let line = |function: &str| {
        let line = traced.results.lines().find(|line| line.contains(function));
        line.and_then(|line| line.split_whitespace().last()).map(str::to_owned)
    };
    assert_eq!(line("`called").as_deref(), Some("600"), "{}", traced.results);
    assert_eq!(line("`marked").as_deref(), Some("1010"), "{}", traced.results);
    end(told);
}
