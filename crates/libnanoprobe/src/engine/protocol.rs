//! The steps of a change of text ([`nanoprobe_patch::transition`]), carried out; and what the text is when one of them fails.
//!
//! ```text
//!   fails                      the text then
//!   in front of the first      as it was
//!   in the first step, or at   as it was: each byte of that step is a start's own, and goes back by itself
//!   the barrier behind it
//!   later                      as the failing step has left it: each start is whole, or traps and is redirected (I1)
//! ```
//!
//! In the last case no start can be made whole again without a barrier. The functions do what they did, by traps. The text is
//! read then, and the next change begins from what is there.
//!
//! Everything is allocated before the first byte changes: malloc and memcpy may be what changes.

use std::collections::BTreeMap;

use nanoprobe_patch::{TargetAddress, TextRange, transition};

use crate::error::Error;

/// A text that can be changed.
pub trait Medium {
    /// Writes bytes.
    ///
    /// # Errors
    /// Not all of them were written.
    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Error>;

    /// Has no processor hold an instruction that it fetched before.
    ///
    /// # Errors
    /// It may hold one.
    fn synchronise(&mut self) -> Result<(), Error>;
}

/// Adjoining bytes of one step.
struct Piece {
    address: u64,
    before: Vec<u8>,
    after: Vec<u8>,
}

/// A change of text, ready to be carried out.
pub struct Change(Vec<Vec<Piece>>);

/// A change that was not carried out.
#[derive(Debug)]
pub struct Failure {
    /// Why.
    pub error: Error,
    /// The text is as it was; else it is between the old one and the new one.
    pub is_undone: bool,
}

impl Change {
    /// From a text that holds the patches `old` to one that holds the patches `new`.
    pub fn new(old: &[TextRange], new: &[TextRange]) -> Change {
        let mut before: BTreeMap<u64, u8> = BTreeMap::new();
        for range in new {
            before.extend((range.address.0..).zip(range.original.iter().copied()));
        }
        for range in old {
            before.extend((range.address.0..).zip(range.patched.iter().copied()));
        }
        let steps = transition(old, new);
        Change(steps.iter().map(|step| pieces(step, &before)).collect())
    }

    /// Carries it out.
    ///
    /// # Errors
    /// The medium's, and what the text is then.
    pub fn carry_out(&self, medium: &mut impl Medium) -> Result<(), Failure> {
        if self.0.is_empty() {
            return Ok(());
        }
        // Where there are no barriers nothing is begun.
        medium
            .synchronise()
            .map_err(|error| Failure { error, is_undone: true })?;
        for (number, step) in self.0.iter().enumerate() {
            let mut begun = 0;
            let written = step.iter().try_for_each(|piece| {
                begun += 1;
                medium.write(piece.address, &piece.after)
            });
            let is_last = number + 1 == self.0.len();
            // Behind the last step none is needed: a processor that still sees a trap is redirected.
            let done = written.and_then(|()| if is_last { Ok(()) } else { medium.synchronise() });
            if let Err(error) = done {
                let is_undone = number == 0 && undo(step.iter().take(begun), medium);
                return Err(Failure { error, is_undone });
            }
        }
        // For the sake of speed: without it is right as well.
        let _ = medium.synchronise();
        Ok(())
    }
}

/// Whether all bytes are what they were.
fn undo<'a>(pieces: impl Iterator<Item = &'a Piece>, medium: &mut impl Medium) -> bool {
    let mut is_undone = true;
    for piece in pieces {
        is_undone &= medium.write(piece.address, &piece.before).is_ok();
    }
    is_undone
}

fn pieces(step: &BTreeMap<TargetAddress, u8>, before: &BTreeMap<u64, u8>) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    for (address, byte) in step {
        // Of what adjoins every byte is still the old one or the new one, and within a step nothing comes first.
        let old = before.get(&address.0).copied().unwrap_or(*byte);
        match pieces.last_mut() {
            Some(last) if last.address + last.after.len() as u64 == address.0 => {
                last.before.push(old);
                last.after.push(*byte);
            }
            _ => pieces.push(Piece {
                address: address.0,
                before: vec![old],
                after: vec![*byte],
            }),
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    #![allow(
        clippy::unwrap_used,
        clippy::indexing_slicing,
        reason = "a panic is how a test fails"
    )]

    use super::*;

    const START: u64 = 0x1000;
    /// push rbp; mov rbp, rsp; push rbx; nop.
    const CODE: [u8; 6] = [0x55, 0x48, 0x89, 0xe5, 0x53, 0x90];
    const STARTS: [usize; 4] = [0, 1, 4, 5];

    /// Fails at one of its calls, and at all behind it that are of the same kind.
    struct Failing {
        text: Vec<u8>,
        calls: usize,
        fails_at: usize,
        writes_fail: bool,
    }

    impl Failing {
        fn call(&mut self, is_write: bool) -> Result<(), Error> {
            self.calls += 1;
            if self.calls > self.fails_at && self.writes_fail == is_write {
                return Err(Error::Limit("as the test wants it"));
            }
            Ok(())
        }
    }

    impl Medium for Failing {
        fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Error> {
            self.call(true)?;
            let from = (address - START) as usize;
            self.text[from..from + bytes.len()].copy_from_slice(bytes);
            Ok(())
        }

        fn synchronise(&mut self) -> Result<(), Error> {
            self.call(false)
        }
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

    /// Whether at a start there is what traps, the old jump or the new one, or the instruction that the function has there.
    fn is_right_at(start: usize, text: &[u8], before: &[u8], after: &[u8]) -> bool {
        const JUMP: usize = 5;
        let end = STARTS.into_iter().find(|next| *next > start).unwrap_or(CODE.len());
        let is_jump = |patched: &[u8]| start == 0 && text[..JUMP] == patched[..JUMP];
        nanoprobe_patch::is_trapping_byte(text[start])
            || is_jump(before)
            || is_jump(after)
            || text[start..end] == CODE[start..end]
    }

    /// Wherever it fails: the text is the old one, if that is said, and else at each start the whole old instruction, the
    /// whole new one, or what traps.
    #[test]
    fn what_fails_leaves_the_old_text_or_one_that_traps() {
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
                        match Change::new(&old, &new).carry_out(&mut medium) {
                            Ok(()) => assert_eq!(medium.text, after),
                            Err(failure) if failure.is_undone => {
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

    /// The next change begins from what is there, and comes to its end.
    #[test]
    fn a_change_goes_on_from_a_text_that_another_has_left() {
        for new in patches() {
            let jump = &patches()[1];
            let mut medium = Failing {
                text: CODE.to_vec(),
                calls: 0,
                fails_at: 4,
                writes_fail: false,
            };
            let failure = Change::new(&[], jump).carry_out(&mut medium).unwrap_err();
            assert!(!failure.is_undone);
            let left = range(&medium.text[..5]);
            medium.fails_at = usize::MAX;
            Change::new(&left, &new).carry_out(&mut medium).unwrap();
            assert_eq!(medium.text, text_of(&new));
        }
    }
}
