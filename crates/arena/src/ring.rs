//! Takes records from a thread's ring.
//!
//! `agent/ring.c` has the writer's side and the drawing. The reader does this:
//!
//! 1. Load the head. If the head equals the tail, there is no record.
//! 2. Check the size of the entry at the tail. A filler reaches exactly to the ring's end. A record
//!    has at least a header, and ends before the head and before the ring's end.
//! 3. Copy the entry. Under the policy overwrite, check whether the writer has given it up meanwhile.
//!    Then the copy may be torn: discard it, and continue at the oldest record that is left.
//! 4. Move the tail. It is stored, which gives the room back to the writer, when much was read or
//!    nothing is left.
//!
//! Anything impossible is damage. Damage is counted and reported once, and reading continues at the
//! position that the head had then.

use core::mem::offset_of;

use crate::error::Corrupt;
use crate::layout::{Context, RING_OVERWRITE, RecordHeader};
use crate::memory::Memory;
use crate::plan::ContextPlan;
use crate::structure::Structure;

const HEADER: u64 = size_of::<RecordHeader>() as u64;
/// How many times in a row the writer may give a record up while it is read, before the reader stops.
const OVERTAKEN_MAX: u32 = 64;
/// The tail is stored each time when this part (an eighth) of the ring has been read.
const PUBLISHED_PART: u64 = 8;

/// One record, copied out of the ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The enabled probe; with `RECORD_ERROR` set the payload is an `ErrorRecord`.
    pub epid: u32,
    /// Time stamp counter.
    pub tsc: u64,
    pub cpu: u32,
    pub tid: u32,
    /// The bytes after the header.
    pub payload: Vec<u8>,
}

/// Reads one thread's ring. The tracer is its only reader.
#[derive(Clone, Debug)]
pub struct RingReader {
    context: u64,
    ring: u64,
    bytes: u64,
    policy: u32,
    tail: u64,
    /// The tail that the reader has last stored in the arena for the writer.
    published: u64,
    delivered: u64,
    corrupted: u64,
}

enum Look {
    Empty,
    Again,
    Found(Record),
}

impl RingReader {
    /// A reader of the ring of the context at offset `context`; `policy` is one of `RING_*`. If the
    /// plan has no ring, the reader finds no record.
    pub fn new(context: u64, plan: &ContextPlan, policy: u32) -> Self {
        Self {
            context,
            ring: context.wrapping_add(plan.ring),
            bytes: plan.ring_bytes,
            policy,
            tail: 0,
            published: 0,
            delivered: 0,
            corrupted: 0,
        }
    }

    /// The oldest record not yet returned; `None`: there is none now. Reading can continue after an error.
    pub fn next<M: Memory>(&mut self, memory: &M) -> Result<Option<Record>, Corrupt> {
        if self.bytes == 0 {
            return Ok(None);
        }
        // Usually at most two rounds: a filler, then a record. More are needed only when the writer overtakes the
        // reader.
        for _ in 0..OVERTAKEN_MAX {
            match self.look(memory)? {
                Look::Empty => return Ok(None),
                Look::Again => {}
                Look::Found(record) => {
                    self.delivered += 1;
                    return Ok(Some(record));
                }
            }
        }
        Ok(None)
    }

    /// The number of records returned.
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// How often the ring was found damaged.
    pub fn corrupted(&self) -> u64 {
        self.corrupted
    }

    /// The number of records that found no room, as the target counts them.
    pub fn drops<M: Memory>(&self, memory: &M) -> Result<u64, Corrupt> {
        Ok(memory.load_u64(self.field(offset_of!(Context, ring_drops)))?)
    }

    /// The number of records that were committed and have not been returned. If [`RingReader::next`] has just
    /// returned none and the writer is at rest, these records are lost: overwritten, or skipped after damage.
    pub fn outstanding<M: Memory>(&self, memory: &M) -> Result<u64, Corrupt> {
        let written = memory.load_u64(self.field(offset_of!(Context, ring_records)))?;
        Ok(written.saturating_sub(self.delivered))
    }

    fn field(&self, offset: usize) -> u64 {
        self.context.wrapping_add(offset as u64)
    }

