//! Where the output goes, and what a program asks of whoever runs it.

use std::io::{Result, Write};

/// What an action asks for besides printing. The output in front of it is already written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// `system()`: run this by the shell, and wait for it.
    System(String),
    /// `freopen()`: write to this file from now on; an empty name: where the output went at first.
    Reopen(String),
    /// `ftruncate()`: empty the file.
    Truncate,
    /// `stop()`, `raise()`: send the process this signal.
    Signal(i32),
}

/// Where results are written, effects happen, and messages are read.
pub trait Console: Write {
    /// Does what an action asks for.
    ///
    /// # Errors
    /// The output cannot be written.
    fn act(&mut self, effect: Effect) -> Result<()>;

    /// Says something to the user that is no result.
    fn tell(&mut self, message: &str);
}

/// For tests: an effect is a line of its own, and so is a message.
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
