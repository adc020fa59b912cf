//! Distributions: `quantize`, `lquantize`, `llquantize`.
//!
//! ```text
//!            value  ------------- Distribution ------------- count
//!                1 |                                         0
//!                2 |@@@@@@@@@@@@@@@@@@@@@@@@@@@              2
//!                4 |@@@@@@@@@@@@@                            1
//!                8 |                                         0
//! ```
//!
//! Only the buckets with a value are printed, and one more on either side. 40 characters stand for the
//! sum of all weights. If there are weights of both signs, there are 20 characters on either side of the
//! axis.

use std::io::{Result, Write};

use nanoprobe_arena::buckets::{LogLinear, Magnitudes, QUANTIZE_BUCKETS, QUANTIZE_ZERO, quantize_value};
use nanoprobe_lang::options::{Encoding, Options};
use nanoprobe_lang::program::AggregatingFunction;

/// The length of a whole bar.
const BAR: usize = 40;

/// Prints a distribution, beginning with a new line; prints nothing for other functions.
pub(crate) fn distribution(
    out: &mut dyn Write,
    function: AggregatingFunction,
    words: &[u64],
    scale: Scale,
) -> Result<()> {
    let weights = |count: usize| -> Vec<i64> {
        (0..count)
            .map(|index| crate::aggregate::word(words, index) as i64)
            .collect()
    };
    match function {
        AggregatingFunction::Quantize => {
            let label = |bucket, _| quantize_value(bucket).to_string();
            print(
                out,
                &weights(QUANTIZE_BUCKETS),
                (QUANTIZE_ZERO - 1, QUANTIZE_ZERO + 1),
                &label,
                scale,
            )
        }
        AggregatingFunction::LinearQuantize { base, step, .. } => {
            let levels = usize::from(function.levels());
            let value = |level: usize| i64::from(base) + level as i64 * i64::from(step);
            let label = |bucket: usize, _| match bucket {
                0 => format!("< {base}"),
                _ if bucket == levels + 1 => format!(">= {}", value(levels)),
                _ => value(bucket - 1).to_string(),
            };
            print(out, &weights(levels + 2), (0, 2), &label, scale)
        }
        AggregatingFunction::LogLinearQuantize { .. } => {
            let parameters = LogLinear::unpack(function.packed_parameters());
            let order = parameters.in_order();
            let zero = order.len() / 2;
            let all = weights(order.len());
            let weights: Vec<i64> = order.iter().filter_map(|bucket| all.get(*bucket).copied()).collect();
            let label = |place: usize, first: usize| {
                let bucket = order.get(place).copied().unwrap_or_default();
                match parameters.magnitudes(bucket) {
                    Some(Magnitudes::Below(1)) => "0".to_owned(),
                    // Without negative values, the label needs no `abs()`.
                    Some(Magnitudes::Below(end)) if first >= zero => format!("< {end}"),
                    Some(Magnitudes::Below(end)) => format!("abs() < {end}"),
                    Some(Magnitudes::From(least, Some(_), false)) => least.to_string(),
                    Some(Magnitudes::From(least, Some(_), true)) => format!("-{least}"),
                    Some(Magnitudes::From(least, None, false)) => format!(">= {least}"),
                    Some(Magnitudes::From(least, None, true)) => format!("<= -{least}"),
                    None => String::new(),
                }
            };
            print(out, &weights, (zero, zero + 2), &label, scale)
        }
        _ => Ok(()),
    }
}

/// How values and bars are scaled and drawn.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    /// The divisor of the values: that of `normalize()`.
    normal: u64,
    /// Whether the option `aggzoom` is set.
    zoom: bool,
    /// Whether bars are drawn in block elements (`encoding=utf8`).
    blocks: bool,
}

impl Scale {
    /// The scale that the options demand.
    pub(crate) fn of(options: &Options, normal: u64) -> Scale {
        Scale {
            normal,
            zoom: options.printing.zoom_distributions,
            blocks: options.printing.encoding == Encoding::Utf8,
        }
    }

