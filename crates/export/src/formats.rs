//! The formats of the results, one row each.

use nanoprobe_lang::options::Options;

use crate::json_lines::JsonLines;
use crate::sink::Sink;
use crate::text::Text;

/// A format that can be asked for.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// The name on the command line.
    pub name: &'static str,
    /// Whether a person reads the output while it is written. Messages, progress and plans are only for people.
    pub is_for_people: bool,
    make: fn(&Options, bool) -> Box<dyn Sink>,
}

/// All formats, the default first.
pub const FORMATS: [Format; 2] = [
    Format {
        name: "text",
        is_for_people: true,
        make: |options, is_verbose| Box::new(Text::new(options, is_verbose)),
    },
    Format {
        name: "json",
        is_for_people: false,
        make: |_, _| Box::new(JsonLines::new()),
    },
];

impl Format {
    /// The format of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Format> {
        FORMATS.into_iter().find(|format| format.name == name)
    }

    /// A sink of this format that has printed nothing yet.
    #[must_use]
    pub fn sink(&self, options: &Options, is_verbose: bool) -> Box<dyn Sink> {
        (self.make)(options, is_verbose)
    }
}
