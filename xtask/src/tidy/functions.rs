//! A function fits on a screen: at most 80 lines, tests aside.

use super::{File, Finding, product_sources};

const LINES: usize = 80;

/// Functions that are too long.
pub fn findings(files: &[File]) -> Vec<Finding> {
    product_sources(files).flat_map(in_file).collect()
}

/// rustfmt puts the end of an item in the column of its beginning.
fn in_file(file: &File) -> Vec<Finding> {
    let lines: Vec<&str> = file.text.lines().collect();
    let mut found = Vec::new();
    for (first, line) in lines.iter().enumerate() {
        let Some(name) = name_of(line) else { continue };
        let margin = line.len() - line.trim_start().len();
        let is_end = |line: &&str| line.trim_end() == format!("{}}}", " ".repeat(margin));
        let Some(length) = lines.iter().skip(first).position(is_end) else {
            continue;
        };
        if length + 1 > LINES {
            found.push(Finding {
                rule: "function",
                place: format!("{}:{name}", file.path),
                message: format!("{} lines, more than {LINES}", length + 1),
            });
        }
    }
    found
}

/// The name, where a line begins a function with a body.
fn name_of(line: &str) -> Option<&str> {
    let mut rest = line.trim_start();
    for word in [
        "pub(crate) ",
        "pub(super) ",
        "pub ",
        "const ",
        "unsafe ",
        "extern \"C\" ",
    ] {
        rest = rest.strip_prefix(word).unwrap_or(rest);
    }
    let rest = rest.strip_prefix("fn ")?;
    let name = rest.split(['(', '<']).next()?;
    let is_whole = line.trim_end().ends_with('}') || line.trim_end().ends_with(';');
    (!is_whole && !name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::{File, in_file};

    #[test]
    fn a_function_ends_in_its_own_column() {
        let body = "        if true {\n        }\n".repeat(40);
        let text = format!("impl A {{\n    pub fn long(&self) {{\n{body}    }}\n    fn short() {{\n    }}\n}}\n");
        let file = File {
            path: "a.rs".to_owned(),
            text,
        };
        let found: Vec<String> = in_file(&file).into_iter().map(|finding| finding.place).collect();
        assert_eq!(found, ["a.rs:long"]);
    }
}
