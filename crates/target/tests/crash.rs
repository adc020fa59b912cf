//! A tracer that is killed at any moment leaves a target that runs on.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::io::Read;

use nanoprobe_patch::TargetAddress;
use nanoprobe_target::{MappingKind, Process, Protection, WayHome};
use support::{Running, compile, until};

/// The tracer that is killed: this test program, started with the target's pid. It makes calls forever, or holds the
/// target at one place.
#[test]
#[ignore = "started by the tests below"]
fn tracer() {
    let Ok(pid) = std::env::var("NANOPROBE_TEST_TARGET") else {
        return;
    };
    let process = Process::open(pid.parse().unwrap()).unwrap();
    let hold_at = std::env::var("NANOPROBE_TEST_HOLD").unwrap_or_default();
    let here = |place: &str| {
        if place == hold_at {
            println!("\nholding");
            std::thread::sleep(std::time::Duration::from_secs(60));
        }
    };
    loop {
        let mut stopped = process.stop().unwrap();
        // A real attach clears the way home, too. Without this, the blocks of former tracers would fill all the
        // room.
        let _ = stopped.clear_way_home();
        here("stopped");
        let at = process
            .map()
            .unwrap()
            .holes(&process.hole_rules())
            .last()
            .unwrap()
            .start;
        let at = TargetAddress(at.0 + (1 << 20));
        let tid = stopped.best_thread().unwrap();
        let mut remote = stopped.remote(tid).unwrap();
        here("borrowed");
        for _ in 0..10 {
            remote.map_anonymous(at, 4096, Protection::ReadWrite).unwrap();
            remote.unmap(at, 4096).unwrap();
            let found = remote.signal_actions(&SIGNALS.map(|signal| (signal, None))).unwrap();
            let same: Vec<_> = SIGNALS
                .into_iter()
                .zip(found)
                .map(|(signal, action)| (signal, Some(action)))
                .collect();
            remote.signal_actions(&same).unwrap();
        }
    }
}

/// The actions of these signals are read, and set again unchanged, in one list of calls.
const SIGNALS: [i32; 5] = [
    libc::SIGTRAP,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGWINCH,
    libc::SIGURG,
];

fn start_tracer(pid: i32, hold_at: &str) -> Running {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command
        .args(["tracer", "--exact", "--ignored", "--nocapture"])
        .env("NANOPROBE_TEST_TARGET", pid.to_string());
    command.env("NANOPROBE_TEST_HOLD", hold_at);
    Running::start(&mut command)
}

fn tracer_of(pid: i32) -> i32 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    text.lines()
        .find_map(|line| line.strip_prefix("TracerPid:"))
        .unwrap()
        .trim()
        .parse()
        .unwrap()
}

#[test]
fn killed_while_it_holds_the_target() {
    let program = compile("vanish");
    let mut running = Running::of(&program, &[]);
    let mut tracer = start_tracer(running.pid(), "stopped");
    while tracer.line() != "holding" {}
    assert_eq!(support::state(running.pid()), 't');
    drop(tracer);
    runs(&mut running);
}

/// The next tracer comes before the thread has gone home: it must not remove the thread's way home.
#[test]
fn killed_and_followed_at_once() {
    let program = compile("vanish");
    let mut running = Running::of(&program, &[]);
    let pid = nix::unistd::Pid::from_raw(running.pid());
    nix::sys::signal::kill(pid, nix::sys::signal::SIGSTOP).unwrap();
    until("stopped", || support::state(running.pid()) == 'T');
    let mut tracer = start_tracer(running.pid(), "borrowed");
    while tracer.line() != "holding" {}
    drop(tracer);
    until("stopped again", || support::state(running.pid()) == 'T');
    let process = running.open();
    for whole in [true, false, true] {
        let mut stopped = if whole { process.stop() } else { process.stop_one() }.unwrap();
        let tid = stopped.best_thread().unwrap();
        stopped.remote(tid).unwrap().finish().unwrap();
    }
    nix::sys::signal::kill(pid, nix::sys::signal::SIGCONT).unwrap();
    runs(&mut running);
}

