//! A page of the manual, in the macros of man(7).

use clap_mangen::roff::{Roff, bold, roman};

/// A page that grows.
pub struct Page(Roff);

impl Page {
    /// An empty page: `NAME(SECTION)`, and its line in lists of pages.
    pub fn new(name: &str, section: &str, purpose: &str) -> Page {
        let mut roff = Roff::new();
        let source = concat!("nanoprobe ", env!("CARGO_PKG_VERSION"));
        roff.control("TH", [name, section, "", source, "nanoprobe"]);
        let mut page = Page(roff);
        page.section("NAME");
        page.0.text([roman(format!("{name} - {purpose}"))]);
        page
    }

    pub fn section(&mut self, title: &str) {
        self.0.control("SH", [title]);
    }

    pub fn paragraph(&mut self, text: &str) {
        self.0.control("PP", []);
        self.0.text([roman(text)]);
    }

    /// Adds a word and its meaning.
    pub fn term(&mut self, term: &str, meaning: &str) {
        self.0.control("TP", []);
        self.0.text([bold(term)]);
        self.0.text([roman(meaning)]);
    }

    /// Adds lines that stay as they are.
    pub fn lines(&mut self, text: &str) {
        self.0.control("PP", []);
        self.0.control("EX", []);
        for line in text.lines() {
            self.0.text([roman(line)]);
        }
        self.0.control("EE", []);
    }

    /// Adds text as it stands in a source: paragraphs are filled, indented lines and lists stay as they are.
    pub fn text(&mut self, text: &str) {
        for block in text.split("\n\n").filter(|block| !block.trim().is_empty()) {
            let is_filled = |line: &str| line.starts_with(|first: char| !first.is_whitespace() && first != '-');
            if block.lines().all(is_filled) {
                let words: Vec<&str> = block.split_whitespace().collect();
                self.paragraph(&words.join(" "));
            } else {
                self.lines(block);
            }
        }
    }

    pub fn render(&self) -> String {
        self.0.render()
    }
}
