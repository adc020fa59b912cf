//! The targets of a page's links, and the files that it names in code quotes, exist.

use std::collections::BTreeSet;

use super::{File, Finding, has_ending};

/// Endings by which a word in code quotes is a file's name.
const ENDINGS: [&str; 9] = ["rs", "c", "h", "md", "toml", "sh", "d", "cpp", "go"];

/// Dead links and names.
pub fn findings(files: &[File]) -> Vec<Finding> {
    let paths: BTreeSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
    let pages = files.iter().filter(|file| has_ending(&file.path, &["md"]));
    pages.flat_map(|page| in_page(page, &paths)).collect()
}

fn in_page(page: &File, paths: &BTreeSet<&str>) -> Vec<Finding> {
    let folder = page.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut dead = Vec::new();
    for (link, is_name) in links(&page.text).chain(names(&page.text)) {
        let link = link.split('#').next().unwrap_or_default();
        let exists = if is_name {
            // The directory is often left out. Files that are made at run time have a letter in capitals.
            paths
                .iter()
                .any(|path| *path == link || path.ends_with(&format!("/{link}")))
        } else {
            let joined = joined(folder, link);
            link.is_empty()
                || paths
                    .iter()
                    .any(|path| *path == joined || path.starts_with(&format!("{joined}/")))
        };
        if !exists {
            dead.push(Finding {
                rule: "link",
                place: format!("{} {link}", page.path),
                message: "there is no such file".to_owned(),
            });
        }
    }
    dead
}

/// `[text](target)` to files of the tree.
fn links(text: &str) -> impl Iterator<Item = (&str, bool)> {
    let targets = text
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split([')', '\n']).next());
    targets
        .filter(|target| !target.contains("://") && !target.contains(' ') && !target.starts_with('#'))
        .map(|target| (target, false))
}

/// Names of sources within one folder or more: `crates/patch/src/lib.rs`.
fn names(text: &str) -> impl Iterator<Item = (&str, bool)> {
    let quoted = text.split('`').skip(1).step_by(2);
    let is_name = |word: &&str| {
        let is_systems = ["sys/", "linux/"].iter().any(|folder| word.starts_with(folder));
        let plain = |character: char| {
            character.is_ascii_lowercase() || character.is_ascii_digit() || "/._-".contains(character)
        };
        !is_systems
            && word.contains('/')
            && !word.starts_with('/')
            && !word.starts_with('.')
            && has_ending(word, &ENDINGS)
            && word.chars().all(plain)
    };
    quoted.filter(is_name).map(|name| (name, true))
}

/// A relative path from a folder, with `..` resolved.
fn joined(folder: &str, link: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::{File, findings};

    #[test]
    fn dead_links_and_names_are_found() {
        let file = |path: &str, text: &str| File {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        let page = "[a](../a.md) [b](b.md#part) [c](c.md) [web](https://x.y/z) `src/a.rs` `src/b.rs` `other.rs`";
        let found = findings(&[
            file("docs/page.md", page),
            file("a.md", ""),
            file("docs/b.md", ""),
            file("x/src/a.rs", ""),
        ]);
        let places: Vec<&str> = found.iter().map(|finding| finding.place.as_str()).collect();
        assert_eq!(places, ["docs/page.md c.md", "docs/page.md src/b.rs"]);
    }
}
