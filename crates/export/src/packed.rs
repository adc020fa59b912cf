//! The options `agghist` and `aggpack`: one line for each key of an aggregation, under a heading.
//!
//! ```text
//!               key  ------------- Distribution ------------- count        agghist: count, sum, avg, stddev
//!              read |@@@@@@@@@@@@@@@@@@@@@@@@@@              2
//!             write |@@@@@@@@@@@@@                           1
//!
//!               key  min .------. max  | count                              aggpack: quantize, lquantize
//!              read    0 :  _X_ : 16   | 12
//! ```
//!
//! A bar of `agghist` is a key's share of the sum over all keys. A character of `aggpack` is a bucket's
//! share of the sum of its distribution. Both sums cover only printed values. With `aggzoom` the greatest
//! value takes nearly all of the width. As in DTrace, `normalize()` divides the values of `agghist`, but
//! not those of `aggpack`.

use std::io::{Result, Write};

use nanoprobe_arena::buckets::{QUANTIZE_BUCKETS, QUANTIZE_ZERO, quantize_value};
use nanoprobe_lang::interpret::Value;
use nanoprobe_lang::options::{Encoding, Options};
use nanoprobe_lang::program::{AggregatingFunction, KeyType};

use crate::aggregate::{average, standard_deviation, word};
use crate::histogram::{self, Scale};
use crate::table::Row;

/// The width of each element of a packed key, except integers.
pub(crate) const KEY_WIDTH: usize = 16;

/// How the lines of one aggregation are drawn.
pub(crate) enum Chart {
    /// `agghist`.
    Bars {
        /// The value that a whole bar stands for.
        total: u128,
        /// Whether there are positive values, and whether there are negative values.
        signs: (bool, bool),
    },
    /// `aggpack`: the first and the last bucket that are drawn.
    Packed { first: usize, last: usize },
}

impl Chart {
    /// The chart that the options demand for all lines of one aggregation; `None`: the ordinary form.
    pub(crate) fn of(options: &Options, function: AggregatingFunction, rows: &[&Row]) -> Option<Chart> {
        match function {
            AggregatingFunction::Count
            | AggregatingFunction::Sum
            | AggregatingFunction::Average
            | AggregatingFunction::StandardDeviation
                if options.printing.bar_lines =>
            {
                let values = || rows.iter().map(|row| value(function, row));
                let magnitudes = values().map(|value| u128::from(value.unsigned_abs()));
                let total = if options.printing.zoom_distributions {
                    magnitudes.max().unwrap_or(0) * 100 / 95
                } else {
                    magnitudes.sum()
                };
                let signs = (values().any(|value| value > 0), values().any(|value| value < 0));
                Some(Chart::Bars { total, signs })
            }
            AggregatingFunction::Quantize if options.printing.packed_lines => {
                let filled = |row: &&Row| {
                    let is_filled = |bucket: &usize| word(&row.words, *bucket) != 0;
                    let mut buckets = (0..QUANTIZE_BUCKETS).filter(is_filled);
                    let first = buckets.next().unwrap_or(QUANTIZE_ZERO);
                    (first, buckets.next_back().unwrap_or(first))
                };
                let first = rows.iter().map(|row| filled(row).0).min().unwrap_or(QUANTIZE_ZERO);
                let last = rows.iter().map(|row| filled(row).1).max().unwrap_or(QUANTIZE_ZERO);
                // One empty bucket is drawn on either side. Without negative values, no negative bucket is drawn.
                let first = if first == QUANTIZE_ZERO {
                    first
                } else {
                    first.saturating_sub(1)
                };
                Some(Chart::Packed {
                    first,
                    last: (last + 1).min(QUANTIZE_BUCKETS - 1),
                })
            }
            AggregatingFunction::LinearQuantize { .. } if options.printing.packed_lines => Some(Chart::Packed {
                first: 0,
                last: usize::from(function.levels()) + 1,
            }),
            _ => None,
        }
    }

    /// Prints the lines above the first key.
    pub(crate) fn heading(&self, out: &mut dyn Write, function: AggregatingFunction, keys: &[KeyType]) -> Result<()> {
        let width: usize = keys.iter().map(|key| key_width(key) + 1).sum();
        match *self {
            Chart::Bars { .. } => {
                let (what, width) = if width == 0 { ("value", 16) } else { ("key", width) };
                histogram::heading(out, what, width)
            }
            Chart::Packed { first, last } => {
                let what = if width == 0 { "" } else { "key" };
                let (least, greatest) = match function {
                    AggregatingFunction::Quantize => (digits(quantize_value(first)), digits(quantize_value(last))),
                    _ => (7, 8),
                };
                let line = "-".repeat(last - first + 1);
                writeln!(
                    out,
                    "\n{what:>width$} {:>least$} .{line}. {:<greatest$} | count",
                    "min", "max"
                )
            }
        }
    }

