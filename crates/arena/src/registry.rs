//! The list of the probes that a program has put on itself by libnanoprobe, for readers outside
//! of the program.
//!
//! ```text
//!   a private mapping named /memfd:nanoprobe-probes in the program's map
//!     0     head    magic; version; rows; where the list of threads' blocks begins; what lies where in a block
//!     64    row 0   address | order of registration | kind, tactic, enabled        one for each index of counters
//!     88    row 1   ...
//! ```
//! The list has no counts of hits and misses. A count is a sum over all threads, because the path of
//! a hit may not share memory between threads. So the reader walks the threads' blocks, as the
//! library itself does. The writer first marks a row as free, then writes it, and writes its kind
//! last. The reader accepts a row when two readings agree.

use std::collections::HashSet;

/// The name of the mapping.
pub const NAME: &str = "nanoprobe-probes";
/// The first word of the list's head.
pub const MAGIC: u64 = u64::from_le_bytes(*b"NPPROBES");
/// The version of the layout.
pub const VERSION: u32 = 1;
/// Offset of the first row.
pub const HEAD_BYTES: usize = 64;
/// Bytes of a row.
pub const ROW_BYTES: usize = 24;
/// Bit of [`Row::state`]: the probe's handlers run.
pub const ENABLED: u64 = 1 << 16;
/// Bit of [`Row::state`]: only the kernel counts the probe's hits.
pub const UNCOUNTED: u64 = 1 << 17;

/// The reader accepts at most this many rows.
const ROWS_MAX: u32 = 1 << 16;
/// The most bytes of threads' blocks that are read, because reading hostile data must end.
const BLOCKS_BYTES_MAX: u64 = 1 << 28;
/// Bytes of one pair of counters: hits and missed hits.
const COUNTERS_BYTES: u64 = 16;
/// How often a row that changes is read again.
const ATTEMPTS: usize = 8;

/// The list's head, in which the library writes where the list's parts lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The number of rows in the list.
    pub rows: u32,
    /// Address of the pointer to the first block of a thread.
    pub threads: u64,
    /// Offset, in a block, of the address of the next block.
    pub next_offset: u32,
    /// Offset, in a block, of the counters: a pair for each row.
    pub counters_offset: u32,
}

/// A row of the list: one probe, or free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// The address of the instruction, or of the watched data.
    pub address: u64,
    /// The order of registration.
    pub order: u64,
    /// `enum np_kind`, `enum np_tactic` << 8, [`ENABLED`], [`UNCOUNTED`]; 0: the row is free.
    pub state: u64,
}

/// A probe in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    pub row: Row,
    /// The numbers of hits and missed hits; `None`: only the program itself can read them.
    pub counts: Option<(u64, u64)>,
}

/// Why there is no list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// The mapping with this name is not the library's.
    #[error("the mapping {NAME} is not libnanoprobe's, or not finished")]
    Foreign,
    /// The list is of another version of the library.
    #[error("the list of probes has version {0}, this nanoprobe knows {VERSION}")]
    Version(u32),
    /// The head contradicts itself.
    #[error("the list of probes is damaged: {0}")]
    Damaged(&'static str),
    /// The memory cannot be read any more.
    #[error("the program's memory cannot be read at {0:#x}")]
    Unreadable(u64),
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let found = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
    u32::from_le_bytes(found.unwrap_or_default())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let found = bytes.get(at..at + 8).and_then(|word| word.try_into().ok());
    u64::from_le_bytes(found.unwrap_or_default())
}

impl Head {
    /// The bytes of the head, except the magic, which is written last.
    pub fn to_bytes(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        let words = [
            u64::from(VERSION) | u64::from(self.rows) << 32,
            self.threads,
            u64::from(self.next_offset) | u64::from(self.counters_offset) << 32,
        ];
        for (to, from) in bytes
            .iter_mut()
            .skip(8)
            .zip(words.iter().flat_map(|word| word.to_le_bytes()))
        {
            *to = from;
        }
        bytes
    }

    /// Checks a head.
    ///
    /// # Errors
    /// The head contradicts itself.
    pub fn from_bytes(bytes: &[u8], mapped: u64) -> Result<Head, RegistryError> {
        if u64_at(bytes, 0) != MAGIC {
            return Err(RegistryError::Foreign);
        }
        let version = u32_at(bytes, 8);
        if version != VERSION {
            return Err(RegistryError::Version(version));
        }
        let head = Head {
            rows: u32_at(bytes, 12),
            threads: u64_at(bytes, 16),
            next_offset: u32_at(bytes, 24),
            counters_offset: u32_at(bytes, 28),
        };
        let bytes = HEAD_BYTES as u64 + u64::from(head.rows) * ROW_BYTES as u64;
        if head.rows > ROWS_MAX || bytes > mapped {
            return Err(RegistryError::Damaged("more rows than there is room for"));
        }
        Ok(head)
    }
}

