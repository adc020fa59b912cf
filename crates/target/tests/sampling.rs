//! Samples of what threads execute.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::io::Write;

use nanoprobe_target::{Process, Sampler, SamplingError};
use nanoprobe_tests::command::processor_time;
use nanoprobe_tests::left_out::left_out;
use support::{Running, compile};

/// `None`: this machine has none.
fn sampler(process: &Process, period_ns: u64) -> Option<Sampler> {
    match process.sampler(period_ns, false) {
        Ok(sampler) => Some(sampler),
        Err(SamplingError::Refused { reason }) => {
            left_out("samples of threads", &reason.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Of a processor's time, so many nanoseconds.
fn processor_ns(pid: i32) -> u64 {
    u64::try_from(processor_time(pid).unwrap().as_nanos()).unwrap()
}

/// The kernel counts each thread's time from nothing on, so none of these threads comes to the time between two
/// samples.
#[test]
fn threads_that_end_before_they_are_sampled_once() {
    const PERIOD_NS: u64 = 20_000_000;
    let program = compile("brief");
    let mut running = Running::of(&program, &["5000", "2000"]);
    let process = running.open();
    let Some(mut sampler) = sampler(&process, PERIOD_NS) else {
        return;
    };
    let input = running.child.stdin.as_mut().unwrap();
    input.write_all(b"\n").unwrap();
    input.flush().unwrap();
    assert_eq!(running.line(), "done");
    let (samples, lost) = sampler.take();
    // Two seconds of processors' time: 100, less what the threads had left when they ended. The kernel's time may be
    // hidden.
    let count = samples.len() as u64 + lost;
    assert!((30..=110).contains(&count), "{count} samples");
    let others = samples.iter().filter(|sample| sample.thread != running.pid()).count();
    assert!(others > 20, "{others} of the brief threads");
    assert_eq!(running.finish().0, "fine");
}

/// A thread that works is interrupted no more often than it was asked for, and threads that come later are seen all the
/// same, its own among them.
#[test]
fn a_thread_that_works_is_sampled_coarsely_until_it_creates_others() {
    const PERIOD_NS: u64 = 10_000_000;
    let program = compile("worker");
    let mut running = Running::of(&program, &["2000", "1000"]);
    let process = running.open();
    let Some(mut sampler) = sampler(&process, PERIOD_NS) else {
        return;
    };
    running.write(b"w");
    while !sampler.is_coarse(running.pid()) {
        sampler.read();
        std::thread::sleep(Sampler::READ_PERIOD);
    }
    // It works on after its first line, and says for how long it has worked up to the second.
    running.write(b"a");
    running.line();
    let before = processor_ns(running.pid());
    sampler.take();
    let after = processor_ns(running.pid());
    running.write(b"b");
    let (line, alone) = (running.line(), sampler.take().0);
    assert!(sampler.is_coarse(running.pid()));
    let end: u64 = line.parse().unwrap();
    let (least, most) = ((end - after) / PERIOD_NS, (end - before) / PERIOD_NS);
    let count = alone.len() as u64;
    assert!(
        (least / 2..=most + 10).contains(&count),
        "{count} samples, {least} to {most} are right"
    );
    // Threads of two milliseconds each, a second of them.
    running.write(b"c");
    while sampler.is_coarse(running.pid()) {
        sampler.read();
        std::thread::sleep(Sampler::READ_PERIOD);
    }
    assert_eq!(running.line(), "done");
    let (samples, lost) = sampler.take();
    let others = samples.iter().filter(|sample| sample.thread != running.pid()).count() as u64 + lost;
    assert!((30..=110).contains(&others), "{others} samples of brief threads");
    assert_eq!(running.finish().0, "fine");
}
