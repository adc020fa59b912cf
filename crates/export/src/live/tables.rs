//! The aggregations of a moment as tables.
//!
//! The order is that of the program. Aggregations that one `printa` joins are columns of one table, with their names as
//! heads. Every distribution is a table of its own.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use nanoprobe_lang::Program;
use nanoprobe_lang::format::Piece;
use nanoprobe_lang::interpret::{Value, key};
use nanoprobe_lang::options::{Encoding, Options};
use nanoprobe_lang::program::{AggregatingFunction, AggregationId, KeyType, RecordKind, Statement};

use super::Characters;
use crate::aggregate::{average, standard_deviation, word};
use crate::histogram::{Scale, distribution};
use crate::keys::compare_keys;
use crate::order::{function, key_types};
use crate::printa::{in_decimal, integer_type};
use crate::printf::of_enumeration;
use crate::stack::{Symbolizer, frame_names, name_of};
use crate::table::AggregateTable;

/// Aggregations that are shown in one table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) ids: Vec<AggregationId>,
    /// Which elements of the key are printed as hexadecimal numbers.
    hexadecimal: Vec<bool>,
}

/// A key with its values.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    /// The bytes of the key in the target. Only keys that are shown are converted to text.
    key: Vec<u8>,
    /// The value of each aggregation; `None`: the aggregation has no value for this key.
    pub(super) values: Vec<Option<i64>>,
    /// The words of the first aggregation, from which a distribution is printed.
    words: Vec<u64>,
    normal: u64,
    /// How much was added to the first aggregation since the beginning.
    pub(super) activity: i64,
    /// A number that grows only with updates of the first aggregation, and shrinks only by `clear()`.
    pub(super) updates: i64,
    /// How much was added in the last second.
    pub(super) rate: f64,
}

impl Line {
    /// The bytes that identify the line in its table. No other line has the same bytes.
    pub(super) fn identity(&self) -> &[u8] {
        &self.key
    }
}

/// A table, as it is at one moment.
#[derive(Clone, Debug)]
pub(super) struct Table {
    /// The names of the table's aggregations.
    pub(super) name: String,
    /// The heads of the table's columns of values.
    pub(super) heads: Vec<String>,
    pub(super) is_distribution: bool,
    pub(super) lines: Vec<Line>,
}

/// Which aggregations make a table.
pub(super) fn groups(program: &Program) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let is_taken = |groups: &[Group], id: AggregationId| groups.iter().any(|group| group.ids.contains(&id));
    let statements = program.clauses.iter().flat_map(|clause| &clause.statements);
    let printed = statements.filter_map(|statement| match statement {
        Statement::Record(action) => match &action.kind {
            RecordKind::Printa { format, aggregations } => Some((format, aggregations)),
            _ => None,
        },
        _ => None,
    });
    for (format, aggregations) in printed {
        let is_bars = |id: &AggregationId| is_distribution(function(program, *id));
        if aggregations.iter().any(|id| is_taken(&groups, *id) || is_bars(id)) {
            continue;
        }
        let pieces = format.iter().flat_map(|format| &format.pieces);
        let directives = pieces.filter_map(|piece| match piece {
            Piece::Directive(directive) if !directive.flags.aggregation && directive.letter != '%' => Some(directive),
            _ => None,
        });
        groups.push(Group {
            ids: aggregations.clone(),
            hexadecimal: directives
                .map(|directive| matches!(directive.letter, 'x' | 'X' | 'p'))
                .collect(),
        });
    }
    for id in (0..program.aggregations.len())
        .filter_map(|id| u32::try_from(id).ok())
        .map(AggregationId)
    {
        if !is_taken(&groups, id) {
            groups.push(Group {
                ids: vec![id],
                hexadecimal: Vec::new(),
            });
        }
    }
    groups.sort_by_key(|group| group.ids.iter().min().copied());
    groups
}

fn is_distribution(function: AggregatingFunction) -> bool {
    matches!(
        function,
        AggregatingFunction::Quantize
            | AggregatingFunction::LinearQuantize { .. }
            | AggregatingFunction::LogLinearQuantize { .. }
    )
}

