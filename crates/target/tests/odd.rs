//! Processes that are hard to stop, or to borrow a thread of.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use nanoprobe_patch::TargetAddress;
use nanoprobe_target::{Process, Protection, RemoteError, Sandbox, Seccomp, StopError};
use nanoprobe_tests::left_out::left_out;
use support::{Running, compile, is_root, state, until};

#[test]
fn a_process_whose_main_thread_has_ended() {
    let program = compile("odd");
    let mut running = Running::of(&program, &["headless"]);
    let opened_before = running.open();
    assert_eq!(running.line(), "ready");
    until("the main thread has ended", || state(running.pid()) == 'Z');
    for process in [opened_before, running.open()] {
        assert_eq!(process.facts().executable, program.path);
        for _ in 0..10 {
            let mut stopped = process.stop().unwrap();
            let tid = stopped.best_thread().unwrap();
            assert_ne!(tid, running.pid());
            assert_eq!(
                stopped.remote(tid).unwrap().syscall(libc::SYS_gettid, [0; 6]).unwrap(),
                i64::from(tid)
            );
            assert!(
                process
                    .stop_one()
                    .map(drop)
                    .unwrap_err()
                    .to_string()
                    .contains("traces it")
            );
        }
    }
    assert_eq!(running.finish().0, "fine");
}

#[test]
fn a_vfork_parent_is_named_and_left_alone() {
    let program = compile("odd");
    let mut running = Running::of(&program, &["vfork"]);
    assert_eq!(running.line(), "ready");
    let process = running.open();
    until("in vfork", || state(running.pid()) == 'D');
    match process.stop().map(drop) {
        Err(StopError::Uninterruptible { tid, state: 'D', .. }) => assert_eq!(tid, running.pid()),
        other => panic!("{other:?}"),
    }
    assert_eq!(running.finish().0, "fine");
}

