//! Aggregations as text.
//!
//! Without a format, a line is the key's elements in columns and then the values. A distribution begins on
//! its own line. Several aggregations with the same keys are joined by key, with one column each. If one
//! of them lacks a key, its value is 0. With a format, the format is printed once for each key.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{Result, Write};

use nanoprobe_lang::format::Format;
use nanoprobe_lang::interpret::Value;
use nanoprobe_lang::program::{AggregatingFunction, AggregationId, IntegerType, KeyType, Program, SymbolKind};

use crate::aggregate::{average, rank, standard_deviation, word};
use crate::bytes;
use crate::function_names::function_name;
use crate::histogram::{self, Scale};
use crate::keys::compare_keys;
use crate::number::{self, Shape};
use crate::order::{Order, function, key_types, sort};
use crate::packed::{Chart, key_text};
use crate::printf::{self, Context, Item, of_enumeration};
use crate::stack::{Symbolizer, name_of};
use crate::table::{AggregateTable, Row, zeros};

/// A key, with its value in each of the printed aggregations.
struct Line {
    key: Vec<Value>,
    values: Vec<Row>,
}

/// Prints the aggregations `ids`, joined if there are several. Yields the aggregations that had something to print.
pub(crate) fn print(
    out: &mut dyn Write,
    context: &mut Context<'_>,
    program: &Program,
    table: &AggregateTable,
    ids: &[AggregationId],
    format: Option<&Format>,
) -> Result<Vec<AggregationId>> {
    let order = Order::of(context.options);
    let found: Vec<Vec<Row>> = ids.iter().map(|id| table.rows(program, *id)).collect();
    let printed = ids
        .iter()
        .zip(&found)
        .filter(|(_, rows)| !rows.is_empty())
        .map(|(id, _)| *id)
        .collect();
    let lines = match found.as_slice() {
        [_] => single(program, found.into_iter().flatten().collect(), order),
        _ => joined(program, ids, found, order),
    };
    let types = ids.first().map(|id| key_types(program, *id)).unwrap_or_default();
    match (format, ids) {
        (Some(format), _) => {
            for line in &lines {
                formatted(out, context, program, format, types, line)?;
            }
        }
        (None, [_]) => {
            let rows: Vec<&Row> = lines.iter().flat_map(|line| &line.values).collect();
            lines_of_one(out, context, program, &rows)?;
        }
        (None, _) => {
            for line in &lines {
                plain(out, context, program, types, line)?;
            }
        }
    }
    Ok(printed)
}

/// Prints the lines of the aggregations that no action has printed, one aggregation after another.
pub(crate) fn print_rest(
    out: &mut dyn Write,
    context: &mut Context<'_>,
    program: &Program,
    mut rows: Vec<Row>,
) -> Result<()> {
    sort(program, &mut rows, Order::of(context.options));
    let rows: Vec<&Row> = rows.iter().collect();
    for rows in rows.chunk_by(|left, right| left.aggregation == right.aggregation) {
        lines_of_one(out, context, program, rows)?;
    }
    Ok(())
}

/// Prints all lines of one aggregation.
fn lines_of_one(out: &mut dyn Write, context: &mut Context<'_>, program: &Program, rows: &[&Row]) -> Result<()> {
    let id = rows.first().map(|row| row.aggregation.0 as usize);
    let Some(found) = id.and_then(|id| program.aggregations.get(id)) else {
        return Ok(());
    };
    let chart = Chart::of(context.options, found.function, rows);
    if let Some(chart) = &chart {
        chart.heading(out, found.function, found.shown_keys())?;
    }
    for row in rows {
        key(out, context, found.shown_keys(), &row.key, chart.is_some())?;
        match &chart {
            Some(chart) => chart.line(out, context.options, found.function, row)?,
            None => {
                value_and_parts(out, context, program, row)?;
                writeln!(out)?;
            }
        }
    }
    Ok(())
}

fn single(program: &Program, mut rows: Vec<Row>, order: Order) -> Vec<Line> {
    sort(program, &mut rows, order);
    rows.into_iter()
        .map(|row| Line {
            key: row.key.clone(),
            values: vec![row],
        })
        .collect()
}

