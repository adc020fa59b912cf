//! A text that threads execute while it is changed. A tracing session's is another process's, where threads are stopped
//! one by one; the library's is its own, where none is. What both share is [`crate::change`].

use nanoprobe_patch::TargetAddress;

use crate::moves::Moves;
use crate::pieces::Piece;

/// A live text.
pub trait LiveText {
    /// What fails.
    type Error;

    /// Reads text. False: not all of it can be read; `bytes` then hold anything.
    fn read(&self, address: TargetAddress, bytes: &mut [u8]) -> bool;

    /// Writes pieces, in this order or as if at once. All of a piece is written, or nothing of it. Yields those that
    /// were left out because the text does not hold what the piece says, or is not mapped: somebody else's. A text
    /// whose changes are checked beforehand may leave nothing out.
    ///
    /// # Errors
    /// The piece that could not be written, and perhaps those after it, hold the old bytes or the new ones. No piece
    /// was begun that [`Unfinished::begun`] does not count.
    fn exchange(
        &mut self,
        pieces: &mut dyn Iterator<Item = Piece<'_>>,
    ) -> Result<Vec<TargetAddress>, Unfinished<Self::Error>>;

    /// Returns when no processor holds an instruction of the text that it fetched before. Where threads are looked at
    /// for that, those that stand at an address of `standing` are moved.
    ///
    /// # Errors
    /// Some processor may hold one.
    fn synchronise(&mut self, standing: &Standing<'_>) -> Result<(), Self::Error>;

    /// Before the first byte changes.
    ///
    /// # Errors
    /// What is needed later will not be had: so nothing is begun.
    fn begin(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// After the last byte has changed. A processor that still sees a trap there is redirected: so nothing is owed.
    fn end(&mut self) {}
}

/// Threads to move, see [`LiveText::synchronise`].
pub struct Standing<'a> {
    /// From where to where.
    pub moves: &'a Moves,
    /// Whether those count that sleep in a system call: to wake them by a stop would have them make it again.
    pub sleepers_too: bool,
}

/// Pieces that were not all written.
#[derive(Debug)]
pub struct Unfinished<E> {
    /// Why.
    pub error: E,
    /// How many were begun.
    pub begun: usize,
}
