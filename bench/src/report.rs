//! The results of a run: rows, and tables of words, by experiment.

use crate::machine::Machine;
use crate::statistics::Measured;

/// One line of a table.
#[derive(Clone, Debug)]
pub struct Row {
    /// The measured action.
    pub name: String,
    /// The unit of the figure.
    pub unit: &'static str,
    /// The figure, or why there is none.
    pub value: Result<Measured, String>,
    /// The goal: the figure should be at most this.
    pub reach: Option<f64>,
    /// A note: drops, counts.
    pub note: String,
}

impl Row {
    /// A figure.
    pub fn new(name: &str, unit: &'static str, value: Measured) -> Row {
        Row {
            name: name.to_owned(),
            unit,
            value: Ok(value),
            reach: None,
            note: String::new(),
        }
    }

    /// A row with a figure from samples, or with the reason for their lack.
    pub fn of(name: &str, unit: &'static str, samples: anyhow::Result<Vec<f64>>) -> Row {
        match samples.map(|samples| Measured::of(&samples)) {
            Ok(Some(measured)) => Row::new(name, unit, measured),
            Ok(None) => Row::not_measurable(name, "nothing was measured"),
            Err(error) => Row::not_measurable(name, &format!("{error:#}")),
        }
    }

    /// A row without a figure.
    pub fn not_measurable(name: &str, reason: &str) -> Row {
        let reason = reason.replace('\n', " ");
        Row {
            name: name.to_owned(),
            unit: "",
            value: Err(reason),
            reach: None,
            note: String::new(),
        }
    }

    /// This row, with a goal.
    #[must_use]
    pub fn reach(mut self, at_most: f64) -> Row {
        self.reach = Some(at_most);
        self
    }

    /// This row, with a note.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Row {
        self.note = note.into();
        self
    }

    /// The note, and the reason why the figure is doubtful.
    pub fn remarks(&self) -> String {
        let doubt = self.value.as_ref().ok().and_then(Measured::doubt);
        let doubt = doubt.map(|doubt| format!("! {doubt}"));
        let note = (!self.note.is_empty()).then(|| self.note.clone());
        [doubt, note].into_iter().flatten().collect::<Vec<_>>().join("; ")
    }
}

/// A table of words.
#[derive(Clone, Debug, Default)]
pub struct Words {
    /// The titles; the first is that of the rows' names.
    pub columns: Vec<String>,
    /// The rows, with as many cells as columns.
    pub rows: Vec<Vec<String>>,
}

impl Words {
    /// Makes a table from (row, column, text).
    pub fn of(facts: &[(String, String, String)]) -> Words {
        let mut columns = vec![String::new()];
        let mut rows: Vec<Vec<String>> = Vec::new();
        for (name, column, text) in facts {
            let index = columns.iter().position(|known| known == column).unwrap_or_else(|| {
                columns.push(column.clone());
                columns.len() - 1
            });
            let number = rows
                .iter()
                .position(|row| row.first() == Some(name))
                .unwrap_or_else(|| {
                    rows.push(vec![name.clone()]);
                    rows.len() - 1
                });
            if let Some(row) = rows.get_mut(number) {
                row.resize(row.len().max(index + 1), String::new());
                if let Some(cell) = row.get_mut(index) {
                    cell.clone_from(text);
                }
            }
        }
        for row in &mut rows {
            row.resize(columns.len(), String::new());
        }
        Words { columns, rows }
    }
}

/// One experiment.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// The experiment's name for `--only`.
    pub name: String,
    /// Its title.
    pub title: String,
    /// The figures of the seed, or of another source, for comparison.
    pub beside: String,
    /// The figures.
    pub rows: Vec<Row>,
    /// The tables of words.
    pub words: Option<Words>,
}

/// All results of one run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The version of nanoprobe.
    pub version: String,
    /// The machine.
    pub machine: Machine,
    /// The number of rounds.
    pub rounds: usize,
    /// The cost of an unprobed call of the measured function.
    pub unprobed_ns: Option<Measured>,
    /// The experiments in the order of measuring.
    pub sections: Vec<Section>,
}

/// The row on which the ratios are based.
pub const KERNEL_REFERENCE: &str = "kernel uprobe, counted (perf)";
/// The row of the floor, below which no method can be.
pub const FLOOR: &str = "hand-made floor: jump, increment, jump back";

