//! A file names all its imports: no `use super::*` outside of tests.

use super::{File, Finding};

/// The files that import all names of their parent module.
pub fn findings(files: &[File]) -> Vec<Finding> {
    let sources = super::product_sources(files);
    let takes_all = sources.filter(|file| before_tests(&file.text).any(|line| line.trim() == "use super::*;"));
    let finding = |file: &File| Finding {
        rule: "import",
        place: file.path.clone(),
        message: "`use super::*` hides what the file uses".to_owned(),
    };
    takes_all.map(finding).collect()
}

fn before_tests(text: &str) -> impl Iterator<Item = &str> {
    text.lines().take_while(|line| line.trim() != "#[cfg(test)]")
}
