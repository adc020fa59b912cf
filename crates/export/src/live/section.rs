//! One table's part of the screen.

use std::collections::VecDeque;

use super::frame::{Frame, Style, width};
use super::sort::Sort;
use super::tables::{Group, Line, Shown, Table};
use super::words::grouped;
use super::{Characters, Traced, spark};

/// Blanks between two columns.
const GAP: usize = 2;
/// The least width of a number's column.
const NUMBER_MIN: usize = 9;
/// The characters of bars.
const BARS: [char; 9] = ['@', '█', '▉', '▊', '▋', '▌', '▍', '▎', '▏'];

/// Which part of a table is to be drawn, and how.
pub(super) struct Wanted<'a> {
    pub(super) group: &'a Group,
    pub(super) table: &'a Table,
    pub(super) rates: &'a VecDeque<f64>,
    pub(super) sort: Sort,
    /// The index of the first line.
    pub(super) from: usize,
    pub(super) is_chosen: bool,
    pub(super) characters: Characters,
    pub(super) columns: usize,
    /// The most rows that fit.
    pub(super) rows: usize,
}

/// A text at a place.
struct Piece {
    column: usize,
    /// The column at which the text must end. With `is_right` the text ends exactly at this column.
    end: usize,
    is_right: bool,
    text: String,
    style: Style,
}

/// The rows of a table.
pub(super) struct Section(Vec<Vec<Piece>>);

impl Section {
    pub(super) fn rows(&self) -> usize {
        self.0.len()
    }

    /// Draws the first `rows` rows.
    pub(super) fn draw(&self, frame: &mut Frame, row: usize, rows: usize) {
        for (offset, pieces) in self.0.iter().take(rows).enumerate() {
            for piece in pieces {
                if piece.is_right {
                    frame.put_right(row + offset, piece.end, &piece.text, piece.style);
                } else {
                    frame.put_within(row + offset, piece.column, piece.end, &piece.text, piece.style);
                }
            }
        }
    }
}

/// The rows of a table that shows these lines.
pub(super) fn section(wanted: &Wanted<'_>, traced: &mut Traced<'_>, lines: &[&Line]) -> Section {
    let mut shown = Shown {
        program: traced.program,
        options: traced.options,
        symbolizer: &mut *traced.symbolizer,
        characters: wanted.characters,
    };
    let mut rows = vec![title(wanted)];
    if wanted.table.is_distribution {
        for line in lines {
            if rows.len() >= wanted.rows {
                break;
            }
            distribution(wanted, &mut shown, line, &mut rows);
        }
    } else {
        values(wanted, &mut shown, lines, &mut rows);
    }
    Section(rows)
}

/// `@calls  12 keys  1,234/s  ▁▂▅█`
fn title(wanted: &Wanted<'_>) -> Vec<Piece> {
    let mark = if wanted.is_chosen { "> " } else { "" };
    let count = wanted.table.lines.len();
    let keys = if count == 1 { "key" } else { "keys" };
    let name = format!("{mark}{}", wanted.table.name);
    let from = match wanted.from {
        0 => String::new(),
        from => format!(" from {}", grouped(from as u64 + 1)),
    };
    let rate = wanted.rates.back().copied().unwrap_or(0.0);
    let text = format!("{} {keys}{from}  {}/s", grouped(count as u64), rounded(rate));
    let line = spark::line(wanted.rates.iter().copied(), wanted.characters);
    let mut at = 0;
    let mut pieces = Vec::new();
    for (text, style) in [(name, Style::Name), (text, Style::Dim), (line, Style::Bar)] {
        let end = at + width(&text);
        pieces.push(left(at, wanted.columns, text, style));
        at = end + GAP;
    }
    pieces
}

fn left(column: usize, end: usize, text: String, style: Style) -> Piece {
    Piece {
        column,
        end,
        is_right: false,
        text,
        style,
    }
}

fn right(end: usize, text: String, style: Style) -> Piece {
    Piece {
        column: 0,
        end,
        is_right: true,
        text,
        style,
    }
}