impl Report {
    /// A report without results.
    pub fn new(version: &str, machine: Machine, rounds: usize) -> Report {
        Report {
            version: version.to_owned(),
            machine,
            rounds,
            unprobed_ns: None,
            sections: Vec::new(),
        }
    }

    /// The median of the first row of that name.
    pub fn median(&self, name: &str) -> Option<f64> {
        let mut rows = self.sections.iter().flat_map(|section| &section.rows);
        Some(rows.find(|row| row.name == name)?.value.as_ref().ok()?.median)
    }

    /// How many times cheaper than the kernel's uprobe a row is.
    pub fn times_cheaper_than_uprobe(&self, row: &Row) -> Option<f64> {
        let value = row.value.as_ref().ok()?.median;
        let reference = self.median(KERNEL_REFERENCE)?;
        (row.unit == "ns/call" && value > 0.0 && row.name != KERNEL_REFERENCE).then_some(reference / value)
    }

    /// The multiple of the hand-made floor's cost.
    pub fn times_the_floor(&self, row: &Row) -> Option<f64> {
        let value = row.value.as_ref().ok()?.median;
        let floor = self.median(FLOOR)?;
        (row.unit == "ns/call" && value > 0.0 && floor > 0.0 && row.name != FLOOR).then_some(value / floor)
    }
}

/// A fraction of the reference as `1/150.0`, a multiple of it as `x 1.5`.
pub fn fraction(times_cheaper: f64) -> String {
    if times_cheaper >= 1.0 {
        format!("1/{times_cheaper:.1}")
    } else {
        format!("x {:.1}", 1.0 / times_cheaper)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A report with a bit of everything.
    pub fn report() -> Report {
        let value = |median: f64| Measured {
            median,
            deviation: 0.25,
            samples: vec![median - 0.25, median, median + 0.25],
        };
        let mut report = Report::new("nanoprobe \"0\" <&>", Machine::example(), 3);
        report.unprobed_ns = Some(value(0.5));
        let rows = vec![
            Row::new(FLOOR, "ns/call", value(1.0)),
            Row::new(KERNEL_REFERENCE, "ns/call", value(500.0)),
            Row::new("count", "ns/call", value(2.0)).reach(3.0),
            Row::new("slow", "ns/call", value(20.0)).reach(3.0).note("5 drops"),
            Row::new(
                "noisy",
                "ns/call",
                Measured {
                    median: 10.0,
                    deviation: 4.0,
                    samples: vec![6.0, 10.0, 14.0],
                },
            ),
            Row::not_measurable("other", "no\nroot"),
        ];
        let facts = [
            ("entry", "jump", "yes"),
            ("entry", "trap", "yes"),
            ("ret", "trap", "no: <why>"),
        ]
        .map(|(row, column, text)| (row.to_owned(), column.to_owned(), text.to_owned()));
        report.sections = vec![
            Section {
                name: "call".into(),
                title: "What a call costs".into(),
                beside: "the seed: 28 ns".into(),
                rows,
                words: None,
            },
            Section {
                name: "functions".into(),
                title: "What each can do".into(),
                words: Some(Words::of(&facts)),
                ..Section::default()
            },
        ];
        report
    }

    #[test]
    fn ratios_are_of_the_reference_in_the_same_run() {
        let report = report();
        let row = |name: &str| {
            report.sections[0]
                .rows
                .iter()
                .find(|row| row.name == name)
                .expect("a row")
                .clone()
        };
        assert_eq!(report.times_cheaper_than_uprobe(&row("count")), Some(250.0));
        assert_eq!(report.times_cheaper_than_uprobe(&row(KERNEL_REFERENCE)), None);
        assert_eq!(report.times_the_floor(&row("slow")), Some(20.0));
        assert_eq!(report.times_the_floor(&row("other")), None);
        assert_eq!(
            (fraction(250.0), fraction(0.5)),
            ("1/250.0".to_owned(), "x 2.0".to_owned())
        );
    }

    #[test]
    fn doubtful_figures_are_marked() {
        let report = report();
        let remarks: Vec<String> = report.sections[0].rows.iter().map(Row::remarks).collect();
        assert_eq!(remarks, ["", "", "", "5 drops", "! wide spread", ""]);
    }

    #[test]
    fn facts_become_a_table_without_holes() {
        let words = report().sections[1].words.clone().expect("words");
        assert_eq!(words.columns, ["", "jump", "trap"]);
        assert_eq!(words.rows, [["entry", "yes", "yes"], ["ret", "", "no: <why>"]]);
    }
}
