//! The buckets of `quantize`, `lquantize` and `llquantize`: which bucket a value goes to, and what a bucket holds.
//!
//! The arithmetic is DTrace's (`dtrace_aggregate_quantize` and the functions beside it; `llquantize` as in DTrace for
//! Linux), with one difference. DTrace's `lquantize` looks only at the low 32 bits of a value; here a value outside of
//! 32 bits is in the first or the last bucket. The agent's `buckets.c` does the same in C, and a test compares the two.

/// Buckets of `quantize`, [`QUANTIZE_ZERO`] in the middle.
pub const QUANTIZE_BUCKETS: usize = 127;
/// The number of value words of `quantize`: the buckets, and one unused word.
pub const QUANTIZE_WORDS: usize = 128;
/// The bucket of zero.
pub const QUANTIZE_ZERO: usize = 63;

/// The bucket of `value`: `64 + k` holds [2^k, 2^(k+1)), and `62 - k` holds the negated values.
pub fn quantize_bucket(value: i64) -> usize {
    match value.unsigned_abs().checked_ilog2() {
        None => QUANTIZE_ZERO,
        Some(order) if value > 0 => QUANTIZE_ZERO + 1 + order as usize,
        // The least i64, -2^63, has no bucket of its own and joins that of -2^62.
        Some(order) => (QUANTIZE_ZERO - 1).saturating_sub(order as usize),
    }
}

/// The printed label of a bucket: the value of the smallest magnitude in it (DTRACE_QUANTIZE_BUCKETVAL).
pub fn quantize_value(bucket: usize) -> i64 {
    match bucket.checked_sub(QUANTIZE_ZERO) {
        Some(0) => 0,
        Some(above) => 1_i64.checked_shl(above as u32 - 1).unwrap_or(i64::MAX),
        None => -(1_i64 << (QUANTIZE_ZERO - 1 - bucket)),
    }
}

/// The parameters of an `lquantize`, unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Linear {
    /// The least value that does not belong to the underflow bucket.
    pub base: i32,
    /// Width of a bucket.
    pub step: u16,
    /// Buckets between underflow (0) and overflow (`levels + 1`).
    pub levels: u16,
}

impl Linear {
    /// The parameters from `step << 48 | levels << 32 | base`.
    pub fn unpack(packed: u64) -> Self {
        Self {
            base: packed as u32 as i32,
            step: (packed >> 48) as u16,
            levels: (packed >> 32) as u16,
        }
    }

    /// The number of value words; this includes the buckets of underflow and overflow.
    pub fn buckets(&self) -> usize {
        usize::from(self.levels) + 2
    }

    /// The bucket of `value`; `None` when the step is 0, which no program can have.
    pub fn bucket(&self, value: i64) -> Option<usize> {
        if self.step == 0 {
            return None;
        }
        if value < i64::from(self.base) {
            return Some(0);
        }
        let level = value.abs_diff(i64::from(self.base)) / u64::from(self.step);
        Some(level.min(u64::from(self.levels)) as usize + 1)
    }

    /// The least value in `bucket`; `None` for the underflow bucket, which holds
    /// everything below [`Linear::base`].
    pub fn lower(&self, bucket: usize) -> Option<i64> {
        let level = bucket.checked_sub(1)?;
        Some(i64::from(self.base) + level as i64 * i64::from(self.step))
    }
}

/// The bucket of `value` in an `lquantize` with these packed parameters.
pub fn lquantize_bucket(packed: u64, value: i64) -> Option<usize> {
    Linear::unpack(packed).bucket(value)
}

/// The parameters of an `llquantize`, unpacked. An order of magnitude `n` is from `factor^n` up to `factor^(n + 1)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLinear {
    /// The base of the orders of magnitude.
    pub factor: u16,
    /// The least order: values of a magnitude below `factor^low` are in bucket 0.
    pub low: u16,
    /// The greatest order: magnitudes from `factor^(high + 1)` on are in the last bucket of their sign.
    pub high: u16,
    /// Buckets that each order is divided into (fewer where an order has fewer values).
    pub steps: u16,
}

/// The values in a bucket of an `llquantize`. As in DTrace for Linux, negative values have their own buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Magnitudes {
    /// The values whose magnitude is below this number.
    Below(i64),
    /// Magnitudes from the first number up to the second, exclusive; `None`: all magnitudes from the
    /// first on. The values are negative if the third is true.
    From(i64, Option<i64>, bool),
}

