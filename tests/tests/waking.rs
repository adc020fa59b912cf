//! `sched:::wakeup`, and who runs next: a program whose threads are woken by known wakers, at times that it knows.

use std::collections::BTreeMap;
use std::process::Command;

use nanoprobe_tests::command::{Running, run};
use nanoprobe_tests::left_out::{is_root_of_the_machine, left_out};
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::{function_of, stacks};
use nanoprobe_tests::tracer::{
    Form, Traced, Tracer, assert_nothing_lost, nanoprobe, start_waiting, start_waiting_as, wait_until_tracing,
};
use nix::sys::signal::Signal;

const TIMES: usize = 10;
const NAP_NS: i64 = 5_000_000;

/// A thread of the program: its number, and when each of its waits began and ended.
struct Life {
    tid: i64,
    waits: Vec<(i64, i64)>,
}

/// What the program has said.
fn lives(stdout: &str) -> BTreeMap<String, Life> {
    let mut lives = BTreeMap::new();
    for line in stdout.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [name, numbers @ ..] = words.as_slice() else {
            continue;
        };
        if !["taker", "reader", "sleeper", "poster", "writer"].contains(name) {
            continue;
        }
        let numbers: Vec<i64> = numbers.iter().map(|word| word.parse().expect("a number")).collect();
        let waits = numbers[1..].chunks_exact(2).map(|wait| (wait[0], wait[1])).collect();
        lives.insert((*name).to_owned(), Life { tid: numbers[0], waits });
    }
    assert_eq!(lives.len(), 5, "{stdout}");
    lives
}

/// Whether this machine shows who wakes threads.
fn shows_wakers() -> bool {
    let shows = is_root_of_the_machine();
    if !shows {
        left_out("sched:::wakeup", "root of the machine is needed");
    }
    shows
}

fn traced(name: &str, clause: &str, ordinary_user: bool) -> Traced {
    let mut target = start_waiting_as(&program(name), "", ordinary_user);
    let mut tracer = Tracer::new(Form::Default).argument("-q").clause(clause);
    if ordinary_user {
        tracer = tracer.as_ordinary_user();
    }
    let tracing = tracer.trace(target.pid());
    target.go();
    let stdout = target.finish().success().stdout;
    let mut traced = tracing.finish().success();
    assert_nothing_lost(&traced.finished.stderr);
    assert!(!traced.finished.stderr.contains("lost"), "{}", traced.finished.stderr);
    traced.finished.stdout = stdout;
    traced
}

/// A waking: when, who was woken, and the waker's thread, process, name, and whether its stack has this function.
struct Waking {
    time: i64,
    woken: i64,
    waker: (i64, i64),
    name: String,
}

fn wakings(results: &str) -> Vec<Waking> {
    let lines = results.lines().filter_map(|line| line.strip_prefix("wake "));
    let of = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |index: usize| words[index].parse::<i64>().unwrap_or_else(|_| panic!("{line}"));
        Waking {
            time: number(0),
            woken: number(1),
            waker: (number(2), number(3)),
            name: words[4].to_owned(),
        }
    };
    lines.map(of).collect()
}

/// Of how many wakings of how many the tracer has said that the kernel has not shown them.
fn told_unseen(stderr: &str) -> (i64, i64) {
    let mut lines = stderr.lines();
    let of = |line: &str| {
        let (_, rest) = line.split_once("sched:::wakeup did not fire for ")?;
        let (unseen, rest) = rest.split_once(" of ")?;
        let (all, _) = rest.split_once(" wakings ")?;
        Some((unseen.parse().ok()?, all.parse().ok()?))
    };
    lines.find_map(of).unwrap_or((0, 0))
}

