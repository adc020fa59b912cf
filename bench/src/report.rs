//! The table, the chart and the JSON.

use std::fmt::Write;

use crate::statistics::Measured;

/// One line of the table.
#[derive(Clone, Debug)]
pub struct Row {
    pub name: String,
    pub unit: &'static str,
    pub value: Result<Measured, String>,
    /// The figure to reach: at most this.
    pub reach: Option<f64>,
    /// What else is to be said: drops, counts.
    pub note: String,
}

impl Row {
    pub fn new(name: &str, unit: &'static str, value: Measured) -> Row {
        Row {
            name: name.to_owned(),
            unit,
            value: Ok(value),
            reach: None,
            note: String::new(),
        }
    }

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

    pub fn reach(mut self, at_most: f64) -> Row {
        self.reach = Some(at_most);
        self
    }

    pub fn note(mut self, note: impl Into<String>) -> Row {
        self.note = note.into();
        self
    }
}

/// All that was measured in one run.
#[derive(Debug)]
pub struct Report {
    pub version: String,
    /// What an unprobed call of the measured function costs.
    pub unprobed_ns: Option<Measured>,
    pub rows: Vec<Row>,
}

/// The row whose figures the ratios are made with.
pub const KERNEL_REFERENCE: &str = "kernel uprobe, counted (perf)";

impl Report {
    pub fn new(version: &str) -> Report {
        Report {
            version: version.to_owned(),
            unprobed_ns: None,
            rows: Vec::new(),
        }
    }

    fn reference(&self) -> Option<f64> {
        self.rows
            .iter()
            .find(|row| row.name == KERNEL_REFERENCE)?
            .value
            .as_ref()
            .ok()
            .map(|value| value.median)
    }

    fn ratio(&self, row: &Row) -> Option<f64> {
        let value = row.value.as_ref().ok()?.median;
        let reference = self.reference()?;
        (row.unit == "ns/call" && value > 0.0 && row.name != KERNEL_REFERENCE).then_some(reference / value)
    }

    /// The table and the chart as text.
    pub fn text(&self) -> String {
        let mut text = format!("{} on {}\n", self.version, machine());
        if let Some(plain) = self.unprobed_ns {
            let _ = writeln!(
                text,
                "an unprobed call of the measured function: {:.2} ns (± {:.2})",
                plain.median, plain.deviation
            );
        }
        let _ = writeln!(
            text,
            "overheads: with the probe minus without it; median ± median absolute deviation\n"
        );
        let width = self.rows.iter().map(|row| row.name.len()).max().unwrap_or(0).max(20);
        let _ = writeln!(
            text,
            "{:width$} {:>12} {:>10} {:8} {:>12} {:>10}  note",
            "", "median", "±", "unit", "of a uprobe", "to reach"
        );
        for row in &self.rows {
            match &row.value {
                Ok(value) => {
                    let ratio = self.ratio(row).map_or(String::new(), fraction);
                    let reach = row.reach.map_or(String::new(), |reach| {
                        format!("{} {reach}", if value.median <= reach { "ok" } else { "MISSED" })
                    });
                    let _ = writeln!(
                        text,
                        "{:width$} {:>12.2} {:>10.2} {:8} {ratio:>12} {reach:>10}  {}",
                        row.name, value.median, value.deviation, row.unit, row.note
                    );
                }
                Err(reason) => {
                    let _ = writeln!(text, "{:width$} not measurable here: {reason}", row.name);
                }
            }
        }
        text + &self.chart(width)
    }

    /// Bars on a logarithmic scale: a nanosecond is the first column, a factor of ten takes ten.
    fn chart(&self, width: usize) -> String {
        let mut text =
            String::from("\nns a call, over the unprobed one; each 10 columns are a factor of 10 above 0.1 ns\n");
        for row in self.rows.iter().filter(|row| row.unit == "ns/call") {
            let Ok(value) = &row.value else { continue };
            let columns = ((value.median.max(0.1) / 0.1).log10() * 10.0).round() as usize;
            let _ = writeln!(text, "{:width$} |{} {:.1}", row.name, "#".repeat(columns), value.median);
        }
        text
    }

