//! The breakpoint protocol, carried out: [`nanoprobe_patch::transition`] says which bytes are written in which order,
//! and a [`LiveText`] writes them. If a step fails, the text holds the following:
//!
//! ```text
//!   fails                      the text then
//!   before the first           as it was
//!   in the first step, or at   as it was, if it is undone: each byte of that step is a start's own, and goes back by
//!   the barrier after it       itself
//!   later                      as the failing step has left it: each start is whole, or traps and is redirected (I1)
//! ```
//!
//! In the last case no start can be made whole again without a barrier. The functions still work, by way of traps.
//!
//! All that is written is computed, and allocated, before the first byte changes. In a process that changes its own
//! text, malloc and memcpy may themselves be changing.

use nanoprobe_patch::{TargetAddress, TextRange, transition};

use crate::Patch;
use crate::bytes::Bytes;
use crate::groups::Groups;
use crate::live::{LiveText, Standing, Unfinished};
use crate::moves::Moves;
use crate::pieces::{Pieces, bytes_of};

/// A change of text, ready to be carried out.
#[derive(Debug)]
pub struct Change {
    steps: Vec<Pieces>,
    moves: Moves,
}

/// A change that failed.
#[derive(Debug)]
pub struct Failure<E> {
    pub error: E,
    /// How many pieces of the first step were begun before the failure; `None`: a later step had begun.
    begun: Option<usize>,
}

/// The work of a change's caller between the steps.
pub trait Watch<T> {
    /// Whether the piece at an address must still be written.
    fn is_wanted(&self, _: TargetAddress) -> bool {
        true
    }

    /// Notes that some of a step's pieces were left out.
    fn left_out(&mut self, _: &Pieces, _: &[TargetAddress]) {}

    /// Called after each barrier: whether to make the next step.
    fn goes_on(&mut self, _: &mut T) -> bool {
        true
    }
}

impl<T> Watch<T> for () {}

/// Writes either all of a patch, or nothing more of it after a piece of it was left out.
pub struct Whole<'a> {
    /// The groups of bytes, some of which may be lost.
    pub groups: &'a mut Groups,
    /// The ranges of text that get their original bytes.
    pub old: &'a [TextRange],
    /// The patches that are written.
    pub new: &'a [Patch],
}

impl Change {
    /// The change from a text with the patches `old` to a text with the patches `new`.
    pub fn new(old: &[TextRange], new: &[TextRange]) -> Change {
        let original = bytes_of(new, |range| &range.original);
        let now = original.chain(bytes_of(old, |range| &range.patched)).collect();
        Change::from(now, old, new, &|_| true)
    }

    /// A change of a text that now holds the bytes `now`. Bytes that are not `wanted`, and bytes that `now` lacks,
    /// stay unchanged.
    pub fn from(mut now: Bytes, old: &[TextRange], new: &[TextRange], wanted: &dyn Fn(u64) -> bool) -> Change {
        now.retain(wanted);
        let steps = transition(old, new).into_iter().map(|step| {
            let step = step.into_iter().map(|(address, byte)| (address.0, byte));
            let pieces = Pieces::around(step, &now);
            now.extend(pieces.bytes());
            pieces
        });
        Change {
            steps: steps.collect(),
            moves: Moves::default(),
        }
    }

    /// This change, extended so that it also moves threads that stand in the middle of a run.
    #[must_use]
    pub fn with_moves(self, moves: Moves) -> Change {
        Change { moves, ..self }
    }

    /// Carries the change out. False: `watch` has stopped it between two steps.
    ///
    /// # Errors Those of the text; [`Change::undo`] says what can be done then.
    pub fn carry_out<T: LiveText>(&self, text: &mut T, watch: &mut impl Watch<T>) -> Result<bool, Failure<T::Error>> {
        if self.steps.is_empty() {
            return Ok(true);
        }
        let at_first = |begun| move |error| Failure { error, begun };
        text.begin().map_err(at_first(Some(0)))?;
        for (number, step) in self.steps.iter().enumerate() {
            if number > 0 {
                let standing = Standing {
                    moves: &self.moves,
                    sleepers_too: number == 1 && self.moves.displaces_calls(),
                };
                let all_of_first = self.steps.first().map(|first| first.iter().count());
                text.synchronise(&standing)
                    .map_err(at_first(all_of_first.filter(|_| number == 1)))?;
                if !watch.goes_on(text) {
                    return Ok(false);
                }
            }
            let mut wanted = step.iter().filter(|piece| watch.is_wanted(piece.address));
            let written = text.exchange(&mut wanted);
            let left_out = written.map_err(|Unfinished { error, begun }| Failure {
                error,
                begun: (number == 0).then_some(begun),
            })?;
            if !left_out.is_empty() {
                watch.left_out(step, &left_out);
            }
        }
        // After the last step no barrier is needed: a processor that still sees a trap is redirected.
        text.end();
        Ok(true)
    }

