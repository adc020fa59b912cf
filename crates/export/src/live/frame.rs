//! The contents of a terminal: rows of cells, each with a character and a style.
//!
//! A text that does not fit is cut. Names come from the traced program, so no character that a terminal might obey
//! (controls, marks of direction, characters without a width) gets into a cell. Its escape is shown instead.

use unicode_width::UnicodeWidthChar as _;

/// The meaning of a cell, which decides its colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Style {
    #[default]
    Plain,
    /// The first line of the screen.
    Title,
    /// The name of a table.
    Name,
    /// The head of a column that does not sort.
    Head,
    /// The head of the column that sorts.
    SortedHead,
    /// A number.
    Number,
    /// Part of a bar, or of a sparkline.
    Bar,
    /// Text of less importance.
    Dim,
    /// A warning, which must be seen.
    Warning,
    /// The last line of the screen, with the keys.
    Help,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Cell {
    /// `None`: the right half of a wide character, which is in the previous cell.
    character: Option<char>,
    style: Style,
}

const BLANK: Cell = Cell {
    character: Some(' '),
    style: Style::Plain,
};

/// One picture of the screen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    columns: usize,
    rows: Vec<Vec<Cell>>,
}

impl Frame {
    /// A frame of blanks.
    #[must_use]
    pub fn new(columns: usize, rows: usize) -> Frame {
        Frame {
            columns,
            rows: vec![vec![BLANK; columns]; rows],
        }
    }

    pub fn columns(&self) -> usize {
        self.columns
    }

    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Puts a text at a place; yields the column after it.
    pub(crate) fn put(&mut self, row: usize, column: usize, text: &str, style: Style) -> usize {
        self.put_within(row, column, self.columns, text, style)
    }

    /// Puts a text, but changes nothing from the column `end` on.
    pub(crate) fn put_within(&mut self, row: usize, column: usize, end: usize, text: &str, style: Style) -> usize {
        let end = end.min(self.columns);
        let Some(cells) = self.rows.get_mut(row) else {
            return column;
        };
        let mut at = column;
        for character in visible(text).chars() {
            let width = character.width().unwrap_or(1).max(1);
            if at + width > end {
                break;
            }
            for (offset, cell) in cells.iter_mut().skip(at).take(width).enumerate() {
                *cell = Cell {
                    character: (offset == 0).then_some(character),
                    style,
                };
            }
            at += width;
        }
        at
    }

    /// Puts a text so that it ends before a column.
    pub(crate) fn put_right(&mut self, row: usize, end: usize, text: &str, style: Style) {
        self.put(row, end.saturating_sub(width(text)), text, style);
    }

    /// Gives a whole row a style.
    pub(crate) fn style(&mut self, row: usize, style: Style) {
        for cell in self.rows.get_mut(row).into_iter().flatten() {
            cell.style = style;
        }
    }

    /// A row as a list of parts, each with its style.
    #[must_use]
    pub fn parts(&self, row: usize) -> Vec<(Style, String)> {
        let mut parts: Vec<(Style, String)> = Vec::new();
        for cell in self.rows.get(row).into_iter().flatten() {
            match parts.last_mut() {
                Some((style, text)) if *style == cell.style => text.extend(cell.character),
                _ => parts.push((cell.style, cell.character.into_iter().collect())),
            }
        }
        parts
    }

    /// Whether a row looks the same in both frames.
    #[must_use]
    pub fn has_same_row(&self, other: &Frame, row: usize) -> bool {
        self.columns == other.columns && self.rows.get(row) == other.rows.get(row)
    }

    /// The characters alone, without blanks at the ends of lines.
    #[must_use]
    pub fn text(&self) -> String {
        let line = |row: &Vec<Cell>| -> String {
            let text: String = row.iter().filter_map(|cell| cell.character).collect();
            text.trim_end().to_owned() + "\n"
        };
        self.rows.iter().map(line).collect()
    }
}

/// How many columns a text takes.
pub(crate) fn width(text: &str) -> usize {
    visible(text)
        .chars()
        .map(|character| character.width().unwrap_or(1).max(1))
        .sum()
}

/// A text in which every character is visible, and none moves the cursor.
pub(crate) fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\t' => shown.push(' '),
            _ if character.is_control() && character.is_ascii() => {
                let escaped = crate::escape::escaped(&[character as u8]);
                shown.push_str(&String::from_utf8_lossy(&escaped));
            }
            _ if character.is_control() || character.width().unwrap_or(0) == 0 || is_of_direction(character) => {
                shown.push_str(&format!("\\u{:04x}", u32::from(character)));
            }
            _ => shown.push(character),
        }
    }
    shown
}

/// Whether a character is a mark that changes the direction of the text around it.
fn is_of_direction(character: char) -> bool {
    matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{61c}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_at_the_edge() {
        let mut frame = Frame::new(5, 2);
        assert_eq!(frame.put(0, 3, "abc", Style::Plain), 5);
        assert_eq!(frame.put(1, 7, "abc", Style::Plain), 7);
        assert_eq!(frame.put(9, 0, "abc", Style::Plain), 0);
        frame.put_right(1, 5, "xy", Style::Number);
        frame.put_right(1, 1, "too long", Style::Plain);
        assert_eq!(frame.text(), "   ab\ntoo l\n");
        Frame::new(0, 0).put(0, 0, "a", Style::Plain);
    }

    #[test]
    fn a_wide_character_takes_two_cells_or_none() {
        let mut frame = Frame::new(3, 1);
        assert_eq!(frame.put(0, 0, "漢字", Style::Plain), 2);
        assert_eq!(frame.text(), "漢\n");
        assert_eq!(width("a漢"), 3);
    }

    #[test]
    fn nothing_that_a_terminal_obeys_gets_into_a_cell() {
        let text = visible("a\u{1b}[2J\n\u{9b}H\u{202e}b\u{200b}c\u{301}\u{7f}\t.");
        assert_eq!(text, "a\\033[2J\\n\\u009bH\\u202eb\\u200bc\\u0301\\177 .");
        let all: String = (0..0x3000).filter_map(char::from_u32).collect();
        let mut frame = Frame::new(30_000, 1);
        frame.put(0, 0, &all, Style::Plain);
        let shown = frame.text();
        let is_harmless = |character: char| !character.is_control() && character.width() != Some(0);
        assert!(shown.trim_end_matches('\n').chars().all(is_harmless));
    }

    #[test]
    fn parts_follow_the_styles() {
        let mut frame = Frame::new(6, 1);
        frame.put(0, 0, "ab", Style::Name);
        frame.put(0, 2, "12", Style::Number);
        let parts = frame.parts(0);
        let expected = [(Style::Name, "ab"), (Style::Number, "12"), (Style::Plain, "  ")];
        assert_eq!(parts, expected.map(|(style, text)| (style, text.to_owned())));
    }
}