/// One order of magnitude, in the agent's sequence.
struct Order {
    /// First bucket.
    bucket: usize,
    /// The order's first value.
    start: i64,
    /// The value after the order's last value.
    end: i64,
    /// The number of values in a bucket.
    width: i64,
}

impl LogLinear {
    /// The parameters from `factor << 48 | low << 32 | high << 16 | steps`.
    pub fn unpack(packed: u64) -> Self {
        Self {
            factor: (packed >> 48) as u16,
            low: (packed >> 32) as u16,
            high: (packed >> 16) as u16,
            steps: packed as u16,
        }
    }

    /// Whether the agent accepts these parameters.
    fn is_sound(&self) -> bool {
        self.factor >= 2 && self.steps >= self.factor && self.low <= 63 && self.high <= 63
    }

    /// `factor^low`, where the first order begins.
    fn first(&self) -> Option<i64> {
        i64::from(self.factor).checked_pow(u32::from(self.low))
    }

    /// The orders whose values fit 64 bits, and the index of the bucket for all greater values.
    fn orders(&self) -> (Vec<Order>, usize) {
        let (factor, steps) = (i64::from(self.factor), i64::from(self.steps));
        let mut orders = Vec::new();
        let mut bucket = 1;
        let mut edges = self.first().and_then(|start| Some((start, start.checked_mul(factor)?)));
        for _ in self.low..=self.high {
            let Some((start, end)) = edges else { break };
            let count = end.min(steps);
            orders.push(Order {
                bucket,
                start,
                end,
                width: end / count,
            });
            // The first 1/factor of the order lies below `start`, so buckets for this part do not exist.
            bucket += (count - count / factor) as usize;
            edges = end.checked_mul(factor).map(|next| (end, next));
        }
        (orders, bucket)
    }

    /// The number of value words: bucket 0, the buckets of positive values, and as many buckets of negative values.
    pub fn buckets(&self) -> usize {
        if self.is_sound() { 2 * self.orders().1 + 1 } else { 0 }
    }

    /// The bucket of `value`; `None` for parameters that no program can have.
    pub fn bucket(&self, value: i64) -> Option<usize> {
        if !self.is_sound() {
            return None;
        }
        let magnitude = value.checked_abs().unwrap_or(i64::MAX);
        if self.first().is_none_or(|first| magnitude < first) {
            return Some(0);
        }
        let (orders, top) = self.orders();
        let order = orders.iter().find(|order| magnitude < order.end);
        let bucket = order.map_or(top, |order| {
            order.bucket + ((magnitude - order.start) / order.width) as usize
        });
        Some(if value < 0 { top + bucket } else { bucket })
    }

    /// All buckets in the order of their values, from the least to the greatest.
    pub fn in_order(&self) -> Vec<usize> {
        if !self.is_sound() {
            return Vec::new();
        }
        let top = self.orders().1;
        (top + 1..=2 * top).rev().chain(0..=top).collect()
    }

    /// The values in a bucket; `None` for a bucket that does not exist.
    pub fn magnitudes(&self, bucket: usize) -> Option<Magnitudes> {
        if !self.is_sound() || bucket > 2 * self.orders().1 {
            return None;
        }
        let top = self.orders().1;
        let (is_negative, bucket) = match bucket.checked_sub(top) {
            Some(negative @ 1..) => (true, negative),
            _ => (false, bucket),
        };
        match bucket {
            0 => Some(Magnitudes::Below(self.first().unwrap_or(i64::MAX))),
            _ => {
                let below = (bucket < top).then(|| self.least(bucket + 1)).flatten();
                Some(Magnitudes::From(self.least(bucket)?, below, is_negative))
            }
        }
    }

    /// The least value in a bucket of positive values.
    fn least(&self, bucket: usize) -> Option<i64> {
        let (orders, top) = self.orders();
        if bucket == top {
            return orders.last().map_or(self.first(), |order| Some(order.end));
        }
        let order = orders
            .iter()
            .rev()
            .find(|order| order.bucket <= bucket && bucket < top)?;
        Some(order.start + (bucket - order.bucket) as i64 * order.width)
    }
}

/// The bucket of `value` in an `llquantize` with these packed parameters.
pub fn llquantize_bucket(packed: u64, value: i64) -> Option<usize> {
    LogLinear::unpack(packed).bucket(value)
}

/// The number of value words of an `llquantize` with these packed parameters.
pub fn llquantize_buckets(packed: u64) -> usize {
    LogLinear::unpack(packed).buckets()
}

#[cfg(test)]
#[path = "buckets_tests.rs"]
mod tests;
