//! Stopping and letting go: nothing is lost, nothing is doubled, nobody notices.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::io::Read;
use std::time::Duration;

use nanoprobe_target::{Exit, Process, StopError};
use support::{Running, compile, queue, state, until, words};

#[test]
fn signals_and_threads_survive_two_hundred_stops() {
    let program = compile("storm");
    let mut running = Running::of(&program, &[]);
    assert_eq!(running.line(), "ready");
    let pid = running.pid();
    let process = running.open();
    let rounds = 200;
    let signal = libc::SIGRTMIN() + 3;

    let sender = std::thread::spawn(move || {
        for _ in 0..rounds * 10 {
            queue(pid, signal);
            std::thread::sleep(Duration::from_micros(200));
        }
    });
    let mut most = 0;
    let mut held = Duration::ZERO;
    for _ in 0..rounds {
        let stopped = process.stop().unwrap();
        most = most.max(stopped.threads().count());
        for tid in stopped.threads() {
            assert_ne!(stopped.registers(tid).unwrap().rip, 0);
        }
        // All of them, and nobody else.
        let mut standing: Vec<i32> = stopped.threads().collect();
        standing.sort_unstable();
        let mut listed = process.threads().unwrap();
        listed.retain(|&tid| !matches!(state(tid), 'Z' | 'X'));
        listed.sort_unstable();
        assert_eq!(standing, listed);
        held += stopped.release();

        // Sent while nobody traces, answered before the next stop: none of these may be merged.
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::SIGUSR1).unwrap();
        let mut byte = [0];
        running.output.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"a");
    }
    sender.join().unwrap();
    eprintln!("at most {most} threads, {:?} a stop", held / rounds);
    assert!(most > 4, "the breeders and their children");
    let (output, status) = running.finish();
    assert_eq!(output, format!("signals={} alarms=yes errors=0", rounds * 10));
    assert!(status.success());
}

#[test]
fn sleeping_calls_end_as_if_never_stopped() {
    let program = compile("sleeper");
    let kinds = [
        "nanosleep",
        "clock_nanosleep",
        "poll",
        "ppoll",
        "futex",
        "epoll",
        "sigtimedwait",
        "semtimedop",
        "receive",
    ];
    // All at once: they only sleep.
    let mut all: Vec<Running> = kinds.iter().map(|kind| Running::of(&program, &[kind, "30"])).collect();
    let processes: Vec<Process> = all
        .iter_mut()
        .map(|running| {
            assert_eq!(running.line(), "ready");
            running.open()
        })
        .collect();
    let mut stops = 0;
    while !all.iter_mut().all(Running::has_ended) {
        for process in &processes {
            match process.stop() {
                Ok(_) => stops += 1,
                Err(StopError::Gone { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        // A relative timeout begins anew, so leave them the time.
        std::thread::sleep(Duration::from_millis(33));
    }
    assert!(stops >= kinds.len(), "{stops}");
    for (running, kind) in all.into_iter().zip(kinds) {
        assert_eq!(running.finish().0, "damage=0 early=0 wrong=0", "{kind}");
    }
}

#[test]
fn a_stopped_job_stays_stopped() {
    let program = compile("sleeper");
    let mut running = Running::of(&program, &["nanosleep", "20"]);
    assert_eq!(running.line(), "ready");
    let pid = nix::unistd::Pid::from_raw(running.pid());
    nix::sys::signal::kill(pid, nix::sys::signal::SIGSTOP).unwrap();
    until("stopped", || state(running.pid()) == 'T');
    let process = running.open();
    for _ in 0..20 {
        let mut stopped = process.stop().unwrap();
        assert_eq!(state(running.pid()), 't');
        let tid = stopped.best_thread().unwrap();
        assert_eq!(
            stopped.remote(tid).unwrap().syscall(libc::SYS_getpid, [0; 6]).unwrap(),
            i64::from(running.pid())
        );
        drop(stopped);
        until("stopped again", || state(running.pid()) == 'T');
    }
    nix::sys::signal::kill(pid, nix::sys::signal::SIGCONT).unwrap();
    assert_eq!(running.finish().0, "damage=0 early=0 wrong=0");
}

#[test]
fn job_control_while_it_is_traced_takes_effect_afterwards() {
    let program = compile("sleeper");
    let mut running = Running::of(&program, &["nanosleep", "20"]);
    assert_eq!(running.line(), "ready");
    let pid = nix::unistd::Pid::from_raw(running.pid());
    let process = running.open();
    let mut stopped = process.stop().unwrap();
    nix::sys::signal::kill(pid, nix::sys::signal::SIGSTOP).unwrap();
    let tid = stopped.best_thread().unwrap();
    let mut remote = stopped.remote(tid).unwrap();
    for _ in 0..3 {
        assert_eq!(
            remote.syscall(libc::SYS_getpid, [0; 6]).unwrap(),
            i64::from(running.pid())
        );
    }
    drop(remote);
    drop(stopped);
    until("stopped", || state(running.pid()) == 'T');
    // And the other way round.
    let mut stopped = process.stop().unwrap();
    nix::sys::signal::kill(pid, nix::sys::signal::SIGCONT).unwrap();
    let mut remote = stopped.remote(tid).unwrap();
    assert_eq!(
        remote.syscall(libc::SYS_getpid, [0; 6]).unwrap(),
        i64::from(running.pid())
    );
    drop(remote);
    drop(stopped);
    assert_eq!(running.finish().0, "damage=0 early=0 wrong=0");
}

#[test]
fn a_process_killed_while_it_stands_is_reported_and_collected() {
    let program = compile("storm");
    let spawned = Process::spawn(&words(&[program.path.to_str().unwrap()]), None).unwrap();
    let process = spawned.process.clone();
    let tid = spawned.stopped.best_thread().unwrap();
    process.kill();
    until("ended", || process.try_wait().is_some());
    assert!(matches!(spawned.stopped.registers(tid), Err(StopError::Ptrace { .. })));
    drop(spawned);
    assert_eq!(process.wait_exit(None), Some(Exit::Signal(libc::SIGKILL)));
    assert!(matches!(process.stop(), Err(StopError::Gone { .. })));
}

#[test]
fn one_thread_can_be_stopped_alone() {
    let program = compile("storm");
    let mut running = Running::of(&program, &[]);
    assert_eq!(running.line(), "ready");
    let process = running.open();
    let mut stopped = process.stop_one().unwrap();
    assert_eq!(stopped.threads().collect::<Vec<_>>(), [running.pid()]);
    // The others run: they breed threads, which is seen in the ids.
    let before = process.threads().unwrap();
    until("the others run", || process.threads().unwrap() != before);
    let tid = stopped.best_thread().unwrap();
    assert_eq!(
        stopped.remote(tid).unwrap().syscall(libc::SYS_gettid, [0; 6]).unwrap(),
        i64::from(tid)
    );
    drop(stopped);
    assert!(running.finish().0.ends_with("errors=0"));
}
