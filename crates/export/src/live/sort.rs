//! The order of a table's lines.

use std::cmp::Ordering;

use nanoprobe_lang::Program;

use super::tables::{Group, Line, Table, by_key};

/// Which column sorts a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sort {
    /// The index of a column: the values come first, then the rate, then the key.
    pub(super) column: usize,
    /// Unless this is set, numbers begin with the largest, and keys with the least.
    pub(super) is_reversed: bool,
}

/// How many columns may sort a table: the values, the rate, the key.
pub(super) fn columns(table: &Table) -> usize {
    table.heads.len() + 2
}

/// The order of two lines.
pub(super) fn order(
    program: &Program,
    group: &Group,
    table: &Table,
    sort: Sort,
    left: &Line,
    right: &Line,
) -> Ordering {
    let values = table.heads.len();
    let order = match sort.column {
        column if column < values => {
            let value = |line: &Line| line.values.get(column).copied().flatten();
            value(right).cmp(&value(left))
        }
        column if column == values => right.rate.total_cmp(&left.rate),
        _ => by_key(program, group, left, right),
    };
    if sort.is_reversed { order.reverse() } else { order }
}
