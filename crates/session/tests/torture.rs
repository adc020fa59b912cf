//! A program is patched and unpatched while it executes, sleeps and stands at every instruction of what is patched. It
//! checks its own results; afterwards its text is what it was.
//!
//! `NANOPROBE_TORTURE`: how often each tactic's patches come and go (default 200; 100000 in the long run, which is a command
//! of CONTRIBUTING.md). `NANOPROBE_TORTURE_WAY`: only this one of the ways. With `--nocapture` each way says how long it
//! took, how much of that the program executed, and after how many changes each of its threads was seen to execute
//! what had changed before the next: on a busy machine a thread is without a processor for many of them.

#![allow(clippy::unwrap_used, reason = "test code")]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use nanoprobe_export::AggregateTable;
use nanoprobe_lang::options::{Options, StopPolicy};
use nanoprobe_lang::program::AggregationId;
use nanoprobe_lang::{MacroValues, Source, compile};
use nanoprobe_patch::TargetAddress;
use nanoprobe_session::{Choice, Patch, Session};
use nanoprobe_target::Process;
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

const ENTRIES: &str = "pid$target:a.out:t_*:entry { @ = count(); }";
const EVERYTHING: &str = "pid$target:a.out:t_*: { @ = count(); }";
/// What is probed and how: the text, `-x tactic=` (patches of that very tactic must come of it), `-x trap=`.
type Way = (&'static str, Option<&'static str>, Option<&'static str>);
const WAYS: [Way; 9] = [
    (ENTRIES, Some("jump"), None),
    (ENTRIES, Some("run"), None),
    (ENTRIES, Some("pun"), None),
    (ENTRIES, Some("evict"), None),
    (ENTRIES, None, None),
    (EVERYTHING, None, None),
    (EVERYTHING, Some("trap"), Some("emulate")),
    (EVERYTHING, Some("trap"), Some("boost")),
    (EVERYTHING, Some("trap"), Some("step")),
];

/// Which of the ways are taken: all, or the one of this number.
fn ways() -> &'static [Way] {
    match std::env::var("NANOPROBE_TORTURE_WAY") {
        Ok(text) => std::slice::from_ref(&WAYS[text.parse::<usize>().unwrap()]),
        Err(_) => &WAYS,
    }
}

/// How long the spinners are waited for between two changes.
const TURN: Duration = Duration::from_micros(400);

fn cycles() -> u64 {
    std::env::var("NANOPROBE_TORTURE").map_or(200, |text| text.parse().unwrap())
}

fn program() -> &'static Path {
    static PROGRAM: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = PROGRAM.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("torture");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/torture.c");
        let mut command = Command::new("cc");
        command.args(["-O1", "-pthread", "-o"]).args([&path, &source]);
        assert!(command.status().unwrap().success());
        (folder, path)
    });
    path
}

/// The program, with its ends of the pipes.
struct Target {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    process: Process,
    spinners: u32,
    /// Where its spinners count.
    counts: TargetAddress,
    /// Where each parked thread is to arrive, and the thread.
    arrivals: Vec<(u64, i32)>,
    text: Vec<(TargetAddress, Vec<u8>)>,
}

