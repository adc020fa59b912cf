//! The report as one HTML page without other files: tables, and a bar chart for every experiment, as inline SVG.

use std::fmt::Write;

use crate::report::{Report, Row, Section, Words, fraction};

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:1100px;margin:2em auto;padding:0 1em;color:#222}\
table{border-collapse:collapse;margin:1em 0;font-size:14px}th,td{padding:3px 10px;border-bottom:1px solid #ddd;text-align:left}\
td.n{text-align:right;font-variant-numeric:tabular-nums}.doubt{color:#b50}.missed{color:#b00}.none{color:#777}\
.beside{color:#555;white-space:pre-line}svg text{font:12px system-ui,sans-serif}h2{margin-top:2em}";

/// The page.
pub fn page(report: &Report) -> String {
    let title = format!("{} on {}", escaped(&report.version), escaped(&report.machine.line()));
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title><style>{STYLE}</style></head>\
         <body>\n<h1>What a probe costs</h1>\n<p>{title}</p>\n<table>\n"
    );
    for (name, value) in &report.machine.facts {
        let _ = writeln!(html, "<tr><th>{}</th><td>{}</td></tr>", escaped(name), escaped(value));
    }
    let _ = writeln!(
        html,
        "</table>\n<p>Overheads: with the probe minus without it, each against its own baseline just before and after; median \
         and median absolute deviation of the samples of {} rounds or more. <span class=\"doubt\">Marked figures</span> spread too widely to be \
         relied on.</p>",
        report.rounds
    );
    if let Some(plain) = &report.unprobed_ns {
        let _ = writeln!(
            html,
            "<p>An unprobed call of the measured function: {:.2} ns.</p>",
            plain.median
        );
    }
    for section in &report.sections {
        section_html(report, section, &mut html);
    }
    html + "</body></html>\n"
}

fn section_html(report: &Report, section: &Section, html: &mut String) {
    let (name, title) = (escaped(&section.name), escaped(&section.title));
    let _ = writeln!(html, "<h2 id=\"{name}\">{name}: {title}</h2>");
    if !section.beside.is_empty() {
        let _ = writeln!(html, "<p class=\"beside\">{}</p>", escaped(&section.beside));
    }
    chart(section, html);
    if !section.rows.is_empty() {
        *html += "<table>\n<tr><th></th><th>median</th><th>±</th><th></th><th>of a uprobe</th><th>floors</th>\
                  <th>goal</th><th></th></tr>\n";
        for row in &section.rows {
            row_html(report, row, html);
        }
        *html += "</table>\n";
    }
    if let Some(words) = &section.words {
        words_html(words, html);
    }
}

fn row_html(report: &Report, row: &Row, html: &mut String) {
    let name = escaped(&row.name);
    let value = match &row.value {
        Ok(value) => value,
        Err(reason) => {
            let reason = escaped(reason);
            let _ = writeln!(
                html,
                "<tr><td>{name}</td><td class=\"none\" colspan=\"7\">not measurable here: {reason}</td></tr>"
            );
            return;
        }
    };
    let ratio = report.times_cheaper_than_uprobe(row).map_or(String::new(), fraction);
    let floors = report
        .times_the_floor(row)
        .map_or(String::new(), |times| format!("{times:.1}"));
    let reach = row.reach.map_or(String::new(), |reach| {
        if value.median <= reach {
            format!("ok {reach}")
        } else {
            format!("<span class=\"missed\">MISSED {reach}</span>")
        }
    });
    let class = if value.doubt().is_some() {
        " class=\"doubt\""
    } else {
        ""
    };
    let _ = writeln!(
        html,
        "<tr{class}><td>{name}</td><td class=\"n\">{:.2}</td><td class=\"n\">{:.2}</td><td>{}</td><td class=\"n\">{ratio}</td>\
         <td class=\"n\">{floors}</td><td>{reach}</td><td>{}</td></tr>",
        value.median,
        value.deviation,
        row.unit,
        escaped(&row.remarks())
    );
}

/// One bar for each method. The scale is logarithmic if the largest is more than 30 times the smallest: otherwise a
/// jump beside a trap would have no visible bar.
fn chart(section: &Section, html: &mut String) {
    let Some(unit) = section.rows.iter().find(|row| row.value.is_ok()).map(|row| row.unit) else {
        return;
    };
    let bars: Vec<(&Row, f64, bool)> = section
        .rows
        .iter()
        .filter(|row| row.unit == unit)
        .filter_map(|row| {
            let value = row.value.as_ref().ok()?;
            Some((row, value.median, value.doubt().is_some()))
        })
        .collect();
    let (Some(largest), true) = (bars.iter().map(|bar| bar.1).reduce(f64::max), bars.len() > 1) else {
        return;
    };
    let positive = bars.iter().map(|bar| bar.1).filter(|value| *value > 0.0);
    let smallest = positive.reduce(f64::min).unwrap_or(largest).max(0.1);
    let logarithmic = largest > 30.0 * smallest;
    let width = |value: f64| -> f64 {
        let part = if logarithmic {
            let start = smallest / 2.0;
            (value.max(start) / start).ln() / (largest / start).ln()
        } else {
            value.max(0.0) / largest.max(f64::MIN_POSITIVE)
        };
        (part * 500.0).clamp(1.0, 500.0)
    };
    let height = bars.len() * 22 + 20;
    let _ = writeln!(html, "<svg width=\"1060\" height=\"{height}\" role=\"img\">");
    for (index, (row, median, doubtful)) in bars.iter().enumerate() {
        let (y, width) = (index * 22, width(*median));
        let fill = if *doubtful { "#e0a070" } else { "#4a7ab5" };
        let _ = writeln!(
            html,
            "<text x=\"400\" y=\"{}\" text-anchor=\"end\">{}</text><rect x=\"408\" y=\"{}\" width=\"{width:.1}\" height=\"16\" \
             fill=\"{fill}\"/><text x=\"{:.1}\" y=\"{}\">{median:.2}</text>",
            y + 14,
            escaped(&row.name),
            y + 2,
            414.0 + width,
            y + 14
        );
    }
    let scale = if logarithmic {
        "logarithmic scale"
    } else {
        "linear scale"
    };
    let _ = writeln!(
        html,
        "<text x=\"408\" y=\"{}\" fill=\"#777\">{unit}, {scale}</text></svg>",
        bars.len() * 22 + 14
    );
}

fn words_html(words: &Words, html: &mut String) {
    *html += "<table>\n";
    let cells = |tag: &str, row: &[String]| -> String {
        row.iter()
            .map(|cell| format!("<{tag}>{}</{tag}>", escaped(cell)))
            .collect()
    };
    let _ = writeln!(html, "<tr>{}</tr>", cells("th", &words.columns));
    for row in &words.rows {
        let _ = writeln!(html, "<tr>{}</tr>", cells("td", row));
    }
    *html += "</table>\n";
}

fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        match character {
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '&' => escaped += "&amp;",
            '"' => escaped += "&quot;",
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::report;

    #[test]
    fn the_page_stands_alone_and_is_escaped() {
        let page = page(&report());
        assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
        for word in ["http", "<link", "<script", "<img", "src=", "<fast>", "<why>"] {
            assert!(!page.contains(word), "{word}");
        }
        assert!(page.contains("A &lt;fast&gt; one"));
        for tag in ["table", "tr", "td", "th", "svg", "text", "h2", "p", "span"] {
            let opened = page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
        }
        assert!(page.contains("MISSED 3") && page.contains("not measurable here: no root"));
    }

    #[test]
    fn bars_are_as_long_as_their_figures() {
        let page = page(&report());
        let width = |name: &str| -> f64 {
            let (_, rest) = page.split_once(&format!("\"end\">{name}</text>")).expect("a bar");
            let (_, rest) = rest.split_once("width=\"").expect("a width");
            rest.split('"')
                .next()
                .and_then(|number| number.parse().ok())
                .expect("a number")
        };
        let (floor, count, slow) = (
            width("hand-made floor: jump, increment, jump back"),
            width("count"),
            width("slow"),
        );
        assert!(floor < count && count < slow && slow < 500.0);
        assert_eq!(width("kernel uprobe, counted (perf)"), 500.0);
        // On this scale the same factor always has the same length: 500 * ln 2 / ln(500 / 0.5).
        assert!((count - floor - 50.17).abs() < 0.2, "{count} {floor}");
        assert!(page.contains("#e0a070"), "a doubtful bar has another colour");
    }
}
