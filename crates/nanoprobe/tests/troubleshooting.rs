//! The messages in docs/troubleshooting.md exist in the sources.

use std::path::{Path, PathBuf};

/// All Rust sources of the crates, with strings of several lines joined.
fn sources(folder: &Path, found: &mut String) {
    for entry in std::fs::read_dir(folder).expect("a folder of sources") {
        let path: PathBuf = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text = std::fs::read_to_string(&path).expect("a source");
            let mut pieces = text.split("\\\n");
            found.push_str(pieces.next().unwrap_or_default());
            for piece in pieces {
                found.push_str(piece.trim_start());
            }
        }
    }
}

#[test]
fn every_message_of_the_page_is_one_of_the_program_s() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/troubleshooting.md")).expect("the page");
    let mut program = String::new();
    sources(&root.join("crates"), &mut program);
    let mut messages = 0;
    for message in page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
    {
        messages += 1;
        let parts = message.split("...").map(str::trim).filter(|part| part.len() > 3);
        for part in parts {
            let part = part.trim_start_matches(['=', ' ']);
            assert!(program.contains(part), "no message has `{part}` of `{message}`");
        }
    }
    assert!(messages > 30, "{messages}");
}
