//! The snapshot of readable memory. The agent reads inside of it directly, and asks the kernel outside of it.
//!
//! A few places in the arena are used in turn: a thread may still be searching the snapshot before last.

use nanoprobe_arena::layout::Range;
use nanoprobe_arena::{ControlBlock, Memory as _, Structure as _};
use nanoprobe_patch::TargetAddress;

use crate::attachment::Attachment;
use crate::error::SessionError;

/// How many snapshots are kept.
const PLACES: usize = 4;
/// Ranges of a snapshot at most. Memory in further ranges is read by way of the kernel.
const RANGES_MAX: usize = 4096;

/// Publishes snapshots.
#[derive(Default)]
pub struct Publisher {
    places: Vec<TargetAddress>,
    next: usize,
    last: Vec<(u64, u64)>,
}

impl Publisher {
    /// Reads the target's map, and publishes it when it has changed.
    ///
    /// # Errors
    /// The map cannot be read, or the arena is full.
    pub fn publish(&mut self, attachment: &mut Attachment) -> Result<(), SessionError> {
        let readable = attachment.process.map()?.readable();
        let ranges: Vec<(u64, u64)> = readable
            .iter()
            .take(RANGES_MAX)
            .map(|range| (range.start.0, range.end.0))
            .collect();
        if ranges == self.last {
            return Ok(());
        }
        while self.places.len() < PLACES {
            self.places
                .push(attachment.room.growth.reserve((RANGES_MAX * Range::BYTES) as u64, 64)?);
        }
        let Some(place) = self.places.get(self.next % PLACES) else {
            return Ok(());
        };
        let offset = place.0 - attachment.addresses.arena.0;
        let memory = attachment.memory()?;
        for (index, (start, end)) in ranges.iter().enumerate() {
            memory.write_structure(
                offset + (index * Range::BYTES) as u64,
                &Range {
                    start: *start,
                    end: *end,
                },
            )?;
        }
        ControlBlock::open(memory)?.publish_ranges(offset, ranges.len() as u32)?;
        self.next += 1;
        self.last = ranges;
        Ok(())
    }
}
