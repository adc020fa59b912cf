//! The order in which aggregations are printed.
//!
//! The options choose the order. It is by aggregation, then by value, then by key. It may also be by key
//! alone, or reversed, or begin with another element of the key. `keys` compares keys.

use std::cmp::Ordering;

use nanoprobe_lang::options::Options;
use nanoprobe_lang::program::{AggregatingFunction, Aggregation, AggregationId, KeyType, Program};

use crate::aggregate::rank;
use crate::keys::compare_keys;
use crate::table::Row;

/// The options that decide the order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// `aggsortkey`: by key instead of value.
    pub by_key: bool,
    /// `aggsortrev`: reversed.
    pub reversed: bool,
    /// `aggsortpos`: the aggregation of a `printa` by which lines are sorted first.
    pub position: usize,
    /// `aggsortkeypos`: the element of the key that is compared first.
    pub key_position: usize,
}

impl Order {
    /// The order that the options demand.
    pub fn of(options: &Options) -> Order {
        Order {
            by_key: options.printing.sort_by_key,
            reversed: options.printing.sort_reversed,
            position: options.printing.sort_position,
            key_position: options.printing.sort_key_position,
        }
    }

    pub(crate) fn apply(self, order: Ordering) -> Ordering {
        if self.reversed { order.reverse() } else { order }
    }
}

/// Sorts the lines of one aggregation or of several.
pub fn sort(program: &Program, rows: &mut Vec<Row>, order: Order) {
    let ranked = std::mem::take(rows).into_iter();
    let mut ranked: Vec<_> = ranked
        .map(|row| (rank(function(program, row.aggregation), &row.words), row))
        .collect();
    ranked.sort_by(|(left_rank, left), (right_rank, right)| {
        let types = key_types(program, left.aggregation);
        let by_key = || compare_keys(types, &left.key, &right.key, order.key_position);
        let within = || {
            if order.by_key {
                by_key()
            } else {
                left_rank.cmp(right_rank).then_with(by_key)
            }
        };
        order.apply(left.aggregation.cmp(&right.aggregation).then_with(within))
    });
    rows.extend(ranked.into_iter().map(|(_, row)| row));
}

pub(crate) fn function(program: &Program, id: AggregationId) -> AggregatingFunction {
    program
        .aggregations
        .get(id.0 as usize)
        .map_or(AggregatingFunction::Count, |found| found.function)
}

/// The types of an aggregation's key.
pub(crate) fn key_types(program: &Program, id: AggregationId) -> &[KeyType] {
    let found = program.aggregations.get(id.0 as usize);
    found.map(Aggregation::shown_keys).unwrap_or_default()
}
