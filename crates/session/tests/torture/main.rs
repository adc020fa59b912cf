//! A program is patched and unpatched while it executes, sleeps and stands at every instruction of the patched
//! functions. It checks its own results; afterwards its text is unchanged.
//!
//! `NANOPROBE_TORTURE`: how often each tactic's patches come and go (default 200; 100000 in the long run, which is a
//! command of CONTRIBUTING.md). `NANOPROBE_TORTURE_WAY`: only this one of the ways. With `--nocapture` each way prints
//! its duration, the program's share of it, and for each thread the number of changes whose new text the thread
//! executed before the next change: on a busy machine a thread has no processor during many changes. If the sites'
//! springboards lie in neighbours, the program's calls must equal the probes' counts; at the neighbours, over all
//! changes together.

#![allow(clippy::unwrap_used, reason = "test code")]

mod target;

use std::io::Write as _;
use std::time::Instant;

use nanoprobe_lang::options::StopPolicy;
use nanoprobe_session::Attached;
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use target::{TURN, Target};

const ENTRIES: &str = "pid$target:a.out:t_*:entry { @ = count(); }";
const EVERYTHING: &str = "pid$target:a.out:t_*: { @ = count(); }";
/// Six sites, each patched by way of a neighbour, and three of these neighbours.
const NEIGHBOURS: &str =
    "pid$target:a.out:n_*:8 { @ = count(); } pid$target:a.out:n_own_*:c { @neighbours = count(); }";

/// The probed instructions, and the kind of the probes.
#[derive(Clone, Copy, Debug)]
struct Way {
    text: &'static str,
    /// `-x tactic=`: the patches must have this tactic.
    tactic: Option<&'static str>,
    /// `-x trap=`.
    form: Option<&'static str>,
    functions: Functions,
}

/// The set of functions that the program executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Functions {
    /// The functions to which all tactics apply.
    Common,
    /// The functions in which only a displaced neighbour makes room.
    Neighbours,
}

const fn way(text: &'static str, tactic: Option<&'static str>, form: Option<&'static str>) -> Way {
    Way {
        text,
        tactic,
        form,
        functions: Functions::Common,
    }
}

const WAYS: [Way; 10] = [
    way(ENTRIES, Some("jump"), None),
    way(ENTRIES, Some("run"), None),
    way(ENTRIES, Some("pun"), None),
    way(ENTRIES, Some("evict"), None),
    way(ENTRIES, None, None),
    way(EVERYTHING, None, None),
    way(EVERYTHING, Some("trap"), Some("emulate")),
    way(EVERYTHING, Some("trap"), Some("boost")),
    way(EVERYTHING, Some("trap"), Some("step")),
    Way {
        functions: Functions::Neighbours,
        ..way(NEIGHBOURS, None, None)
    },
];

/// Which of the ways are taken: all, or the one of this number.
fn ways() -> &'static [Way] {
    match std::env::var("NANOPROBE_TORTURE_WAY") {
        Ok(text) => std::slice::from_ref(&WAYS[text.parse::<usize>().unwrap()]),
        Err(_) => &WAYS,
    }
}

fn cycles() -> u64 {
    std::env::var("NANOPROBE_TORTURE").map_or(200, |text| text.parse().unwrap())
}

/// Lets this thread run whenever it is ready, if that is allowed. The program's threads never sleep, so otherwise
/// this thread would get a turn only every few milliseconds. Threads and processes that this thread makes do not
/// inherit this.
fn run_whenever_ready() {
    // SAFETY: the parameters are ours; failing changes nothing.
    unsafe {
        let parameters = libc::sched_param { sched_priority: 1 };
        libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &parameters);
    }
}

/// Turns all patches of the program on or off. Yields how many there are.
fn toggle(session: &mut Attached, armed: bool) -> usize {
    session.set_armed(armed, &mut |_| true).unwrap().patches
}

fn come_and_go(spinners: u32, cycles: u64) {
    run_whenever_ready();
    for way in ways() {
        for stop in [StopPolicy::Never, StopPolicy::Always] {
            // Changes with a stop of all threads are simpler, so a tenth of the cycles is enough for them.
            let cycles = if stop == StopPolicy::Always {
                cycles.div_ceil(10)
            } else {
                cycles
            };
            let mut target = Target::start(way.functions, spinners, false);
            target.ask("pause", "paused");
            let mut session = target.attach(way, stop);
            let attached = target.counted().iter().sum();
            target.ask("resume", "resumed");
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
            if way.functions == Functions::Neighbours {
                counts_are_exact(&mut target, &mut session, attached);
            } else {
                assert_eq!(toggle(&mut session, true), all);
            }
            // Waits for one hit at least: it may be that no probe has been armed for long enough to fire.
            while target.hits(session.tracing_mut(), 0) == 0 {
                session.step().unwrap();
            }
            target.end(session);
        }
    }
}

/// Each function has four arrivals: before the site, at the site, at its neighbour, and after the neighbour. So half
/// of the calls come to a site. In half of the functions the neighbour is probed too, for as long as `attached`
/// counts, and three quarters of the calls come to it.
fn counts_are_exact(target: &mut Target, session: &mut Attached, attached: u64) {
    target.ask("pause", "paused");
    toggle(session, true);
    let before = target.counted();
    let (calls, at_sites) = (before.iter().sum::<u64>(), target.hits(session.tracing_mut(), 0));
    target.ask("resume", "resumed");
    while !target.called_since(&before) {
        std::thread::sleep(TURN);
    }
    target.ask("pause", "paused");
    let now = target.counted().iter().sum::<u64>();
    assert_eq!(
        2 * (target.hits(session.tracing_mut(), 0) - at_sites),
        now - calls,
        "at the sites"
    );
    assert_eq!(
        8 * target.hits(session.tracing_mut(), 1),
        3 * (now - attached),
        "at the neighbours"
    );
    target.ask("resume", "resumed");
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
            registers.rcx = 0;
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

/// A thread stands on each instruction while the instruction is patched, or unpatched, or both in turn. In every second
/// round, a signal frame that returns there takes the place of the thread.
#[test]
fn threads_stand_on_every_instruction() {
    for way in &WAYS {
        let mut target = Target::start(way.functions, 1, true);
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
    for way in &WAYS {
        for stop in [StopPolicy::Auto, StopPolicy::Never, StopPolicy::Always] {
            let mut target = Target::start(way.functions, 1, true);
            target.ask("frames", "parked");
            let session = target.attach(way, stop);
            target.ask("release", "released");
            target.ask("frames", "parked");
            let released = |target: &mut Target| target.ask("release", "released");
            let (_, detached) = session.end().unwrap();
            assert_eq!((detached.left_bytes, detached.foreign), (0, 0), "{way:?}");
            released(&mut target);
            assert!(target.executable() == target.text, "the text differs");
            writeln!(target.input, "stop").unwrap();
            target.until("OK");
        }
    }
}
