//! Aggregations: their functions, and the types of their keys.

use super::{Foreign, IntegerType, Stack};

/// An aggregation: its function and the types of its keys.
#[derive(Clone, Debug, PartialEq)]
pub struct Aggregation {
    /// The name with its `@`. The aggregation without a name is `@`.
    pub name: String,
    /// The aggregating function, the same at every assignment.
    pub function: AggregatingFunction,
    /// The kinds of the key's elements. The type of an integer is the narrowest one that prints the keys
    /// of all assignments. The keys themselves have 64 bits and are extended by their own types.
    pub keys: Vec<KeyType>,
    /// Whether the last element of the key is the processor, which the text does not name (`aggpercpu`).
    pub by_processor: bool,
}

impl Aggregation {
    /// The elements of the key that the text names.
    #[must_use]
    pub fn shown_keys(&self) -> &[KeyType] {
        match self.keys.split_last() {
            Some((_, shown)) if self.by_processor => shown,
            _ => &self.keys,
        }
    }
}

/// An aggregating function with its constant parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AggregatingFunction {
    /// `count()`.
    Count,
    /// `sum(value)`.
    Sum,
    /// `avg(value)`.
    Average,
    /// `min(value)`.
    Minimum,
    /// `max(value)`.
    Maximum,
    /// `stddev(value)`.
    StandardDeviation,
    /// `quantize(value[, weight])`: buckets are powers of two.
    Quantize,
    /// `lquantize(value, base, limit[, step[, weight]])`: buckets of `step` values from `base` up to `limit`.
    LinearQuantize {
        /// The least value that does not belong to the underflow bucket.
        base: i32,
        /// The least value in the overflow bucket.
        limit: i32,
        /// The width of a bucket.
        step: u16,
    },
    /// `llquantize(value, factor, low, high, steps[, weight])`: every power of `factor` from `low`
    /// to `high`, divided into `steps` steps.
    LogLinearQuantize {
        /// The base of the magnitudes.
        factor: u16,
        /// The lowest magnitude.
        low: u16,
        /// The highest magnitude.
        high: u16,
        /// The number of buckets in a magnitude.
        steps: u16,
    },
}

/// The aggregating functions, for the language and the reference: a row for each.
#[derive(Clone, Copy, Debug)]
pub struct AggregatingRow {
    /// The name in D.
    pub name: &'static str,
    /// The parameters of the function, as the reference shows them.
    pub parameters: &'static str,
    /// The result: a line of the reference.
    pub line: &'static str,
}

const fn row(name: &'static str, parameters: &'static str, line: &'static str) -> AggregatingRow {
    AggregatingRow { name, parameters, line }
}

/// All functions, in the order of [`AggregatingFunction`].
pub const AGGREGATING: [AggregatingRow; 9] = [
    row("count", "", "number of calls"),
    row("sum", "n", "the sum, as a signed number of 64 bits"),
    row("avg", "n", "the average, as a whole number"),
    row("min", "n", "the least value"),
    row("max", "n", "the greatest value"),
    row("stddev", "n", "the standard deviation, as a whole number"),
    row("quantize", "n[, weight]", "frequencies in powers of two"),
    row(
        "lquantize",
        "n, base, limit[, step[, weight]]",
        "frequencies in linear steps; the parameters are constants, and `step` is 1 by default",
    ),
    row(
        "llquantize",
        "n, factor, low, high, steps[, weight]",
        "frequencies in linear steps within each power of `factor`; the same for negative values",
    ),
];

impl AggregatingFunction {
    #[must_use]
    pub const fn row(self) -> AggregatingRow {
        let index = match self {
            Self::Count => 0,
            Self::Sum => 1,
            Self::Average => 2,
            Self::Minimum => 3,
            Self::Maximum => 4,
            Self::StandardDeviation => 5,
            Self::Quantize => 6,
            Self::LinearQuantize { .. } => 7,
            Self::LogLinearQuantize { .. } => 8,
        };
        AGGREGATING[index]
    }

    /// The parameters packed as in DTrace, for `np_lquantize` and `np_llquantize`; 0 for the other
    /// functions. `lquantize`: step << 48 | levels << 32 | base (as u32). `llquantize`:
    /// factor << 48 | low << 32 | high << 16 | steps.
    pub fn packed_parameters(self) -> u64 {
        match self {
            Self::LinearQuantize { base, step, .. } => {
                (u64::from(step) << 48) | (u64::from(self.levels()) << 32) | u64::from(base as u32)
            }
            Self::LogLinearQuantize {
                factor,
                low,
                high,
                steps,
            } => (u64::from(factor) << 48) | (u64::from(low) << 32) | (u64::from(high) << 16) | u64::from(steps),
            _ => 0,
        }
    }

    /// Number of steps between base and limit of an `lquantize`; 0 for the others.
    pub fn levels(self) -> u16 {
        match self {
            Self::LinearQuantize { base, limit, step } => {
                let range = i64::from(limit) - i64::from(base);
                u16::try_from(range / i64::from(step)).unwrap_or(u16::MAX)
            }
            _ => 0,
        }
    }
}

/// The type of one element of an aggregation's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyType {
    Integer(IntegerType),
    /// A value of one of the program's enumerations, printed by name.
    Enumeration(Foreign),
    String,
    /// `probefunc` itself: a string, which is printed in the source's form.
    Function,
    /// The words of a structure; the last one is filled up with zeros.
    Bytes {
        size: u32,
    },
    /// `ustack(frames)`, `stack(frames)`.
    Stack(Stack),
    /// `uaddr(address)`, `usym(address)`, `umod(address)`: an address that is printed as a name.
    Symbol(SymbolKind),
}

impl KeyType {
    /// The key of a structure of this size. As in DTrace, a size of 1, 2, 4 or 8 is printed as an integer.
    pub(crate) fn of_bytes(size: u32) -> KeyType {
        match size {
            1 | 2 | 4 | 8 => KeyType::Integer(IntegerType {
                bytes: size as u8,
                signed: true,
            }),
            _ => KeyType::Bytes { size },
        }
    }

    /// The number of words that an element takes; `None`: the element itself has its length.
    #[must_use]
    pub fn words(&self) -> Option<u32> {
        match self {
            KeyType::Integer(_) | KeyType::Enumeration(_) | KeyType::Symbol(_) => Some(1),
            KeyType::Bytes { size } => Some(size.div_ceil(8)),
            KeyType::String | KeyType::Function | KeyType::Stack(_) => None,
        }
    }
}

/// The printed form of an address. Addresses with the same text are one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SymbolKind {
    /// `uaddr`: module, function and offset.
    Address,
    /// `usym`, `ufunc`: module and function; addresses in one function are one key.
    Function,
    /// `umod`: the module; addresses in one module are one key.
    Module,
}
