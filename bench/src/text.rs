//! The report on a terminal: tables, and bars.

use std::fmt::Write;

use crate::report::{Report, Section, Words, fraction};

/// The whole report.
pub fn text(report: &Report) -> String {
    let mut text = format!("{} on {}\n", report.version, report.machine.line());
    for (name, value) in &report.machine.facts {
        let _ = writeln!(text, "  {name:20} {value}");
    }
    if let Some(plain) = &report.unprobed_ns {
        let (median, deviation) = (plain.median, plain.deviation);
        let _ = writeln!(
            text,
            "an unprobed call of the measured function: {median:.2} ns (± {deviation:.2})"
        );
    }
    let _ = writeln!(
        text,
        "overheads: with the probe minus without it, each against its own baseline; median ± median absolute deviation of \
         rounds: {}; ! marks figures not to be relied on",
        report.rounds
    );
    for section in &report.sections {
        section_text(report, section, &mut text);
    }
    text
}

fn section_text(report: &Report, section: &Section, text: &mut String) {
    let _ = writeln!(text, "\n{}: {}", section.name, section.title);
    if !section.beside.is_empty() {
        let _ = writeln!(text, "{}", section.beside);
    }
    let width = section
        .rows
        .iter()
        .map(|row| row.name.chars().count())
        .max()
        .unwrap_or(0)
        .max(20);
    if !section.rows.is_empty() {
        let _ = writeln!(
            text,
            "{:width$} {:>12} {:>10} {:8} {:>12} {:>10} {:>10}  note",
            "", "median", "±", "unit", "of a uprobe", "floors", "goal"
        );
    }
    for row in &section.rows {
        match &row.value {
            Ok(value) => {
                let ratio = report.times_cheaper_than_uprobe(row).map_or(String::new(), fraction);
                let floors = report
                    .times_the_floor(row)
                    .map_or(String::new(), |times| format!("{times:.1}"));
                let reach = row.reach.map_or(String::new(), |reach| {
                    format!("{} {reach}", if value.median <= reach { "ok" } else { "MISSED" })
                });
                let _ = writeln!(
                    text,
                    "{:width$} {:>12.2} {:>10.2} {:8} {ratio:>12} {floors:>10} {reach:>10}  {}",
                    row.name,
                    value.median,
                    value.deviation,
                    row.unit,
                    row.remarks()
                );
            }
            Err(reason) => {
                let _ = writeln!(text, "{:width$} not measurable here: {reason}", row.name);
            }
        }
    }
    chart(section, width, text);
    if let Some(words) = &section.words {
        words_text(words, text);
    }
}

/// Bars on a logarithmic scale: a tenth of a nanosecond is the first column, a factor of ten takes ten.
fn chart(section: &Section, width: usize, text: &mut String) {
    let bars: Vec<(&str, f64)> = section
        .rows
        .iter()
        .filter(|row| row.unit == "ns/call")
        .filter_map(|row| Some((row.name.as_str(), row.value.as_ref().ok()?.median)))
        .collect();
    if bars.len() < 2 {
        return;
    }
    *text += "\nns a call, over the unprobed one; each 10 columns are a factor of 10 above 0.1 ns\n";
    for (name, median) in bars {
        let columns = ((median.max(0.1) / 0.1).log10() * 10.0).round() as usize;
        let _ = writeln!(text, "{name:width$} |{} {median:.1}", "#".repeat(columns));
    }
}

fn words_text(words: &Words, text: &mut String) {
    // Reasons are printed below: a cell must stay readable.
    let short = |cell: &str| cell.split(':').next().unwrap_or_default().to_owned();
    let rows: Vec<Vec<String>> = words
        .rows
        .iter()
        .map(|row| {
            let name = row.first().cloned();
            name.into_iter()
                .chain(row.iter().skip(1).map(|cell| short(cell)))
                .collect()
        })
        .collect();
    let widths: Vec<usize> = (0..words.columns.len())
        .map(|column| {
            let cells = rows.iter().chain([&words.columns]).filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    for row in [&words.columns].into_iter().chain(&rows) {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        let _ = writeln!(text, "{}", cells.join("  ").trim_end());
    }
    for row in &words.rows {
        for (cell, column) in row
            .iter()
            .zip(&words.columns)
            .skip(1)
            .filter(|(cell, _)| cell.contains(':'))
        {
            let _ = writeln!(text, "  {column}, {}: {cell}", row.first().map_or("", String::as_str));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::report;

    #[test]
    fn ratios_verdicts_doubts_and_reasons_are_shown() {
        let text = text(&report());
        let line = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name) && !line.contains('|'));
            line.expect("a line").to_owned()
        };
        assert!(
            line("count").contains("1/250.0") && line("count").contains("ok 3"),
            "{text}"
        );
        assert!(
            line("slow").contains("MISSED 3") && line("slow").contains("5 drops"),
            "{text}"
        );
        assert!(line("noisy").contains("! wide spread"), "{text}");
        assert!(line("other").contains("not measurable here: no root"), "{text}");
        assert!(text.contains("the seed: 28 ns"), "{text}");
        assert!(line("ret").ends_with("no"), "{text}");
        assert!(text.contains("trap, ret: no: <why>"), "{text}");
        // 20 ns: 0.1 times 10 to the 2.3.
        assert!(text.contains(&format!("|{} 20.0", "#".repeat(23))), "{text}");
    }
}
