//! Output: writes the records as DTrace's text (byte for byte), JSON lines, and profiles.
//!
//! # Theory of operation
//!
//! Records and aggregations come in as bytes, which the target may have overwritten. Text goes out
//! through a [`Write`](std::io::Write). Nothing here depends on a process. The caller's [`Symbolizer`]
//! turns addresses into names, and a function of the caller turns times into local ones.
//!
//! ```text
//! rings ------> Event ----------------------> Printer::record --> Sink: columns, trace, printf, ustack, printa
//!                                                  |  clear, trunc, normalize, system, setopt
//! aggregations of all threads --> Snapshot --> AggregateTable --> Printer::finish --> Sink: what no printa has printed
//! ```
//!
//! A format is an implementation of [`Sink`], in its own file. `text` and `json_lines` each have a
//! row in [`FORMATS`]. The formats of [`profile`] are written in addition to one of them.
//!
//! `agent/contract.h` describes the words of one aggregation value. [`merge`] adds the words of several threads.
//! [`update`] updates a value like the agent, for the clauses that the tracer itself runs.
//!
//! # Where this differs from DTrace
//!
//! * An empty string, and a string of UTF-8 without control characters, is printed as a string.
//!   DTrace dumps the bytes of both.
//! * An integer of a key is printed, and sorted, by the sign of its type. DTrace prints small integers as
//!   unsigned and large ones as signed, and sorts all as unsigned. For integers in records, DTrace on
//!   Linux does the same as we do.
//! * `llquantize` has illumos' rows, not those of DTrace on Linux, which has rows for negative values.
//! * `%S` ends at the string's NUL.
//! * A negative sum is divided as a signed number: by `normalize()`, and for the `avg()` of a `printa` with a format.
//! * A `quantize` in which only the last bucket has a weight is not treated as empty.
//! * `agghist` and `aggpack` never draw several aggregations of one `printa`. `agghist` draws
//!   averages and deviations by their values.
#![allow(missing_docs, reason = "an item whose name says what it is has no comment")]
#![forbid(unsafe_code)]

mod aggregate;
mod bytes;
mod console;
mod date;
mod escape;
mod event;
mod floating;
mod flow;
mod formats;
mod function_names;
mod histogram;
mod json;
mod json_data;
mod json_lines;
mod key_addresses;
mod keys;
pub mod live;
mod message;
mod number;
mod order;
mod packed;
mod pointed;
mod printa;
mod printer;
mod printf;
pub mod profile;
mod several;
mod sink;
mod speculation;
mod stack;
mod strace;
mod table;
mod text;
mod typed;

pub use aggregate::{average, merge, standard_deviation, update};
pub use console::{Console, Effect};
pub use date::LocalTime;
pub use event::{Event, ProbeName};
pub use formats::{FORMATS, Format};
pub use json::Json;
pub use json_lines::JsonLines;
pub use key_addresses::{AddressUse, symbols_in};
pub use message::{drop_message, error_message};
pub use order::{Order, sort};
pub use printer::Printer;
pub use several::Several;
pub use sink::{Action, Ended, Loss, Matched, Recorded, Sink, Unplaced, View};
pub use speculation::{Speculations, Taken, is_speculative};
pub use stack::{ModulePlace, NAMELESS_CODE, Source, Symbolizer};
pub use strace::{Stamps, Strace, StraceStyle};
pub use table::{AggregateTable, Epoch, Row, Snapshot};
pub use text::Text;

/// Why a result could not be printed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The output could not be written.
    #[error("cannot write output: {0}")]
    Write(#[from] std::io::Error),
    /// The output could not be written to a file of its own.
    #[error("cannot write {path}: {error}")]
    File { path: String, error: std::io::Error },
    /// A record is shorter than its clause's layout: the target has overwritten it.
    #[error("record of enabled probe {epid} is damaged: it has {bytes} bytes, its clause writes {expected}")]
    Damaged {
        /// The enabled probe that wrote the record.
        epid: u32,
        bytes: usize,
        /// The length that the layout demands.
        expected: u32,
    },
}
