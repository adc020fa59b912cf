//! Patches that make room for others' breakpoints, and come back: see [`crate::beside`].

use std::collections::HashSet;

use nanoprobe_patch::{BREAKPOINT, TextRange, transition};
use nanoprobe_target::Pauses;
use nanoprobe_text::Patch;

use super::bytes::Bytes;
use super::moves::Moves;
use super::reader::Reader;
use super::text::{borrowed, bytes_of, exchanges, pieces, ranges};
use crate::attachment::Attachment;
use crate::error::SessionError;

/// How often what others have changed meanwhile is taken back again.
const ROUNDS_MAX: usize = 3;

impl Attachment {
    /// Takes patches back, but for the bytes at some addresses, which others have put there.
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
            let mut now = self.bytes_now(old);
            for (number, step) in transition(old, &[]).into_iter().enumerate() {
                if number > 0 {
                    self.process
                        .synchronise(false, pauses, &mut |_| Ok::<(), SessionError>(()))?;
                }
                let step = step.into_iter().map(|(address, byte)| (address.0, byte));
                self.exchange(step.filter(|(address, _)| !kept.contains(address)).collect(), &mut now)?;
            }
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

    /// Writes patches again where the text is the original one, and others' breakpoints came and went. False: another's was
    /// taken away just now, and our own with it; the text is the original one again.
    ///
    /// # Errors
    /// The target cannot be stopped or written.
    pub(crate) fn put_back_beside(&self, new: &[Patch], pauses: &mut Pauses) -> Result<bool, SessionError> {
        let all: Vec<TextRange> = new.iter().flat_map(ranges).collect();
        let mut now: Bytes = bytes_of(&all, |range| &range.original).collect();
        let moves = Moves::new(new);
        for (number, step) in transition(&[], &all).into_iter().enumerate() {
            if number > 0 {
                let sleepers_too = number == 1 && moves.displaces_calls();
                self.process
                    .synchronise(sleepers_too, pauses, &mut |stopped| moves.apply(stopped))?;
                let traps = |patch: &Patch| {
                    let head = self.process.memory().read_array::<1>(patch.built.address);
                    head.is_ok_and(|head| head == [BREAKPOINT])
                };
                if !new.iter().all(traps) {
                    now = self.bytes_now(&all);
                    self.exchange(bytes_of(&all, |range| &range.original).collect(), &mut now)?;
                    return Ok(false);
                }
            }
            let step = step.into_iter().map(|(address, byte)| (address.0, byte));
            self.exchange(step.collect(), &mut now)?;
        }
        Ok(true)
    }

    /// Whether the text of a patch is the original one.
    pub(crate) fn is_original(&self, patch: &Patch) -> bool {
        let mut reader = Reader::new(self.process.memory());
        ranges(patch)
            .iter()
            .all(|range| reader.holds(range.address, &range.original))
    }

    /// Writes bytes where the text is as it is said to be: a program unloads libraries whenever it wants.
    fn exchange(&self, bytes: Bytes, now: &mut Bytes) -> Result<(), SessionError> {
        let known: Bytes = bytes
            .iter()
            .filter(|(address, _)| now.get(*address).is_some())
            .collect();
        let wanted = exchanges(&pieces(&known), now);
        self.process.memory().exchange_text(&borrowed(&wanted))?;
        now.extend(known.iter());
        Ok(())
    }

    /// What stands there, as far as it can be read.
    fn bytes_now(&self, ranges: &[TextRange]) -> Bytes {
        let read = |range: &TextRange| {
            let mut bytes = vec![0; range.original.len()];
            let is_read = self.process.memory().read(range.address, &mut bytes).is_ok();
            is_read.then(|| (range.address.0..).zip(bytes))
        };
        ranges.iter().filter_map(read).flatten().collect()
    }
}