    /// Restores the text, if that needs no barrier. Yields whether all bytes have their old values. The `watch` of
    /// the failed change must have wanted all pieces.
    pub fn undo<T: LiveText>(&self, failure: &Failure<T::Error>, text: &mut T) -> bool {
        let Some(begun) = failure.begun else { return false };
        let first = self.steps.iter().take(1).flat_map(Pieces::iter);
        let mut is_undone = true;
        for piece in first.take(begun) {
            let left_out = text.exchange(&mut std::iter::once(piece.undone()));
            is_undone &= left_out.is_ok_and(|left_out| left_out.is_empty());
        }
        is_undone
    }
}

impl<T> Watch<T> for Whole<'_> {
    fn is_wanted(&self, address: TargetAddress) -> bool {
        self.groups.has(address.0)
    }

    fn left_out(&mut self, pieces: &Pieces, left_out: &[TargetAddress]) {
        self.groups.lose_pieces(pieces, left_out, self.old, self.new);
    }
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::indexing_slicing,
        reason = "a panic is how a test fails"
    )]

    use super::*;
    use crate::pieces::Piece;

    const START: u64 = 0x1000;
    /// push rbp; mov rbp, rsp; push rbx; nop.
    const CODE: [u8; 6] = [0x55, 0x48, 0x89, 0xe5, 0x53, 0x90];
    const STARTS: [usize; 4] = [0, 1, 4, 5];

    /// A text of which one call fails, and all later calls of the same kind.
    struct Failing {
        text: Vec<u8>,
        calls: usize,
        fails_at: usize,
        writes_fail: bool,
    }

    impl Failing {
        fn call(&mut self, is_write: bool) -> Result<(), &'static str> {
            self.calls += 1;
            if self.calls > self.fails_at && self.writes_fail == is_write {
                return Err("as the test wants it");
            }
            Ok(())
        }
    }

    impl LiveText for Failing {
        type Error = &'static str;

        fn read(&self, _: TargetAddress, _: &mut [u8]) -> bool {
            false
        }

        fn exchange(
            &mut self,
            pieces: &mut dyn Iterator<Item = Piece<'_>>,
        ) -> Result<Vec<TargetAddress>, Unfinished<&'static str>> {
            for (index, piece) in pieces.enumerate() {
                self.call(true).map_err(|error| Unfinished {
                    error,
                    begun: index + 1,
                })?;
                let from = (piece.address.0 - START) as usize;
                let there = &mut self.text[from..from + piece.after.len()];
                assert_eq!(there, piece.before, "a piece says what is there");
                there.copy_from_slice(piece.after);
            }
            Ok(Vec::new())
        }

        fn synchronise(&mut self, _: &Standing<'_>) -> Result<(), &'static str> {
            self.call(false)
        }

        fn begin(&mut self) -> Result<(), &'static str> {
            self.call(false)
        }
    }

    /// Changes text as the library does: a change that fails is undone, if possible. `Err`: whether it was undone.
    fn carry_out(change: &Change, text: &mut Failing) -> Result<(), bool> {
        let done = change.carry_out(text, &mut ());
        done.map(drop).map_err(|failure| change.undo(&failure, text))
    }

    fn range(patched: &[u8]) -> Vec<TextRange> {
        vec![TextRange {
            address: TargetAddress(START),
            original: CODE[..patched.len()].to_vec(),
            patched: patched.to_vec(),
            is_head: true,
        }]
    }

    fn patches() -> [Vec<TextRange>; 4] {
        let jump = |last: u8| range(&[0xe9, 0x37, 0xd1, 0xc6, last]);
        [Vec::new(), jump(0x06), jump(0x07), range(&[0xcc])]
    }

    fn text_of(ranges: &[TextRange]) -> Vec<u8> {
        let mut text = CODE.to_vec();
        for range in ranges {
            text[..range.patched.len()].copy_from_slice(&range.patched);
        }
        text
    }

    /// Whether a start holds a trap, the old jump or the new one, or the function's instruction there.
    fn is_right_at(start: usize, text: &[u8], before: &[u8], after: &[u8]) -> bool {
        const JUMP: usize = 5;
        let end = STARTS.into_iter().find(|next| *next > start).unwrap_or(CODE.len());
        let is_jump = |patched: &[u8]| start == 0 && text[..JUMP] == patched[..JUMP];
        nanoprobe_patch::is_trapping_byte(text[start])
            || is_jump(before)
            || is_jump(after)
            || text[start..end] == CODE[start..end]
    }

    /// A change may fail at any call. If the result says that it was undone, the text is the old text. Otherwise each
    /// start holds the whole old instruction, the whole new instruction, or a trap.
    #[test]
    fn a_failed_change_leaves_the_old_text_or_traps() {
        let (mut undone, mut between) = (0, 0);
        for old in patches() {
            for new in patches() {
                let (before, after) = (text_of(&old), text_of(&new));
                for fails_at in 0..12 {
                    for writes_fail in [false, true] {
                        let text = before.clone();
                        let mut medium = Failing {
                            text,
                            calls: 0,
                            fails_at,
                            writes_fail,
                        };
                        match carry_out(&Change::new(&old, &new), &mut medium) {
                            Ok(()) => assert_eq!(medium.text, after),
                            Err(true) => {
                                assert_eq!(medium.text, before);
                                undone += 1;
                            }
                            Err(_) => {
                                between += 1;
                                for start in STARTS {
                                    assert!(is_right_at(start, &medium.text, &before, &after), "{:x?}", medium.text);
                                }
                            }
                        }
                    }
                }
            }
        }
        assert!(undone > 10 && between > 10, "{undone} {between}");
    }

    /// A text that is unloaded, and loaded again at the same place with its original bytes, after some calls.
    struct LoadedAgain {
        text: Vec<u8>,
        calls: usize,
        at: usize,
    }

    impl LoadedAgain {
        fn call(&mut self) {
            if self.calls == self.at {
                self.text = CODE.to_vec();
            }
            self.calls += 1;
        }
    }

    impl LiveText for LoadedAgain {
        type Error = &'static str;

        fn read(&self, _: TargetAddress, _: &mut [u8]) -> bool {
            false
        }

        fn exchange(
            &mut self,
            pieces: &mut dyn Iterator<Item = Piece<'_>>,
        ) -> Result<Vec<TargetAddress>, Unfinished<&'static str>> {
            self.call();
            let mut left_out = Vec::new();
            for piece in pieces {
                let from = (piece.address.0 - START) as usize;
                let there = &mut self.text[from..from + piece.after.len()];
                match there == piece.before {
                    true => there.copy_from_slice(piece.after),
                    false => left_out.push(piece.address),
                }
            }
            Ok(left_out)
        }

        fn synchronise(&mut self, _: &Standing<'_>) -> Result<(), &'static str> {
            self.call();
            Ok(())
        }
    }

    #[test]
    fn a_library_that_is_loaded_again_between_two_steps_has_no_half_of_a_jump() {
        let mut losses = 0;
        for new in patches() {
            for at in 0..6 {
                let mut medium = LoadedAgain {
                    text: CODE.to_vec(),
                    calls: 0,
                    at,
                };
                let done = Change::new(&[], &new).carry_out(&mut medium, &mut ());
                assert_eq!(done.map_err(|failure| failure.error), Ok(true));
                let (before, after) = (text_of(&[]), text_of(&new));
                assert!(
                    medium.text == before || medium.text == after,
                    "{:x?} at {at}",
                    medium.text
                );
                losses += usize::from(medium.text != after);
            }
        }
        assert!(losses > 5, "{losses}");
    }

    /// After a failed change, the next change starts from the bytes in the text, and completes.
    #[test]
    fn a_change_completes_from_the_text_of_a_failed_one() {
        for new in patches() {
            let jump = &patches()[1];
            let mut medium = Failing {
                text: CODE.to_vec(),
                calls: 0,
                fails_at: 4,
                writes_fail: false,
            };
            assert_eq!(carry_out(&Change::new(&[], jump), &mut medium), Err(false));
            let left = range(&medium.text[..5]);
            medium.fails_at = usize::MAX;
            assert_eq!(carry_out(&Change::new(&left, &new), &mut medium), Ok(()));
            assert_eq!(medium.text, text_of(&new));
        }
    }
}
