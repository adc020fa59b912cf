//! The provider `sched`: compares the switches of a program's threads with the kernel's own counts, and their times
//! with the program's clock.

use std::collections::BTreeMap;
use std::process::Command;

use nanoprobe_tests::command::{Running, run};
use nanoprobe_tests::left_out::{is_root_of_the_machine, left_out};
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::{function_of, said, stacks, table};
use nanoprobe_tests::tracer::{
    Form, Traced, Tracer, assert_nothing_lost, nanoprobe, start_waiting, start_waiting_as, wait_until_tracing,
};
use nix::sys::signal::Signal;

/// A thread, as the program describes it.
struct Life {
    name: String,
    tid: i64,
    voluntary: usize,
    nonvoluntary: usize,
    asked_ns: i64,
    elapsed_ns: i64,
}

/// What the program has said: its threads, and the time after which it has counted nothing.
fn lives(stdout: &str) -> (Vec<Life>, i64) {
    let mut lives = Vec::new();
    let mut end_ns = 0;
    for line in stdout.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |index: usize| words[index].parse::<i64>().expect("a number");
        match words.len() {
            6 => lives.push(Life {
                name: words[0].to_owned(),
                tid: number(1),
                voluntary: number(2) as usize,
                nonvoluntary: number(3) as usize,
                asked_ns: number(4),
                elapsed_ns: number(5),
            }),
            2 if words[0] == "end_ns" => end_ns = number(1),
            _ => {}
        }
    }
    assert_eq!(lives.len(), 5, "{stdout}");
    (lives, end_ns)
}

/// Traces the program from before its threads exist. `None`: the kernel does not permit it.
fn traced(clause: &str, ordinary_user: bool) -> Option<Traced> {
    let mut target = start_waiting_as(&program("switches.c"), "", ordinary_user);
    let mut tracer = Tracer::new(Form::Default).argument("-q").clause(clause);
    if ordinary_user {
        tracer = tracer.as_ordinary_user();
    }
    let tracing = tracer.trace(target.pid());
    target.go();
    let stdout = target.finish().success().stdout;
    let mut traced = tracing.finish().success();
    if traced.finished.stderr.contains("sched probes see no thread") {
        left_out("sched probes", "perf_event_open is not allowed here");
        return None;
    }
    assert_nothing_lost(&traced.finished.stderr);
    assert!(!traced.finished.stderr.contains("lost"), "{}", traced.finished.stderr);
    traced.finished.stdout = stdout;
    Some(traced)
}

/// A switch: when, whether the thread left its processor, and whether it slept then.
type Turn = (i64, bool, bool);

/// The switches of each thread, in the order of the records.
fn turns(records: &str) -> BTreeMap<i64, Vec<Turn>> {
    let mut turns: BTreeMap<i64, Vec<Turn>> = BTreeMap::new();
    for line in records.lines().filter(|line| !line.is_empty()) {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |index: usize| words[index].parse::<i64>().unwrap_or_else(|_| panic!("{line}"));
        turns
            .entry(number(1))
            .or_default()
            .push((number(0), words[2] == "off-cpu", number(3) == 0));
    }
    turns
}

