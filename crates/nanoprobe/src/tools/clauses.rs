//! The text of a script by its clauses, as the scripts of `tools/` are written: probes at the beginning of a line, and
//! braces on lines of their own.

/// The text before END, what END does, and the text after it.
pub(super) fn report(text: &str) -> (&str, &str, &str) {
    const HEAD: &str = "\nEND\n{\n";
    let found = text.split_once(HEAD).and_then(|(before, rest)| {
        let (body, after) = rest.split_once("\n}\n")?;
        // The body includes the newline of its last line.
        let body = rest.get(..=body.len())?;
        Some((text.get(..=before.len())?, body, after))
    });
    found.unwrap_or((text, "", ""))
}

/// The names of aggregations, in the order of the text.
pub(super) fn aggregations(text: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for line in code(text) {
        // Formats may contain `@`, too, so strings are skipped.
        for part in line.split('"').step_by(2) {
            for (at, _) in part.match_indices('@') {
                let rest = part.get(at + 1..).unwrap_or_default();
                let end = rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
                let name = format!("@{}", rest.get(..end.unwrap_or(rest.len())).unwrap_or_default());
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
    }
    names
}

/// The lines outside of comments.
fn code(text: &str) -> impl Iterator<Item = &str> {
    let mut is_comment = false;
    text.lines().filter(move |line| {
        let begins = line.trim_start().starts_with("/*");
        let was = is_comment;
        is_comment = (is_comment || begins) && !line.contains("*/");
        !was && !begins
    })
}

/// The text with the time before each line that it prints, and before its report. The line of column heads, which BEGIN
/// prints, gets a head for the time.
pub(super) fn stamped(text: &str) -> String {
    const REPORT: &str = "\tprintf(\"%Y\\n\", walltimestamp);\n";
    let mut made = String::new();
    let mut clause = "";
    for line in text.split_inclusive('\n') {
        let is_head = line.starts_with(|first: char| first.is_alphabetic());
        if is_head {
            clause = line.trim_end();
        }
        match (clause, line.strip_prefix("\tprintf(\"")) {
            ("END", _) if line == "{\n" => {
                made += line;
                made += REPORT;
            }
            ("END", _) | (_, None) => made += line,
            (clause, Some(rest)) => {
                let (conversion, value) = match clause {
                    "BEGIN" => ("%-20s ", "\"TIME\""),
                    _ => ("%Y ", "walltimestamp"),
                };
                let end = end_of_string(rest);
                let (format, rest) = rest.split_at(end);
                made += &format!(
                    "\tprintf(\"{conversion}{format}\", {value}{}",
                    rest.strip_prefix('"').unwrap_or(rest)
                );
            }
        }
    }
    // Without an END clause, aggregations are printed automatically at the end.
    if report(text).1.is_empty() && !aggregations(text).is_empty() {
        made += &format!("\nEND\n{{\n{REPORT}}}\n");
    }
    made
}

/// Where a string ends: its closing quotation mark.
fn end_of_string(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, letter) in text.char_indices() {
        match letter {
            '"' if !is_escaped => return at,
            '\\' => is_escaped = !is_escaped,
            _ => is_escaped = false,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "/*\n * @not[1]\n */\nBEGIN\n{\n\tprintf(\"%5s \\\"\\n\", \"X\");\n}\n\npid$target:::entry\n{\n\
                        \tprintf(\"%@5d\\n\", arg0);\n\t@a[arg0] = count();\n\t@b_1 = sum(@a);\n}\n\nEND\n{\n\
                        \tprintf(\"\\nX\\n\");\n\tprinta(@a);\n}\nafter";

    #[test]
    fn the_report_is_what_end_does() {
        let (before, body, after) = report(TEXT);
        assert_eq!(body, "\tprintf(\"\\nX\\n\");\n\tprinta(@a);\n");
        assert!(before.ends_with("}\n\n") && after == "after", "{before:?} {after:?}");
        assert_eq!(report("BEGIN\n{\n}\n"), ("BEGIN\n{\n}\n", "", ""));
        assert_eq!(aggregations(TEXT), ["@a", "@b_1"]);
    }

    #[test]
    fn lines_and_reports_get_the_time() {
        let text = stamped(TEXT);
        assert!(
            text.contains("\tprintf(\"%-20s %5s \\\"\\n\", \"TIME\", \"X\");\n"),
            "{text}"
        );
        assert!(
            text.contains("\tprintf(\"%Y %@5d\\n\", walltimestamp, arg0);\n"),
            "{text}"
        );
        assert!(
            text.contains("END\n{\n\tprintf(\"%Y\\n\", walltimestamp);\n\tprintf(\"\\nX\\n\");\n"),
            "{text}"
        );
        assert_eq!(text.matches("walltimestamp").count(), 2);
        let text = stamped("tick-1s\n{\n\t@ = count();\n}\n");
        assert!(
            text.ends_with("END\n{\n\tprintf(\"%Y\\n\", walltimestamp);\n}\n"),
            "{text}"
        );
    }
}