/// The clauses find out by themselves which sleeps end without a waking.
const WAKINGS: &str = "BEGIN { unseen = 0; ended = 0; }
     sched:::wakeup { printf(\"wake %d %d %d %d %s\\n\", timestamp, args[0]->pr_lwpid, tid, pid, execname); }
     sched:::wakeup /args[1]->pr_pid != $target || args[1]->pr_fname != \"wakers\" || args[1]->pr_uid != 0
         || args[1]->pr_ppid <= 0 || args[1]->pr_psargs == \"\"/ { printf(\"another process %d\\n\", args[1]->pr_pid); }
     sched:::wakeup { @[args[0]->pr_lwpid, tid, ustack()] = count(); woken[args[0]->pr_lwpid] = 1; }
     sched:::sleep { asleep[tid] = 1; }
     sched:::on-cpu /asleep[tid]/ { ended = ended + 1; unseen = unseen + (woken[tid] == 0); }
     sched:::on-cpu { asleep[tid] = 0; woken[tid] = 0; }
     END { printf(\"unseen %d of %d\\n\", unseen, ended); }
     END { printa(\"\\n\\nstack of %d by %d%k%@d\\n\", @); }";

/// Each wait ends by exactly one waking by its waker, within the time that the program's own clock gives it. Interrupts
/// that the kernel does not show, because they came while a processor was idle, are told and counted.
#[test]
fn each_waking_has_its_waker() {
    if !shows_wakers() {
        return;
    }
    let traced = traced("wakers.c", WAKINGS, false);
    assert!(!traced.results.contains("another process "), "{}", traced.results);
    let lives = lives(&traced.finished.stdout);
    let all = wakings(&traced.results);
    let pid = all.iter().find(|waking| waking.waker.0 == lives["poster"].tid);
    let pid = pid.expect("the poster wakes").waker.1;
    let (poster, writer) = (lives["poster"].tid, lives["writer"].tid);
    let (unseen, ended) = told_unseen(&traced.finished.stderr);
    let counted = format!("unseen {unseen} of ");
    assert!(
        traced.results.contains(&counted),
        "{unseen} of {ended}: {}",
        traced.results
    );
    assert!(
        unseen == 0 || traced.results.contains(&format!("{counted}{ended}\n")),
        "{}",
        traced.results
    );
    let wakers = [
        ("taker", (poster, pid), "wakers"),
        ("reader", (writer, writer), "wakers"),
        ("sleeper", (0, 0), "<interrupt>"),
    ];
    let mut interrupts = 0;
    for (name, waker, waker_name) in wakers {
        let life = &lives[name];
        let its: Vec<&Waking> = all
            .iter()
            .filter(|waking| waking.woken == life.tid && waking.waker == waker)
            .collect();
        let missing = if name == "sleeper" {
            TIMES.saturating_sub(its.len())
        } else {
            0
        };
        assert_eq!(its.len() + missing, TIMES, "{name}: {}", traced.results);
        assert!(
            missing as i64 <= unseen,
            "{unseen} of {ended} were told: {}",
            traced.results
        );
        let waits = life.waits.iter();
        let waits = waits
            .filter(|(begun, ended)| missing == 0 || its.iter().any(|waking| (*begun..=*ended).contains(&waking.time)));
        for (waking, (begun, ended)) in its.iter().zip(waits) {
            let earliest = if name == "sleeper" { begun + NAP_NS } else { *begun };
            assert!(
                (earliest..=*ended).contains(&waking.time),
                "{name}: woken at {}, and waited from {begun} to {ended}",
                waking.time
            );
            assert_eq!(waking.name, waker_name, "{name}");
        }
        interrupts = its.len() as i64;
    }
    // The stack is the waker's, where it is a thread of the program.
    let stack = |woken: i64, waker: i64| {
        let begin = format!("stack of {woken} by {waker}\n");
        let at = traced
            .results
            .find(&begin)
            .unwrap_or_else(|| panic!("{}", traced.results));
        stacks(&traced.results[at + begin.len()..]).swap_remove(0)
    };
    let (posts, count) = stack(lives["taker"].tid, poster);
    let names: Vec<&str> = posts.iter().map(|frame| function_of(frame)).collect();
    assert_eq!(
        (&names[..3], count),
        (&["sem_post", "posts", "poster"][..], TIMES as i64)
    );
    assert_eq!(
        stack(lives["reader"].tid, writer),
        (vec!["[another process]".to_owned()], TIMES as i64)
    );
    if interrupts > 0 {
        assert_eq!(
            stack(lives["sleeper"].tid, 0),
            (vec!["[an interrupt]".to_owned()], interrupts)
        );
    }
}

/// Without a right nothing is claimed, it is said once, and the other probes fire.
#[test]
fn a_user_is_told_that_wakers_are_not_known() {
    let clause = "sched:::wakeup { @wakes = count(); } sched:::sleep { @sleeps = count(); }
                  END { printa(\"wakes %@d\\n\", @wakes); printa(\"sleeps %@d\\n\", @sleeps); }";
    let traced = traced("wakers.c", clause, true);
    let told = &traced.finished.stderr;
    if told.contains("sched probes see no thread") {
        return left_out("sched probes", "perf_event_open is not allowed here");
    }
    assert_eq!(told.matches("sched:::wakeup sees nobody").count(), 1, "{told}");
    assert!(told.contains("nanoprobe tool futexes"), "{told}");
    assert!(!traced.results.contains("wakes "), "{}", traced.results);
    let sleeps = traced.results.lines().find_map(|line| line.strip_prefix("sleeps "));
    assert!(sleeps.is_some_and(|count| count.parse::<usize>().is_ok_and(|count| count >= 3 * TIMES)));
}

/// The thread that runs next is the one that comes to that processor next. Where it is not known, that is counted.
#[test]
fn off_cpu_knows_who_runs_next() {
    if !shows_wakers() {
        return;
    }
    let clause = "sched:::off-cpu { printf(\"off %d %d %d %d %d %s\\n\", timestamp, tid, cpu, args[0]->pr_lwpid,
                      args[1]->pr_pid, args[1]->pr_fname); }
                  sched:::on-cpu { printf(\"on %d %d %d\\n\", timestamp, tid, cpu); }";
    let traced = traced("switches.c", clause, false);
    let (mut next, mut direct, mut unknown) = (BTreeMap::<i64, (i64, i64)>::new(), 0, 0);
    let lines: Vec<Vec<&str>> = traced.results.lines().map(|line| line.split(' ').collect()).collect();
    let number = |word: &str| word.parse::<i64>().expect("a number");
    let own: Vec<i64> = lines
        .iter()
        .filter(|line| line.len() > 3)
        .map(|line| number(line[2]))
        .collect();
    for line in lines.iter().filter(|line| line.len() > 3) {
        let (tid, processor) = (number(line[2]), number(line[3]));
        if line[0] == "on" {
            // A thread of the program that was to come next has come next.
            if let Some((expected, _)) = next.remove(&processor).filter(|(next, _)| own.contains(next)) {
                assert_eq!(expected, tid, "{}", traced.results);
                direct += 1;
            }
            continue;
        }
        let (expected, process) = (number(line[4]), number(line[5]));
        if expected == -1 {
            assert_eq!((process, line[6]), (-1, "<unknown>"), "{line:?}");
            unknown += 1;
            next.remove(&processor);
            continue;
        }
        assert!(expected >= 0 && expected != tid, "{line:?}");
        match expected {
            0 => assert_eq!((process, line[6]), (0, format!("swapper/{processor}").as_str())),
            _ if own.contains(&expected) => assert_eq!(line[6], "switches", "{line:?}"),
            _ => assert!(process > 0 || line[6] == "<unknown>", "{line:?}"),
        }
        next.insert(processor, (expected, process));
    }
    let told = traced.finished.stderr.lines().find_map(|line| {
        let (_, rest) = line.split_once("the kernel has not shown ")?;
        rest.split_once(" times who runs after")?.0.parse::<i64>().ok()
    });
    assert_eq!(told.unwrap_or(0), unknown, "{}", traced.finished.stderr);
    assert!(direct > 0, "the twins share a processor: {}", traced.results);
}

/// The tool sums the times until the wakings: at most what the program has waited, and all of it in known stacks.
#[test]
fn wakeuptime_sums_the_times_by_the_wakers_stack() {
    if !shows_wakers() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (results, picture) = (folder.path().join("results"), folder.path().join("picture.svg"));
    let mut command = Command::new(nanoprobe());
    command.args(["tool", "wakeuptime", "-o"]).arg(&results);
    command.arg("--flamegraph").arg(&picture);
    command.arg("-c").arg(program("wakers.c")).args(["1", "100"]);
    let finished = run(&mut command).success();
    assert_nothing_lost(&finished.stderr);
    let lives = lives(&finished.stdout);
    let text = std::fs::read_to_string(&results).expect("the results");
    let (found, totals) = text.split_at(text.trim_end().rfind("\n\n").expect("stacks, then totals"));
    let found = stacks(found);
    let waited = |name: &str| {
        lives[name]
            .waits
            .iter()
            .map(|(begun, ended)| ended - begun)
            .sum::<i64>()
    };
    let of = |function: &str| {
        let is_its = |frames: &[String]| frames.iter().any(|frame| function_of(frame) == function);
        found
            .iter()
            .filter(|(frames, _)| is_its(frames))
            .map(|(_, ns)| ns)
            .sum::<i64>()
    };
    assert!(of("posts") > 0 && of("posts") <= waited("taker"), "{text}");
    assert!(of("[another process]") > 0, "{text}");
    // The timer's interrupt ends the naps. A nap begins some time after its call.
    let (unseen, _) = told_unseen(&finished.stderr);
    let interrupts = (TIMES as i64 - unseen).max(0);
    assert!(of("[an interrupt]") >= interrupts * NAP_NS / 2, "{text}");
    let all: i64 = found.iter().map(|(_, ns)| ns).sum();
    let total: i64 = totals
        .split_whitespace()
        .next()
        .and_then(|word| word.parse().ok())
        .expect("a total");
    assert_eq!(total, all, "{text}");
    let picture = std::fs::read_to_string(&picture).expect("a picture");
    assert!(
        picture.contains("posts") && (interrupts == 0 || picture.contains("[an interrupt]")),
        "no stacks in the picture"
    );
}

/// How many of the kernel's events the tracer has open.
fn events_of(clause: &str) -> usize {
    let target = start_waiting(&program("wakers.c"), "");
    let mut command = Command::new(nanoprobe());
    command.args(["-v", "-n", clause, "-p", &target.pid().to_string()]);
    let mut tracer = Running::start(&mut command);
    wait_until_tracing(&mut tracer);
    let folder = std::fs::read_dir(format!("/proc/{}/fd", tracer.pid())).expect("the tracer's descriptors");
    let links = folder
        .flatten()
        .filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let count = links
        .filter(|link| link.to_string_lossy().contains("[perf_event]"))
        .count();
    tracer.signal(Signal::SIGINT);
    tracer.finish().success();
    count
}

/// The kernel is asked for wakers, and for who runs next, only if a clause is about them.
#[test]
fn nothing_is_watched_that_no_clause_asks_for() {
    if !shows_wakers() {
        return;
    }
    let processors = events_of("sched:::on-cpu { @ = count(); }");
    assert!(processors > 0);
    assert_eq!(events_of("sched:::off-cpu { @ = sum(arg0); }"), processors);
    assert_eq!(
        events_of("sched:::off-cpu { @ = sum(args[0]->pr_lwpid); }"),
        2 * processors
    );
    assert_eq!(
        events_of("sched:::wakeup { @[args[0]->pr_lwpid] = count(); }"),
        3 * processors
    );
}
