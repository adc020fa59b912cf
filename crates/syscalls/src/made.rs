//! A call that was made, with the memory that was recorded.

use std::collections::HashMap;

use crate::capture::{End, Part, RESTORED};
use crate::structures::word;

/// How a call ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outcome {
    /// With a result, and an error if it has failed.
    Returned { value: i64, error: i32 },
    /// Never: the thread has ended, or a signal's handler has.
    Left,
    /// Not as far as is known.
    #[default]
    Unfinished,
}

/// Finds the name of a network interface by its number.
#[derive(Clone, Copy, Debug)]
pub struct Interfaces(pub fn(u32) -> Option<String>);

impl Default for Interfaces {
    /// No interface has a name.
    fn default() -> Interfaces {
        Interfaces(|_| None)
    }
}

/// A call that was made.
#[derive(Clone, Debug, Default)]
pub struct Made {
    /// The call's name.
    pub name: String,
    pub arguments: [u64; 6],
    pub outcome: Outcome,
    pub interfaces: Interfaces,
    memory: HashMap<Part, Piece>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Piece {
    pub(crate) bytes: Vec<u8>,
    /// A string that is longer.
    pub(crate) is_cut: bool,
}

impl Made {
    /// A call that has begun.
    #[must_use]
    pub fn new(name: &str, arguments: [u64; 6]) -> Made {
        Made {
            name: name.to_owned(),
            arguments,
            ..Made::default()
        }
    }

    /// Adds a piece of memory.
    pub fn add(&mut self, part: Part, bytes: &[u8], is_cut: bool) {
        self.memory.insert(
            part,
            Piece {
                bytes: bytes.to_vec(),
                is_cut,
            },
        );
    }

    pub(crate) fn argument(&self, index: usize) -> u64 {
        self.arguments.get(index).copied().unwrap_or_default()
    }

    /// A piece of memory.
    pub(crate) fn at(&self, part: Part) -> Option<&[u8]> {
        self.memory.get(&part).map(|piece| piece.bytes.as_slice())
    }

    /// The memory of an argument, whenever it was recorded.
    pub(crate) fn piece(&self, argument: usize, index: usize) -> Option<&Piece> {
        let at = |end| self.memory.get(&Part { end, argument, index });
        at(End::Return).or_else(|| at(End::Entry))
    }

    pub(crate) fn bytes(&self, argument: usize) -> Option<&[u8]> {
        self.piece(argument, 0).map(|piece| piece.bytes.as_slice())
    }

    /// What rt_sigreturn restores as the result of the code that the signal has interrupted.
    #[must_use]
    pub fn restored(&self) -> Option<Outcome> {
        let value = word(self.at(RESTORED).filter(|_| self.name == "rt_sigreturn")?, 0)? as i64;
        Some(match value {
            -4095..=-1 => Outcome::Returned {
                value: -1,
                error: -value as i32,
            },
            value => Outcome::Returned { value, error: 0 },
        })
    }

    /// The result of a call that has succeeded.
    pub(crate) fn result(&self) -> Option<i64> {
        match self.outcome {
            Outcome::Returned { value, error: 0 } => Some(value),
            _ => None,
        }
    }
}
