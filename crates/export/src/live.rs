//! The current state of a trace on a terminal: tables of all aggregations, redrawn every second.
//!
//! ```text
//!  funccount  pid 1234 (server)   12 s
//! @calls  3 keys  1,234/s  ▁▁▂▅█▃                                <- a minute
//!        CALLS        /s  KEY
//!       12,345     1,200  libc.so.6  strlen
//!           12         0  libc.so.6  strchr
//! printed: 2 lines
//!   slow query 1
//!  q quit  space freeze  left/right sort  r reverse  tab table
//! ```
//!
//! This is the pure part: [`Live`] takes the aggregations and the printed text, and makes a [`Frame`] of a size. The
//! command owns the terminal, its keys and the time.

mod drawing;
mod frame;
mod moment;
mod printed;
mod section;
mod sort;
mod spark;
mod tables;
mod words;

pub use drawing::Live;
pub use frame::{Frame, Style};

use nanoprobe_lang::Program;
use nanoprobe_lang::options::Options;

use crate::stack::Symbolizer;

/// The set of characters that a terminal can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Characters {
    /// UTF-8: bars of block elements.
    Blocks,
    Ascii,
}

/// A key that changes the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// Sort by the column to the right, or to the left.
    SortRight,
    SortLeft,
    Reverse,
    Freeze,
    /// From now on, keys change the next table.
    Table,
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
}

/// Facts about the trace that are needed to draw it.
pub struct Traced<'a> {
    pub program: &'a Program,
    pub options: &'a Options,
    /// Names for addresses in keys.
    pub symbolizer: &'a mut dyn Symbolizer,
}
