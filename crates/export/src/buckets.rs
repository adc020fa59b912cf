//! Which values a bucket holds, for printing and for ordering.
//!
//! ```text
//! quantize     127 buckets: 0 .. 62 for -2^62 .. -1, 63 for zero, 64 .. 126 for 1 .. 2^62
//! lquantize    below base; levels of a step each; at and above base + levels * step
//! llquantize   below factor^low; for each magnitude up to factor^high its steps; at and above factor^(high + 1)
//! ```

/// Buckets of a `quantize` that mean something; its words are one more.
pub(crate) const QUANTIZE_BUCKETS: usize = 127;
/// The bucket of zero.
pub(crate) const QUANTIZE_ZERO: usize = 63;

/// The value that a bucket of `quantize` is labelled with: the smallest one in it, the largest for negative ones.
pub(crate) fn quantize_value(bucket: usize) -> i64 {
    match bucket {
        0..QUANTIZE_ZERO => -(1 << (QUANTIZE_ZERO - 1 - bucket)),
        QUANTIZE_ZERO => 0,
        _ => 1 << (bucket - QUANTIZE_ZERO - 1).min(62),
    }
}

/// The bucket of `quantize` that a value falls into.
pub(crate) fn quantize_bucket(value: i64) -> usize {
    match value {
        0 => QUANTIZE_ZERO,
        1.. => QUANTIZE_ZERO + 1 + value.ilog2() as usize,
        // -2^k .. -(2^(k+1) - 1) share a bucket; below -2^62 all do.
        _ => QUANTIZE_ZERO - 1 - (value.unsigned_abs().ilog2() as usize).min(62),
    }
}

/// The bucket of `lquantize` that a value falls into.
pub(crate) fn linear_bucket(base: i32, step: u16, levels: u16, value: i64) -> usize {
    let Some(offset) = value.checked_sub(i64::from(base)) else {
        // Only a value far below or far above the base overflows.
        return if value < 0 { 0 } else { usize::from(levels) + 1 };
    };
    if offset < 0 {
        return 0;
    }
    let level = offset / i64::from(step.max(1));
    usize::try_from(level).map_or(usize::from(levels), |level| level.min(usize::from(levels))) + 1
}

/// The lower bounds of the buckets of `llquantize` but the first: bucket 0 is below the first bound, bucket n from
/// bound n - 1 on. Magnitudes that do not fit 64 bits are left out; so is everything beyond a million of bounds.
pub(crate) fn log_linear_bounds(factor: u16, low: u16, high: u16, steps: u16) -> Vec<i64> {
    const BOUNDS_MAX: usize = 1 << 20;
    let (factor, steps) = (i64::from(factor), i64::from(steps.max(1)));
    let mut bounds = Vec::new();
    let Some(mut value) = factor.checked_pow(u32::from(low)) else {
        return bounds;
    };
    for _ in low..=high {
        let Some(next) = value.checked_mul(factor).filter(|next| *next > value) else {
            break;
        };
        let step = (next / steps).max(1);
        while value < next && bounds.len() < BOUNDS_MAX {
            bounds.push(value);
            value = value.saturating_add(step);
        }
        value = next;
    }
    bounds.push(value);
    bounds
}

/// The bucket of `llquantize` that a value falls into.
pub(crate) fn log_linear_bucket(bounds: &[i64], value: i64) -> usize {
    bounds.partition_point(|bound| *bound <= value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_lies_in_the_bucket_that_is_labelled_for_it() {
        for value in [0, 1, 2, 3, 4, 1023, 1024, i64::MAX, 1 << 62, (1 << 62) - 1] {
            let bucket = quantize_bucket(value);
            assert!(quantize_value(bucket) <= value, "{value}");
            assert!(
                bucket == QUANTIZE_BUCKETS - 1 || value < quantize_value(bucket + 1),
                "{value}"
            );
        }
        for value in [-1, -2, -3, -4, -1023, -1024, -(1 << 62), i64::MIN] {
            let bucket = quantize_bucket(value);
            assert!(value <= quantize_value(bucket), "{value}");
            assert!(bucket == 0 || quantize_value(bucket - 1) < value, "{value}");
        }
    }

    #[test]
    fn linear_buckets_have_a_step_each() {
        let bucket = |value| linear_bucket(-10, 5, 4, value);
        let found: Vec<usize> = [-11, -10, -6, -5, 0, 9, 10, 1000].into_iter().map(bucket).collect();
        assert_eq!(found, [0, 1, 1, 2, 3, 4, 5, 5]);
        assert_eq!((bucket(i64::MIN), bucket(i64::MAX)), (0, 5));
        assert_eq!(linear_bucket(10, 5, 4, i64::MIN), 0);
    }

    #[test]
    fn log_linear_buckets_divide_each_magnitude() {
        let bounds = log_linear_bounds(10, 0, 1, 10);
        assert_eq!(
            bounds,
            [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100]
        );
        let bucket = |value| log_linear_bucket(&bounds, value);
        assert_eq!(
            (
                bucket(-5),
                bucket(0),
                bucket(1),
                bucket(19),
                bucket(20),
                bucket(99),
                bucket(100)
            ),
            (0, 0, 1, 10, 11, 18, 19)
        );
        // twenty steps: a magnitude of 10 has ten of them only
        assert_eq!(log_linear_bounds(10, 0, 1, 20).len(), 9 + 18 + 1);
        // nonsense ends
        assert_eq!(log_linear_bounds(0, 0, 65535, 1).len(), 1);
        assert_eq!(log_linear_bounds(2, 65535, 65535, 1).len(), 0);
        assert!(log_linear_bounds(2, 0, 65535, 65534).len() <= (1 << 20) + 1);
    }
}
