//! The table of invariants in ARCHITECTURE.md names a test for each, and each test is there.

use super::{File, Finding};

const PAGE: &str = "ARCHITECTURE.md";
/// I1 to I13 (the design's section 3).
const INVARIANTS: usize = 13;

/// Invariants without a row, and rows without a test.
pub fn findings(files: &[File]) -> Vec<Finding> {
    let Some(page) = files.iter().find(|file| file.path == PAGE) else {
        return vec![finding(PAGE, "there is no such page")];
    };
    let mut found = Vec::new();
    for number in 1..=INVARIANTS {
        let name = format!("I{number}");
        let Some(row) = page.text.lines().find(|line| line.starts_with(&format!("| {name} "))) else {
            found.push(finding(&name, "has no row in the table of invariants"));
            continue;
        };
        let quoted: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
        let tests: Vec<&str> = quoted.iter().filter_map(|quoted| test_of(quoted)).collect();
        // A whole file of tests is accepted; `links` checks that it exists.
        if tests.is_empty() && !quoted.iter().any(|path| path.contains("tests/")) {
            found.push(finding(&name, "its row names no test"));
        }
        for test in tests {
            if !files.iter().any(|file| defines(file, test)) {
                found.push(finding(&format!("{name} {test}"), "there is no such test"));
            }
        }
    }
    found
}

fn finding(place: &str, message: &str) -> Finding {
    Finding {
        rule: "invariant",
        place: place.to_owned(),
        message: message.to_owned(),
    }
}

/// The function's name in `hostile::decoys::nothing_is_written` or `i4_what_it_does`. File names do not count.
fn test_of(quoted: &str) -> Option<&str> {
    let name = quoted.rsplit("::").next()?;
    let is_word = |character: char| character.is_ascii_alphanumeric() || character == '_';
    (name.contains('_') && name.chars().all(is_word)).then_some(name)
}

/// A function, or a module or file of tests.
fn defines(file: &File, name: &str) -> bool {
    let is_file = file.path.ends_with(&format!("/{name}.rs")) || file.path.contains(&format!("/{name}/"));
    file.is_rust()
        && (is_file || file.text.contains(&format!("fn {name}(")) || file.text.contains(&format!("mod {name} ")))
}

#[cfg(test)]
mod tests {
    use super::{File, findings};

    #[test]
    fn each_invariant_has_a_test_that_exists() {
        let mut rows: String = (2..=13)
            .map(|number| format!("| I{number} | x | `a::it_holds` |\n"))
            .collect();
        rows += "| I1 | x | `b::it_is_gone` |\n";
        let page = File {
            path: "ARCHITECTURE.md".to_owned(),
            text: rows,
        };
        let test = File {
            path: "t/a.rs".to_owned(),
            text: "#[test]\nfn it_holds() {}\n".to_owned(),
        };
        let places: Vec<String> = findings(&[page, test])
            .into_iter()
            .map(|finding| finding.place)
            .collect();
        assert_eq!(places, ["I1 it_is_gone"]);
    }
}
