//! The table of options, one row each. Reading, setting, the messages and the reference are derived
//! from these rows.
//!
//! ```text
//! name        default   value and what it sets                               what the reference says
//! "strsize"   "256"     Size(2, 1 << 16, |options, bytes| ...)               "bytes of a string with its NUL"
//! ```

mod ignored;
mod printing;
mod recording;
mod refused;
mod tracing;

use super::value::Given;
use super::{OptionError, Options, Rotation};
use crate::spelling;

pub struct Row {
    /// The name as written.
    pub name: &'static str,
    /// The default, as the reference shows it.
    pub default: &'static str,
    /// The meaning: a line of the reference.
    pub line: &'static str,
    /// Whether `setopt()` may change it during tracing.
    pub is_changeable: bool,
    kind: Kind,
}

/// A word, and a function that sets its value.
type Word = (&'static str, fn(&mut Options));

/// A kind of value: its bounds, and how it is set.
enum Kind {
    Switch(fn(&mut Options, bool)),
    Number(u64, u64, fn(&mut Options, u64)),
    Size(u64, u64, fn(&mut Options, u64)),
    /// The size of a buffer, in bytes.
    Room(fn(&mut Options, u64)),
    /// A period in ns.
    Rate(fn(&mut Options, u64)),
    /// A percentage, in hundredths.
    Percent(fn(&mut Options, u32)),
    /// The size of a file, and how many old ones are kept.
    Files(fn(&mut Options, Rotation)),
    /// One of a few words.
    Word(&'static [Word]),
    /// A name that another part of nanoprobe checks.
    Name(&'static str, fn(&mut Options, String)),
    Version,
    SizeOrUnlimited,
    Anything,
}

const fn row(name: &'static str, default: &'static str, kind: Kind, line: &'static str) -> Row {
    Row {
        name,
        default,
        line,
        is_changeable: false,
        kind,
    }
}

impl Row {
    const fn changeable(mut self) -> Row {
        self.is_changeable = true;
        self
    }

    /// The accepted values, as the reference shows them.
    #[must_use]
    pub fn values(&self) -> String {
        match &self.kind {
            Kind::Switch(_) => "switch".to_owned(),
            Kind::Number(least, most, _) if *most == u64::from(u32::MAX) => format!("number from {least}"),
            Kind::Number(least, most, _) => format!("{least} to {most}"),
            Kind::Size(_, u64::MAX, _) => "size".to_owned(),
            Kind::Size(0, most, _) => format!("size up to {}", size(*most)),
            Kind::Size(least, most, _) => format!("size, {} to {}", size(*least), size(*most)),
            Kind::Room(_) => format!("size up to {}", size(super::value::ROOM_MAX)),
            Kind::Rate(_) => "rate".to_owned(),
            Kind::Percent(_) => "percentage".to_owned(),
            Kind::Files(_) => "size, or size and number".to_owned(),
            Kind::Word(words) => {
                let words: Vec<String> = words.iter().map(|(word, _)| format!("`{word}`")).collect();
                words.join(", ")
            }
            Kind::Name(expected, _) => (*expected).to_owned(),
            Kind::Version => "version of D".to_owned(),
            Kind::SizeOrUnlimited => "size, or `unlimited`".to_owned(),
            Kind::Anything => "anything".to_owned(),
        }
    }

    fn set(&self, options: &mut Options, given: &Given<'_>) -> Result<(), OptionError> {
        match &self.kind {
            Kind::Switch(set) => set(options, given.switch()?),
            Kind::Number(least, most, set) => set(options, given.number(*least, *most)?),
            Kind::Size(least, most, set) => set(options, given.size(*least, *most)?),
            Kind::Room(set) => set(options, given.room()?),
            Kind::Rate(set) => set(options, given.rate()?),
            Kind::Percent(set) => set(options, given.percent()?),
            Kind::Files(set) => set(options, given.files()?),
            Kind::Word(words) => given.word(words)?(options),
            Kind::Name(expected, set) => set(options, given.required(expected)?.to_owned()),
            Kind::Version => given.version()?,
            Kind::SizeOrUnlimited if given.value == Some("unlimited") => {}
            Kind::SizeOrUnlimited => {
                given.size(0, u64::MAX)?;
            }
            Kind::Anything => {}
        }
        Ok(())
    }
}

/// A size, in the form that an option accepts.
fn size(bytes: u64) -> String {
    let units = [(30, "g"), (20, "m"), (10, "k")];
    let unit = units
        .into_iter()
        .find(|(shift, _)| bytes != 0 && bytes.trailing_zeros() >= *shift);
    unit.map_or(bytes.to_string(), |(shift, unit)| format!("{}{unit}", bytes >> shift))
}

/// The options that have an effect.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    [printing::ROWS, recording::ROWS, tracing::ROWS].into_iter().flatten()
}

/// Options of DTrace that are accepted and change nothing.
pub fn ignored() -> impl Iterator<Item = &'static Row> {
    ignored::ROWS.iter()
}

/// Options of DTrace that are refused, each with the reason.
pub fn refused() -> impl Iterator<Item = (&'static str, &'static str)> {
    let all = refused::ROWS.iter();
    all.flat_map(|(names, reason)| names.iter().map(|name| (*name, *reason)))
}

impl Options {
    /// Sets one option.
    ///
    /// # Errors
    /// An unknown name, a missing or malformed value, or a value out of range. The options stay as they were.
    pub fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), OptionError> {
        if let Some(row) = rows().chain(ignored()).find(|row| row.name == name) {
            return row.set(self, &Given { name, value });
        }
        let reason = refused().find(|(refused, _)| *refused == name);
        let name = name.to_owned();
        Err(match reason {
            Some((_, reason)) => OptionError::NotHere { name, reason },
            None => OptionError::Unknown {
                nearest: spelling::nearest(&name, rows().map(|row| row.name)),
                name,
            },
        })
    }

    /// Sets an option given as `name` or `name=value`.
    ///
    /// # Errors
    /// As [`Options::set`].
    pub fn set_text(&mut self, text: &str) -> Result<(), OptionError> {
        match text.split_once('=') {
            Some((name, value)) => self.set(name, Some(value)),
            None => self.set(text, None),
        }
    }
}
