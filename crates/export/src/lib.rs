//! What was recorded, in the formats people use: DTrace's text, byte for byte, JSON lines, a flame graph.
//!
//! # Theory of operation
//!
//! Records and aggregations come in as bytes that the target may have scribbled over; text goes out through a
//! [`Write`](std::io::Write). Nothing here knows a process: addresses become names through the caller's
//! [`Symbolizer`], times become local ones through a function.
//!
//! ```text
//! rings ------> Event ----------------------> Printer::record --> Sink: columns, trace, printf, ustack, printa
//!                                                  |  clear, trunc, normalize, system, setopt
//! aggregations of all threads --> Snapshot --> AggregateTable --> Printer::finish --> Sink: what no printa has printed
//! ```
//!
//! A format is an implementation of [`Sink`], in a file of its own: `text` and `json_lines`, each with a row of
//! [`FORMATS`], and `flame`, which is asked for beside another one.
//!
//! The words of one aggregation value are laid out as `agent/contract.h` says; [`merge`] adds the threads' words up,
//! [`update`] does what the agent does for the clauses that the tracer runs itself.
//!
//! # Where this differs from DTrace
//!
//! * A string is printed as a string when it is empty, and when it is UTF-8 without control characters; DTrace dumps
//!   the bytes of both.
//! * A key's integer is printed, and sorted, by the sign of its type; DTrace takes small ones for unsigned, large ones
//!   for signed, and sorts all as unsigned. Of records this is DTrace's on Linux.
//! * `llquantize` has illumos' rows, not those of DTrace on Linux, which has rows for negative values.
//! * `%S` ends at the string's NUL.
//! * A negative sum is divided as a signed number: by `normalize()`, and for the `avg()` of a `printa` with a format.
//! * A `quantize` of which only the last bucket holds something is not taken for an empty one.
//! * Several aggregations in one `printa` are never drawn by `agghist` or `aggpack`; `agghist` draws averages and
//!   deviations by their values.
#![forbid(unsafe_code)]

mod aggregate;
mod bytes;
mod console;
mod date;
mod escape;
mod event;
mod flame;
mod floating;
mod flow;
mod formats;
mod histogram;
mod json;
mod json_data;
mod json_lines;
mod keys;
mod message;
mod number;
mod order;
mod packed;
mod pointed;
mod printa;
mod printer;
mod printf;
mod several;
mod sink;
mod speculation;
mod stack;
mod table;
mod text;
mod typed;

pub use aggregate::{average, merge, standard_deviation, update};
pub use console::{Console, Effect};
pub use date::LocalTime;
pub use event::{Event, ProbeName};
pub use flame::{FlameGraph, has_stacks};
pub use formats::{FORMATS, Format};
pub use json::Json;
pub use json_lines::JsonLines;
pub use message::{drop_message, error_message};
pub use order::{Order, sort};
pub use printer::Printer;
pub use several::Several;
pub use sink::{Action, Ended, Loss, Matched, Recorded, Sink, Unplaced, View};
pub use speculation::{Speculations, Taken, is_speculative};
pub use stack::Symbolizer;
pub use table::{AggregateTable, Epoch, Row, Snapshot};
pub use text::Text;

/// Why something could not be printed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The output could not be written.
    #[error("cannot write output: {0}")]
    Write(#[from] std::io::Error),
    /// Nor could a file of its own.
    #[error("cannot write {path}: {error}")]
    File {
        /// The file.
        path: String,
        /// Why.
        error: std::io::Error,
    },
    /// A record is shorter than its clause makes it: the target wrote over it.
    #[error("record of enabled probe {epid} is damaged: it has {bytes} bytes, its clause writes {expected}")]
    Damaged {
        /// The enabled probe of the record.
        epid: u32,
        /// Its length.
        bytes: usize,
        /// The length that its layout asks for.
        expected: u32,
    },
}
