//! Samples of what threads execute.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::io::Write;

use nanoprobe_target::{Process, Sampler, SamplingError, Stacks};
use nanoprobe_tests::command::processor_time;
use nanoprobe_tests::left_out::left_out;
use support::{Running, compile};

/// `None` if this machine does not allow sampling.
fn sampler(process: &Process, period_ns: u64) -> Option<Sampler> {
    match process.sampler(period_ns, Stacks::default(), false) {
        Ok(sampler) => Some(sampler),
        Err(SamplingError::Refused { reason }) => {
            left_out("samples of threads", &reason.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The processor time that a process has used, in ns.
fn processor_ns(pid: i32) -> u64 {
    u64::try_from(processor_time(pid).unwrap().as_nanos()).unwrap()
}

/// The kernel counts each thread's time from 0, and none of these threads reaches the sampling period.
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
    // Two seconds of processor time are 100 periods. A part is missing, because a thread's last period is not
    // complete when it ends, and the kernel's time may be hidden.
    let count = samples.len() as u64 + lost;
    assert!((30..=110).contains(&count), "{count} samples");
    let others = samples.iter().filter(|sample| sample.thread != running.pid()).count();
    assert!(others > 20, "{others} of the brief threads");
    assert_eq!(running.finish().0, "fine");
}

/// A thread that works is interrupted no more often than requested. Threads that are created later, by this thread or
/// another, are sampled all the same.
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
    // After its first line it continues to work. Its second line says how long it has worked by then.
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
    // The threads run for two milliseconds each, for a second in all.
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
