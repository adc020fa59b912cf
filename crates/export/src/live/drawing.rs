//! The state of the screen, and how it is drawn.

use std::time::Duration;

use nanoprobe_lang::Program;

use super::frame::{Frame, Style, width};
use super::moment::Moment;
use super::printed::Printed;
use super::section::{Section, Wanted, section};
use super::sort::{Sort, columns, order};
use super::tables::{Group, Line, groups};
use super::words::{clock, grouped};
use super::{Characters, Key, Traced};
use crate::table::AggregateTable;

/// How many lines the keys page up and page down scroll.
const PAGE: usize = 10;
/// The number of rows of the smallest useful table: its name, its heads, and a line.
const TABLE_MIN: usize = 3;

/// How a table is shown.
#[derive(Clone, Copy, Debug, Default)]
struct View {
    sort: Sort,
    /// The index of the first line that is shown.
    from: usize,
}

/// The contents of the screen.
#[derive(Debug)]
pub struct Live {
    title: String,
    characters: Characters,
    groups: Vec<Group>,
    views: Vec<View>,
    /// The index of the table that keys change.
    focus: usize,
    latest: Moment,
    printed: Printed,
    /// The state that is shown while the screen is frozen.
    frozen: Option<(Moment, Printed)>,
}

impl Live {
    /// A screen for a program, with a title.
    #[must_use]
    pub fn new(program: &Program, title: &str, characters: Characters) -> Live {
        let groups = groups(program);
        Live {
            title: title.to_owned(),
            characters,
            views: vec![View::default(); groups.len()],
            groups,
            focus: 0,
            latest: Moment::default(),
            printed: Printed::default(),
            frozen: None,
        }
    }

    /// Takes the current aggregations, and the time since the tracing began.
    pub fn update(&mut self, program: &Program, aggregations: &AggregateTable, elapsed: Duration) {
        self.latest = self.latest.next(&self.groups, program, aggregations, elapsed);
    }

    /// Adds text that the program printed.
    pub fn print(&mut self, bytes: &[u8]) {
        self.printed.add(bytes);
    }

    /// The last printed lines, and how many lines before them were dropped.
    pub fn take_printed(&mut self) -> (u64, Vec<u8>) {
        self.printed.take()
    }

    /// Does what a pressed key asks for.
    pub fn press(&mut self, key: Key) {
        let shown = self.shown_tables();
        if !shown.contains(&self.focus) {
            self.focus = shown.first().copied().unwrap_or(0);
        }
        let lines = self
            .moment()
            .tables
            .get(self.focus)
            .map_or(0, |table| table.lines.len());
        let columns = self.moment().tables.get(self.focus).map_or(1, columns);
        let last = lines.saturating_sub(1);
        let Some(view) = self.views.get_mut(self.focus) else {
            return;
        };
        match key {
            Key::SortRight => view.sort.column = (view.sort.column + 1) % columns,
            Key::SortLeft => view.sort.column = (view.sort.column + columns - 1) % columns,
            Key::Reverse => view.sort.is_reversed = !view.sort.is_reversed,
            Key::Freeze => {
                self.frozen = self
                    .frozen
                    .is_none()
                    .then(|| (self.latest.clone(), self.printed.clone()))
            }
            Key::Table => {
                let next = shown.iter().find(|table| **table > self.focus).or(shown.first());
                self.focus = next.copied().unwrap_or(0);
            }
            Key::Up => view.from = view.from.saturating_sub(1),
            Key::Down => view.from = (view.from + 1).min(last),
            Key::PageUp => view.from = view.from.saturating_sub(PAGE),
            Key::PageDown => view.from = (view.from + PAGE).min(last),
            Key::Home => view.from = 0,
            Key::End => view.from = last,
        }
        if matches!(key, Key::SortRight | Key::SortLeft | Key::Reverse)
            && let Some(view) = self.views.get_mut(self.focus)
        {
            view.from = 0;
        }
    }

    /// The picture for a terminal of this size.
    #[must_use]
    pub fn draw(&self, traced: &mut Traced<'_>, columns: usize, rows: usize) -> Frame {
        let mut frame = Frame::new(columns, rows);
        self.draw_title(&mut frame);
        let help = usize::from(rows > TABLE_MIN);
        if help == 1 {
            self.draw_help(&mut frame);
        }
        let below = rows - help.min(rows);
        let printed = self.printed_rows(rows);
        self.draw_printed(&mut frame, below - printed.min(below), printed);
        self.draw_tables(&mut frame, traced, 1, below.saturating_sub(printed));
        frame
    }

    fn moment(&self) -> &Moment {
        self.frozen.as_ref().map_or(&self.latest, |(moment, _)| moment)
    }

    fn lines(&self) -> &Printed {
        self.frozen.as_ref().map_or(&self.printed, |(_, printed)| printed)
    }

    /// The tables that have at least one line.
    fn shown_tables(&self) -> Vec<usize> {
        let tables = self.moment().tables.iter().enumerate();
        tables
            .filter(|(_, table)| !table.lines.is_empty())
            .map(|(index, _)| index)
            .collect()
    }

