//! The bytes that are written while all threads are stopped. They are computed beforehand.

use nanoprobe_patch::TextRange;
use nanoprobe_text::Patch;
use nanoprobe_text::bytes::Bytes;
use nanoprobe_text::moves::Moves;
use nanoprobe_text::pieces::{Pieces, bytes_of};

use super::text::{ranges, springboards};

/// The pieces of text that are written while all threads are stopped.
pub(super) struct Writes {
    /// Before the rest.
    pub springboards: Pieces,
    pub text: Pieces,
    pub moves: Moves,
}

impl Writes {
    /// `new` in place of `old`.
    pub fn new(old: &[TextRange], new: &[Patch]) -> Writes {
        let springboards = springboards(new);
        let padding: Bytes = bytes_of(&springboards, |range| &range.original).collect();
        let filled: Bytes = bytes_of(&springboards, |range| &range.patched).collect();
        Writes {
            springboards: Pieces::new(filled.iter(), &padding),
            ..Writes::without_springboards(old, new)
        }
    }

    pub fn without_springboards(old: &[TextRange], new: &[Patch]) -> Writes {
        let ranges: Vec<TextRange> = new.iter().flat_map(ranges).collect();
        let text = bytes_of(old, |range| &range.original).chain(bytes_of(&ranges, |range| &range.patched));
        let text: Bytes = text.collect();
        let now = bytes_of(&ranges, |range| &range.original).chain(bytes_of(old, |range| &range.patched));
        let now: Bytes = now.collect();
        Writes {
            springboards: Pieces::default(),
            text: Pieces::new(text.iter(), &now),
            moves: Moves::new(new),
        }
    }
}
