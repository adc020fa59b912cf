//! The words of one aggregation value: adds, updates and compares them.
//!
//! ```text
//! count      [count]                      stddev      [count, sum, sum of squares low, high]
//! sum        [sum, updates]               quantize    [weight of each bucket]
//! avg        [count, sum]                 lquantize   likewise
//! min, max   [value, updates,             llquantize  likewise
//!             epoch, wanted epoch]
//! ```
//!
//! All arithmetic wraps: the target may have overwritten the words.

use nanoprobe_arena::buckets::{
    self, LogLinear, Magnitudes, QUANTIZE_BUCKETS, QUANTIZE_WORDS, llquantize_bucket, llquantize_buckets,
    lquantize_bucket,
};
use nanoprobe_lang::program::AggregatingFunction;

/// The word at an index; 0 if there is no such word.
pub(crate) fn word(words: &[u64], index: usize) -> u64 {
    words.get(index).copied().unwrap_or(0)
}

fn wide(words: &[u64]) -> u128 {
    u128::from(word(words, 2)) | (u128::from(word(words, 3)) << 64)
}

fn set(words: &mut [u64], index: usize, value: u64) {
    if let Some(word) = words.get_mut(index) {
        *word = value;
    }
}

fn set_wide(words: &mut [u64], value: u128) {
    set(words, 2, value as u64);
    set(words, 3, (value >> 64) as u64);
}

/// Adds the words of another thread (or enabling) to `words`.
pub fn merge(function: AggregatingFunction, words: &mut [u64], other: &[u64]) {
    match function {
        AggregatingFunction::Minimum | AggregatingFunction::Maximum => {
            let updates = word(words, 1).wrapping_add(word(other, 1));
            if word(other, 1) == 0 || !is_of_epoch(other) && word(words, 1) != 0 {
                set(words, 1, updates);
                return;
            }
            let is_first = word(words, 1) == 0 || !is_of_epoch(words);
            let (ours, theirs) = (word(words, 0) as i64, word(other, 0) as i64);
            let better = match function {
                AggregatingFunction::Minimum => theirs < ours,
                _ => theirs > ours,
            };
            if better || is_first {
                set(words, 0, theirs as u64);
                set(words, 2, word(other, 2));
                set(words, 3, word(other, 3));
            }
            set(words, 1, updates);
        }
        AggregatingFunction::StandardDeviation => {
            let squares = wide(words).wrapping_add(wide(other));
            add(words, other);
            set_wide(words, squares);
        }
        _ => add(words, other),
    }
}

/// Whether a minimum or maximum is known to come from the time since the last `clear()`.
fn is_of_epoch(words: &[u64]) -> bool {
    word(words, 2) == word(words, 3)
}

fn add(words: &mut [u64], other: &[u64]) {
    for (word, other) in words.iter_mut().zip(other) {
        *word = word.wrapping_add(*other);
    }
}

/// The change of the target's words since they were `before`, ready to be merged. A minimum or maximum belongs to its
/// epoch, which begins with a `clear()`. To merge the same minimum or maximum twice changes nothing.
///
/// An update at the beginning of an epoch may leave a minimum or maximum of the previous epoch. If it
/// differs from `before`, it is the update's own value. If not, the value is unknown, and only the number
/// of updates changes.
pub(crate) fn since(function: AggregatingFunction, words: &[u64], before: &[u64]) -> Vec<u64> {
    let mut result: Vec<u64> = (0..words.len())
        .map(|index| word(words, index).wrapping_sub(word(before, index)))
        .collect();
    match function {
        AggregatingFunction::StandardDeviation => set_wide(&mut result, wide(words).wrapping_sub(wide(before))),
        AggregatingFunction::Minimum | AggregatingFunction::Maximum => {
            let is_updated = word(&result, 1) != 0;
            let is_known = is_of_epoch(words) || word(before, 1) == 0 || word(words, 0) != word(before, 0);
            set(&mut result, 0, if is_updated { word(words, 0) } else { 0 });
            set(&mut result, 2, 0);
            set(&mut result, 3, u64::from(is_updated && !is_known));
        }
        _ => {}
    }
    result
}