fn joined(program: &Program, ids: &[AggregationId], mut found: Vec<Vec<Row>>, order: Order) -> Vec<Line> {
    // Joined aggregations have keys of the same types.
    let types = ids.first().map(|id| key_types(program, *id)).unwrap_or_default();
    found
        .iter_mut()
        .for_each(|rows| rows.sort_by(|left, right| compare_keys(types, &left.key, &right.key, 0)));
    let mut keys: Vec<&Vec<Value>> = found.iter().flatten().map(|row| &row.key).collect();
    keys.sort_by(|left, right| compare_keys(types, left, right, 0));
    keys.dedup();
    let value = |rows: &[Row], id: AggregationId, key: &Vec<Value>| {
        let at = rows.binary_search_by(|row| compare_keys(types, &row.key, key, 0));
        let missing = || Row {
            aggregation: id,
            key: key.clone(),
            words: zeros(function(program, id)),
            parts: BTreeMap::new(),
            normal: 1,
        };
        at.ok().and_then(|at| rows.get(at)).cloned().unwrap_or_else(missing)
    };
    // Lines are compared by the aggregation at the option's position first, then by those after it, then by those
    // before it.
    let position = if order.position < ids.len() { order.position } else { 0 };
    let mut lines: Vec<_> = keys
        .into_iter()
        .map(|key| {
            let values: Vec<Row> = ids.iter().zip(&found).map(|(id, rows)| value(rows, *id, key)).collect();
            let mut ranks: Vec<_> = values
                .iter()
                .map(|row| rank(function(program, row.aggregation), &row.words))
                .collect();
            ranks.rotate_left(position);
            (
                ranks,
                Line {
                    key: key.clone(),
                    values,
                },
            )
        })
        .collect();
    lines.sort_by(|(left_ranks, left), (right_ranks, right)| {
        let by_key = || compare_keys(types, &left.key, &right.key, order.key_position);
        let by_value = || left_ranks.cmp(right_ranks);
        order.apply(if order.by_key {
            by_key().then_with(by_value)
        } else {
            by_value().then_with(by_key)
        })
    });
    lines.into_iter().map(|(_, line)| line).collect()
}

/// A key in which functions have their readable names.
fn with_function_names<'k>(types: &[KeyType], key: &'k [Value], symbolizer: &mut dyn Symbolizer) -> Cow<'k, [Value]> {
    if !types.contains(&KeyType::Function) {
        return Cow::Borrowed(key);
    }
    let elements = key.iter().zip(types).map(|(value, key_type)| match key_type {
        KeyType::Function => function_name(value, symbolizer),
        _ => value.clone(),
    });
    Cow::Owned(elements.collect())
}

fn formatted(
    out: &mut dyn Write,
    context: &mut Context<'_>,
    program: &Program,
    format: &Format,
    types: &[KeyType],
    line: &Line,
) -> Result<()> {
    let key = with_function_names(types, &line.key, context.symbolizer);
    let mut keys = key.iter().zip(types).map(|(value, key_type)| match (value, key_type) {
        (Value::Integer(address), KeyType::Symbol(kind)) => Item::Symbol(*address as u64, *kind),
        (_, KeyType::Enumeration(of)) => Item::named(value, integer_type(key_type), Some(of)),
        _ => Item::of(value, integer_type(key_type)),
    });
    let mut values = line.values.iter();
    let mut last = None;
    printf::format(out, context, format, &mut |is_aggregation| {
        if !is_aggregation {
            return keys.next();
        }
        // If there are more conversions than aggregations, the last aggregation is used again.
        last = values.next().or(last);
        let row: &Row = last?;
        Some(Item::Aggregated {
            function: function(program, row.aggregation),
            words: &row.words,
            normal: row.normal,
        })
    })
}

fn plain(
    out: &mut dyn Write,
    context: &mut Context<'_>,
    program: &Program,
    types: &[KeyType],
    line: &Line,
) -> Result<()> {
    key(out, context, types, &line.key, false)?;
    for row in &line.values {
        value_and_parts(out, context, program, row)?;
    }
    writeln!(out)
}

