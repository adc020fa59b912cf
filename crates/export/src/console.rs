//! The place where output goes, and the effects of actions other than output.

use std::io::{Result, Write};

/// An effect of an action other than printing. The output before it is already written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// `system()`: the shell runs this command, and nanoprobe waits for it.
    System(String),
    /// `freopen()`: further output goes to this file. An empty name means the original place.
    Reopen(String),
    /// `ftruncate()`: the output file becomes empty.
    Truncate,
    /// `stop()`, `raise()`: the process gets this signal.
    Signal(i32),
}

/// The place where results are written, effects happen, and messages are read.
pub trait Console: Write {
    /// Carries out the effect of an action.
    ///
    /// # Errors
    /// The output cannot be written.
    fn act(&mut self, effect: Effect) -> Result<()>;

    /// Shows the user a message that is not a result.
    fn tell(&mut self, message: &str);
}

/// For tests: each effect and each message is a line of its own.
impl Console for Vec<u8> {
    fn act(&mut self, effect: Effect) -> Result<()> {
        match effect {
            Effect::System(command) => writeln!(self, "! system: {command}"),
            Effect::Reopen(path) => writeln!(self, "! freopen: {path}"),
            Effect::Truncate => writeln!(self, "! ftruncate"),
            Effect::Signal(signal) => writeln!(self, "! signal {signal}"),
        }
    }

    fn tell(&mut self, message: &str) {
        self.extend_from_slice(format!("! {message}\n").as_bytes());
    }
}