    fn draw_title(&self, frame: &mut Frame) {
        let columns = frame.columns();
        let time = clock(self.moment().elapsed);
        let frozen = if self.frozen.is_some() { "FROZEN " } else { "" };
        let end = columns.saturating_sub(width(&time) + width(frozen) + 2);
        frame.style(0, Style::Title);
        frame.put_within(0, 1, end, &self.title, Style::Title);
        frame.put_right(
            0,
            columns.saturating_sub(width(&time) + 2),
            frozen.trim_end(),
            Style::Warning,
        );
        frame.put_right(0, columns.saturating_sub(1), &time, Style::Title);
    }

    fn draw_help(&self, frame: &mut Frame) {
        let freeze = if self.frozen.is_some() { "go on" } else { "freeze" };
        let table = if self.shown_tables().len() > 1 {
            "  tab table"
        } else {
            ""
        };
        let text = format!("q quit  space {freeze}  left/right sort  r reverse{table}  up/down scroll");
        let row = frame.rows().saturating_sub(1);
        frame.style(row, Style::Help);
        frame.put(row, 1, &text, Style::Help);
    }

    /// How many rows of the screen show printed text.
    fn printed_rows(&self, rows: usize) -> usize {
        match self.lines().count() {
            0 => 0,
            count => 1 + usize::try_from(count).unwrap_or(rows).min(rows / 4),
        }
    }

    fn draw_printed(&self, frame: &mut Frame, row: usize, rows: usize) {
        let Some(lines) = rows.checked_sub(1) else { return };
        let count = self.lines().count();
        let plural = if count == 1 { "" } else { "s" };
        frame.put(
            row,
            0,
            &format!("printed: {} line{plural}", grouped(count)),
            Style::Name,
        );
        for (index, line) in self.lines().last(lines).iter().enumerate() {
            frame.put(row + 1 + index, 0, line, Style::Plain);
        }
    }

    fn draw_tables(&self, frame: &mut Frame, traced: &mut Traced<'_>, mut row: usize, end: usize) {
        let room = end.saturating_sub(row);
        let shown = self.shown_tables();
        if shown.is_empty() && room > 0 {
            frame.put(row, 1, "nothing yet", Style::Dim);
        }
        let focus = shown.iter().position(|table| *table == self.focus).unwrap_or(0);
        // If not all tables fit, the tables from the chosen one on are shown.
        let first = if shown.len() * TABLE_MIN <= room { 0 } else { focus };
        let many = (room / TABLE_MIN).max(1);
        let sections: Vec<Section> = shown
            .iter()
            .enumerate()
            .skip(first)
            .take(many)
            .filter_map(|(place, table)| {
                self.section(traced, *table, shown.len() > 1 && place == focus, room, frame.columns())
            })
            .collect();
        let needs: Vec<usize> = sections.iter().map(Section::rows).collect();
        for (section, share) in sections.iter().zip(shares(&needs, room)) {
            section.draw(frame, row, share);
            row += share;
        }
    }

    fn section(
        &self,
        traced: &mut Traced<'_>,
        index: usize,
        is_chosen: bool,
        rows: usize,
        columns: usize,
    ) -> Option<Section> {
        let moment = self.moment();
        let (group, table) = (self.groups.get(index)?, moment.tables.get(index)?);
        let view = self.views.get(index).copied().unwrap_or_default();
        let mut lines: Vec<&Line> = table.lines.iter().collect();
        lines.sort_by(|left, right| order(traced.program, group, table, view.sort, left, right));
        // The table may have fewer lines now than when the user scrolled.
        let from = view.from.min(lines.len().saturating_sub(1));
        let lines: Vec<&Line> = lines.into_iter().skip(from).take(rows).collect();
        let wanted = Wanted {
            group,
            table,
            rates: moment.rates.get(index)?,
            sort: view.sort,
            from,
            is_chosen,
            characters: self.characters,
            columns,
            rows,
        };
        Some(section(&wanted, traced, &lines))
    }
}

/// Divides rows among tables: no table gets more rows than it needs, and the other tables get the rest.
fn shares(needs: &[usize], room: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..needs.len()).collect();
    order.sort_by_key(|index| needs.get(*index));
    let (mut shares, mut left, mut others) = (vec![0; needs.len()], room, needs.len());
    for index in order {
        let share = needs.get(index).copied().unwrap_or(0).min(left / others.max(1));
        if let Some(place) = shares.get_mut(index) {
            *place = share;
        }
        left -= share;
        others -= 1;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_table_gets_more_rows_than_it_needs() {
        assert_eq!(shares(&[3, 50, 4], 20), [3, 13, 4]);
        assert_eq!(shares(&[50, 50], 20), [10, 10]);
        assert_eq!(shares(&[2, 2], 20), [2, 2]);
        assert_eq!(shares(&[5, 5, 5], 0), [0, 0, 0]);
        assert_eq!(shares(&[], 5), [0; 0]);
    }
}
