//! The tables of a moment with their rates, which are computed by comparison with the previous moment.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use nanoprobe_lang::Program;

use super::tables::{Group, Line, Table, table};
use crate::table::AggregateTable;

/// How many seconds a sparkline shows.
const MINUTE: usize = 60;

/// The tables of a moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Moment {
    /// One table for each group.
    pub(super) tables: Vec<Table>,
    /// For each table, how much was added to it in each of the last seconds.
    pub(super) rates: Vec<VecDeque<f64>>,
    /// The time since the tracing began.
    pub(super) elapsed: Duration,
}

impl Moment {
    /// The tables of the current moment.
    pub(super) fn next(
        &self,
        groups: &[Group],
        program: &Program,
        aggregations: &AggregateTable,
        elapsed: Duration,
    ) -> Moment {
        let seconds = elapsed.saturating_sub(self.elapsed).as_secs_f64();
        let mut moment = Moment {
            elapsed,
            ..Moment::default()
        };
        for (index, group) in groups.iter().enumerate() {
            let mut table = table(group, program, aggregations);
            let before = self.tables.get(index).map_or(&[][..], |table| table.lines.as_slice());
            rate(&mut table.lines, before, seconds);
            let mut rates = self.rates.get(index).cloned().unwrap_or_default();
            rates.push_back(table.lines.iter().map(|line| line.rate).sum());
            while rates.len() > MINUTE {
                rates.pop_front();
            }
            moment.tables.push(table);
            moment.rates.push(rates);
        }
        moment
    }
}

/// The rates of lines, from the lines before.
fn rate(lines: &mut [Line], before: &[Line], seconds: f64) {
    let before: HashMap<&[u8], &Line> = before.iter().map(|line| (line.identity(), line)).collect();
    for line in lines {
        let start = match before.get(line.identity()) {
            // Fewer updates than before: the aggregation was cleared or truncated.
            Some(before) if before.updates <= line.updates => before.activity,
            _ => 0,
        };
        let added = line.activity.wrapping_sub(start);
        line.rate = if seconds > 0.0 { added as f64 / seconds } else { 0.0 };
    }
}
