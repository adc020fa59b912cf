//! By how much this processor is slower, now, than the one that the model's figures are of.
//!
//! Of a time that costs what it does everywhere nothing is known here; but what a hit does (loads, stores, a time stamp
//! counter that is read) gets dearer together: on another processor, at another frequency, beside a busy hyperthread.
//! So a reading of the clock, which is mostly the time stamp counter's and takes two hundredths of a microsecond,
//! stands for all of it.

use std::hint::black_box;
use std::time::Instant;

/// What a reading of the clock took where the model's figures were measured.
const REFERENCE_NS: f64 = 17.0;
/// A clock that the kernel reads for us (a virtual machine without a stable counter) says nothing of the rest.
const LIMITS: (f64, f64) = (0.3, 3.0);
const BATCHES: usize = 51;
/// A batch is some microseconds: few of them are interrupted.
const READINGS: u32 = 200;

/// The factor for each ns of the model; takes less than a millisecond.
pub fn pace() -> f64 {
    let mut batches = [0.0; BATCHES];
    for batch in &mut batches {
        let start = Instant::now();
        for _ in 0..READINGS {
            black_box(Instant::now());
        }
        *batch = start.elapsed().as_nanos() as f64 / f64::from(READINGS);
    }
    of(&mut batches)
}

/// By the median: who was interrupted says nothing.
fn of(batches: &mut [f64; BATCHES]) -> f64 {
    batches.sort_by(f64::total_cmp);
    (batches[BATCHES / 2] / REFERENCE_NS).clamp(LIMITS.0, LIMITS.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupted_batches_say_nothing_and_slow_clocks_little() {
        let mut batches = [2.0 * REFERENCE_NS; BATCHES];
        batches[7] = 1e6;
        assert_eq!(of(&mut batches), 2.0);
        assert_eq!(of(&mut [500.0; BATCHES]), LIMITS.1);
        assert_eq!(of(&mut [0.0; BATCHES]), LIMITS.0);
        assert!((LIMITS.0..=LIMITS.1).contains(&pace()));
    }
}