/// The current table of a group, in the order of its keys' bytes. Rates are not known yet.
pub(super) fn table(group: &Group, program: &Program, aggregations: &AggregateTable) -> Table {
    let name = |id: &AggregationId| {
        program
            .aggregations
            .get(id.0 as usize)
            .map_or("", |found| found.name.as_str())
    };
    let mut lines: BTreeMap<&[u8], Line> = BTreeMap::new();
    for (index, id) in group.ids.iter().enumerate() {
        let function = function(program, *id);
        for (key, words, normal) in aggregations.values(*id) {
            let line = lines.entry(key).or_insert_with(|| Line {
                key: key.to_vec(),
                values: vec![None; group.ids.len()],
                normal,
                ..Line::default()
            });
            if let Some(place) = line.values.get_mut(index) {
                *place = Some(value(function, words, normal));
            }
            if index == 0 {
                line.activity = activity(function, words);
                line.updates = updates(function, words);
            }
            if is_distribution(function) {
                line.words = words.to_vec();
            }
        }
    }
    let first = group.ids.first().copied().unwrap_or(AggregationId(0));
    Table {
        name: group.ids.iter().map(name).collect::<Vec<_>>().join(" "),
        heads: group
            .ids
            .iter()
            .map(|id| head(name(id), function(program, *id)))
            .collect(),
        is_distribution: is_distribution(function(program, first)),
        lines: lines.into_values().collect(),
    }
}

/// The data that are needed to show a key or a distribution.
pub(super) struct Shown<'a> {
    pub(super) program: &'a Program,
    pub(super) options: &'a Options,
    pub(super) symbolizer: &'a mut dyn Symbolizer,
    pub(super) characters: Characters,
}

impl Shown<'_> {
    /// The elements of a line's key, as text.
    pub(super) fn cells(&mut self, group: &Group, line: &Line) -> Vec<String> {
        let types = types(self.program, group);
        let key = key::read_key(types, &line.key).unwrap_or_default();
        let elements = key.iter().zip(types).enumerate();
        elements
            .map(|(index, (value, key_type))| {
                self.element(value, key_type, group.hexadecimal.get(index) == Some(&true))
            })
            .collect()
    }

    fn element(&mut self, value: &Value, key_type: &KeyType, hexadecimal: bool) -> String {
        match (value, key_type) {
            (Value::Integer(address), KeyType::Symbol(kind)) => name_of(self.symbolizer, *address as u64, *kind),
            (_, KeyType::Enumeration(of)) => text_of(of_enumeration(of, value).as_bytes()),
            (Value::Integer(value), _) if hexadecimal => format!("{value:x}"),
            (Value::Integer(value), _) => in_decimal(*value, integer_type(key_type)),
            (Value::String(text), _) => text_of(text),
            (Value::Bytes { bytes, .. }, _) => text_of(bytes),
            (Value::Stack(frames), _) => stack(frames, self.symbolizer, self.characters),
        }
    }

    /// The rows of a line's distribution.
    pub(super) fn bars(&self, group: &Group, line: &Line) -> Vec<String> {
        let mut options = self.options.clone();
        if self.characters == Characters::Blocks && options.printing.encoding == Encoding::Auto {
            options.printing.encoding = Encoding::Utf8;
        }
        let function = group.ids.first().map(|id| function(self.program, *id));
        let mut out = Vec::new();
        if let Some(function) = function {
            // Writing to memory cannot fail.
            let _ = distribution(&mut out, function, &line.words, Scale::of(&options, line.normal));
        }
        let text = String::from_utf8_lossy(&out).into_owned();
        // A blank line and the heading come first.
        text.lines().skip(2).map(|line| line.trim_end().to_owned()).collect()
    }
}

fn types<'a>(program: &'a Program, group: &Group) -> &'a [KeyType] {
    group.ids.first().map(|id| key_types(program, *id)).unwrap_or_default()
}

/// The order of two lines by their keys.
pub(super) fn by_key(program: &Program, group: &Group, left: &Line, right: &Line) -> Ordering {
    let types = types(program, group);
    let read = |line: &Line| key::read_key(types, &line.key).unwrap_or_default();
    compare_keys(types, &read(left), &read(right), 0)
}

