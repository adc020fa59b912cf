//! Patches that make room for other programs' breakpoints, and come back: see [`crate::beside`].

use std::collections::HashSet;

use nanoprobe_patch::{BREAKPOINT, TextRange};
use nanoprobe_target::Pauses;
use nanoprobe_text::Patch;
use nanoprobe_text::bytes::Bytes;
use nanoprobe_text::change::{Change, Watch};
use nanoprobe_text::live::LiveText;
use nanoprobe_text::moves::Moves;
use nanoprobe_text::pieces::{Pieces, bytes_of};
use nanoprobe_text::reader::Reader;

use super::live::{ProcessText, exchange};
use super::text::ranges;
use crate::attachment::Attachment;
use crate::error::SessionError;

/// The maximal number of attempts to take patches back. A further attempt is needed if another program has changed the
/// text meanwhile.
const ROUNDS_MAX: usize = 3;

impl Attachment {
    /// Takes patches back, except for the bytes that other programs have written at some addresses.
    ///
    /// # Errors
    /// The target cannot be stopped or written.
    pub(crate) fn take_back_but(
        &self,
        old: &[TextRange],
        kept: &HashSet<u64>,
        pauses: &mut Pauses,
    ) -> Result<(), SessionError> {
        for _ in 0..ROUNDS_MAX {
            let change = Change::from(self.bytes_now(old), old, &[], &|address| !kept.contains(&address));
            let done = change.carry_out(&mut ProcessText::of(self, pauses), &mut ());
            done.map_err(|failure| failure.error)?;
            let left = self.bytes_now(old);
            let mut original = bytes_of(old, |range| &range.original);
            let is_back = |(address, byte): (u64, u8)| {
                let found = left.get(address);
                kept.contains(&address) || found.is_none_or(|found| found == byte)
            };
            if original.all(is_back) {
                break;
            }
        }
        Ok(())
    }

    /// Writes patches again where the text is the original one, after another program's breakpoints came and went.
    /// False: a breakpoint was removed during the write, and our own breakpoint with it, so the text is the original
    /// one again.
    ///
    /// # Errors
    /// The target cannot be stopped or written.
    pub(crate) fn put_back_beside(&self, new: &[Patch], pauses: &mut Pauses) -> Result<bool, SessionError> {
        let all: Vec<TextRange> = new.iter().flat_map(ranges).collect();
        let change = Change::new(&[], &all).with_moves(Moves::new(new));
        let mut text = ProcessText::of(self, pauses);
        let is_done = change.carry_out(&mut text, &mut HeadsTrap(new));
        if is_done.map_err(|failure| failure.error)? {
            return Ok(true);
        }
        let now = self.bytes_now(&all);
        let original: Bytes = bytes_of(&all, |range| &range.original).collect();
        exchange(self.process.memory(), Pieces::new(original.iter(), &now).iter())?;
        Ok(false)
    }

    /// Whether the text of a patch is the original one.
    pub(crate) fn is_original(&self, patch: &Patch) -> bool {
        let mut pauses = Pauses::default();
        let text = ProcessText::of(self, &mut pauses);
        let mut reader = Reader::new(&text);
        ranges(patch)
            .iter()
            .all(|range| reader.holds(range.address, &range.original))
    }

    /// The present bytes of these ranges, as far as they can be read.
    fn bytes_now(&self, ranges: &[TextRange]) -> Bytes {
        let read = |range: &TextRange| {
            let mut bytes = vec![0; range.original.len()];
            let is_read = self.process.memory().read(range.address, &mut bytes).is_ok();
            is_read.then(|| (range.address.0..).zip(bytes))
        };
        ranges.iter().filter_map(read).flatten().collect()
    }
}

/// Lets a change continue only while the breakpoints of its first step are still in the text.
struct HeadsTrap<'a>(&'a [Patch]);

impl<T: LiveText> Watch<T> for HeadsTrap<'_> {
    fn goes_on(&mut self, text: &mut T) -> bool {
        self.0.iter().all(|patch| {
            let mut head = [0];
            text.read(patch.built.address, &mut head) && head == [BREAKPOINT]
        })
    }
}