    /// Prints the rest of one key's line, after the key.
    pub(crate) fn line(
        &self,
        out: &mut dyn Write,
        options: &Options,
        function: AggregatingFunction,
        row: &Row,
    ) -> Result<()> {
        match *self {
            Chart::Bars { total, signs } => {
                let value = value(function, row);
                let bar = histogram::bar(value, (1, total), signs, options.printing.encoding == Encoding::Utf8);
                writeln!(out, " {bar} {:<9}", value.wrapping_div((row.normal as i64).max(1)))
            }
            Chart::Packed { first, last } => {
                let weights: Vec<i64> = (first..=last).map(|bucket| word(&row.words, bucket) as i64).collect();
                let (share, total) = Scale::of(options, 1).total(&weights);
                let bars: String = weights
                    .iter()
                    .map(|weight| character(*weight, share, total, options.printing.encoding))
                    .collect();
                let count = weights.iter().fold(0i64, |count, weight| count.wrapping_add(*weight));
                match function {
                    AggregatingFunction::LinearQuantize { base, step, .. } => {
                        let end = i64::from(base) + i64::from(function.levels()) * i64::from(step);
                        let (least, greatest) = (format!("< {base}"), format!(">= {end}"));
                        writeln!(out, "{least:>8} :{bars}: {greatest:<8} | {count}")
                    }
                    _ => {
                        let (least, greatest) = (quantize_value(first), quantize_value(last));
                        let (left, right) = (digits(least), digits(greatest));
                        writeln!(out, " {least:>left$} :{bars}: {greatest:<right$} | {count}")
                    }
                }
            }
        }
    }
}

/// The value of a line of `agghist`.
fn value(function: AggregatingFunction, row: &Row) -> i64 {
    match function {
        AggregatingFunction::Average => average(&row.words, 1),
        AggregatingFunction::StandardDeviation => standard_deviation(&row.words, 1) as i64,
        _ => word(&row.words, 0) as i64,
    }
}

fn key_width(key: &KeyType) -> usize {
    match key {
        KeyType::Integer(integer) => match integer.bytes {
            1 => 3,
            2 => 5,
            4 => 8,
            _ => 16,
        },
        _ => KEY_WIDTH,
    }
}

/// A string of a packed key, aligned to the right.
pub(crate) fn key_text(out: &mut dyn Write, value: &Value) -> Result<()> {
    let text = value.as_bytes();
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    let text = String::from_utf8_lossy(text.get(..end).unwrap_or_default());
    write!(out, " {text:>KEY_WIDTH$}")
}

/// The number of characters of a label, as in DTrace: 10 counts as one digit, and the minimum is four.
fn digits(value: i64) -> usize {
    let (mut magnitude, mut count) = (value.unsigned_abs(), 1 + usize::from(value < 0));
    while magnitude > 10 {
        magnitude = magnitude.div_ceil(10);
        count += 1;
    }
    count.max(4)
}

/// The character that represents a bucket.
fn character(weight: i64, share: u128, total: u128, encoding: Encoding) -> char {
    const NEGATIVE: [char; 6] = ['v', 'v', 'v', 'v', 'V', 'V'];
    const ASCII: [char; 8] = ['_', '_', 'x', 'x', 'x', 'x', 'X', 'X'];
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let of = |characters: &[char]| {
        let steps = characters.len() as u128 - 1;
        let magnitude = u128::from(weight.unsigned_abs()).saturating_mul(2 * share * steps);
        let level = (magnitude + total).checked_div(2 * total).unwrap_or(0);
        let level = usize::try_from(level.min(steps)).unwrap_or(0);
        characters.get(level).copied().unwrap_or(' ')
    };
    match weight {
        0 => ' ',
        ..0 => of(&NEGATIVE),
        _ if encoding == Encoding::Ascii => of(&ASCII),
        _ => of(&BLOCKS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_take_four_characters_at_least() {
        assert_eq!([0, 9, 10, 999, 1024].map(digits), [4; 5]);
        assert_eq!([10_000, 10_001, -1024, 1 << 20].map(digits), [4, 5, 5, 7]);
        assert_eq!(digits(i64::MIN), 20);
    }

    #[test]
    fn a_bucket_is_a_share_of_the_whole() {
        let row = |encoding| -> String {
            [0, 1, 50, 100, -100]
                .map(|weight| character(weight, 1, 100, encoding))
                .iter()
                .collect()
        };
        assert_eq!(row(Encoding::Ascii), " _xXV");
        assert_eq!(row(Encoding::Utf8), " ▁▅█V");
        assert_eq!(character(1, 95, 0, Encoding::Auto), '▁'); // nonsense, but no panic
    }
}