/// The head of a column: `@average_us` is AVERAGE us.
fn head(name: &str, function: AggregatingFunction) -> String {
    let name = name.trim_start_matches('@');
    let name = match (name, function) {
        ("", AggregatingFunction::Count) => "count",
        ("", AggregatingFunction::Sum) => "sum",
        ("", AggregatingFunction::Average) => "avg",
        ("", AggregatingFunction::Minimum) => "min",
        ("", AggregatingFunction::Maximum) => "max",
        ("", AggregatingFunction::StandardDeviation) => "stddev",
        ("", _) => "count",
        (name, _) => name,
    };
    match name.rsplit_once('_') {
        Some((before, unit @ ("ns" | "us" | "ms" | "s"))) => format!("{} {unit}", before.to_uppercase()),
        _ => name.to_uppercase(),
    }
}

/// The number that stands for a value. For a distribution, this is its weight.
fn value(function: AggregatingFunction, words: &[u64], normal: u64) -> i64 {
    match function {
        AggregatingFunction::Average => average(words, normal),
        AggregatingFunction::StandardDeviation => i64::try_from(standard_deviation(words, normal)).unwrap_or(i64::MAX),
        AggregatingFunction::Count
        | AggregatingFunction::Sum
        | AggregatingFunction::Minimum
        | AggregatingFunction::Maximum => (word(words, 0) as i64).wrapping_div((normal as i64).max(1)),
        _ => weight(words),
    }
}

fn weight(words: &[u64]) -> i64 {
    words
        .iter()
        .fold(0, |sum: i64, weight| sum.wrapping_add(*weight as i64))
}

/// The number whose increase in a second is the rate: a sum for `sum()`, otherwise the number of values.
fn activity(function: AggregatingFunction, words: &[u64]) -> i64 {
    match function {
        AggregatingFunction::Minimum | AggregatingFunction::Maximum => word(words, 1) as i64,
        AggregatingFunction::Count
        | AggregatingFunction::Sum
        | AggregatingFunction::Average
        | AggregatingFunction::StandardDeviation => word(words, 0) as i64,
        _ => weight(words),
    }
}

fn updates(function: AggregatingFunction, words: &[u64]) -> i64 {
    match function {
        AggregatingFunction::Sum => word(words, 1) as i64,
        _ => activity(function, words),
    }
}

fn text_of(bytes: &[u8]) -> String {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let bytes = bytes.get(..end).unwrap_or_default();
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => String::from_utf8_lossy(&crate::escape::escaped(bytes)).into_owned(),
    }
}

/// A stack in one line: only the functions, the innermost first.
fn stack(frames: &[u64], symbolizer: &mut dyn Symbolizer, characters: Characters) -> String {
    let arrow = match characters {
        Characters::Blocks => " ← ",
        Characters::Ascii => " < ",
    };
    let names: Vec<String> = frame_names(frames, symbolizer)
        .map(|(_, name)| {
            let function = name.split_once('`').map_or(name.as_str(), |(_, function)| function);
            match function.rsplit_once("+0x") {
                Some((function, offset))
                    if !function.is_empty() && offset.chars().all(|digit| digit.is_ascii_hexdigit()) =>
                {
                    function.to_owned()
                }
                _ => function.to_owned(),
            }
        })
        .collect();
    names.join(arrow)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_have_their_units() {
        let of = |name| head(name, AggregatingFunction::Count);
        assert_eq!(["@average_us", "@calls", "@"].map(of), ["AVERAGE us", "CALLS", "COUNT"]);
        assert_eq!(["@us", "@slow_calls", "@_ns"].map(of), ["US", "SLOW_CALLS", " ns"]);
    }

    #[test]
    fn bytes_are_text_where_they_can_be() {
        assert_eq!(text_of(b"abc\0\0"), "abc");
        assert_eq!(text_of("é".as_bytes()), "é");
        assert_eq!(text_of(b"a\xff"), "a\\377");
        assert_eq!(text_of(b""), "");
    }
}
