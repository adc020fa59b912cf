//! libnanoprobe(3), from the library's header.
//!
//! The header is the reference: its first comment is the description, the titles of its parts are
//! the sections, and each declaration stands below the comment that explains it.

use super::page::Page;

const HEADER: &str = include_str!("../../../libnanoprobe/include/nanoprobe.h");

pub fn page() -> String {
    let mut page = Page::new("libnanoprobe", "3", "kprobes for a program's own code");
    page.section("SYNOPSIS");
    page.lines("#include <nanoprobe.h>\n\ncc program.c $(pkg-config --cflags --libs nanoprobe)");
    let (head, rest) = HEADER.split_once("*/").unwrap_or((HEADER, ""));
    page.section("DESCRIPTION");
    page.text(&uncommented(head));
    let mut parts = rest.split("/* ---- ");
    page.section("VERSIONS");
    declarations(&mut page, parts.next().unwrap_or_default());
    for part in parts {
        let (title, body) = part.split_once('\n').unwrap_or((part, ""));
        let title = title.trim_end_matches(['-', '*', '/', ' ']);
        page.section(&title.to_uppercase());
        declarations(&mut page, body);
    }
    page.section("SEE ALSO");
    page.paragraph("nanoprobe(1)");
    page.render()
}

fn declarations(page: &mut Page, part: &str) {
    for block in part.split("\n\n").filter(|block| !is_of_preprocessor(block)) {
        declaration(page, block);
    }
}

/// Adds a comment as a paragraph, and the declaration that it explains as unchanged lines.
fn declaration(page: &mut Page, block: &str) {
    let block = block.trim_matches('\n');
    match block.strip_prefix("/*").and_then(|comment| comment.split_once("*/")) {
        Some((comment, code)) => {
            let words: Vec<&str> = uncommented_lines(comment).flat_map(str::split_whitespace).collect();
            let code = code.trim_matches('\n');
            if !code.is_empty() {
                page.lines(code);
            }
            page.paragraph(&words.join(" "));
        }
        None => page.lines(block),
    }
}

fn is_of_preprocessor(block: &str) -> bool {
    let mut lines = block.lines().filter(|line| !line.trim().is_empty());
    lines.all(|line| line.starts_with('#') || line == "}" || line.contains("extern \"C\""))
}

/// The lines of a comment without the stars in front of them.
fn uncommented_lines(comment: &str) -> impl Iterator<Item = &str> {
    let lines = comment.trim_start_matches("/*").lines();
    lines.map(|line| {
        let line = line.strip_prefix(" *").unwrap_or(line);
        line.strip_prefix(' ').unwrap_or(line)
    })
}

fn uncommented(comment: &str) -> String {
    let lines: Vec<&str> = uncommented_lines(comment).collect();
    lines.join("\n")
}
