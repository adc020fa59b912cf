//! The fuzz targets: for each kind of foreign input, one function that takes bytes and asks all questions.
//!
//! A function must return whatever the bytes are; it fails by a panic, by not ending, and by taking
//! memory out of proportion. The targets of cargo-fuzz (`fuzz/fuzz_targets`) and the ordinary test
//! (`tests/corpus.rs`) call the same functions. See `fuzz/README.md`.

#![forbid(unsafe_code)]

mod arena;
mod d_text;
mod dwarf;
mod eh_frame;
mod elf;
mod formats;
mod image;
mod kallsyms;
mod notes;
mod perf_map;
mod profile;
mod restore;
mod runtimes;
mod tracers;

pub use arena::arena;
pub use d_text::d_text;
pub use dwarf::dwarf;
pub use eh_frame::eh_frame;
pub use elf::elf;
pub use formats::formats;
pub use kallsyms::kallsyms;
pub use notes::notes;
pub use perf_map::perf_map;
pub use profile::profile;
pub use restore::{ARENA, POOL, rehearsed, restore};
pub use runtimes::runtimes;
pub use tracers::{PIECES, told, tracers};

/// A function that takes bytes.
pub type Target = fn(&[u8]);

/// All targets, by the names of their corpora.
pub const TARGETS: [(&str, Target); 13] = [
    ("arena", arena),
    ("d_text", d_text),
    ("dwarf", dwarf),
    ("eh_frame", eh_frame),
    ("elf", elf),
    ("formats", formats),
    ("kallsyms", kallsyms),
    ("notes", notes),
    ("perf_map", perf_map),
    ("profile", profile),
    ("restore", restore),
    ("runtimes", runtimes),
    ("tracers", tracers),
];
