//! A struct has at most 20 fields. More are groups, and each group has a name.

use super::{File, Finding, product_sources};

const FIELDS: usize = 20;

/// Structs with too many fields. Layouts that C shares are exempt.
pub fn findings(files: &[File]) -> Vec<Finding> {
    product_sources(files).flat_map(in_file).collect()
}

/// rustfmt puts each field of a long struct on its own line, and the end in the column of the beginning.
fn in_file(file: &File) -> Vec<Finding> {
    let lines: Vec<&str> = file.text.lines().collect();
    let mut found = Vec::new();
    for (first, line) in lines.iter().enumerate() {
        let attributes = lines[..first].iter().rev().take_while(|line| line.contains("#["));
        let Some(name) = name_of(line) else { continue };
        let margin = line.len() - line.trim_start().len();
        let end = format!("{}}}", " ".repeat(margin));
        let body = lines[first + 1..].iter().take_while(|line| **line != end);
        let fields = body.filter(|line| is_field(line, margin + 4)).count();
        if fields > FIELDS && !attributes.into_iter().any(|line| line.contains("repr(C)")) {
            found.push(Finding {
                rule: "struct",
                place: format!("{}:{name}", file.path),
                message: format!("{fields} fields, more than {FIELDS}"),
            });
        }
    }
    found
}

/// The name, where a line begins a struct with named fields.
fn name_of(line: &str) -> Option<&str> {
    let (before, rest) = line.split_once("struct ")?;
    let is_item = ["", "pub ", "pub(crate) ", "pub(super) "].contains(&before.trim_start());
    let name = rest.split(['<', ' ', '(', ';']).next()?;
    (is_item && line.ends_with('{')).then_some(name)
}

/// Whether a line begins a field that stands in this column.
fn is_field(line: &str, column: usize) -> bool {
    let rest = line.trim_start();
    let rest = rest
        .strip_prefix("pub")
        .map_or(rest, |rest| match rest.strip_prefix('(') {
            Some(scope) => scope.split_once(") ").map_or(rest, |(_, field)| field),
            None => rest.trim_start(),
        });
    let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    line.len() - line.trim_start().len() == column && !name.is_empty() && rest[name.len()..].starts_with(": ")
}

#[cfg(test)]
mod tests {
    use super::{File, in_file};

    fn found(attribute: &str, fields: usize) -> Vec<String> {
        let fields: String = (0..fields)
            .map(|index| format!("    /// It is: one.\n    pub(crate) field_{index}: Vec<u8>,\n"))
            .collect();
        let file = File {
            path: "a.rs".to_owned(),
            text: format!("/// Many.\n{attribute}\npub struct Large<'a> {{\n{fields}}}\n"),
        };
        in_file(&file).into_iter().map(|finding| finding.place).collect()
    }

    #[test]
    fn fields_are_counted() {
        assert_eq!(found("#[derive(Debug)]", 21), ["a.rs:Large"]);
        assert!(found("#[derive(Debug)]", 20).is_empty());
        assert!(found("#[repr(C)]", 21).is_empty());
    }
}
