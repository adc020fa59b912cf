//! How much slower this processor is, now, than the one of the model's figures.
//!
//! A step that takes the same time everywhere cannot be told apart here. But the parts of a hit
//! (loads, stores, reading a time stamp counter) slow down together: on another processor, at
//! another frequency, beside a busy hyperthread. So one measurement stands for all of them: reading
//! the clock, which mostly reads the time stamp counter and takes a fiftieth of a microsecond.

use std::hint::black_box;
use std::time::Instant;

/// How long reading the clock took on the machine on which the model's figures were measured.
const REFERENCE_NS: f64 = 17.0;
/// Bounds of the factor. Where reading the clock is a system call (a virtual machine without a stable counter), its
/// time says nothing about the rest.
const LIMITS: (f64, f64) = (0.3, 3.0);
const BATCHES: usize = 51;
/// A batch takes some microseconds: few batches are interrupted.
const READINGS: u32 = 200;

/// The factor for each ns of the model. Measuring it takes less than a millisecond.
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

/// The median: interrupted batches do not change it.
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