    /// The pair (share, total). The bar of a weight is a whole bar times share times weight, divided by total.
    pub(crate) fn total(self, shown: &[i64]) -> (u128, u128) {
        let magnitudes = || shown.iter().map(|weight| u128::from(weight.unsigned_abs()));
        if self.zoom {
            // As in DTrace, the longest bar leaves a little room.
            (95, magnitudes().max().unwrap_or(0) * 100)
        } else {
            (1, magnitudes().sum())
        }
    }
}

/// The heading line above bars.
pub(crate) fn heading(out: &mut dyn Write, what: &str, width: usize) -> Result<()> {
    writeln!(
        out,
        "\n{what:>width$} {:>41} {:<9}",
        "------------- Distribution -------------", "count"
    )
}

/// Prints the buckets with a weight. `empty`: the buckets to print if there are none. `label` gets the
/// bucket, and whether it is the first.
fn print(
    out: &mut dyn Write,
    weights: &[i64],
    empty: (usize, usize),
    label: &dyn Fn(usize, usize) -> String,
    scale: Scale,
) -> Result<()> {
    let is_filled = |weight: &i64| *weight != 0;
    let last_bucket = weights.len().saturating_sub(1);
    let (first, last) = match (weights.iter().position(is_filled), weights.iter().rposition(is_filled)) {
        (Some(first), Some(last)) => (first.saturating_sub(1), (last + 1).min(last_bucket)),
        _ => (empty.0, empty.1.min(last_bucket)),
    };
    let shown = weights.get(first..=last).unwrap_or_default();
    let whole = scale.total(shown);
    let has = (
        shown.iter().any(|weight| *weight > 0),
        shown.iter().any(|weight| *weight < 0),
    );
    heading(out, "value", 16)?;
    for (bucket, weight) in shown.iter().enumerate() {
        let normalised = weight.wrapping_div((scale.normal as i64).max(1));
        writeln!(
            out,
            "{:>16} {} {:<9}",
            label(first + bucket, first),
            bar(*weight, whole, has, scale.blocks),
            normalised
        )?;
    }
    Ok(())
}

/// A bar with the axis: to the right for positive weights, to the left for negative ones. Its length is
/// that of a whole bar times the weight, divided by the total. `blocks`: it is drawn in block elements,
/// if all weights are positive.
pub(crate) fn bar(
    weight: i64,
    (share, total): (u128, u128),
    (positives, negatives): (bool, bool),
    blocks: bool,
) -> String {
    let magnitude = share * u128::from(weight.unsigned_abs());
    if blocks && positives && !negatives {
        return block_bar(magnitude, total);
    }
    let whole = if positives && negatives { BAR / 2 } else { BAR };
    // Rounded to the nearest: (2 * weight * whole + total) / (2 * total).
    let depth = (2 * magnitude * whole as u128 + total)
        .checked_div(2 * total)
        .unwrap_or(0);
    let depth = (depth as usize).min(whole);
    let bar = "@".repeat(depth);
    match (positives, negatives) {
        (_, false) => format!("|{bar:<whole$}"),
        (false, true) => format!("{bar:>whole$}|"),
        (true, true) if weight <= 0 => format!("{bar:>whole$}|{:whole$}", ""),
        (true, true) => format!("{:whole$}|{bar:<whole$}", ""),
    }
}

/// A bar in eighths of a character, rounded down.
fn block_bar(magnitude: u128, total: u128) -> String {
    const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let eighths = (magnitude * 8 * BAR as u128).checked_div(total).unwrap_or(0);
    let eighths = usize::try_from(eighths.min(8 * BAR as u128)).unwrap_or(0);
    let mut bar = "█".repeat(eighths / 8);
    bar.extend(EIGHTHS.get(eighths % 8).filter(|_| eighths % 8 != 0));
    format!("|{bar:<BAR$}")
}
