//! A file is read in one sitting: at most 500 lines.

use super::{File, Finding};

const LINES: usize = 500;

/// Files that are too long.
pub fn findings(files: &[File]) -> Vec<Finding> {
    let sources = files.iter().filter(|file| file.is_source());
    let long = sources.filter_map(|file| {
        let lines = file.text.lines().count();
        (lines > LINES).then(|| Finding {
            rule: "length",
            place: file.path.clone(),
            message: format!("{lines} lines, more than {LINES}"),
        })
    });
    long.collect()
}
