//! The target's text as a [`LiveText`]: running threads are stopped one by one.
//!
//! Each piece is compared first, and then written. Between the two a thread could unload the library there, and load
//! another one at the same place. So in libraries that can be unloaded, all threads are stopped from the comparison to
//! the end of the write. The program, the linker and the libraries that they need are never unloaded.

use std::ops::Range;

use nanoprobe_patch::TargetAddress;
use nanoprobe_target::{Memory, Pauses, Process, StopError, Stopped};
use nanoprobe_text::live::{LiveText, Standing, Unfinished};
use nanoprobe_text::moves::Moves;
use nanoprobe_text::pieces::Piece;

use crate::attachment::Attachment;
use crate::error::SessionError;

/// The text of a process.
pub(super) struct ProcessText<'a> {
    process: &'a Process,
    /// Where modules lie that the program never unloads.
    permanent: &'a [Range<u64>],
    /// For how long threads stood still.
    pauses: &'a mut Pauses,
}

impl<'a> ProcessText<'a> {
    /// The text of an attachment's process.
    pub fn of(attachment: &'a Attachment, pauses: &'a mut Pauses) -> ProcessText<'a> {
        ProcessText {
            process: &attachment.process,
            permanent: &attachment.permanent,
            pauses,
        }
    }

    fn may_be_unloaded(&self, piece: &Piece<'_>) -> bool {
        let end = piece.address.0.saturating_add(piece.after.len() as u64);
        let holds = |range: &Range<u64>| range.start <= piece.address.0 && end <= range.end;
        !self.permanent.iter().any(holds)
    }
}

impl LiveText for ProcessText<'_> {
    type Error = SessionError;

    fn read(&self, address: TargetAddress, bytes: &mut [u8]) -> bool {
        self.process.memory().read(address, bytes).is_ok()
    }

    fn exchange(
        &mut self,
        pieces: &mut dyn Iterator<Item = Piece<'_>>,
    ) -> Result<Vec<TargetAddress>, Unfinished<SessionError>> {
        let (passing, staying): (Vec<_>, Vec<_>) = pieces.partition(|piece| self.may_be_unloaded(piece));
        // Any of them may have been begun when an error is found.
        let begun = passing.len() + staying.len();
        let memory = self.process.memory();
        let written = exchange(memory, staying.into_iter()).and_then(|mut left_out| {
            if !passing.is_empty() {
                let stopped = match self.process.stop() {
                    Ok(stopped) => Some(stopped),
                    // A thread waits for a disk. Whole patches are compared all the same.
                    Err(StopError::Uninterruptible { .. }) => None,
                    Err(error) => return Err(error.into()),
                };
                let exchanged = exchange(memory, passing.into_iter());
                if let Some(stopped) = stopped {
                    self.pauses.add_whole(stopped.release());
                }
                left_out.extend(exchanged?);
            }
            Ok(left_out)
        });
        written.map_err(|error| Unfinished { error, begun })
    }

    fn synchronise(&mut self, standing: &Standing<'_>) -> Result<(), SessionError> {
        let mut visit = |stopped: &mut Stopped| move_threads(standing.moves, stopped);
        self.process.synchronise(standing.sleepers_too, self.pauses, &mut visit)
    }
}

/// Writes each piece if the text has the bytes that the piece expects. Yields the pieces that were not written.
pub(super) fn exchange<'a>(
    memory: &Memory,
    pieces: impl Iterator<Item = Piece<'a>>,
) -> Result<Vec<TargetAddress>, SessionError> {
    let pieces: Vec<(TargetAddress, &[u8], &[u8])> =
        pieces.map(|piece| (piece.address, piece.before, piece.after)).collect();
    Ok(memory.exchange_text(&pieces)?)
}

/// Moves the stopped threads.
pub(super) fn move_threads(moves: &Moves, stopped: &mut Stopped) -> Result<(), SessionError> {
    if moves.is_empty() {
        return Ok(());
    }
    let threads: Vec<i32> = stopped.threads().collect();
    for tid in threads {
        let mut registers = stopped.registers(tid)?;
        if let Some(place) = moves.place_of(registers.rip, Stopped::in_restart(&registers)) {
            registers.rip = place;
            stopped.set_registers(tid, &registers)?;
        }
    }
    Ok(())
}
