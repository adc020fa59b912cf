//! Stopping and letting go: no signal is lost or doubled, and the program notices nothing.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::collections::BTreeSet;
use std::io::Read;
use std::time::Duration;

use nanoprobe_target::{Exit, Pauses, Process, StopError, Stopped};
use support::{Running, compile, queue, state, state_if_any, tracer, until, words};

/// Calls `how` two hundred times on a program that creates threads all the time, and sends signals to the program.
fn disturb(mut how: impl FnMut(u32, &Process)) {
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
    for round in 0..rounds {
        how(round, &process);
        // Each signal is sent while the program is not traced, and handled before the next stop. So two signals
        // must never become one.
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::SIGUSR1).unwrap();
        let mut byte = [0];
        running.output.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"a");
    }
    sender.join().unwrap();
    let (output, status) = running.finish();
    assert_eq!(output, format!("signals={} alarms=yes errors=0", rounds * 10));
    assert!(status.success());
}

#[test]
fn signals_and_threads_survive_two_hundred_stops() {
    let mut most = 0;
    let mut held = Duration::ZERO;
    disturb(|_, process| {
        let stopped = process.stop().unwrap();
        most = most.max(stopped.threads().count());
        for tid in stopped.threads() {
            assert_ne!(stopped.registers(tid).unwrap().rip, 0);
        }
        // All threads of the program are stopped, and no other thread is.
        let mut standing: Vec<i32> = stopped.threads().collect();
        standing.sort_unstable();
        let mut listed = process.threads().unwrap();
        listed.retain(|&tid| !matches!(state_if_any(tid), None | Some('Z' | 'X')));
        listed.sort_unstable();
        assert_eq!(standing, listed);
        held += stopped.release();
    });
    eprintln!("at most {most} threads, {:?} a stop", held / 200);
    assert!(most > 4, "the breeders and their children");
}

/// The threads are stopped one by one, or a few at a time, and all are released.
#[test]
fn signals_and_threads_survive_two_hundred_synchronisations() {
    let mut pauses = Pauses::default();
    let mut visited = BTreeSet::new();
    disturb(|round, process| {
        let everybody = round % 2 == 0;
        let visit = &mut |stopped: &mut Stopped| -> Result<(), StopError> {
            let standing: Vec<i32> = stopped.threads().collect();
            let [tid] = standing[..] else { panic!("{standing:?}") };
            assert_ne!(stopped.registers(tid)?.rip, 0);
            visited.insert(tid);
            Ok(())
        };
        process.synchronise(everybody, &mut pauses, visit).unwrap();
        for tid in process.threads().unwrap() {
            assert!(
                !matches!(tracer(tid), Some(tracer) if tracer != 0),
                "{tid} is still traced"
            );
        }
    });
    eprintln!("{} threads, {:?} the longest", visited.len(), pauses.longest());
    assert!(
        visited.len() > 200,
        "{}: the main thread, and children of each round",
        visited.len()
    );
}

/// There are more threads than processors, and no thread sleeps. The wait for threads without a processor is one
/// wait for all of them, or none.
#[test]
fn threads_without_a_processor_are_synchronised() {
    let program = compile("spinners");
    let mut running = Running::of(&program, &["8"]);
    assert_eq!(running.line(), "ready");
    let process = running.open();
    let mut pauses = Pauses::default();
    let mut visits = 0;
    for _ in 0..50 {
        let visit = &mut |stopped: &mut Stopped| -> Result<(), StopError> {
            visits += stopped.threads().count();
            Ok(())
        };
        process.synchronise(false, &mut pauses, visit).unwrap();
    }
    // First, enough threads are visited to see that some are late; then threads that have a processor, or whose state
    // is unknown.
    assert!(visits > 0);
    for tid in process.threads().unwrap() {
        assert_eq!(tracer(tid), Some(0), "{tid}");
    }
    eprintln!("{visits} visits, {:?} the longest", pauses.longest());
    // Each spinner goes on.
    assert_eq!(running.finish().0, "8 go on");
}

#[test]
fn sleeping_calls_end_as_if_never_stopped() {
    // How many turns the programs run.
    const TURNS: usize = 20;
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
    // All programs run at once, because they only sleep.
    let mut all: Vec<Running> = kinds.iter().map(|kind| Running::of(&program, &[kind, "30"])).collect();
    let processes: Vec<Process> = all
        .iter_mut()
        .map(|running| {
            assert_eq!(running.line(), "ready");
            running.open()
        })
        .collect();
    for running in &mut all {
        running.write(b"\n");
    }
    let (mut stops, mut turns) = (0, 0);
    while !all.iter_mut().all(Running::has_ended) {
        for process in &processes {
            match process.stop() {
                Ok(_) => stops += 1,
                Err(StopError::Gone { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        turns += 1;
        if turns == TURNS {
            all.iter_mut().for_each(Running::close_input);
        }
        // A relative timeout begins anew after a stop, so leave the program time for it.
        std::thread::sleep(Duration::from_millis(33));
    }
    assert!(stops >= TURNS * kinds.len(), "{stops}");
    for (running, kind) in all.into_iter().zip(kinds) {
        assert_eq!(running.finish().0, "damage=0 early=0 wrong=0", "{kind}");
    }
}

#[test]
fn a_stopped_job_stays_stopped() {
    let program = compile("sleeper");
    let mut running = Running::of(&program, &["nanosleep", "20"]);
    assert_eq!(running.line(), "ready");
    running.write(b"\n");
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
    running.write(b"\n");
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
    // Now in the opposite order.
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
    let killed = Exit::Signal {
        number: libc::SIGKILL,
        dumped_core: false,
    };
    assert_eq!(process.wait_exit(None), Some(killed));
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
    // The other threads create threads, which the ids show.
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
