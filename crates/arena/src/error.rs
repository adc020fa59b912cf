//! What is wrong with an arena.

use crate::memory::OutOfBounds;

/// The arena holds an impossible value: the target, or another program, has overwritten it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Corrupt {
    /// An offset points outside of the arena.
    #[error("the arena is damaged: {0}")]
    Bounds(#[from] OutOfBounds),
    /// The control block is not one of ours.
    #[error("the arena is damaged: no control block (magic {0:#x})")]
    Magic(u64),
    /// The kernel could not give pages of it: no memory is left, or the file was cut off.
    #[error("the arena is damaged: {pages} of its pages were lost; is the machine out of memory?")]
    Lost { pages: u64 },
    /// A table says that it has more entries than there is room for.
    #[error("the arena is damaged: {what} has {count} entries")]
    Count {
        /// Which table.
        what: &'static str,
        /// What it says.
        count: u64,
    },
    /// A site's length is not that of a patch.
    #[error("the arena is damaged: the site at {address:#x} has a length of {length}")]
    SiteLength { address: u64, length: u32 },
    /// A ring's head is where no writer could have put it.
    #[error("the ring is damaged: head {head:#x}, tail {tail:#x}; records up to the head are lost")]
    RingHead {
        /// The number of written bytes, according to the ring.
        head: u64,
        /// Bytes consumed.
        tail: u64,
    },
    /// A record's size is impossible where it lies.
    #[error("the ring is damaged: a record of {bytes} bytes at {position:#x}; records up to the head are lost")]
    Record {
        /// Where the record begins, in bytes since the start of the ring.
        position: u64,
        /// Its size, according to the record.
        bytes: u32,
    },
    /// A table of aggregations or variables contradicts itself.
    #[error("the arena is damaged: the table at {table:#x} is inconsistent at {offset:#x}")]
    Table {
        /// Offset of the table in the arena.
        table: u64,
        /// Offset in the table of the wrong value.
        offset: u64,
    },
}
