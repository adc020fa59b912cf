//! The bytes that one step of a change writes: adjoining bytes in one piece. All pieces share two buffers, since there
//! may be hundreds of thousands of pieces of a few bytes each.
//!
//! A step changes only some bytes of a patch, but its pieces hold all of them. A piece is written only where all of the
//! patch is as the step before has left it. Otherwise half of a jump could be written. A library may be unloaded
//! between two steps, and loaded again at the same place. There all bytes are the original ones:
//!
//! ```text
//!                       push rbp; mov rbp, rsp; nop
//!   after step 1        cc  cc 89 e5  cc
//!   loaded again        55  48 89 e5  90
//!   step 2              cc  37 d1 c6  06       not written there, though 89 e5 is what the step expects
//! ```

use nanoprobe_patch::{TargetAddress, TextRange};

use crate::bytes::Bytes;

/// The pieces of a step, ascending.
#[derive(Clone, Debug, Default)]
pub struct Pieces {
    /// The start of each piece, in the text and in the buffers.
    starts: Vec<(TargetAddress, usize)>,
    before: Vec<u8>,
    after: Vec<u8>,
}

/// Adjoining bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    pub address: TargetAddress,
    /// The present bytes of the text.
    pub before: &'a [u8],
    /// The new bytes, as many as the old bytes.
    pub after: &'a [u8],
}

impl Pieces {
    /// Pieces from ascending bytes. `now`: the present bytes of the text. A byte that `now` lacks is not written.
    pub fn new(bytes: impl Iterator<Item = (u64, u8)>, now: &Bytes) -> Pieces {
        let mut pieces = Pieces::default();
        let mut next = None;
        let mut known = now.iter().peekable();
        for (address, after) in bytes {
            while known.next_if(|(other, _)| *other < address).is_some() {}
            let Some((_, before)) = known.next_if(|(other, _)| *other == address) else {
                continue;
            };
            if next != Some(address) {
                pieces.starts.push((TargetAddress(address), pieces.after.len()));
            }
            next = address.checked_add(1);
            pieces.before.push(before);
            pieces.after.push(after);
        }
        pieces
    }

    /// The pieces of a step that changes some bytes. `changed` is ascending, and `now` has the present bytes. A piece
    /// holds a changed byte and all bytes of `now` that adjoin it, changed or not.
    pub(crate) fn around(changed: impl Iterator<Item = (u64, u8)>, now: &Bytes) -> Pieces {
        let mut pieces = Pieces::default();
        let mut changed = changed.peekable();
        let mut known = now.iter().peekable();
        while let Some((start, first)) = known.next() {
            let from = pieces.after.len();
            pieces.before.push(first);
            let mut end = start;
            while let Some((address, byte)) = known.next_if(|(address, _)| end.checked_add(1) == Some(*address)) {
                end = address;
                pieces.before.push(byte);
            }
            pieces
                .after
                .extend_from_slice(pieces.before.get(from..).unwrap_or_default());
            while changed.next_if(|(address, _)| *address < start).is_some() {}
            let mut is_changed = false;
            while let Some((address, byte)) = changed.next_if(|(address, _)| *address <= end) {
                if let Some(after) = pieces.after.get_mut(from + (address - start) as usize) {
                    *after = byte;
                    is_changed = true;
                }
            }
            if is_changed {
                pieces.starts.push((TargetAddress(start), from));
            } else {
                pieces.before.truncate(from);
                pieces.after.truncate(from);
            }
        }
        pieces
    }

    /// Each piece.
    pub fn iter(&self) -> impl Iterator<Item = Piece<'_>> {
        let ends = self.starts.iter().skip(1).map(|(_, start)| *start);
        let ends = ends.chain([self.after.len()]);
        self.starts.iter().zip(ends).map(|((address, start), end)| Piece {
            address: *address,
            before: self.before.get(*start..end).unwrap_or_default(),
            after: self.after.get(*start..end).unwrap_or_default(),
        })
    }

    /// Every byte, with its new value.
    pub(crate) fn bytes(&self) -> impl Iterator<Item = (u64, u8)> {
        self.iter()
            .flat_map(|piece| (piece.address.0..).zip(piece.after.iter().copied()))
    }
}

impl Piece<'_> {
    /// These pieces, with old and new bytes exchanged.
    pub(crate) fn undone(self) -> Self {
        Piece {
            before: self.after,
            after: self.before,
            ..self
        }
    }
}

/// The bytes of ranges of text: `which` chooses between the original bytes and those of the patch.
pub fn bytes_of<'a>(
    ranges: &'a [TextRange],
    which: impl Fn(&'a TextRange) -> &'a Vec<u8> + 'a,
) -> impl Iterator<Item = (u64, u8)> + 'a {
    ranges
        .iter()
        .flat_map(move |range| (range.address.0..).zip(which(range).iter().copied()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_holds_all_bytes_around_a_changed_one() {
        let now: Bytes = [(1, 10), (2, 20), (3, 30), (5, 50), (8, 80), (9, 90)]
            .into_iter()
            .collect();
        let pieces = Pieces::around([(0, 1), (2, 21), (6, 61), (9, 91)].into_iter(), &now);
        let piece = |address, before, after| Piece {
            address: TargetAddress(address),
            before,
            after,
        };
        assert_eq!(
            pieces.iter().collect::<Vec<_>>(),
            [piece(1, &[10, 20, 30], &[10, 21, 30]), piece(8, &[80, 90], &[80, 91])],
            "what does not change, and what is not known to be there, is left alone"
        );
    }

    #[test]
    fn adjoining_bytes_are_one_piece() {
        let now: Bytes = [(1, 10), (2, 20), (3, 30), (5, 50)].into_iter().collect();
        let pieces = Pieces::new([(1, 11), (2, 21), (5, 51), (6, 61)].into_iter(), &now);
        let piece = |address, before, after| Piece {
            address: TargetAddress(address),
            before,
            after,
        };
        assert_eq!(
            pieces.iter().collect::<Vec<_>>(),
            [piece(1, &[10, 20], &[11, 21]), piece(5, &[50], &[51])],
            "what is not known to be there is left alone"
        );
        assert_eq!(pieces.bytes().collect::<Vec<_>>(), [(1, 11), (2, 21), (5, 51)]);
        assert_eq!(Pieces::default().iter().count(), 0);
    }
}
