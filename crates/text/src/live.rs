//! A text that threads execute while it is changed. A tracing session changes another process's text and stops its
//! threads one by one. The library changes its own process's text, and stops none. Both use [`crate::change`].

use nanoprobe_patch::TargetAddress;

use crate::moves::Moves;
use crate::pieces::Piece;

/// A live text.
pub trait LiveText {
    type Error;

    /// Reads text. Returns false if some of it cannot be read; then `bytes` may hold anything.
    fn read(&self, address: TargetAddress, bytes: &mut [u8]) -> bool;

    /// Writes pieces, in this order or as if at once. Either all bytes of a piece are written, or none. Yields the
    /// pieces that were left out because the text is not mapped, or does not hold the piece's old bytes: another
    /// program has changed it. An implementation whose changes are checked beforehand may leave nothing out.
    ///
    /// # Errors
    /// The piece that could not be written, and perhaps those after it, hold the old bytes or the new ones.
    /// [`Unfinished::begun`] counts every piece that was begun.
    fn exchange(
        &mut self,
        pieces: &mut dyn Iterator<Item = Piece<'_>>,
    ) -> Result<Vec<TargetAddress>, Unfinished<Self::Error>>;

    /// Returns when no processor holds an instruction of the text that it fetched before. An implementation that
    /// examines threads for this purpose moves the threads that stand at an address of `standing`.
    ///
    /// # Errors
    /// Some processor may still hold such an instruction.
    fn synchronise(&mut self, standing: &Standing<'_>) -> Result<(), Self::Error>;

    /// Called before the first byte changes.
    ///
    /// # Errors
    /// Something that is needed later is missing, so nothing is begun.
    fn begin(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }

    /// Called after the last byte has changed. A processor that still sees a trap there is redirected, so no
    /// barrier is needed.
    fn end(&mut self) {}
}

/// Threads to move, see [`LiveText::synchronise`].
pub struct Standing<'a> {
    /// The addresses of threads to move, and where each goes.
    pub moves: &'a Moves,
    /// Whether to move sleeping threads, too. Moving takes a stop, which wakes a thread that sleeps in a system call.
    /// The thread then makes the call again.
    pub sleepers_too: bool,
}

/// An exchange that failed before all pieces were written.
#[derive(Debug)]
pub struct Unfinished<E> {
    pub error: E,
    /// How many pieces were begun.
    pub begun: usize,
}
