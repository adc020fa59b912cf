//! Sources, and places in them.
//!
//! Several texts (`-n` and `-s` arguments) form one program. A [`Span`] says which text and which
//! bytes; the text itself stays with the caller.

/// A range of bytes in one of the sources of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// Index of the source in the list given to [`crate::compile`].
    pub source: u32,
    pub start: u32,
    /// The first byte after the range. `start == end` is a place between two bytes (the end of the text).
    pub end: u32,
}

impl Span {
    /// The span from the start of `self` to the end of `other`, in the source of `self`.
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

/// The origin of a part of a source, as a line of the preprocessor gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin<'a> {
    /// The file; `None`: the source itself.
    pub file: Option<&'a str>,
    /// The number that the part's first line has in that file.
    pub first_line: u32,
    /// The part: bytes of the source.
    pub text: std::ops::Range<usize>,
}

/// Parses `# 12 "file.h" 1`: the number of the next line, and the file.
fn marker(line: &str) -> Option<(u32, &str)> {
    let (number, rest) = line.strip_prefix("# ")?.split_once(' ')?;
    let (file, _) = rest.trim_start().strip_prefix('"')?.split_once('"')?;
    Some((number.parse().ok()?, file))
}

/// A text to compile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Source {
    /// The name in messages: a file's name, or `<-n 1>`.
    pub name: String,
    /// The D text.
    pub text: String,
    /// Whether the source is a library ([`crate::libraries`]). Its name is then the path of its file.
    pub is_library: bool,
}

impl Source {
    /// A source of this name and text.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Source {
        Source {
            name: name.into(),
            text: text.into(),
            is_library: false,
        }
    }

    /// A library of this path and text.
    pub fn library(path: impl Into<String>, text: impl Into<String>) -> Source {
        Source {
            is_library: true,
            ..Source::new(path, text)
        }
    }

    /// Line and column of a byte, both from 1; the column counts characters. An offset after the end means the end.
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

    /// The origin of a byte of a preprocessed text, from the preprocessor's lines (`# 12 "file.h"`).
    #[must_use]
    pub fn origin(&self, offset: u32) -> Origin<'_> {
        let offset = (offset as usize).min(self.text.len());
        let mut origin = Origin {
            file: None,
            first_line: 1,
            text: 0..self.text.len(),
        };
        let mut start = 0;
        for line in self.text.split_inclusive('\n') {
            if let Some((number, file)) = marker(line) {
                if start > offset {
                    origin.text.end = start;
                    break;
                }
                let is_this = file == self.name || file.starts_with('<');
                origin.file = Some(file).filter(|_| !is_this);
                origin.first_line = number;
                origin.text.start = start + line.len();
            }
            start += line.len();
        }
        origin
    }

    /// The text of a span of this source; empty if the span is not within the source.
    #[must_use]
    pub fn slice(&self, span: Span) -> &str {
        self.text.get(span.range()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_included_keeps_its_place() {
        let source = Source::new(
            "script.d",
            "a\n# 1 \"<stdin>\"\nb\n# 7 \"x.h\" 1\nc\nd\n# 2 \"<stdin>\" 2\ne\n",
        );
        let place = |text: &str| {
            let offset = source.text.find(text).unwrap() as u32;
            let origin = source.origin(offset);
            let before = &source.text[origin.text.start..offset as usize];
            (origin.file, origin.first_line as usize + before.matches('\n').count())
        };
        assert_eq!(place("a\n"), (None, 1));
        assert_eq!(place("b\n"), (None, 1));
        assert_eq!(place("d\n"), (Some("x.h"), 8));
        assert_eq!(place("e\n"), (None, 2));
        assert_eq!(source.origin(u32::MAX).first_line, 2);
    }
}
