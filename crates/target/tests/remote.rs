//! Calls made in a thread that sleeps, runs, or stands anywhere. It continues as if nothing had happened.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use nanoprobe_patch::TargetAddress;
use nanoprobe_target::{Process, Protection, RemoteError, SignalAction, Stopped};
use nix::errno::Errno;
use support::{Running, compile, compile_with, queue, until};

/// The processor time of a program, in the kernel's ticks.
fn spent_ticks(pid: i32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let numbers = fields.split(' ').skip(11).take(2);
    numbers.map(|number| number.parse::<u64>().unwrap()).sum()
}

fn maps(pid: i32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap()
}

/// A free page-aligned range in the target.
fn free(process: &Process, bytes: u64) -> TargetAddress {
    let holes = process.map().unwrap().holes(&process.hole_rules());
    holes
        .iter()
        .rev()
        .find(|hole| hole.bytes() > bytes + 8192)
        .unwrap()
        .start
        .checked_add(4096)
        .unwrap()
}

/// Maps, writes, protects, unmaps and shares memory.
fn exercise(process: &Process, stopped: &mut Stopped) {
    let at = free(process, 1 << 20);
    let tid = stopped.best_thread().unwrap();
    let mut remote = stopped.remote(tid).unwrap();
    remote.map_anonymous(at, 8192, Protection::ReadWrite).unwrap();
    process.memory().write(at, b"hello").unwrap();
    remote.protect(at, 4096, Protection::ReadExecute).unwrap();
    remote.advise(at, 4096, libc::MADV_WILLNEED).unwrap();
    assert_eq!(&process.memory().read_array::<5>(at).unwrap(), b"hello");
    remote.unmap(at, 8192).unwrap();
    let shared = remote.create_shared("nanoprobe-test", at, 65536).unwrap();
    process.memory().write(at, b"shared").unwrap();
    let file = std::fs::File::from(shared.file.as_fd().try_clone_to_owned().unwrap());
    let mut seen = [0; 6];
    file.read_exact_at(&mut seen, 0).unwrap();
    assert_eq!(&seen, b"shared");
    remote.unmap(at, 65536).unwrap();
    assert!(shared.file.may_be_mapped(), "a program that runs is not asked");
    remote.finish().unwrap();
}

#[test]
fn sleeping_threads_make_calls_and_sleep_on() {
    // How many turns the programs run.
    const TURNS: usize = 12;
    let program = compile("sleeper");
    let kinds = [
        "nanosleep",
        "poll",
        "ppoll",
        "futex",
        "epoll",
        "sigtimedwait",
        "semtimedop",
        "receive",
    ];
    let mut all: Vec<Running> = kinds.iter().map(|kind| Running::of(&program, &[kind, "20"])).collect();
    let (mut calls, mut turns) = (0, 0);
    for running in &mut all {
        assert_eq!(running.line(), "ready");
        running.write(b"\n");
    }
    while !all.iter_mut().all(Running::has_ended) {
        for running in &mut all {
            if running.has_ended() {
                continue;
            }
            let Ok(process) = Process::open(running.pid()) else {
                continue;
            };
            let Ok(mut stopped) = process.stop() else { continue };
            let (map, tid) = (maps(running.pid()), stopped.best_thread().unwrap());
            let (registers, mask) = (stopped.registers(tid).unwrap(), stopped.signal_mask(tid).unwrap());
            let stack: [u8; 8192] = process
                .memory()
                .read_array(TargetAddress(registers.rsp - 8192))
                .unwrap();
            let vdso = vdso_bytes(&process);
            exercise(&process, &mut stopped);
            assert_eq!(
                format!("{registers:?}"),
                format!("{:?}", stopped.registers(tid).unwrap())
            );
            assert_eq!(mask, stopped.signal_mask(tid).unwrap());
            let stack_after: [u8; 8192] = process
                .memory()
                .read_array(TargetAddress(registers.rsp - 8192))
                .unwrap();
            assert!(stack == stack_after, "the stack below is as before");
            assert!(vdso == vdso_bytes(&process), "the code is gone");
            assert_eq!(map, maps(running.pid()));
            calls += 1;
        }
        turns += 1;
        if turns == TURNS {
            all.iter_mut().for_each(Running::close_input);
        }
        std::thread::sleep(Duration::from_millis(33));
    }
    assert!(calls >= TURNS * kinds.len(), "{calls}");
    for (running, kind) in all.into_iter().zip(kinds) {
        assert_eq!(running.finish().0, "damage=0 early=0 wrong=0", "{kind}");
    }
}