/// Updates the words as the agent does. There must be at least as many words as the function needs; the
/// others stay unchanged.
pub fn update(function: AggregatingFunction, words: &mut [u64], value: i64, weight: i64) {
    let bucket: Option<usize> = match function {
        AggregatingFunction::Count => {
            merge(function, words, &[1]);
            return;
        }
        AggregatingFunction::Sum => {
            merge(function, words, &[value as u64, 1]);
            return;
        }
        AggregatingFunction::Minimum | AggregatingFunction::Maximum => {
            let wanted = word(words, 3);
            merge(function, words, &[value as u64, 1, wanted, wanted]);
            // The earlier value may belong to the same epoch, and may be the more extreme value.
            set(words, 2, wanted);
            return;
        }
        AggregatingFunction::Average => {
            merge(function, words, &[1, value as u64]);
            return;
        }
        AggregatingFunction::StandardDeviation => {
            let square = u128::from(value.unsigned_abs()).pow(2);
            merge(
                function,
                words,
                &[1, value as u64, square as u64, (square >> 64) as u64],
            );
            return;
        }
        AggregatingFunction::Quantize => Some(buckets::quantize_bucket(value)),
        AggregatingFunction::LinearQuantize { .. } => lquantize_bucket(function.packed_parameters(), value),
        AggregatingFunction::LogLinearQuantize { .. } => llquantize_bucket(function.packed_parameters(), value),
    };
    if let Some(word) = bucket.and_then(|bucket| words.get_mut(bucket)) {
        *word = word.wrapping_add(weight as u64);
    }
}

/// The number of words of a new value.
pub(crate) fn value_words(function: AggregatingFunction) -> usize {
    match function {
        AggregatingFunction::Count => 1,
        AggregatingFunction::Sum | AggregatingFunction::Average => 2,
        AggregatingFunction::Minimum | AggregatingFunction::Maximum | AggregatingFunction::StandardDeviation => 4,
        AggregatingFunction::Quantize => QUANTIZE_WORDS,
        AggregatingFunction::LinearQuantize { .. } => usize::from(function.levels()) + 2,
        AggregatingFunction::LogLinearQuantize { .. } => llquantize_buckets(function.packed_parameters()),
    }
}

/// The average: the sum is divided by a normalisation factor, and then by the count; 0 without a value.
pub fn average(words: &[u64], normal: u64) -> i64 {
    let (count, sum) = (word(words, 0) as i64, word(words, 1) as i64);
    if count == 0 {
        0
    } else {
        sum.wrapping_div((normal as i64).max(1)).wrapping_div(count)
    }
}

/// The standard deviation, `sqrt(average(x^2) - average(x)^2)` in integers; 0 without a value.
pub fn standard_deviation(words: &[u64], normal: u64) -> u64 {
    let count = u128::from(word(words, 0));
    if count == 0 {
        return 0;
    }
    let divisor = u128::from(normal.max(1));
    let average_of_squares = wide(words) / divisor / divisor / count;
    let average = u128::from(average(words, normal).unsigned_abs());
    average_of_squares.saturating_sub(average * average).isqrt() as u64
}

/// The sort value of an aggregation, as in DTrace. Distributions are sorted by the sum of their
/// labels times their weights, then by the weight of zero.
pub(crate) fn rank(function: AggregatingFunction, words: &[u64]) -> (i128, i64) {
    match function {
        AggregatingFunction::Count
        | AggregatingFunction::Sum
        | AggregatingFunction::Minimum
        | AggregatingFunction::Maximum => (i128::from(word(words, 0) as i64), 0),
        AggregatingFunction::Average => (i128::from(average(words, 1)), 0),
        AggregatingFunction::StandardDeviation => (i128::from(standard_deviation(words, 1)), 0),
        _ => {
            let mut sum = 0i128;
            let mut zero = 0;
            for (bucket, weight) in words.iter().enumerate() {
                let weight = *weight as i64;
                let Some(label) = label(function, bucket).filter(|_| weight != 0) else {
                    continue;
                };
                sum = sum.saturating_add(i128::from(weight).saturating_mul(i128::from(label)));
                let is_log_linear = matches!(function, AggregatingFunction::LogLinearQuantize { .. });
                if if is_log_linear { bucket == 0 } else { label == 0 } {
                    zero = weight;
                }
            }
            (sum, zero)
        }
    }
}

