//! What one step of a change writes: adjoining bytes in one piece. All pieces share two buffers, since there may be
//! hundreds of thousands of pieces of a few bytes each.

use nanoprobe_patch::{TargetAddress, TextRange};

use crate::bytes::Bytes;

/// The pieces of a step, ascending.
#[derive(Clone, Debug, Default)]
pub struct Pieces {
    /// Where each begins, in the text and in the buffers.
    starts: Vec<(TargetAddress, usize)>,
    before: Vec<u8>,
    after: Vec<u8>,
}

/// Adjoining bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// Where.
    pub address: TargetAddress,
    /// What is there.
    pub before: &'a [u8],
    /// The new bytes, as many as the old ones.
    pub after: &'a [u8],
}

impl Pieces {
    /// Pieces from ascending bytes. `now`: the bytes that are there; a byte that it does not have is not written.
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
    /// The same piece, taken back.
    pub(crate) fn undone(self) -> Self {
        Piece {
            before: self.after,
            after: self.before,
            ..self
        }
    }
}

/// The bytes of ranges of text: the original ones or the patch's, as `which` says.
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