impl Row {
    fn from_bytes(bytes: &[u8]) -> Row {
        Row {
            address: u64_at(bytes, 0),
            order: u64_at(bytes, 8),
            state: u64_at(bytes, 16),
        }
    }

    /// `enum np_kind`: a letter; 0: the row is free.
    pub fn kind(&self) -> u8 {
        self.state as u8
    }

    /// `enum np_tactic`.
    pub fn tactic(&self) -> u8 {
        (self.state >> 8) as u8
    }

    /// Whether the probe is enabled, so that its handlers run.
    pub fn is_enabled(&self) -> bool {
        self.state & ENABLED != 0
    }
}

/// Reads the list at `start`, in a mapping of `mapped` bytes. The result is in the order of address,
/// then of registration. `read` fills a buffer from the program's memory, or returns `false`.
///
/// # Errors
/// The list is damaged. Whatever it contains, this call ends soon.
pub fn read(start: u64, mapped: u64, read: &dyn Fn(u64, &mut [u8]) -> bool) -> Result<Vec<Listed>, RegistryError> {
    let fetch = |address: u64, bytes: usize| {
        let mut found = vec![0; bytes];
        let is_read = read(address, &mut found);
        is_read.then_some(found).ok_or(RegistryError::Unreadable(address))
    };
    let head = Head::from_bytes(&fetch(start, HEAD_BYTES)?, mapped)?;
    let rows = rows(start + HEAD_BYTES as u64, head.rows as usize, &fetch)?;
    let used = rows.iter().rposition(|row| row.kind() != 0).map_or(0, |last| last + 1);
    let counts = counts(&head, used, &fetch)?;
    let taken = rows.into_iter().zip(counts).filter(|(row, _)| row.kind() != 0);
    let mut listed: Vec<Listed> = taken
        .map(|(row, counts)| Listed {
            row,
            counts: (row.state & UNCOUNTED == 0).then_some(counts),
        })
        .collect();
    listed.sort_by_key(|one| (one.row.address, one.row.order));
    Ok(listed)
}

type Fetch<'a> = dyn Fn(u64, usize) -> Result<Vec<u8>, RegistryError> + 'a;

fn rows(start: u64, count: usize, fetch: &Fetch) -> Result<Vec<Row>, RegistryError> {
    let all = |bytes: Vec<u8>| bytes.chunks_exact(ROW_BYTES).map(Row::from_bytes).collect::<Vec<_>>();
    let first = all(fetch(start, count * ROW_BYTES)?);
    let mut again = all(fetch(start, count * ROW_BYTES)?);
    for (index, (before, now)) in first.iter().zip(again.iter_mut()).enumerate() {
        let mut before = *before;
        for _ in 0..ATTEMPTS {
            if before == *now {
                break;
            }
            before = *now;
            *now = Row::from_bytes(&fetch(start + (index * ROW_BYTES) as u64, ROW_BYTES)?);
        }
        if before != *now {
            // The row changes too fast to be read, so it counts as free.
            *now = Row::default();
        }
    }
    Ok(again)
}

/// The sums of hits and misses over the blocks of all threads.
fn counts(head: &Head, used: usize, fetch: &Fetch) -> Result<Vec<(u64, u64)>, RegistryError> {
    let mut sums = vec![(0_u64, 0_u64); head.rows as usize];
    let mut block = u64_at(&fetch(head.threads, 8)?, 0);
    let mut seen = HashSet::new();
    let mut bytes = 0;
    while block != 0 && used != 0 {
        bytes += used as u64 * COUNTERS_BYTES + 8;
        if !seen.insert(block) || bytes > BLOCKS_BYTES_MAX {
            return Err(RegistryError::Damaged("the threads' blocks have no end"));
        }
        let counters = block.wrapping_add(u64::from(head.counters_offset));
        let pairs = fetch(counters, used * COUNTERS_BYTES as usize)?;
        for (sum, pair) in sums.iter_mut().zip(pairs.chunks_exact(COUNTERS_BYTES as usize)) {
            sum.0 = sum.0.wrapping_add(u64_at(pair, 0));
            sum.1 = sum.1.wrapping_add(u64_at(pair, 8));
        }
        block = u64_at(&fetch(block.wrapping_add(u64::from(head.next_offset)), 8)?, 0);
    }
    Ok(sums)
}
