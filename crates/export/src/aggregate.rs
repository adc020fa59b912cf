//! The words of one aggregation value: adding up, updating, comparing.
//!
//! ```text
//! count      [count]                      stddev      [count, sum, sum of squares low, high]
//! sum        [sum, updates]               quantize    [weight of each bucket]
//! min, max   [value, updates]             lquantize   likewise
//! avg        [count, sum]                 llquantize  likewise
//! ```
//!
//! All arithmetic wraps: the words may come from a target that scribbled over them.

use std::cmp::Ordering;

use nanoprobe_lang::program::AggregatingFunction;

use crate::buckets;

/// The word at an index; 0 where there is none.
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
            if word(other, 1) == 0 {
                return;
            }
            let (ours, theirs) = (word(words, 0) as i64, word(other, 0) as i64);
            let better = match function {
                AggregatingFunction::Minimum => theirs < ours,
                _ => theirs > ours,
            };
            if better || word(words, 1) == 0 {
                set(words, 0, theirs as u64);
            }
            let updates = word(words, 1).wrapping_add(word(other, 1));
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

fn add(words: &mut [u64], other: &[u64]) {
    for (word, other) in words.iter_mut().zip(other) {
        *word = word.wrapping_add(*other);
    }
}

/// What happened since `base`. Of a minimum and a maximum the value is that since the very beginning (the words do not
/// say when it was set), or 0 where there was no update since.
pub(crate) fn since(function: AggregatingFunction, words: &[u64], base: &[u64]) -> Vec<u64> {
    let mut result: Vec<u64> = (0..words.len())
        .map(|index| word(words, index).wrapping_sub(word(base, index)))
        .collect();
    match function {
        AggregatingFunction::StandardDeviation => set_wide(&mut result, wide(words).wrapping_sub(wide(base))),
        AggregatingFunction::Minimum | AggregatingFunction::Maximum => {
            let value = if word(&result, 1) == 0 { 0 } else { word(words, 0) };
            set(&mut result, 0, value);
        }
        _ => {}
    }
    result
}

/// Updates the words as the agent does; `words` must have as many as the function needs, excess is left alone.
pub fn update(function: AggregatingFunction, words: &mut [u64], value: i64, weight: i64) {
    let bucket = match function {
        AggregatingFunction::Count => {
            merge(function, words, &[1]);
            return;
        }
        AggregatingFunction::Sum | AggregatingFunction::Minimum | AggregatingFunction::Maximum => {
            merge(function, words, &[value as u64, 1]);
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
        AggregatingFunction::Quantize => buckets::quantize_bucket(value),
        AggregatingFunction::LinearQuantize { base, step, .. } => {
            buckets::linear_bucket(base, step, function.levels(), value)
        }
        AggregatingFunction::LogLinearQuantize {
            factor,
            low,
            high,
            steps,
        } => buckets::log_linear_bucket(&buckets::log_linear_bounds(factor, low, high, steps), value),
    };
    if let Some(word) = words.get_mut(bucket) {
        *word = word.wrapping_add(weight as u64);
    }
}

/// How many words a value has: what a new one is made of.
pub(crate) fn value_words(function: AggregatingFunction) -> usize {
    match function {
        AggregatingFunction::Count => 1,
        AggregatingFunction::Sum
        | AggregatingFunction::Average
        | AggregatingFunction::Minimum
        | AggregatingFunction::Maximum => 2,
        AggregatingFunction::StandardDeviation => 4,
        AggregatingFunction::Quantize => buckets::QUANTIZE_BUCKETS + 1,
        AggregatingFunction::LinearQuantize { .. } => usize::from(function.levels()) + 2,
        AggregatingFunction::LogLinearQuantize {
            factor,
            low,
            high,
            steps,
        } => buckets::log_linear_bounds(factor, low, high, steps).len() + 1,
    }
}

/// The average, divided by a normalisation factor before it is divided by the count; 0 without a value.
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

/// The order of two values of one aggregation, as DTrace sorts them: distributions by the sum of their labels times
/// their weights, then by the weight of zero.
pub(crate) fn compare(function: AggregatingFunction, left: &[u64], right: &[u64]) -> Ordering {
    let signed = |words: &[u64]| word(words, 0) as i64;
    match function {
        AggregatingFunction::Count
        | AggregatingFunction::Sum
        | AggregatingFunction::Minimum
        | AggregatingFunction::Maximum => signed(left).cmp(&signed(right)),
        AggregatingFunction::Average => average(left, 1).cmp(&average(right, 1)),
        AggregatingFunction::StandardDeviation => standard_deviation(left, 1).cmp(&standard_deviation(right, 1)),
        _ => {
            let labels = labels(function);
            let weigh = |words: &[u64]| {
                let weights = words.iter().map(|weight| i128::from(*weight as i64));
                let sum = labels.iter().zip(weights).fold(0i128, |sum, (label, weight)| {
                    sum.saturating_add(weight.saturating_mul(i128::from(*label)))
                });
                let zero = match function {
                    AggregatingFunction::LogLinearQuantize { .. } => Some(0),
                    _ => labels.iter().position(|label| *label == 0),
                };
                (sum, zero.map_or(0, |zero| word(words, zero) as i64))
            };
            weigh(left).cmp(&weigh(right))
        }
    }
}

/// The value that stands for each bucket in the order of distributions.
fn labels(function: AggregatingFunction) -> Vec<i64> {
    match function {
        AggregatingFunction::LinearQuantize { base, step, .. } => {
            let (base, step, levels) = (i64::from(base), i64::from(step), i64::from(function.levels()));
            let inside = (0..levels).map(|level| base + level * step);
            std::iter::once(base - 1)
                .chain(inside)
                .chain([base + levels * step + 1])
                .collect()
        }
        AggregatingFunction::LogLinearQuantize {
            factor,
            low,
            high,
            steps,
        } => {
            let bounds = buckets::log_linear_bounds(factor, low, high, steps);
            let below = bounds.first().map_or(0, |first| first - 1);
            std::iter::once(below).chain(bounds).collect()
        }
        _ => (0..buckets::QUANTIZE_BUCKETS).map(buckets::quantize_value).collect(),
    }
}

#[cfg(test)]
mod tests {
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
            // and what came since the first is the second, but for extremes
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
        assert_eq!(words, [0, 0]);
        merge(MINIMUM, &mut words, &of(MINIMUM, &[5, 3]));
        assert_eq!(words, [3, 2]);
        assert_eq!(since(MINIMUM, &words, &words), [0, 0]);
        assert_eq!(since(MINIMUM, &[3, 5], &words), [3, 3]);
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
        let compare = |left: &[i64], right: &[i64]| compare(quantize, &of(quantize, left), &of(quantize, right));
        assert_eq!(compare(&[1, 1], &[4]), Ordering::Less);
        assert_eq!(compare(&[2, 2], &[4]), Ordering::Equal);
        assert_eq!(compare(&[2, 2, 0], &[4]), Ordering::Greater);
        assert_eq!(compare(&[-8], &[1]), Ordering::Less);
        let least = super::compare(quantize, &[u64::MAX; 128], &[1 << 63; 128]);
        assert_eq!(least, Ordering::Greater); // by the weights of zero: -1 and i64::MIN
    }
}