/// The value of a bucket in the comparison of distributions.
fn label(function: AggregatingFunction, bucket: usize) -> Option<i64> {
    match function {
        AggregatingFunction::LinearQuantize { base, step, .. } => {
            let levels = usize::from(function.levels());
            let base = i64::from(base);
            match bucket {
                0 => Some(base - 1),
                _ if bucket > levels => Some(base + levels as i64 * i64::from(step) + 1),
                _ => Some(base + (bucket as i64 - 1) * i64::from(step)),
            }
        }
        AggregatingFunction::LogLinearQuantize { .. } => {
            match LogLinear::unpack(function.packed_parameters()).magnitudes(bucket)? {
                Magnitudes::Below(_) => Some(0),
                Magnitudes::From(least, _, is_negative) => Some(if is_negative { -least } else { least }),
            }
        }
        _ => (bucket < QUANTIZE_BUCKETS).then(|| buckets::quantize_value(bucket)),
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use super::*;

    const MINIMUM: AggregatingFunction = AggregatingFunction::Minimum;

    fn of(function: AggregatingFunction, values: &[i64]) -> Vec<u64> {
        let mut words = vec![0; value_words(function)];
        values.iter().for_each(|value| update(function, &mut words, *value, 1));
        words
    }

    #[test]
    fn two_threads_make_one_value() {
        for function in [
            AggregatingFunction::Count,
            AggregatingFunction::Sum,
            AggregatingFunction::Average,
            AggregatingFunction::Minimum,
            AggregatingFunction::Maximum,
            AggregatingFunction::StandardDeviation,
            AggregatingFunction::Quantize,
            AggregatingFunction::LinearQuantize {
                base: 0,
                limit: 100,
                step: 10,
            },
            AggregatingFunction::LogLinearQuantize {
                factor: 10,
                low: 0,
                high: 2,
                steps: 10,
            },
        ] {
            let (left, right) = ([5, -7, i64::MAX], [i64::MIN, 12, 0, 99]);
            let mut merged = of(function, &left);
            merge(function, &mut merged, &of(function, &right));
            assert_eq!(
                merged,
                of(function, &[left.as_slice(), &right].concat()),
                "{function:?}"
            );
            // Adding two values and subtracting the first must give the second, except for minima and maxima.
            if !matches!(function, AggregatingFunction::Minimum | AggregatingFunction::Maximum) {
                assert_eq!(
                    since(function, &merged, &of(function, &left)),
                    of(function, &right),
                    "{function:?}"
                );
            }
        }
    }

    #[test]
    fn a_minimum_without_updates_is_none() {
        let mut words = of(MINIMUM, &[]);
        merge(MINIMUM, &mut words, &of(MINIMUM, &[]));
        assert_eq!(words, [0; 4]);
        merge(MINIMUM, &mut words, &of(MINIMUM, &[5, 3]));
        assert_eq!(words, [3, 2, 0, 0]);
        assert_eq!(since(MINIMUM, &words, &words), [0; 4]);
        assert_eq!(since(MINIMUM, &[3, 5, 0, 0], &words), [3, 3, 0, 0]);
    }

    /// Announces a new epoch in the words, as the tracer does in the target's words.
    fn begin_epoch(words: &mut [u64]) {
        words[3] += 1;
    }

    /// Of two threads, only one has updated its value since the epoch began.
    #[test]
    fn an_extreme_is_that_of_its_epoch() {
        let mut ours = of(MINIMUM, &[5, 3]);
        let mut theirs = of(MINIMUM, &[1]);
        let before = [ours.clone(), theirs.clone()];
        begin_epoch(&mut ours);
        begin_epoch(&mut theirs);
        update(MINIMUM, &mut ours, 7, 1);
        let new = |now: [&[u64]; 2], before: &[Vec<u64>; 2]| {
            let mut words = vec![0; 4];
            for (now, before) in now.into_iter().zip(before) {
                merge(MINIMUM, &mut words, &since(MINIMUM, now, before));
            }
            words
        };
        assert_eq!(new([&ours, &theirs], &before), [7, 1, 0, 0]);
        let earlier = [ours.clone(), theirs.clone()];
        update(MINIMUM, &mut theirs, 9, 1);
        update(MINIMUM, &mut ours, 8, 1);
        assert_eq!(new([&ours, &theirs], &before), [7, 3, 0, 0]);
        assert_eq!(
            new([&ours, &theirs], &earlier)[1],
            2,
            "what was added is not added again"
        );
    }

    /// The thread had already read the wanted epoch when the tracer began another one.
    #[test]
    fn an_update_that_meets_the_beginning_of_an_epoch_counts() {
        let before = of(MINIMUM, &[5]);
        for (value, expected) in [(3, [3, 1, 0, 0]), (7, [5, 1, 0, 1])] {
            let mut words = before.clone();
            update(MINIMUM, &mut words, value, 1);
            begin_epoch(&mut words);
            let new = since(MINIMUM, &words, &before);
            assert_eq!(new, expected);
            // The next value is known again, even if this value was not.
            let mut sum = vec![0; 4];
            merge(MINIMUM, &mut sum, &new);
            merge(MINIMUM, &mut sum, &of(MINIMUM, &[6]));
            assert_eq!(sum[..2], [if value == 3 { 3 } else { 6 }, 2]);
        }
        // Nothing was read before the epoch, so the value belongs to it.
        let mut words = of(MINIMUM, &[5]);
        begin_epoch(&mut words);
        assert_eq!(since(MINIMUM, &words, &[]), [5, 1, 0, 0]);
    }

    #[test]
    fn deviations_are_whole_numbers() {
        assert_eq!(
            standard_deviation(&of(AggregatingFunction::StandardDeviation, &[1, 5, 9]), 1),
            3
        );
        assert_eq!(
            standard_deviation(&of(AggregatingFunction::StandardDeviation, &[-1000, 1000]), 1),
            1000
        );
        assert_eq!(
            standard_deviation(&of(AggregatingFunction::StandardDeviation, &[-1000, 1000]), 100),
            10
        );
        assert_eq!(
            standard_deviation(&of(AggregatingFunction::StandardDeviation, &[]), 1),
            0
        );
        let extremes = of(AggregatingFunction::StandardDeviation, &[i64::MIN, i64::MIN]);
        assert_eq!(standard_deviation(&extremes, 1), 1 << 63); // the sum has wrapped
        assert_eq!(average(&of(AggregatingFunction::Average, &[-3, -4]), 1), -3);
        assert_eq!(average(&[u64::MAX, 1 << 63], u64::MAX), i64::MIN); // nonsense, but no panic
    }

    #[test]
    fn distributions_are_ordered_by_their_weight() {
        let quantize = AggregatingFunction::Quantize;
        let rank = |values: &[i64]| rank(quantize, &of(quantize, values));
        let compare = |left: &[i64], right: &[i64]| rank(left).cmp(&rank(right));
        assert_eq!(compare(&[1, 1], &[4]), Ordering::Less);
        assert_eq!(compare(&[2, 2], &[4]), Ordering::Equal);
        assert_eq!(compare(&[2, 2, 0], &[4]), Ordering::Greater);
        assert_eq!(compare(&[-8], &[1]), Ordering::Less);
        let least = super::rank(quantize, &[u64::MAX; 128]).cmp(&super::rank(quantize, &[1 << 63; 128]));
        assert_eq!(least, Ordering::Greater); // by the weights of zero: -1 and i64::MIN
    }
}
