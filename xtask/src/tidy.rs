//! The rules of the house that no compiler checks, one file for each.
//!
//! A rule looks at all files at once and returns its findings. Known findings are in
//! `xtask/allowed.txt`, a line for each rule and place. Such a finding passes, and a line without a
//! finding fails, so the list only becomes shorter.

mod circles;
mod columns;
mod functions;
mod imports;
mod invariants;
mod lengths;
mod links;
mod structs;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// A text file that git tracks or would add.
#[derive(Debug)]
pub struct File {
    /// The path from the root, with `/`.
    pub path: String,
    pub text: String,
}

impl File {
    fn is_rust(&self) -> bool {
        has_ending(&self.path, &["rs"])
    }

    /// Rust or C, written by hand.
    fn is_source(&self) -> bool {
        has_ending(&self.path, &["rs", "c", "h", "cpp", "hpp"]) && !self.path.contains("/golden/")
    }

    /// Whether the file belongs to tests, which have their own layout.
    fn is_of_tests(&self) -> bool {
        let folders = ["tests/", "fuzz/"];
        folders.iter().any(|folder| self.path.starts_with(folder))
            || self.path.contains("/tests/")
            || self.path.ends_with("tests.rs")
    }
}

/// The Rust files that do not belong to tests.
fn product_sources(files: &[File]) -> impl Iterator<Item = &File> {
    files.iter().filter(|file| file.is_rust() && !file.is_of_tests())
}

/// Whether a path has one of these extensions.
pub fn has_ending(path: &str, endings: &[&str]) -> bool {
    path.rsplit_once('.')
        .is_some_and(|(_, ending)| endings.contains(&ending))
}

/// A violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The rule, as in `xtask/allowed.txt`.
    pub rule: &'static str,
    /// The place without a line number, so that it stays valid while lines move: a file, and a function or another
    /// file.
    pub place: String,
    /// The message for the reader.
    pub message: String,
}

/// How `xtask/allowed.txt` is used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Allowances {
    /// The findings that the file names pass.
    Obey,
    /// The file is rewritten, with all present findings.
    Rewrite,
}

const ALLOWED: &str = "xtask/allowed.txt";

/// Checks all rules on the tree.
///
/// # Errors
/// The findings, a line each; or why nothing could be read.
pub fn run(root: &Path, allowances: Allowances) -> Result<(), String> {
    let files = files(root)?;
    let mut findings = Vec::new();
    for rule in [
        circles::findings,
        columns::findings,
        functions::findings,
        imports::findings,
        invariants::findings,
        lengths::findings,
        links::findings,
        structs::findings,
    ] {
        findings.extend(rule(&files));
    }
    findings.sort();
    if allowances == Allowances::Rewrite {
        let mut text = String::new();
        for line in findings.iter().map(line_of).collect::<BTreeSet<_>>() {
            let _ = writeln!(text, "{line}");
        }
        return std::fs::write(root.join(ALLOWED), text).map_err(|error| format!("{ALLOWED}: {error}"));
    }
    let allowed = std::fs::read_to_string(root.join(ALLOWED)).map_err(|error| format!("{ALLOWED}: {error}"))?;
    let report = report(&findings, &allowed);
    if report.is_empty() { Ok(()) } else { Err(report) }
}

fn line_of(finding: &Finding) -> String {
    format!("{} {}", finding.rule, finding.place)
}

/// The new findings, and the lines of the list that are no longer needed.
fn report(findings: &[Finding], allowed: &str) -> String {
    let allowed: BTreeSet<&str> = allowed.lines().collect();
    let found: BTreeSet<String> = findings.iter().map(line_of).collect();
    let mut text = String::new();
    for finding in findings {
        if !allowed.contains(line_of(finding).as_str()) {
            let _ = writeln!(text, "{}: {}: {}", finding.rule, finding.place, finding.message);
        }
    }
    for line in allowed {
        if !found.contains(line) {
            let _ = writeln!(text, "{ALLOWED}: `{line}` is mended: take the line away");
        }
    }
    text
}

/// The texts of the tree.
fn files(root: &Path) -> Result<Vec<File>, String> {
    let mut paths = match listed_by_git(root) {
        Some(paths) => paths,
        None => walked(root, "").map_err(|error| format!("{}: {error}", root.display()))?,
    };
    paths.sort();
    paths.dedup();
    // Files that are not text are ignored; a file may have been removed a moment ago.
    let read = |path: String| {
        let text = std::fs::read_to_string(root.join(&path)).ok()?;
        Some(File { path, text })
    };
    Ok(paths.into_iter().filter_map(read).collect())
}

/// The files that git tracks, and the files that it would add; `None` without git, or without its directory.
fn listed_by_git(root: &Path) -> Option<Vec<String>> {
    let mut command = Command::new("git");
    // The tree may belong to another user.
    command.args([
        "-c",
        "safe.directory=*",
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "-z",
    ]);
    let listed = command
        .current_dir(root)
        .output()
        .ok()
        .filter(|listed| listed.status.success())?;
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    let paths = text.split('\0').filter(|path| !path.is_empty());
    Some(paths.map(str::to_owned).collect())
}

/// All files, without hidden directories of tools and build results.
fn walked(root: &Path, folder: &str) -> std::io::Result<Vec<String>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if folder.is_empty() {
            name.clone()
        } else {
            format!("{folder}/{name}")
        };
        let kind = entry.file_type()?;
        if kind.is_file() {
            paths.push(path);
        } else if kind.is_dir() && name != ".git" && !root.join(&path).join("CACHEDIR.TAG").exists() {
            paths.extend(walked(root, &path)?);
        }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::{Finding, files, listed_by_git, report, walked};

    fn finding(place: &str) -> Finding {
        Finding {
            rule: "columns",
            place: place.to_owned(),
            message: "too wide".to_owned(),
        }
    }

    #[test]
    fn an_allowed_finding_passes_and_a_stale_exception_is_reported() {
        assert_eq!(report(&[finding("a.rs")], "columns a.rs\n"), "");
        assert_eq!(report(&[finding("a.rs")], ""), "columns: a.rs: too wide\n");
        let mended = "xtask/allowed.txt: `columns b.rs` is mended: take the line away\n";
        assert_eq!(report(&[finding("a.rs")], "columns a.rs\ncolumns b.rs\n"), mended);
    }

    #[test]
    fn a_tree_without_git_is_walked() {
        let root = crate::root();
        let walked = walked(&root, "").expect("the tree");
        assert!(walked.iter().any(|path| path == "xtask/src/tidy.rs"));
        assert!(
            files(&root)
                .expect("the tree")
                .iter()
                .any(|file| file.path == "Cargo.toml")
        );
        for path in listed_by_git(&root).unwrap_or_default() {
            assert!(walked.contains(&path) || !root.join(&path).is_file(), "{path}");
        }
    }
}