fn vdso_bytes(process: &Process) -> Vec<u8> {
    let map = process.map().unwrap();
    let vdso = map
        .mappings()
        .iter()
        .find(|mapping| mapping.kind == nanoprobe_target::MappingKind::Vdso)
        .unwrap();
    let mut bytes = vec![0; vdso.bytes() as usize];
    process.memory().read(vdso.start, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_blocked_read_returns_its_data() {
    let program = compile("sleeper");
    let mut running = Running::of(&program, &["read", "20"]);
    assert_eq!(running.line(), "ready");
    running.write(b"\n");
    let process = running.open();
    for _ in 0..20 {
        let mut stopped = process.stop().unwrap();
        exercise(&process, &mut stopped);
        running.write(b"data");
        drop(stopped);
    }
    assert_eq!(running.finish().0, "damage=0 early=0 wrong=0");
}

#[test]
fn threads_that_run_and_die_lend_themselves() {
    let program = compile("storm");
    let mut running = Running::of(&program, &[]);
    assert_eq!(running.line(), "ready");
    let process = running.open();
    let signal = libc::SIGRTMIN() + 3;
    let mut sent = 0;
    for _ in 0..40 {
        let mut stopped = process.stop().unwrap();
        let tids: Vec<i32> = stopped.threads().collect();
        for tid in tids {
            let mut remote = stopped.remote(tid).unwrap();
            assert_eq!(remote.syscall(libc::SYS_gettid, [0; 6]).unwrap(), i64::from(tid));
            // Signals to the process, and to the borrowed thread, arrive while the thread works for the tracer.
            queue(running.pid(), signal);
            sent += 1;
            assert_eq!(remote.syscall(libc::SYS_gettid, [0; 6]).unwrap(), i64::from(tid));
        }
    }
    assert_eq!(running.finish().0, format!("signals={sent} alarms=yes errors=0"));
}

#[test]
fn functions_are_called_and_leave_nothing() {
    let program = compile("plain");
    let mut running = Running::of(&program, &[]);
    let line = running.line();
    let functions: Vec<u64> = line
        .split(' ')
        .skip(1)
        .map(|word| u64::from_str_radix(word, 16).unwrap())
        .collect();
    let [twice, rude, faulting, endless] = functions[..] else {
        panic!("{line}")
    };
    let process = running.open();
    let mut stopped = process.stop().unwrap();
    let stack = free(&process, 65536);
    let tid = stopped.best_thread().unwrap();
    let before = format!("{:?}", stopped.registers(tid).unwrap());
    let mut remote = stopped.remote(tid).unwrap();
    remote.map_anonymous(stack, 65536, Protection::ReadWrite).unwrap();
    let range = stack..stack.checked_add(65536).unwrap();
    assert_eq!(
        remote.call(TargetAddress(twice), [21, 0, 0, 0, 0, 0], range.clone()),
        Ok(42)
    );
    assert_eq!(
        remote.call(TargetAddress(rude), [1, 2, 3, 4, 5, 6], range.clone()),
        Ok(91)
    );
    let fault = remote.call(TargetAddress(faulting), [8, 0, 0, 0, 0, 0], range.clone());
    assert!(
        matches!(fault, Err(RemoteError::Fault { signal: libc::SIGSEGV, address, .. }) if address.0 == faulting),
        "{fault:?}"
    );
    assert!(matches!(
        remote.call(TargetAddress(endless), [0; 6], range.clone()),
        Err(RemoteError::Timeout { .. })
    ));
    assert_eq!(
        remote.call(TargetAddress(twice), [4, 0, 0, 0, 0, 0], range),
        Ok(8),
        "and on it goes"
    );
    remote.unmap(stack, 65536).unwrap();
    remote.finish().unwrap();
    assert_eq!(before, format!("{:?}", stopped.registers(tid).unwrap()));
    drop(stopped);
    running.write(b"f\n");
    assert_eq!(running.line(), "42");
    assert_eq!(running.finish().1.code(), Some(7));
}

#[test]
fn ignored_traps_and_faults_stay_ignored() {
    let program = compile("plain");
    let mut running = Running::of(&program, &[]);
    running.line();
    running.write(b"i\n");
    assert_eq!(running.line(), "ignored");
    let process = running.open();
    let mut stopped = process.stop().unwrap();
    let tid = stopped.best_thread().unwrap();
    let mut remote = stopped.remote(tid).unwrap();
    assert_eq!(remote.signal_action(libc::SIGTRAP, None).unwrap().handler, 1);
    drop(remote);
    drop(stopped);
    running.write(b"x\n");
    assert_eq!(running.line(), "0 1");
}

#[test]
fn signal_actions_are_set_and_asked_for() {
    let program = compile("plain");
    let mut running = Running::of(&program, &[]);
    running.line();
    let process = running.open();
    let mut stopped = process.stop().unwrap();
    let tid = stopped.best_thread().unwrap();
    let mut remote = stopped.remote(tid).unwrap();
    let ignore = SignalAction {
        handler: 1,
        ..SignalAction::default()
    };
    assert_eq!(remote.signal_action(libc::SIGTRAP, Some(ignore)).unwrap().handler, 0);
    assert_eq!(remote.signal_action(libc::SIGTRAP, None).unwrap().handler, 1);
    assert!(matches!(
        remote.signal_action(libc::SIGKILL, Some(ignore)),
        Err(RemoteError::Call {
            errno: Errno::EINVAL,
            ..
        })
    ));
    drop(remote);
    drop(stopped);
    running.write(b"x\n");
    assert_eq!(running.line(), "0 1");
}

#[test]
fn an_occupied_address_is_refused_and_stays() {
    let program = compile("plain");
    let mut running = Running::of(&program, &[]);
    running.line();
    let process = running.open();
    let mut stopped = process.stop().unwrap();
    let before = maps(running.pid());
    let open = || {
        std::fs::read_dir(format!("/proc/{}/fd", running.pid()))
            .unwrap()
            .count()
    };
    let open_before = open();
    let taken = process.map().unwrap().mappings()[0].start;
    let tid = stopped.best_thread().unwrap();
    let mut remote = stopped.remote(tid).unwrap();
    for error in [
        remote.map_anonymous(taken, 4096, Protection::ReadWrite).unwrap_err(),
        remote.create_shared("x", taken, 4096).map(drop).unwrap_err(),
    ] {
        assert!(
            matches!(
                error,
                RemoteError::Call {
                    errno: Errno::EEXIST,
                    ..
                }
            ),
            "{error}"
        );
    }
    drop(remote);
    assert_eq!(before, maps(running.pid()));
    assert_eq!(open(), open_before, "no descriptor stays");
}

#[test]
fn a_stack_without_a_page_to_spare_is_enough() {
    let program = compile("deep");
    let mut running = Running::of(&program, &[]);
    assert_eq!(running.line(), "ready");
    let process = running.open();
    until("asleep", || support::state(running.pid()) == 'S');
    let mut stopped = process.stop().unwrap();
    exercise(&process, &mut stopped);
    drop(stopped);
    running.write(b"x");
    assert_eq!(running.finish().1.code(), Some(0));
}

#[test]
fn a_trap_whose_signal_is_still_to_come_is_not_lost() {
    let mut running = Running::of(&compile("traps"), &[]);
    assert_eq!(running.line(), "ready");
    let process = running.open();
    for _ in 0..200 {
        exercise(&process, &mut process.stop().unwrap());
    }
    // On a busy machine the program has had no processor yet.
    until("it has trapped", || spent_ticks(running.pid()) >= 2);
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(running.pid()), nix::sys::signal::SIGTERM).unwrap();
    let line = running.line();
    let (trapped, told) = line.split_once(' ').unwrap();
    assert_ne!(trapped, "0");
    assert_eq!(trapped, told);
    assert!(running.finish().1.success());
}

#[test]
fn a_static_program_is_as_good() {
    let Some(program) = compile_with(
        "musl-gcc",
        "sleeper",
        &[
            "-static",
            "-idirafter",
            "/usr/include",
            "-idirafter",
            "/usr/include/x86_64-linux-gnu",
        ],
    ) else {
        return;
    };
    let mut running = Running::of(&program, &["nanosleep", "5"]);
    assert_eq!(running.line(), "ready");
    running.write(b"\n");
    let process = running.open();
    for _ in 0..3 {
        exercise(&process, &mut process.stop().unwrap());
    }
    assert_eq!(running.finish().0, "damage=0 early=0 wrong=0");
}

/// Below the stack pointer of one coroutine lies the stack of another, which a running thread changes meanwhile.
#[test]
fn no_byte_below_a_stack_pointer_is_written() {
    let program = compile("coroutines");
    let mut running = Running::of(&program, &[]);
    assert_eq!(running.line(), "ready");
    let process = running.open();
    for _ in 0..200 {
        exercise(&process, &mut process.stop_one().unwrap());
    }
    running.write(b"x");
    assert_eq!(running.finish().0, "damage=0 ran");
}

/// A call takes this thread seconds, because all processors are busy and the thread is at the idle policy. The tracer
/// waits for it.
#[test]
fn a_thread_that_gets_hardly_any_processor_makes_calls() {
    let program = compile("idle");
    let mut running = Running::of(&program, &[]);
    assert_eq!(running.line(), "ready");
    let process = running.open();
    let before = maps(running.pid());
    let all = std::thread::available_parallelism().map_or(2, usize::from);
    // There are several spinners for each processor; they end by themselves.
    let mut spinners: Vec<std::process::Child> = (0..all * 3)
        .map(|_| {
            let mut command = std::process::Command::new("timeout");
            command.args(["20", "sh", "-c", "while :; do :; done"]).spawn().unwrap()
        })
        .collect();
    for _ in 0..2 {
        let mut stopped = process.stop().unwrap();
        let tid = stopped.best_thread().unwrap();
        let mut remote = stopped.remote(tid).unwrap();
        let at = free(&process, 1 << 20);
        remote.map_anonymous(at, 4096, Protection::ReadExecute).unwrap();
        remote.unmap(at, 4096).unwrap();
        remote.finish().unwrap();
    }
    for spinner in &mut spinners {
        let pid = nix::unistd::Pid::from_raw(spinner.id() as i32);
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::SIGTERM);
        let _ = spinner.wait();
    }
    assert_eq!(before, maps(running.pid()), "nothing of ours is left");
    running.write(b"x");
    assert_eq!(running.finish().0, "done");
}
