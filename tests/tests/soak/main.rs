//! The soak: a tracer attaches, traces, is killed, is cleaned up and detaches, at random moments, on programs of every
//! kind. Meanwhile twenty times more threads are runnable than there are processors.
//!
//! After every round the program is alive and works, its text is that of its files, and nothing of
//! ours is mapped in it. If a round has traced a whole batch of calls, the count is the batch's.
//! The programs check their own memory and results.
//!
//! `NANOPROBE_SOAK` is the duration in seconds (30), `NANOPROBE_SOAK_SEED` the seed of all random choices; both are
//! printed.

mod subjects;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use nanoprobe_tests::command::{Running, run};
use nanoprobe_tests::number_from_environment;
use nanoprobe_tests::results::value;
use nanoprobe_tests::text::{Snapshot, ptracer};
use nanoprobe_tests::tracer::{Form, Tracer, assert_nothing_lost, nanoprobe};
use nix::sys::signal::Signal;

use crate::subjects::Subject;

/// The number of spinning threads for each processor.
const SPINNERS: usize = 10;
/// The time limit of one command on a machine that is twenty times too busy.
const LIMIT: Duration = Duration::from_secs(300);

/// The kinds of rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Round {
    /// Attach, a whole batch, detach: the count is exact.
    Counted,
    /// The end of the tracing comes in the middle of a batch.
    Interrupted,
    /// The tracer is killed at any moment; `nanoprobe restore` cleans up.
    Killed,
    /// The tracer is killed at any moment; the next one cleans up, and counts exactly.
    Followed,
}

const ROUNDS: [Round; 4] = [Round::Counted, Round::Interrupted, Round::Killed, Round::Followed];

/// Pseudo-random numbers, which are the same for the same seed (xorshift64*).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % limit
    }

    fn wait(&mut self, most: Duration) {
        std::thread::sleep(Duration::from_micros(self.below(most.as_micros() as u64)));
    }
}

#[test]
fn no_target_is_harmed_and_every_count_is_right() {
    let seconds = number_from_environment("NANOPROBE_SOAK", 30);
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .expect("a time");
    let seed = number_from_environment("NANOPROBE_SOAK_SEED", u64::from(now.subsec_nanos()));
    say(&format!("soak: {seconds} s, seed {seed}"));
    let mut random = Random(seed | 1);
    let mut subjects = subjects::all();
    let _spinners = spinners();
    let mut log: BTreeMap<(&'static str, Round), u32> = BTreeMap::new();
    let start = Instant::now();
    let mut turn = 0;
    // Every program has its turn, however slow the machine is.
    while start.elapsed() < Duration::from_secs(seconds) || turn < subjects.len() {
        let count = subjects.len();
        let subject = &mut subjects[turn % count];
        let round = ROUNDS[random.below(ROUNDS.len() as u64) as usize];
        one_round(subject, round, &mut random);
        *log.entry((subject.name, round)).or_default() += 1;
        turn += 1;
    }
    for ((name, round), count) in &log {
        say(&format!("soak: {name}: {round:?} {count}"));
    }
    for subject in subjects {
        subject.finish();
    }
    say(&format!(
        "soak: {turn} rounds, 0 targets harmed, 0 bytes left, all counts equal"
    ));
}

/// This bypasses the test runner's capture: the log is for these counts.
fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn spinners() -> Vec<Running> {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let spin = || Running::start(Command::new("sh").args(["-c", "while :; do :; done"]));
    (0..processors * SPINNERS).map(|_| spin()).collect()
}

fn tracer(subject: &Subject, random: &mut Random) -> Tracer {
    let form = if random.below(4) == 0 && subject.may_trap {
        Form::Trap
    } else {
        Form::Default
    };
    let stop = ["auto", "never", "always"][random.below(3) as usize];
    let mut tracer = Tracer::new(form).argument("-x").argument(format!("stop={stop}"));
    tracer = tracer.clause(&subject.counts);
    if random.below(2) == 0 {
        tracer = tracer.clause(subject.more);
    }
    tracer
}

fn one_round(subject: &mut Subject, round: Round, random: &mut Random) {
    let snapshot = Snapshot::take(subject.pid);
    match round {
        Round::Counted => counted(subject, random),
        Round::Interrupted => {
            let tracing = tracer(subject, random).trace(subject.pid);
            subject.begin_batch();
            random.wait(Duration::from_millis(100));
            tracing.running.signal(Signal::SIGINT);
            let traced = tracing.finish_within(LIMIT);
            assert_removed(subject.name, traced.finished.code(), &traced.finished.stderr);
            subject.end_batch();
        }
        Round::Killed => {
            kill_one(subject, random);
            let restored = run(Command::new(nanoprobe()).args(["restore", &subject.pid.to_string()]));
            let said = format!("{}{}", restored.stdout, restored.stderr);
            let name = subject.name;
            assert!(
                restored.code() == 0 || said.contains("nothing to restore"),
                "{name}: {said}"
            );
            assert!(!said.contains("stay mapped"), "{name}: {said}");
        }
        Round::Followed => {
            kill_one(subject, random);
            counted(subject, random);
        }
    }
    snapshot.assert_restored(subject.pid);
    assert!(subject.is_alive(), "{} died: {round:?}", subject.name);
    subject.begin_batch();
    subject.end_batch();
}

/// The tracer has ended without an error, and reports no remains.
fn assert_removed(name: &str, code: i32, stderr: &str) {
    assert_eq!(code, 0, "{name}: {stderr}");
    assert!(!stderr.contains("stay mapped"), "{name}: {stderr}");
}

fn counted(subject: &mut Subject, random: &mut Random) {
    let tracing = tracer(subject, random).trace(subject.pid);
    let calls = subject.begin_batch();
    subject.end_batch();
    tracing.running.signal(Signal::SIGINT);
    let traced = tracing.finish_within(LIMIT);
    let (name, stderr) = (subject.name, &traced.finished.stderr);
    assert_removed(name, traced.finished.code(), stderr);
    if let Some(calls) = calls {
        assert_nothing_lost(stderr);
        assert_eq!(value(&traced.results), calls, "{name}: {}\n{stderr}", traced.results);
    }
}

/// A tracer that is killed somewhere between its first instruction and the middle of a batch.
fn kill_one(subject: &mut Subject, random: &mut Random) {
    let tracing = tracer(subject, random).start_on(subject.pid);
    subject.begin_batch();
    random.wait(Duration::from_secs(4));
    tracing.running.signal(Signal::SIGKILL);
    tracing.finish_within(LIMIT);
    let begun = Instant::now();
    while ptracer(subject.pid) != Some(0) {
        assert!(
            begun.elapsed() < LIMIT,
            "{}: a dead tracer still holds it",
            subject.name
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    subject.end_batch();
}