impl Target {
    fn start(spinners: u32, parked: bool) -> Target {
        let mut command = Command::new(program());
        command
            .args([spinners.to_string(), u8::from(parked).to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        // SAFETY: no preconditions. It cannot fail in a way that matters.
        let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        // SAFETY: a system call, and nothing else. Beside a nice test the spinners are nice, too: [`run_whenever_ready`]
        // would have them begin anew.
        unsafe {
            command.pre_exec(move || {
                libc::setpriority(libc::PRIO_PROCESS, 0, nice);
                Ok(())
            })
        };
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let process = Process::open(i32::try_from(child.id()).unwrap()).unwrap();
        let mut target = Target {
            process,
            spinners,
            counts: TargetAddress(0),
            child,
            input,
            output: BufReader::new(output),
            arrivals: Vec::new(),
            text: Vec::new(),
        };
        for line in target.until("ready") {
            if let Some(address) = line.strip_prefix("counts ") {
                target.counts = TargetAddress(u64::from_str_radix(address, 16).unwrap());
            }
            if let Some(rest) = line.strip_prefix("arrival ") {
                let (address, tid) = rest.split_once(' ').unwrap();
                let arrival = (u64::from_str_radix(address, 16).unwrap(), tid.parse().unwrap());
                target.arrivals.push(arrival);
            }
        }
        target.text = target.executable();
        target
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    /// All private executable memory.
    fn executable(&self) -> Vec<(TargetAddress, Vec<u8>)> {
        let map = self.process.map().unwrap();
        let mappings = map
            .mappings()
            .iter()
            .filter(|mapping| mapping.permissions.execute && mapping.path().is_some());
        mappings
            .map(|mapping| {
                let mut bytes = vec![0; (mapping.end.0 - mapping.start.0) as usize];
                self.process.memory().read(mapping.start, &mut bytes).unwrap();
                (mapping.start, bytes)
            })
            .collect()
    }

    /// How often each spinner has executed what is patched.
    fn counted(&self) -> Vec<u64> {
        let at = |index: u32| TargetAddress(self.counts.0 + 8 * u64::from(index));
        let count = |index| self.process.memory().read_u64(at(index)).unwrap();
        (0..self.spinners).map(count).collect()
    }

    /// Waits until every spinner has executed what is patched, but not for long: on a busy machine a spinner may be without
    /// a processor for milliseconds. Whether they have.
    fn executes(&self) -> bool {
        let before = self.counted();
        let begun = Instant::now();
        while begun.elapsed() < TURN {
            std::thread::sleep(TURN / 8);
            if self.counted().iter().zip(&before).all(|(now, then)| now > then) {
                return true;
            }
        }
        false
    }

    fn until(&mut self, last: &str) -> Vec<String> {
        let mut lines = Vec::new();
        while lines.last().is_none_or(|line| line != last) {
            let mut line = String::new();
            let read = self.output.read_line(&mut line).unwrap();
            assert!(
                read > 0 && !line.starts_with("FAILED"),
                "{line} after {lines:?}; {:?}",
                self.child.try_wait()
            );
            lines.push(line.trim_end().to_owned());
        }
        lines
    }

    #[track_caller]
    fn ask(&mut self, order: &str, answer: &str) {
        writeln!(self.input, "{order}").unwrap();
        self.until(answer);
    }

    fn attach(&self, (text, tactic, form): Way, stop: StopPolicy) -> Session {
        let macros = MacroValues {
            target: Some(i64::from(self.pid())),
            ..MacroValues::default()
        };
        let sources = [Source::new("test", text)];
        let options = Options {
            tactic: tactic.map(str::to_owned),
            trap: form.map(str::to_owned),
            stop,
            ..Options::default()
        };
        let program = compile(&sources, &macros).unwrap();
        let again = |_: &_| Ok(compile(&sources, &macros).unwrap());
        let mut session = Session::open(program, options, Choice::Process(self.pid()), &again).unwrap();
        session.begin().unwrap();
        if let Some(tactic) = tactic {
            let fits = |patch: &&Patch| patch.tactic.name() == tactic && !patch.sites.is_empty();
            assert!(
                session.patches().iter().any(|patch| fits(&patch)),
                "nothing to do for {tactic}"
            );
        }
        session
    }

    /// Takes the probes back: the text is what it was, the probes have counted, the program ends well.
    fn end(mut self, mut session: Session) {
        let detached = session.end().unwrap().1;
        assert_eq!((detached.left_bytes, detached.foreign), (0, 0));
        assert!(self.executable() == self.text, "the text differs");
        let mut table = AggregateTable::new();
        table.load(session.program(), session.snapshot().unwrap());
        let rows = table.rows(session.program(), AggregationId(0));
        let hits: u64 = rows.iter().flat_map(|row| row.words.first()).sum();
        assert!(hits > 0, "no probe has fired");
        writeln!(self.input, "stop").unwrap();
        self.until("OK");
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // Ended already, when all went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Lets this thread run whenever it can, if that is allowed: the program's threads never sleep, and beside them (and a busy
/// machine's others) it would get a turn every few milliseconds. Threads and processes that it makes are not so.
fn run_whenever_ready() {
    // SAFETY: the parameters are ours; failing changes nothing.
    unsafe {
        let parameters = libc::sched_param { sched_priority: 1 };
        libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &parameters);
    }
}

/// All of the program's patches; how many.
fn toggle(session: &mut Session, armed: bool) -> usize {
    session.set_armed(armed, &mut |_| true).unwrap().patches
}

fn come_and_go(spinners: u32, cycles: u64) {
    run_whenever_ready();
    for &way in ways() {
        for stop in [StopPolicy::Never, StopPolicy::Always] {
            // The stop is the simpler; it gets its share.
            let cycles = if stop == StopPolicy::Always {
                cycles.div_ceil(10)
            } else {
                cycles
            };
            let target = Target::start(spinners, false);
            let mut session = target.attach(way, stop);
            let all = toggle(&mut session, false);
            assert!(all > 0);
            let (started, counted) = (Instant::now(), target.counted());
            let mut executed = 0;
            for cycle in 0..cycles {
                for armed in [true, false] {
                    assert_eq!(toggle(&mut session, armed), all, "{way:?} {cycle}");
                    executed += u64::from(target.executes());
                }
                if cycle % 100 == 0 {
                    session.step().unwrap();
                    assert!(!session.is_finished(), "{way:?}: it ended in cycle {cycle}");
                }
            }
            let calls: u64 = target
                .counted()
                .iter()
                .zip(&counted)
                .map(|(now, then)| now - then)
                .sum();
            println!(
                "{way:?}, {stop:?}: {cycles} cycles in {:?}; {calls} calls; all threads called after {executed} of {} changes",
                started.elapsed(),
                2 * cycles
            );
            assert_eq!(toggle(&mut session, true), all);
            // Long enough for a probe to fire that was never armed for long.
            while session.snapshot().unwrap() == Default::default() {
                session.step().unwrap();
            }
            target.end(session);
        }
    }
}

#[test]
fn two_threads_execute_what_is_patched_and_unpatched() {
    come_and_go(2, cycles());
}

#[test]
fn four_threads_execute_what_is_patched_and_unpatched() {
    come_and_go(4, cycles().div_ceil(4));
}

/// Threads held at an instruction, as by a debugger, while it is patched or unpatched under them.
struct Held(Vec<Pid>);

impl Held {
    fn at_arrivals(target: &Target) -> Held {
        let hold = |&(address, tid): &(u64, i32)| {
            let tid = Pid::from_raw(tid);
            ptrace::seize(tid, ptrace::Options::empty()).unwrap();
            ptrace::interrupt(tid).unwrap();
            let stop = waitpid(tid, Some(WaitPidFlag::__WALL)).unwrap();
            assert!(matches!(stop, WaitStatus::PtraceEvent(..)), "{stop:?}");
            let mut registers = ptrace::getregs(tid).unwrap();
            registers.rip = address;
            registers.rax = 1000;
            registers.rdi = 0;
            registers.orig_rax = u64::MAX;
            registers.eflags &= !1;
            ptrace::setregs(tid, registers).unwrap();
            tid
        };
        Held(target.arrivals.iter().map(hold).collect())
    }

    fn release(self) {
        for tid in self.0 {
            ptrace::detach(tid, None).unwrap();
        }
    }
}

/// Threads that stand on each instruction when it is patched, unpatched, and both; and the same for signal frames that
/// lead there.
#[test]
fn threads_stand_on_every_instruction() {
    for way in WAYS {
        let mut target = Target::start(1, true);
        let mut session = target.attach(way, StopPolicy::Never);
        let mut armed = true;
        for changes in [0, 1, 1, 2, 3, 1, 2] {
            for by_frames in [false, true] {
                let held = if by_frames {
                    target.ask("frames", "parked");
                    None
                } else {
                    Some(Held::at_arrivals(&target))
                };
                for _ in 0..changes {
                    armed = !armed;
                    assert!(toggle(&mut session, armed) > 0);
                }
                match held {
                    None => target.ask("release", "released"),
                    Some(held) => {
                        let count = held.0.len();
                        held.release();
                        target.ask(&format!("arrived {count}"), "arrived");
                    }
                }
            }
        }
        if !armed {
            toggle(&mut session, true);
        }
        target.end(session);
    }
}

/// Frames that lead to every instruction at the moment of attaching and of detaching.
#[test]
fn frames_are_there_at_attach_and_detach() {
    for way in WAYS {
        for stop in [StopPolicy::Auto, StopPolicy::Never, StopPolicy::Always] {
            let mut target = Target::start(1, true);
            target.ask("frames", "parked");
            let session = target.attach(way, stop);
            target.ask("release", "released");
            target.ask("frames", "parked");
            let released = |target: &mut Target| target.ask("release", "released");
            let mut session = session;
            let detached = session.end().unwrap().1;
            assert_eq!((detached.left_bytes, detached.foreign), (0, 0), "{way:?}");
            released(&mut target);
            assert!(target.executable() == target.text, "the text differs");
            writeln!(target.input, "stop").unwrap();
            target.until("OK");
        }
    }
}