/// Prints a key in columns. `packed`: in the columns of `agghist` and `aggpack`.
fn key(
    out: &mut dyn Write,
    context: &mut Context<'_>,
    types: &[KeyType],
    elements: &[Value],
    packed: bool,
) -> Result<()> {
    const STRING_WIDTH: i64 = -50;
    for (value, key_type) in elements.iter().zip(types) {
        let named;
        let value = match key_type {
            KeyType::Enumeration(of) => {
                named = of_enumeration(of, value);
                &named
            }
            KeyType::Function => {
                named = function_name(value, context.symbolizer);
                &named
            }
            _ => value,
        };
        match value {
            Value::Integer(value) => match key_type {
                KeyType::Symbol(kind) => symbol(out, context, *value as u64, *kind)?,
                _ => key_integer(out, *value, integer_type(key_type))?,
            },
            Value::String(_) | Value::Bytes { .. } if packed => key_text(out, value)?,
            Value::String(text) => context.string(out, text, STRING_WIDTH, false)?,
            Value::Bytes { bytes, .. } => {
                bytes::bytes(out, bytes, STRING_WIDTH, false, context.options.printing.raw_bytes)?
            }
            Value::Stack(frames) => context.stack(out, frames)?,
        }
    }
    Ok(())
}

/// Prints a value, and then the values of the processors if the option asks for them.
fn value_and_parts(out: &mut dyn Write, context: &Context<'_>, program: &Program, row: &Row) -> Result<()> {
    value(out, context, program, row)?;
    let found = program.aggregations.get(row.aggregation.0 as usize);
    if !found.is_some_and(|found| found.by_processor) {
        return Ok(());
    }
    let last = row.parts.last_key_value().map_or(0, |(last, _)| last + 1);
    let unused = unused(function(program, row.aggregation));
    for processor in 0..context.options.printing.processors.max(last) {
        write!(out, "\n    [CPU {processor}]")?;
        let part = Row {
            words: row.parts.get(&processor).unwrap_or(&unused).clone(),
            ..row.clone()
        };
        value(out, context, program, &part)?;
    }
    Ok(())
}

/// The words that DTrace shows for a processor without a value.
fn unused(function: AggregatingFunction) -> Vec<u64> {
    let mut words = zeros(function);
    if let Some(first) = words.first_mut() {
        match function {
            AggregatingFunction::Minimum => *first = i64::MAX as u64,
            AggregatingFunction::Maximum => *first = i64::MIN as u64,
            _ => {}
        }
    }
    words
}

/// Prints a value in its column, or a distribution on lines of its own.
fn value(out: &mut dyn Write, context: &Context<'_>, program: &Program, row: &Row) -> Result<()> {
    let function = function(program, row.aggregation);
    match function {
        AggregatingFunction::Average => write!(out, " {:16}", average(&row.words, row.normal)),
        AggregatingFunction::StandardDeviation => write!(out, " {:16}", standard_deviation(&row.words, row.normal)),
        AggregatingFunction::Count
        | AggregatingFunction::Sum
        | AggregatingFunction::Minimum
        | AggregatingFunction::Maximum => {
            let value = (word(&row.words, 0) as i64).wrapping_div((row.normal as i64).max(1));
            write!(out, " {value:16}")
        }
        _ => histogram::distribution(out, function, &row.words, Scale::of(context.options, row.normal)),
    }
}

/// The name of an address, in its column.
pub(crate) fn symbol(out: &mut dyn Write, context: &mut Context<'_>, address: u64, kind: SymbolKind) -> Result<()> {
    const WIDTH: i64 = -50;
    let name = name_of(context.symbolizer, address, kind);
    out.write_all(b"  ")?;
    out.write_all(&number::text(name.as_bytes(), Shape::of_width(WIDTH)))
}

pub(crate) fn integer_type(key_type: &KeyType) -> IntegerType {
    match key_type {
        KeyType::Integer(integer) => *integer,
        _ => IntegerType {
            bytes: 8,
            signed: false,
        },
    }
}

/// Prints an integer of a key in the column of its type's size: 3, 5, 8 or 16 wide. It is printed by the
/// sign of its type. (DTrace prints types of 4 or 8 bytes as signed and smaller ones as unsigned.)
fn key_integer(out: &mut dyn Write, value: i64, integer: IntegerType) -> Result<()> {
    let width = match integer.bytes {
        1 => 3,
        2 => 5,
        4 => 8,
        _ => 16,
    };
    write!(out, " {:>width$}", in_decimal(value, integer))
}

/// The digits of an integer, by the sign and the size of its type.
pub(crate) fn in_decimal(value: i64, integer: IntegerType) -> String {
    let value = nanoprobe_lang::types::normalise(value, integer);
    if integer.signed {
        value.to_string()
    } else {
        (value as u64).to_string()
    }
}
