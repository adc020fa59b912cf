//! The report for machines: JSON with everything, CSV with one line a sample.

use std::fmt::Write;

use crate::report::{Report, Row};
use crate::statistics::Measured;

/// The whole report as JSON.
pub fn json(report: &Report) -> String {
    let mut text = format!(
        "{{\n  \"version\": {},\n  \"rounds\": {},\n",
        quoted(&report.version),
        report.rounds
    );
    let facts: Vec<String> = report
        .machine
        .facts
        .iter()
        .map(|(name, value)| format!("{}: {}", quoted(name), quoted(value)))
        .collect();
    let _ = writeln!(text, "  \"machine\": {{{}}},", facts.join(", "));
    if let Some(plain) = &report.unprobed_ns {
        let _ = writeln!(text, "  \"unprobed_ns\": {{{}}},", figures(plain));
    }
    let sections: Vec<String> = report
        .sections
        .iter()
        .map(|section| {
            let rows: Vec<String> = section.rows.iter().map(|row| row_json(report, row)).collect();
            let words = section.words.as_ref().map_or(String::new(), |words| {
                let lines: Vec<String> = [&words.columns]
                    .into_iter()
                    .chain(&words.rows)
                    .map(|row| list(row))
                    .collect();
                format!(",\n     \"words\": [{}]", lines.join(", "))
            });
            format!(
                "    {{\"name\": {}, \"title\": {}, \"beside\": {}, \"rows\": [\n{}]{words}}}",
                quoted(&section.name),
                quoted(&section.title),
                quoted(&section.beside),
                rows.join(",\n")
            )
        })
        .collect();
    let _ = writeln!(text, "  \"experiments\": [\n{}\n  ]\n}}", sections.join(",\n"));
    text
}

fn row_json(report: &Report, row: &Row) -> String {
    let mut text = format!("      {{\"name\": {}", quoted(&row.name));
    match &row.value {
        Ok(value) => {
            let _ = write!(text, ", \"unit\": {}, {}", quoted(row.unit), figures(value));
            if let Some(doubt) = value.doubt() {
                let _ = write!(text, ", \"doubt\": {}", quoted(doubt));
            }
        }
        Err(reason) => {
            let _ = write!(text, ", \"not_measurable\": {}", quoted(reason));
        }
    }
    if let Some(ratio) = report.times_cheaper_than_uprobe(row) {
        let _ = write!(text, ", \"times_cheaper_than_uprobe\": {ratio}");
    }
    if let Some(ratio) = report.times_the_floor(row) {
        let _ = write!(text, ", \"times_the_floor\": {ratio}");
    }
    if let Some(reach) = row.reach {
        let _ = write!(text, ", \"to_reach\": {reach}");
    }
    if !row.note.is_empty() {
        let _ = write!(text, ", \"note\": {}", quoted(&row.note));
    }
    text + "}"
}

fn figures(measured: &Measured) -> String {
    let samples: Vec<String> = measured.samples.iter().map(f64::to_string).collect();
    format!(
        "\"median\": {}, \"deviation\": {}, \"samples\": [{}]",
        measured.median,
        measured.deviation,
        samples.join(", ")
    )
}

fn list(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    format!("[{}]", words.join(", "))
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

/// The report as CSV, one line for each sample: experiment, row, unit, round, value.
pub fn csv(report: &Report) -> String {
    let mut text = String::from("experiment,row,unit,round,value\n");
    for section in &report.sections {
        for row in &section.rows {
            let samples = row.value.as_ref().map_or(&[][..], |value| &value.samples);
            for (round, sample) in samples.iter().enumerate() {
                let (name, unit) = (row.name.replace('"', "\"\""), row.unit);
                let _ = writeln!(text, "{},\"{name}\",{unit},{},{sample}", section.name, round + 1);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::report;

    #[test]
    fn json_quotes_and_holds_every_sample() {
        let json = json(&report());
        assert!(json.contains(r#""version": "nanoprobe \"0\" <&>""#), "{json}");
        assert!(json.contains(r#""times_cheaper_than_uprobe": 250"#), "{json}");
        assert!(json.contains(r#""samples": [1.75, 2, 2.25]"#), "{json}");
        assert!(json.contains(r#""doubt": "wide spread""#), "{json}");
        assert!(json.contains(r#""not_measurable": "no root""#), "{json}");
        assert!(json.contains(r#"["ret", "", "no: <why>"]"#), "{json}");
        let depth = |open: char, close: char| json.matches(open).count() as i64 - json.matches(close).count() as i64;
        assert_eq!((depth('{', '}'), depth('[', ']')), (0, 0), "{json}");
    }

    #[test]
    fn csv_has_a_line_for_every_sample() {
        let csv = csv(&report());
        assert_eq!(csv.lines().count(), 1 + 5 * 3, "{csv}");
        assert!(csv.contains("call,\"count\",ns/call,3,2.25\n"), "{csv}");
    }
}
