//! The tracer is killed, at any moment: the target runs on.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::io::Read;

use nanoprobe_patch::TargetAddress;
use nanoprobe_target::{Process, Protection};
use support::{Running, compile, until};

/// The tracer that is killed: this test program started anew with the target's pid, going on for ever.
#[test]
#[ignore = "started by the tests below"]
fn tracer() {
    let Ok(pid) = std::env::var("NANOPROBE_TEST_TARGET") else {
        return;
    };
    let process = Process::open(pid.parse().unwrap()).unwrap();
    let hold = std::env::var("NANOPROBE_TEST_HOLD").is_ok();
    loop {
        let mut stopped = process.stop().unwrap();
        if hold {
            println!("\nholding");
            std::thread::sleep(std::time::Duration::from_secs(60));
        }
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
        for _ in 0..10 {
            remote.map_anonymous(at, 4096, Protection::ReadWrite).unwrap();
            remote.unmap(at, 4096).unwrap();
        }
    }
}

fn start_tracer(pid: i32, hold: bool) -> Running {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command
        .args(["tracer", "--exact", "--ignored", "--nocapture"])
        .env("NANOPROBE_TEST_TARGET", pid.to_string());
    if hold {
        command.env("NANOPROBE_TEST_HOLD", "1");
    }
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
    let mut tracer = start_tracer(running.pid(), true);
    while tracer.line() != "holding" {}
    assert_eq!(support::state(running.pid()), 't');
    drop(tracer);
    runs(&mut running);
}

#[test]
fn killed_in_the_middle_of_its_calls() {
    let program = compile("vanish");
    for arguments in [&[][..], &["busy"][..]] {
        let mut running = Running::of(&program, arguments);
        let mut microseconds = 1;
        for round in 0..60u64 {
            let tracer = start_tracer(running.pid(), false);
            until("traced", || {
                let ended = running.child.try_wait().unwrap();
                assert_eq!(ended, None, "round {round}: it has ended");
                tracer_of(running.pid()) != 0
            });
            // Another moment each time.
            microseconds = (microseconds * 7 + round * 131) % 3001;
            std::thread::sleep(std::time::Duration::from_micros(microseconds));
            drop(tracer);
            runs(&mut running);
        }
        // What is left is known to the next one, and taken away.
        let process = running.open();
        let mut stopped = process.stop().unwrap();
        let tid = stopped.best_thread().unwrap();
        stopped.remote(tid).unwrap().finish().unwrap();
    }
}

/// It does, for ten rounds more of its checks.
fn runs(running: &mut Running) {
    until("no longer traced", || tracer_of(running.pid()) == 0);
    let mut bytes = [0; 4096];
    let mut rounds = 0;
    while rounds < 10 {
        let read = running.output.read(&mut bytes).unwrap();
        assert_ne!(read, 0, "it has ended: {:?}", running.child.wait());
        rounds += read;
    }
}
