//! Errors of an arena's contents.

use crate::memory::OutOfBounds;

/// The arena holds an impossible value: the target, or another program, has overwritten it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Corrupt {
    /// An offset points outside of the arena.
    #[error("the arena is damaged: {0}")]
    Bounds(#[from] OutOfBounds),
    /// The memory does not begin with a control block of nanoprobe.
    #[error("the arena is damaged: no control block (magic {0:#x})")]
    Magic(u64),
    /// The kernel could not provide pages of the arena: no memory is left, or the file was truncated.
    #[error("the arena is damaged: {pages} of its pages were lost; is the machine out of memory?")]
    Lost { pages: u64 },
    /// A table's count of entries exceeds the table's capacity.
    #[error("the arena is damaged: {what} has {count} entries")]
    Count {
        /// The name of the table.
        what: &'static str,
        /// The number of entries, according to the table.
        count: u64,
    },
    /// A site's length is not that of any patch.
    #[error("the arena is damaged: the site at {address:#x} has a length of {length}")]
    SiteLength { address: u64, length: u32 },
    /// A ring's head is where no writer could have put it.
    #[error("the ring is damaged: head {head:#x}, tail {tail:#x}; records up to the head are lost")]
    RingHead {
        /// The number of written bytes, according to the ring.
        head: u64,
        /// The number of bytes that were consumed.
        tail: u64,
    },
    /// A record has a size that is impossible at its position.
    #[error("the ring is damaged: a record of {bytes} bytes at {position:#x}; records up to the head are lost")]
    Record {
        /// Where the record begins, in bytes since the start of the ring.
        position: u64,
        /// The record's size, as the record states it.
        bytes: u32,
    },
    /// The fields of a table of aggregations or variables contradict each other.
    #[error("the arena is damaged: the table at {table:#x} is inconsistent at {offset:#x}")]
    Table {
        /// Offset of the table in the arena.
        table: u64,
        /// Offset in the table of the wrong value.
        offset: u64,
    },
}