/// Each switch is there once, for the right reason, in order, and the times are the clock's.
fn every_switch_is_there(ordinary_user: bool) {
    let clause = "sched:::off-cpu, sched:::on-cpu { printf(\"%d %d %s %d\\n\", timestamp, tid, probename, arg0); }
                  sched:::sleep { @sleeps[tid] = count(); }
                  sched:::preempt { @preempts[tid] = count(); }
                  sched:::off-cpu { self->ts = timestamp; }
                  sched:::on-cpu /self->ts/ { @off[tid] = sum(timestamp - self->ts); self->ts = 0; }
                  END { printa(\"sleeps %d %@d\\n\", @sleeps); printa(\"preempts %d %@d\\n\", @preempts);
                        printa(\"off %d %@d\\n\", @off); }";
    let Some(traced) = traced(clause, ordinary_user) else {
        return;
    };
    let (lives, end_ns) = lives(&traced.finished.stdout);
    let is_sum = |line: &&str| line.starts_with(['s', 'p', 'o']);
    let (sums, records): (Vec<&str>, Vec<&str>) = traced.results.lines().partition(is_sum);
    let sums = table(&format!("  {}", sums.join("\n  ")));
    let all = turns(&records.join("\n"));
    for life in &lives {
        let turns = all
            .get(&life.tid)
            .unwrap_or_else(|| panic!("{} has no switches", life.name));
        let name = &life.name;
        assert!(turns.is_sorted(), "{name}: in the order of their times");
        let (first, others) = turns.split_first().expect("a switch");
        assert!(!first.1, "{name}: a new thread comes to a processor first");
        assert!(
            others.iter().zip(turns).all(|(turn, before)| turn.1 != before.1),
            "{name}: off and on take turns: {turns:?}"
        );
        let by_now = || turns.iter().filter(|(time, is_off, _)| *time <= end_ns && *is_off);
        let slept = by_now().filter(|(.., sleeps)| *sleeps).count();
        let preempted = by_now().count() - slept;
        assert_eq!(
            (slept, preempted),
            (life.voluntary, life.nonvoluntary),
            "{name}: the kernel's own counts"
        );
        let pairs = || turns.iter().zip(others).filter(|(before, _)| before.1);
        let off_ns: i64 = pairs().map(|(before, turn)| turn.0 - before.0).sum();
        let row = |what: &str| sums.get(&format!("{what} {}", life.tid)).copied().unwrap_or(0);
        assert_eq!(row("off"), off_ns, "{name}: self-> is each thread's own");
        let all_slept = turns.iter().filter(|(_, is_off, sleeps)| *is_off && *sleeps).count();
        let all_off = turns.iter().filter(|(_, is_off, _)| *is_off).count();
        assert_eq!(
            (row("sleeps"), row("preempts")),
            (all_slept as i64, (all_off - all_slept) as i64),
            "{name}"
        );
        // The last wait began after the thread had told how long it lived.
        let last = by_now().rfind(|(.., sleeps)| *sleeps).map_or(0, |turn| turn.0);
        let slept_ns: i64 = pairs()
            .filter(|(before, _)| before.2 && before.0 < last)
            .map(|(before, turn)| turn.0 - before.0)
            .sum();
        assert!(
            (life.asked_ns..=life.elapsed_ns).contains(&slept_ns),
            "{name}: slept {slept_ns} of {} ns, and asked for {}",
            life.elapsed_ns,
            life.asked_ns
        );
    }
    let preempts = |name: &str| {
        lives
            .iter()
            .find(|life| life.name == name)
            .map_or(0, |life| life.nonvoluntary)
    };
    assert!(preempts("twin") + preempts("other") > 0, "the twins share a processor");
}

#[test]
fn every_switch_is_there_as_root() {
    every_switch_is_there(false);
}

#[test]
fn every_switch_is_there_for_a_user() {
    every_switch_is_there(true);
}

/// The calls in which the threads slept are those that they made; or -1, if a sleep was too short to be looked at.
fn the_call_of_each_sleep_is_its_own(ordinary_user: bool) {
    let clause = "sched:::sleep { self->call = curlwpsinfo->pr_syscall; self->sleeps = 1; }
                  sched:::on-cpu /self->sleeps && self->call != curlwpsinfo->pr_syscall/ { @[\"other\", tid, 0] = count(); }
                  sched:::on-cpu /self->sleeps/ { @[\"sleeps\", tid, curlwpsinfo->pr_syscall] = count(); }
                  sched:::preempt { @[\"preempted\", tid, curlwpsinfo->pr_syscall] = count(); }
                  sched:::on-cpu { self->sleeps = 0; }
                  tick-1s { @[\"tick\", 0, curlwpsinfo->pr_syscall] = count(); }
                  END { printa(\"%s %d %d %@d\\n\", @); }";
    let Some(traced) = traced(clause, ordinary_user) else {
        return;
    };
    let (lives, _) = lives(&traced.finished.stdout);
    let mut seen: BTreeMap<(&str, i64), BTreeMap<i64, i64>> = BTreeMap::new();
    for line in traced.results.lines().filter(|line| !line.is_empty()) {
        let [what, thread, call, count] = *line.split(' ').collect::<Vec<_>>() else {
            panic!("{line}");
        };
        let number = |text: &str| text.parse::<i64>().expect(line);
        let calls = seen.entry((what, number(thread))).or_default();
        calls.insert(number(call), number(count));
    }
    assert!(seen.keys().all(|(what, _)| *what != "other"), "{seen:?}");
    for (_, calls) in seen
        .iter()
        .filter(|((what, _), _)| ["preempted", "tick"].contains(what))
    {
        assert!(calls.keys().eq([&-1]), "{seen:?}");
    }
    let clock_nanosleep = libc::SYS_clock_nanosleep;
    for (name, call) in [
        ("sleeper", clock_nanosleep),
        ("taker", libc::SYS_futex),
        ("reader", libc::SYS_read),
    ] {
        let life = lives.iter().find(|life| life.name == name).expect(name);
        let calls = &seen[&("sleeps", life.tid)];
        // Each ends with a wait for ever, and may wait for its memory when it begins.
        let others = [
            -1,
            call,
            libc::SYS_futex,
            libc::SYS_mprotect,
            libc::SYS_madvise,
            libc::SYS_rseq,
        ];
        assert!(calls.keys().all(|call| others.contains(call)), "{name}: {calls:?}");
        assert!(calls.get(&call).is_some_and(|count| *count > 0), "{name}: {calls:?}");
        let all: i64 = calls.values().sum();
        assert!(all <= life.voluntary as i64 + 1, "{name}: {calls:?}");
    }
}

#[test]
fn the_call_of_each_sleep_is_known_to_root() {
    the_call_of_each_sleep_is_its_own(false);
}

#[test]
fn the_call_of_each_sleep_is_known_to_a_user() {
    the_call_of_each_sleep_is_its_own(true);
}

/// The functions that wait in each thread, and how often the stacks of its sleeps show them.
fn stacks_of_sleeps(ordinary_user: bool) {
    let clause = "sched:::on-cpu /self->sleeps/ { @[ustack()] = count(); self->sleeps = 0; }
                  sched:::sleep { self->sleeps = 1; }";
    let Some(traced) = traced(clause, ordinary_user) else {
        return;
    };
    let (lives, _) = lives(&traced.finished.stdout);
    let of = |name: &str| {
        lives
            .iter()
            .find(|life| life.name == name)
            .map_or(0, |life| life.voluntary as i64)
    };
    let (mut known, mut unknown) = (BTreeMap::<String, i64>::new(), 0);
    for (frames, count) in stacks(&traced.results) {
        let names: Vec<&str> = frames.iter().map(|frame| function_of(frame)).collect();
        if frames
            .iter()
            .any(|frame| frame.contains("the sleep ended before the stack was read"))
        {
            assert_eq!(frames.len(), 1, "{frames:?}");
            unknown += count;
            continue;
        }
        for waiting in ["naps", "takes", "reads"] {
            if names.contains(&waiting) {
                *known.entry(waiting.to_owned()).or_default() += count;
            }
        }
    }
    let known = |name: &str| known.get(name).copied().unwrap_or(0);
    // Every nap has slept, and each other sleep of the thread is in another function.
    assert!(known("naps") <= of("sleeper") && known("takes") <= of("taker") && known("reads") <= of("reader"));
    if unknown == 0 {
        assert_eq!(known("naps"), 10, "{}", traced.results);
    } else {
        assert!(ordinary_user && !is_privileged(), "{}", traced.results);
        assert!(known("naps") + unknown >= 10, "{}", traced.results);
    }
}

/// Whether any user may see the kernel's samples.
fn is_privileged() -> bool {
    let level = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    level.trim().parse::<i32>().is_ok_and(|level| level <= 1)
}

#[test]
fn a_sleep_has_its_stack_as_root() {
    stacks_of_sleeps(false);
}

#[test]
fn a_sleep_has_its_stack_or_it_is_unknown() {
    stacks_of_sleeps(true);
}

/// Its probes are the kernel's: nothing was to be placed when it is interrupted.
#[test]
fn offcpu_is_interrupted_without_a_complaint() {
    let mut target = start_waiting(&program("switches.c"), "1 10");
    let mut command = Command::new(nanoprobe());
    command.args(["tool", "offcpu", "-v", "-p", &target.pid().to_string()]);
    let mut tracer = Running::start(&mut command);
    wait_until_tracing(&mut tracer);
    tracer.signal(Signal::SIGINT);
    let told = tracer.finish().success().stderr;
    assert!(!told.contains("nothing was traced"), "{told}");
    target.go();
    target.finish().success();
}

/// The tool sums the same times: the sleeper's naps took as long as they were asked to, at least.
#[test]
fn offcpu_sums_the_times_of_each_stack() {
    let results = tempfile::NamedTempFile::new().expect("a temporary file");
    let mut command = Command::new(nanoprobe());
    command.args(["tool", "offcpu", "-o"]).arg(results.path());
    command.arg("-c").arg(program("switches.c")).args(["1", "100"]);
    let finished = run(&mut command).success();
    if finished.stderr.contains("sched probes see no thread") {
        return left_out("sched probes", "perf_event_open is not allowed here");
    }
    let text = std::fs::read_to_string(results.path()).expect("the results");
    let (lives, _) = lives(&finished.stdout);
    let sleeper = lives.iter().find(|life| life.name == "sleeper").expect("the sleeper");
    let (found, totals) = text.split_at(text.trim_end().rfind("\n\n").expect("stacks, then totals"));
    let found = stacks(found);
    let is_nap = |frames: &[String]| frames.iter().any(|frame| function_of(frame) == "naps");
    let naps: i64 = found
        .iter()
        .filter(|(frames, _)| is_nap(frames))
        .map(|(_, ns)| ns)
        .sum();
    if is_root_of_the_machine() {
        assert!(
            (sleeper.asked_ns..=sleeper.elapsed_ns).contains(&naps),
            "{naps} ns: {text}"
        );
    }
    let total = |what: &str| {
        let line = totals
            .lines()
            .find(|line| line.contains(what))
            .unwrap_or_else(|| panic!("{text}"));
        line.split_whitespace()
            .next()
            .and_then(|word| word.parse::<i64>().ok())
            .expect("a number")
    };
    let all: i64 = found.iter().map(|(_, ns)| ns).sum();
    assert_eq!(total("ns asleep") + total("without a processor"), all, "{text}");
}

/// Waits and wakes are counted by their word, and calls that did neither are not.
#[test]
fn futexes_counts_waits_and_wakes() {
    let results = tempfile::NamedTempFile::new().expect("a temporary file");
    let mut command = Command::new(nanoprobe());
    command.args(["tool", "futexes", "-o"]).arg(results.path());
    command.arg("-c").arg(program("futexes.c"));
    let finished = run(&mut command).success();
    assert_nothing_lost(&finished.stderr);
    let waited_ns = said(&finished.stdout, "waited_ns");
    let text = std::fs::read_to_string(results.path()).expect("the results");
    let row = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<String>>();
    let rows: Vec<Vec<String>> = text
        .lines()
        .map(row)
        .filter(|row| row.last().is_some_and(|word| word == "futexes`the_word"))
        .collect();
    let [waits, woken, ..] = rows.as_slice() else {
        panic!("{text}")
    };
    let number = |word: &String| word.parse::<i64>().expect("a number");
    assert_eq!(waits.len(), 4, "{text}");
    assert_eq!((number(&waits[0]), number(&woken[0])), (10, 10), "{text}");
    let (all, longest) = (number(&waits[1]), number(&waits[2]));
    assert!(
        all >= 10 * 20_000 - 10 && all <= waited_ns / 1000,
        "{waited_ns} ns by the clock: {text}"
    );
    assert!(longest * 10 >= all && longest < all, "{text}");
    // The stacks show which functions wait and wake.
    assert!(
        text.contains("futexes`wakes_at+") && text.contains("futexes`waits_at+"),
        "{text}"
    );
    assert!(!text.contains("waited_ns"), "no thread was woken there: {text}");
}