/// Heads, and a row for each line: the numbers, the rate, the key.
fn values(wanted: &Wanted<'_>, shown: &mut Shown<'_>, lines: &[&Line], rows: &mut Vec<Vec<Piece>>) {
    let keys: Vec<Vec<String>> = lines.iter().map(|line| shown.cells(wanted.group, line)).collect();
    let numbers: Vec<Vec<String>> = lines.iter().map(|line| numbers(line)).collect();
    let mut heads: Vec<String> = wanted.table.heads.clone();
    heads.push("/s".to_owned());
    for (column, head) in heads.iter_mut().enumerate() {
        head.insert_str(0, mark(wanted, column));
    }
    let mut ends = Vec::new();
    let mut end = 0;
    for (column, head) in heads.iter().enumerate() {
        let numbers = numbers
            .iter()
            .filter_map(|numbers| numbers.get(column))
            .map(|number| width(number));
        end += numbers.chain([width(head)]).max().unwrap_or(0).max(NUMBER_MIN) + usize::from(column > 0);
        ends.push(end);
    }
    let starts = key_starts(&keys, end + GAP);
    let style = |column: usize| {
        if column == wanted.sort.column {
            Style::SortedHead
        } else {
            Style::Head
        }
    };
    let mut top: Vec<Piece> = Vec::new();
    for (column, (head, end)) in heads.into_iter().zip(&ends).enumerate() {
        top.push(right(*end, head, style(column)));
    }
    if !starts.is_empty() {
        let column = ends.len();
        top.push(left(
            end + GAP,
            wanted.columns,
            format!("{}KEY", mark(wanted, column)),
            style(column),
        ));
    }
    rows.push(top);
    for (numbers, key) in numbers.into_iter().zip(keys) {
        let numbers = numbers
            .into_iter()
            .zip(&ends)
            .map(|(number, end)| right(*end, number, Style::Number));
        let bounds = starts
            .iter()
            .zip(starts.iter().skip(1).map(|next| next - 1).chain([wanted.columns]));
        let cells = key
            .into_iter()
            .zip(bounds)
            .map(|(text, (start, end))| left(*start, end, text, Style::Plain));
        rows.push(numbers.chain(cells).collect());
    }
}

/// The mark before the head of the column that sorts.
fn mark(wanted: &Wanted<'_>, column: usize) -> &'static str {
    if column != wanted.sort.column {
        return "";
    }
    let is_key = column > wanted.table.heads.len();
    match (wanted.sort.is_reversed != is_key, wanted.characters) {
        (false, Characters::Blocks) => "▼",
        (true, Characters::Blocks) => "▲",
        (false, Characters::Ascii) => "v",
        (true, Characters::Ascii) => "^",
    }
}

fn numbers(line: &Line) -> Vec<String> {
    let values = line.values.iter().map(|value| value.map_or(String::new(), grouped));
    values.chain([rounded(line.rate)]).collect()
}

/// The column in which each element of a key begins: after the longest value of the previous element, up to a limit.
fn key_starts(keys: &[Vec<String>], from: usize) -> Vec<usize> {
    const WIDTH_MAX: usize = 40;
    let count = keys.first().map_or(0, Vec::len);
    let mut at = from;
    let mut starts = Vec::new();
    for column in 0..count {
        starts.push(at);
        let widest = keys
            .iter()
            .filter_map(|key| key.get(column))
            .map(|text| width(text))
            .max();
        at += widest.unwrap_or(0).min(WIDTH_MAX) + GAP;
    }
    starts
}

/// A key with its histogram.
fn distribution(wanted: &Wanted<'_>, shown: &mut Shown<'_>, line: &Line, rows: &mut Vec<Vec<Piece>>) {
    let key = shown.cells(wanted.group, line).join("  ");
    let count = line.values.first().copied().flatten().unwrap_or(0);
    let text = format!("{}  {}/s", grouped(count), rounded(line.rate));
    let start = width(&key) + if key.is_empty() { 0 } else { GAP };
    rows.push(vec![
        left(0, wanted.columns, key, Style::Head),
        left(start, wanted.columns, text, Style::Number),
    ]);
    rows.extend(shown.bars(wanted.group, line).into_iter().map(|bar| bars(wanted, &bar)));
}

/// A row of a histogram, whose bar has its own style.
fn bars(wanted: &Wanted<'_>, row: &str) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    for (column, character) in row.chars().enumerate() {
        let style = if BARS.contains(&character) {
            Style::Bar
        } else {
            Style::Plain
        };
        match pieces.last_mut() {
            Some(piece) if piece.style == style => piece.text.push(character),
            _ => pieces.push(left(column, wanted.columns, character.to_string(), style)),
        }
    }
    pieces
}

/// A rate as text. Only a small rate has a fraction.
fn rounded(rate: f64) -> String {
    match rate.abs() {
        0.0 => "0".to_owned(),
        ..9.95 => format!("{rate:.1}"),
        _ => grouped(rate.round() as i64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_rates_have_a_digit_more() {
        assert_eq!(
            [0.0, 0.5, 9.9, 9.96, 12_345.6, -3.0].map(rounded),
            ["0", "0.5", "9.9", "10", "12,346", "-3.0"]
        );
    }
}