    /// Everything as JSON.
    pub fn json(&self) -> String {
        let mut text = format!(
            "{{\n  \"version\": {},\n  \"machine\": {},\n",
            quoted(&self.version),
            quoted(&machine())
        );
        if let Some(plain) = self.unprobed_ns {
            let _ = writeln!(
                text,
                "  \"unprobed_ns\": {{\"median\": {}, \"deviation\": {}}},",
                plain.median, plain.deviation
            );
        }
        text += "  \"rows\": [\n";
        for (index, row) in self.rows.iter().enumerate() {
            let _ = write!(
                text,
                "    {{\"name\": {}, \"unit\": {}",
                quoted(&row.name),
                quoted(row.unit)
            );
            match &row.value {
                Ok(value) => {
                    let _ = write!(
                        text,
                        ", \"median\": {}, \"deviation\": {}",
                        value.median, value.deviation
                    );
                }
                Err(reason) => {
                    let _ = write!(text, ", \"not_measurable\": {}", quoted(reason));
                }
            }
            if let Some(ratio) = self.ratio(row) {
                let _ = write!(text, ", \"times_cheaper_than_uprobe\": {ratio}");
            }
            if let Some(reach) = row.reach {
                let _ = write!(text, ", \"to_reach\": {reach}");
            }
            if !row.note.is_empty() {
                let _ = write!(text, ", \"note\": {}", quoted(&row.note));
            }
            text += if index + 1 < self.rows.len() { "},\n" } else { "}\n" };
        }
        text + "  ]\n}\n"
    }
}

/// A part of the reference as `1/150.0`, a multiple of it as `x 1.5`.
fn fraction(times_cheaper: f64) -> String {
    if times_cheaper >= 1.0 {
        format!("1/{times_cheaper:.1}")
    } else {
        format!("x {:.1}", 1.0 / times_cheaper)
    }
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            control if control.is_control() => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(control));
            }
            other => quoted.push(other),
        }
    }
    quoted + "\""
}

/// Processor, number of them, kernel.
fn machine() -> String {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_once(": "))
            .map_or("?", |(_, value)| value)
            .to_owned()
    };
    let processors = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let (name, family, model) = (field("model name"), field("cpu family"), field("model\t"));
    format!(
        "{name} (family {family} model {model}), {processors} processors, Linux {}",
        kernel.trim()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let value = |median| Measured {
            median,
            deviation: 0.25,
        };
        let mut report = Report::new("nanoprobe \"0\"");
        report.rows = vec![
            Row::new(KERNEL_REFERENCE, "ns/call", value(500.0)),
            Row::new("count", "ns/call", value(2.0)).reach(3.0),
            Row::new("slow", "ns/call", value(20.0)).reach(3.0).note("5 drops"),
            Row::not_measurable("other", "no\nroot"),
        ];
        report
    }

    #[test]
    fn ratios_and_verdicts_are_shown() {
        let text = report().text();
        let line = |name: &str| {
            text.lines()
                .find(|line| line.starts_with(name))
                .expect("a line")
                .to_owned()
        };
        assert!(
            line("count").contains("1/250.0") && line("count").contains("ok 3"),
            "{text}"
        );
        assert!(
            line("slow").contains("MISSED 3") && line("slow").contains("5 drops"),
            "{text}"
        );
        assert!(line("other").contains("not measurable here: no root"), "{text}");
    }

    #[test]
    fn json_quotes() {
        let json = report().json();
        assert!(json.contains(r#""version": "nanoprobe \"0\"""#), "{json}");
        assert!(json.contains(r#""times_cheaper_than_uprobe": 250"#), "{json}");
    }
}
