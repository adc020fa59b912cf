//! The target's text as a [`LiveText`]: running threads are stopped one by one.

use nanoprobe_patch::TargetAddress;
use nanoprobe_target::{Memory, Pauses, Process, Stopped};
use nanoprobe_text::live::{LiveText, Standing, Unfinished};
use nanoprobe_text::moves::Moves;
use nanoprobe_text::pieces::Piece;

use crate::error::SessionError;

/// The text of a process.
pub(super) struct ProcessText<'a> {
    process: &'a Process,
    /// For how long threads stood still.
    pauses: &'a mut Pauses,
}

impl<'a> ProcessText<'a> {
    pub fn new(process: &'a Process, pauses: &'a mut Pauses) -> ProcessText<'a> {
        ProcessText { process, pauses }
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
        let mut begun = 0;
        let counted = pieces.inspect(|_| begun += 1);
        let left_out = exchange(self.process.memory(), counted);
        left_out.map_err(|error| Unfinished { error, begun })
    }

    fn synchronise(&mut self, standing: &Standing<'_>) -> Result<(), SessionError> {
        let mut visit = |stopped: &mut Stopped| move_threads(standing.moves, stopped);
        self.process.synchronise(standing.sleepers_too, self.pauses, &mut visit)
    }
}

/// Writes pieces where the text is as they say, and yields the pieces that it has left out.
pub(super) fn exchange<'a>(
    memory: &Memory,
    pieces: impl Iterator<Item = Piece<'a>>,
) -> Result<Vec<TargetAddress>, SessionError> {
    let pieces: Vec<(TargetAddress, &[u8], &[u8])> =
        pieces.map(|piece| (piece.address, piece.before, piece.after)).collect();
    Ok(memory.exchange_text(&pieces)?)
}

/// Moves those threads that are stopped.
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