    fn look<M: Memory>(&mut self, memory: &M) -> Result<Look, Corrupt> {
        // The order of the two loads matters: the head never lies before a position that was loaded earlier.
        if let Some(oldest) = self.overtaken(memory)? {
            self.move_tail(memory, oldest)?;
        }
        let head = memory.load_u64(self.field(offset_of!(Context, ring_head)))?;
        let available = head.wrapping_sub(self.tail);
        if available == 0 {
            self.publish(memory)?;
            return Ok(Look::Empty);
        }
        let damage = if available > self.bytes || !head.is_multiple_of(8) {
            Corrupt::RingHead { head, tail: self.tail }
        } else {
            match self.record(memory, available)? {
                Ok((record, bytes)) => {
                    if self.overtaken(memory)?.is_some() {
                        return Ok(Look::Again);
                    }
                    self.move_tail(memory, self.tail.wrapping_add(bytes))?;
                    return Ok(record.map_or(Look::Again, Look::Found));
                }
                Err(bytes) => Corrupt::Record {
                    position: self.tail,
                    bytes,
                },
            }
        };
        // This is not damage: the writer has overwritten the record at the tail. Then the head is too far away, or the
        // size is a word in the middle of a newer record.
        if self.overtaken(memory)?.is_some() {
            return Ok(Look::Again);
        }
        self.corrupted += 1;
        self.move_tail(memory, head & !7)?;
        self.publish(memory)?;
        Err(damage)
    }

    /// Under the policy overwrite: where the oldest remaining record begins, if the writer has given up
    /// the record at the tail. A senseless position is detected later, by comparing the head with it.
    fn overtaken<M: Memory>(&self, memory: &M) -> Result<Option<u64>, Corrupt> {
        if self.policy != RING_OVERWRITE {
            return Ok(None);
        }
        let oldest = memory.load_u64(self.field(offset_of!(Context, ring_overwritten)))? & !7;
        let ahead = oldest.wrapping_sub(self.tail);
        // Positions wrap around. A position that is ahead of the tail by more than half of all positions really
        // lies before the tail.
        Ok((ahead != 0 && ahead <= u64::MAX / 2).then_some(oldest))
    }

    /// The entry at the tail and its size: a record, or `None` for a filler. `Err`: an impossible size.
    fn record<M: Memory>(&self, memory: &M, available: u64) -> Result<Result<(Option<Record>, u64), u32>, Corrupt> {
        let place = self.tail % self.bytes;
        let to_end = self.bytes - place;
        let at = self.ring.wrapping_add(place);
        // A filler may be as short as its first word, so only that word is read at first.
        let word = memory.load_u64(at)?;
        let (epid, size) = (word as u32, (word >> 32) as u32);
        let bytes = u64::from(size);
        if !bytes.is_multiple_of(8) || bytes > available || bytes > to_end {
            return Ok(Err(size));
        }
        if epid == 0 {
            return Ok(if bytes == to_end { Ok((None, bytes)) } else { Err(size) });
        }
        if bytes < HEADER {
            return Ok(Err(size));
        }
        let raw = memory.copy(at, bytes)?;
        // The sizes were checked on the first copy of the first word; the second copy may differ.
        let header = RecordHeader::from_bytes(&raw).unwrap_or_default();
        let payload = raw.get(HEADER as usize..).unwrap_or_default().to_vec();
        let record = Record {
            epid,
            tsc: header.tsc,
            cpu: header.cpu,
            tid: header.tid,
            payload,
        };
        Ok(Ok((Some(record), bytes)))
    }

    fn move_tail<M: Memory>(&mut self, memory: &M, tail: u64) -> Result<(), Corrupt> {
        self.tail = tail;
        if tail.wrapping_sub(self.published) >= self.bytes / PUBLISHED_PART {
            self.publish(memory)?;
        }
        Ok(())
    }

    /// Stores the tail, so that the writer may use the room of the records that were read. The writer loads the tail
    /// at every record. If the tail changed each time, passing its cache line between the two processors would cost
    /// more than the record. So the tail is stored after every [`PUBLISHED_PART`]th of the ring, and when nothing is
    /// left to read.
    fn publish<M: Memory>(&mut self, memory: &M) -> Result<(), Corrupt> {
        if self.published != self.tail {
            memory.store_u64(self.field(offset_of!(Context, ring_tail)), self.tail)?;
            self.published = self.tail;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