#[test]
fn execve_while_it_is_being_stopped() {
    let program = compile("odd");
    let mut running = Running::of(&program, &["phoenix", "200"]);
    let mut stops = 0;
    while !running.has_ended() {
        let Ok(process) = Process::open(running.pid()) else {
            continue;
        };
        match process.stop() {
            Ok(stopped) => {
                stops += 1;
                drop(stopped);
            }
            Err(StopError::Executed { .. } | StopError::Gone { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    assert!(stops > 0);
    let (output, status) = running.finish();
    assert!(output.ends_with("fine"), "{output}");
    assert!(status.success());
}

#[test]
fn a_thread_in_sigsuspend_keeps_both_its_masks() {
    let program = compile("odd");
    let mut running = Running::of(&program, &["suspended"]);
    assert_eq!(running.line(), "ready");
    let process = running.open();
    until("asleep", || state(running.pid()) == 'S');
    for _ in 0..10 {
        let mut stopped = process.stop().unwrap();
        let tid = stopped.best_thread().unwrap();
        let mut remote = stopped.remote(tid).unwrap();
        assert_eq!(remote.syscall(libc::SYS_gettid, [0; 6]).unwrap(), i64::from(tid));
    }
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(running.pid()), nix::sys::signal::SIGUSR1).unwrap();
    assert_eq!(running.finish().0, "fine");
}

#[test]
fn a_sandbox_refuses_and_the_process_lives_on() {
    let program = compile("odd");
    let mut running = Running::of(&program, &["sandboxed"]);
    assert_eq!(running.line(), "ready");
    let process = running.open();
    assert_eq!(process.facts().seccomp, Seccomp::Filter);
    let mut stopped = process.stop().unwrap();
    let right = if is_root() {
        Sandbox::Forbids { call: "mmap" }
    } else {
        Sandbox::Unknown {
            doubt: nanoprobe_target::Doubt::OursAreNone,
        }
    };
    assert_eq!(stopped.sandbox(), right);
    let tid = stopped.best_thread().unwrap();
    let before = stopped.registers(tid).unwrap();
    let error = stopped.remote(tid).map(drop).unwrap_err();
    assert!(
        matches!(error, RemoteError::Sandboxed { sandbox, .. } if sandbox == right),
        "{error}"
    );
    assert!(error.to_string().contains("seccomp"), "{error}");
    assert_eq!(stopped.registers(tid).unwrap(), before);
    drop(stopped);
    assert_eq!(running.finish().0, "fine");
}

/// The filter kills the process for any call that we do not need, and for restart_syscall, which the kernel makes
/// when the thread continues to sleep after a stop.
#[test]
fn a_sandbox_that_permits_is_passed() {
    if !is_root() {
        return left_out("a sandbox that permits", "to read a seccomp filter takes root");
    }
    let program = compile("odd");
    let mut running = Running::of(&program, &["permissive"]);
    assert_eq!(running.line(), "ready");
    let process = running.open();
    let mut stopped = process.stop().unwrap();
    assert_eq!(stopped.sandbox(), Sandbox::Permits);
    const LARGE: u64 = 1 << 32;
    let holes = process.map().unwrap().holes(&process.hole_rules());
    let at = holes
        .iter()
        .find(|hole| hole.end.0 - hole.start.0 > LARGE)
        .unwrap()
        .start;
    let tid = stopped.best_thread().unwrap();
    for _ in 0..3 {
        let mut remote = stopped.remote(tid).unwrap();
        let shared = remote.create_shared("x", at, 4096).unwrap();
        remote.unmap(shared.address, shared.bytes).unwrap();
        // The filter forbids this argument, but it is suspended.
        let again = remote.map_anonymous(at, LARGE, Protection::None);
        again.unwrap();
        remote.unmap(at, LARGE).unwrap();
    }
    drop(stopped);
    assert_eq!(running.finish().0, "fine");
}

#[test]
fn a_sandboxed_sleeper_outlives_a_stop() {
    let program = compile("odd");
    let mut running = Running::of(&program, &["sleeper"]);
    assert_eq!(running.line(), "ready");
    let process = running.open();
    for _ in 0..20 {
        process.stop().unwrap().release();
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert_eq!(running.finish().0, "fine");
}

#[test]
fn a_restartable_sequence_is_aborted_as_the_kernel_would() {
    let program = compile("odd");
    let mut running = Running::of(&program, &["sequence"]);
    if running.line() != "ready" {
        return left_out("the abort of a restartable sequence", "this libc has none");
    }
    let process = running.open();
    let mut inside = 0;
    until("caught inside, ten times", || {
        let mut stopped = process.stop().unwrap();
        let tid = stopped.best_thread().unwrap();
        if let Some(abort) = stopped.rseq_abort(tid).unwrap() {
            inside += 1;
            let mut remote = stopped.remote(tid).unwrap();
            assert_eq!(remote.syscall(libc::SYS_gettid, [0; 6]).unwrap(), i64::from(tid));
            remote.finish().unwrap();
            assert_eq!(TargetAddress(stopped.registers(tid).unwrap().rip), abort);
        }
        inside == 10
    });
    assert_eq!(running.finish().0, "fine");
}

/// The other process has its own signal actions, which do not lead to the agent, so a trap would kill it.
#[test]
fn a_process_with_the_same_memory_is_named_and_refused() {
    let program = compile("sharing");
    let mut running = Running::of(&program, &["clone"]);
    let line = running.line();
    let child: i32 = line.strip_prefix("ready ").unwrap().parse().unwrap();
    let process = running.open();
    if process.sharers().is_empty() {
        return left_out("a process with the same memory", "kcmp(2) is not there, or forbidden");
    }
    match process.check_sharing() {
        Err(error @ nanoprobe_target::AttachError::SharesMemory { .. }) => {
            assert!(error.to_string().contains(&format!("process {child} ")), "{error}");
        }
        other => panic!("{other:?}"),
    }
    running.write(b"x");
    assert_eq!(running.line(), "child 0");
    assert_eq!(process.check_sharing(), Ok(()), "it has ended");
}

#[test]
fn children_of_vfork_are_waited_for() {
    let program = compile("sharing");
    let mut running = Running::of(&program, &["spawn"]);
    assert_eq!(running.line(), "ready 0");
    let process = running.open();
    for _ in 0..20 {
        assert_eq!(process.check_sharing(), Ok(()));
    }
    assert_eq!(running.finish().0, "done");
}