/// A dead tracer's block stays while a thread still stands in it, and is removed after the thread has gone home.
#[test]
fn the_way_home_is_cleared_when_no_thread_needs_it() {
    let program = compile("vanish");
    let mut running = Running::of(&program, &[]);
    let pid = nix::unistd::Pid::from_raw(running.pid());
    // The map of a new program fills up little by little: wait until it is complete.
    runs(&mut running);
    let process = running.open();
    let vdso = vdso_bytes(&process);
    assert_eq!(process.stop().unwrap().clear_way_home(), Ok(WayHome::Clean));
    nix::sys::signal::kill(pid, nix::sys::signal::SIGSTOP).unwrap();
    until("stopped", || support::state(running.pid()) == 'T');
    let mut tracer = start_tracer(running.pid(), "borrowed");
    while tracer.line() != "holding" {}
    drop(tracer);
    until("stopped again", || support::state(running.pid()) == 'T');
    let left = vdso_bytes(&process);
    assert_ne!(left, vdso);
    for _ in 0..2 {
        assert_eq!(process.stop().unwrap().clear_way_home(), Ok(WayHome::InUse));
        assert_eq!(process.stop_one().unwrap().clear_way_home(), Ok(WayHome::InUse));
        assert_eq!(vdso_bytes(&process), left);
    }
    nix::sys::signal::kill(pid, nix::sys::signal::SIGCONT).unwrap();
    runs(&mut running);
    assert_eq!(
        process.stop_one().unwrap().clear_way_home(),
        Ok(WayHome::InUse),
        "of the others it is not known"
    );
    assert_eq!(process.stop().unwrap().clear_way_home(), Ok(WayHome::Cleared));
    assert_eq!(vdso_bytes(&process), vdso);
    assert_eq!(process.stop().unwrap().clear_way_home(), Ok(WayHome::Clean));
    runs(&mut running);
}

fn vdso_bytes(process: &Process) -> Vec<u8> {
    let map = process.map().unwrap();
    let vdso = map
        .mappings()
        .iter()
        .find(|mapping| mapping.kind == MappingKind::Vdso)
        .unwrap();
    let mut bytes = vec![0; (vdso.end.0 - vdso.start.0) as usize];
    process.memory().read(vdso.start, &mut bytes).unwrap();
    bytes
}

#[test]
fn killed_in_the_middle_of_its_calls() {
    let program = compile("vanish");
    for arguments in [&[][..], &["busy"][..]] {
        let mut running = Running::of(&program, arguments);
        let mut microseconds = 1;
        for round in 0..60u64 {
            let tracer = start_tracer(running.pid(), "");
            until("traced", || {
                let ended = running.child.try_wait().unwrap();
                assert_eq!(ended, None, "round {round}: it has ended");
                tracer_of(running.pid()) != 0
            });
            // The moment differs in each round.
            microseconds = (microseconds * 7 + round * 131) % 3001;
            std::thread::sleep(std::time::Duration::from_micros(microseconds));
            drop(tracer);
            runs(&mut running);
        }
        // The next tracer recognises the code that is left, and removes it.
        let process = running.open();
        let mut stopped = process.stop().unwrap();
        let _ = stopped.clear_way_home();
        let tid = stopped.best_thread().unwrap();
        stopped.remote(tid).unwrap().finish().unwrap();
    }
}

/// Waits until the program runs: for ten more rounds of its checks, some of which may be from before the call.
fn runs(running: &mut Running) {
    until("no longer traced", || tracer_of(running.pid()) == 0);
    let _limit = nanoprobe_tests::in_time::TimeLimit::new(running.pid(), "its next rounds are waited for");
    let mut bytes = [0; 4096];
    let mut rounds = 0;
    while rounds < 10 {
        let read = running.output.read(&mut bytes).unwrap();
        assert_ne!(read, 0, "it has ended: {:?}", running.child.wait());
        rounds += read;
    }
}
