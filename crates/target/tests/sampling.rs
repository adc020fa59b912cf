//! Samples of what threads execute.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use std::io::Write;

use nanoprobe_target::SamplingError;
use support::{Running, compile};

/// The kernel counts each thread's time from nothing on, so none of these threads comes to the time between two samples.
#[test]
fn threads_that_end_before_they_are_sampled_once() {
    const PERIOD_NS: u64 = 20_000_000;
    let program = compile("brief");
    let mut running = Running::of(&program, &["5000", "2000"]);
    let process = running.open();
    let mut sampler = match process.sampler(PERIOD_NS, false) {
        Ok(sampler) => sampler,
        Err(SamplingError::Refused { reason }) => {
            eprintln!("skipped: no samples here: {reason}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let input = running.child.stdin.as_mut().unwrap();
    input.write_all(b"\n").unwrap();
    input.flush().unwrap();
    assert_eq!(running.line(), "done");
    let (samples, lost) = sampler.take();
    // Two seconds of processors' time: 100, less what the threads had left when they ended. The kernel's time may be hidden.
    let count = samples.len() as u64 + lost;
    assert!((30..=110).contains(&count), "{count} samples");
    let others = samples.iter().filter(|sample| sample.thread != running.pid()).count();
    assert!(others > 20, "{others} of the brief threads");
    assert_eq!(running.finish().0, "fine");
}
