//! The table of `strace -c`: how often each call was made, how often it failed, how long it took.

use std::collections::BTreeMap;

#[derive(Clone, Copy, Default)]
struct Row {
    calls: u64,
    errors: u64,
    nanoseconds: u64,
}

/// What was counted of each call.
#[derive(Default)]
pub(super) struct Summary {
    rows: BTreeMap<String, Row>,
}

impl Summary {
    /// A call has returned, or a signal's handler has.
    pub(super) fn count(&mut self, name: &str, has_failed: bool, nanoseconds: i64) {
        if !self.rows.contains_key(name) {
            self.rows.insert(name.to_owned(), Row::default());
        }
        if let Some(row) = self.rows.get_mut(name) {
            row.calls += 1;
            row.errors += u64::from(has_failed);
            row.nanoseconds = row
                .nanoseconds
                .saturating_add(u64::try_from(nanoseconds).unwrap_or_default());
        }
    }

    /// The table, the calls that took most of the time first.
    pub(super) fn table(&self) -> String {
        const RULE: &str = "------ ----------- ----------- --------- --------- ----------------\n";
        let mut rows: Vec<(&str, Row)> = self.rows.iter().map(|(name, row)| (name.as_str(), *row)).collect();
        rows.sort_by_key(|(_, row)| std::cmp::Reverse(row.nanoseconds));
        let mut total = Row::default();
        for (_, row) in &rows {
            total.calls += row.calls;
            total.errors += row.errors;
            total.nanoseconds = total.nanoseconds.saturating_add(row.nanoseconds);
        }
        let line = |name: &str, row: Row| {
            let share = match total.nanoseconds {
                0 => 0.0,
                all => row.nanoseconds as f64 * 100.0 / all as f64,
            };
            let errors = match row.errors {
                0 => String::new(),
                errors => errors.to_string(),
            };
            format!(
                "{share:6.2} {:11.6} {:11} {:9} {errors:>9} {name}\n",
                row.nanoseconds as f64 / 1e9,
                row.nanoseconds / 1000 / row.calls.max(1),
                row.calls,
            )
        };
        let mut text = format!(
            "{:>6} {:>11} {:>11} {:>9} {:>9} syscall\n{RULE}",
            "% time", "seconds", "usecs/call", "calls", "errors"
        );
        text.extend(rows.iter().map(|(name, row)| line(name, *row)));
        text + RULE + &line("total", total)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_the_columns_of_strace() {
        let mut summary = Summary::default();
        summary.count("read", false, 30_000);
        summary.count("openat", true, 10_000);
        summary.count("openat", false, 80_000);
        let expected = "% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 75.00    0.000090          45         2         1 openat
 25.00    0.000030          30         1           read
------ ----------- ----------- --------- --------- ----------------
100.00    0.000120          40         3         1 total
";
        assert_eq!(summary.table(), expected);
    }
}
