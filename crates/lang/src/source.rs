//! Where text comes from: sources and spans.
//!
//! Several texts (`-n` and `-s` arguments) form one program. A [`Span`] says which of them and which bytes; the text
//! itself stays with the caller.

/// A range of bytes in one of the sources of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// Index of the source in the list given to [`crate::compile`].
    pub source: u32,
    /// First byte.
    pub start: u32,
    /// First byte after it; `start == end` is a place between two bytes (the end of the text).
    pub end: u32,
}

impl Span {
    /// From the start of `self` to the end of `other`, in the source of `self`.
    #[must_use]
    pub fn to(self, other: Span) -> Span {
        Span {
            source: self.source,
            start: self.start,
            end: other.end.max(self.start),
        }
    }

    /// The bytes as a range, for slicing the source's text.
    #[must_use]
    pub fn range(self) -> std::ops::Range<usize> {
        self.start as usize..self.end.max(self.start) as usize
    }
}

/// A text to compile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// What messages call it: a file's name, or `<-n 1>`.
    pub name: String,
    /// The D text.
    pub text: String,
}

impl Source {
    /// A source of this name and text.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Source {
        Source {
            name: name.into(),
            text: text.into(),
        }
    }

    /// Line and column of a byte, both from 1; the column counts characters. Past the end: the end.
    #[must_use]
    pub fn line_column(&self, offset: u32) -> (u32, u32) {
        let mut line = 1;
        let mut column = 1;
        for (index, character) in self.text.char_indices() {
            if index >= offset as usize {
                break;
            }
            if character == '\n' {
                line += 1;
                column = 1;
            } else {
                column += 1;
            }
        }
        (line, column)
    }

    /// The text of a span of this source; empty when it is not one of its spans.
    #[must_use]
    pub fn slice(&self, span: Span) -> &str {
        self.text.get(span.range()).unwrap_or_default()
    }
}
