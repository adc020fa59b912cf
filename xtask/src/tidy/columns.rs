//! No line of a source is wider than rustfmt.toml allows. rustfmt only formats code; this rule is for comments.

use super::{File, Finding};

/// `max_width` of rustfmt.toml.
const COLUMNS: usize = 120;

/// Files with lines that are too wide.
pub fn findings(files: &[File]) -> Vec<Finding> {
    let sources = files.iter().filter(|file| file.is_source());
    sources.filter_map(finding).collect()
}

fn finding(file: &File) -> Option<Finding> {
    let wide = |line: &str| line.chars().count() > COLUMNS && !is_indivisible(line);
    let mut lines = file.text.lines().enumerate().filter(|(_, line)| wide(line));
    let (first, _) = lines.next()?;
    Some(Finding {
        rule: "columns",
        place: file.path.clone(),
        message: format!(
            "{} lines of more than {COLUMNS} columns, the first is {}",
            1 + lines.count(),
            first + 1
        ),
    })
}

/// Text in quotes, and words without a space, cannot be broken.
fn is_indivisible(line: &str) -> bool {
    let line = line.trim_start();
    let is_comment = line.starts_with("//") || line.starts_with("/*") || line.starts_with("* ");
    !is_comment || line.trim_start_matches(['/', '*', '!', ' ']).split_whitespace().count() < 2
}

#[cfg(test)]
mod tests {
    use super::{File, findings};

    #[test]
    fn comments_are_measured_and_texts_are_not() {
        let words = "word ".repeat(30);
        let file = |text: String| File {
            path: "a/b.rs".to_owned(),
            text,
        };
        assert_eq!(findings(&[file(format!("// {words}\n"))]).len(), 1);
        assert_eq!(findings(&[file(format!("let text = \"{words}\";\n"))]), []);
        assert_eq!(findings(&[file(format!("// https://{}\n", "x".repeat(130)))]), []);
    }
}
