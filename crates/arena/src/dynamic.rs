//! Dynamic variables on the tracer's side. Its own clauses (`BEGIN`, `tick-1s`, `END`) read and
//! write the same associative arrays as the target's threads, under the same bucket locks.
//! `agent/dynamic.c` is the other half.
//!
//! A lock is only tried, because the thread that holds it may be stopped by a debugger, or may have
//! been killed. If the lock is not free, the result is [`DynamicError::Busy`]. The caller then drops
//! the access, and counts it.

use core::hint;
use core::mem::offset_of;

use crate::error::Corrupt;
use crate::hash::hash_key;
use crate::layout::{DYNAMIC_SPINS, DynamicBucket, DynamicEntry, DynamicTable};
use crate::memory::{Memory, OutOfBounds};
use crate::structure::Structure;

/// How many entries of one bucket are searched, as in the agent.
const CHAIN_MAX: u32 = 4096;

/// Why an access to a dynamic variable did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DynamicError {
    /// The table is damaged.
    #[error(transparent)]
    Corrupt(#[from] Corrupt),
    /// Another thread holds the bucket's lock.
    #[error("a dynamic variable could not be reached: its bucket stays locked")]
    Busy,
    /// No room for a new entry.
    #[error("no room for a dynamic variable (see the option dynvarsize)")]
    Full,
}

impl From<OutOfBounds> for DynamicError {
    fn from(error: OutOfBounds) -> Self {
        Self::Corrupt(error.into())
    }
}

/// A dynamic variable's entry, copied out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DynamicValue {
    /// The variable's id; bit 31: thread-local.
    pub variable: u32,
    /// The elements of the key, in their order.
    pub key: Vec<u8>,
    /// Eight bytes of an integer, or a string with its NUL and zeros.
    pub value: Vec<u8>,
}

/// The table of dynamic variables in an arena.
#[derive(Clone, Copy, Debug)]
pub struct DynamicVariables {
    table: u64,
    bytes: u64,
    buckets: u64,
}

struct Chain {
    bucket: u64,
    hash: u32,
    /// Offset in the arena of the key's entry.
    found: Option<u64>,
    /// Offset of a deleted entry with the sizes of the searched key, which may take its place.
    spare: Option<u64>,
}

const ENTRY: u64 = size_of::<DynamicEntry>() as u64;
const LIVE: u64 = offset_of!(DynamicEntry, live) as u64;

impl DynamicVariables {
    /// A table of `bytes` bytes at offset `table`, laid out by [`DynamicVariables::initialise`].
    pub fn new(table: u64, bytes: u64) -> Self {
        // The number of buckets is a power of two, with one bucket for 64 to 128 bytes. That is about the number of
        // entries that fit.
        Self {
            table,
            bytes: bytes & !7,
            buckets: (bytes >> 7).clamp(1, 1 << 31).next_power_of_two(),
        }
    }

    /// Bytes of the header and the buckets; a table must be larger.
    fn first_entry(&self) -> u64 {
        DynamicTable::BYTES as u64 + self.buckets * DynamicBucket::BYTES as u64
    }

    /// The bytes of the table that are in use, from its start: the rest is zero.
    pub fn used<M: Memory>(&self, memory: &M) -> Result<u64, OutOfBounds> {
        let used = memory.load_u64(self.table.wrapping_add(offset_of!(DynamicTable, used) as u64))?;
        Ok(used.clamp(self.first_entry(), self.bytes.max(self.first_entry())))
    }

    /// Writes the head of an empty table over zeros.
    pub fn initialise<M: Memory>(&self, memory: &M) -> Result<(), OutOfBounds> {
        crate::memory::check(memory.bytes(), self.table, self.bytes)?;
        let used = self.first_entry();
        memory.write_structure(
            self.table,
            &DynamicTable {
                bytes: self.bytes,
                used,
                bucket_mask: self.buckets - 1,
                reserved: 0,
            },
        )
    }

    /// The value of `variable` for `key`; `None`: it was never assigned, or zero was assigned.
    /// `value_bytes` is 8, or the size of a string variable.
    pub fn get<M: Memory>(
        &self,
        memory: &M,
        variable: u32,
        key: &[u8],
        value_bytes: u64,
    ) -> Result<Option<Vec<u8>>, DynamicError> {
        let value_bytes = value_bytes.next_multiple_of(8);
        self.locked(memory, variable, key, value_bytes, |chain| {
            let Some(entry) = chain.found else { return Ok(None) };
            if memory.load_u32(entry.wrapping_add(LIVE))? == 0 {
                return Ok(None);
            }
            Ok(Some(
                memory.copy(entry.wrapping_add(ENTRY + key.len() as u64), value_bytes)?,
            ))
        })
    }

    /// Assigns `value`, padded with zeros to `value_bytes` or cut there; `None` deletes the element.
    pub fn store<M: Memory>(
        &self,
        memory: &M,
        variable: u32,
        key: &[u8],
        value_bytes: u64,
        value: Option<&[u8]>,
    ) -> Result<(), DynamicError> {
        let value_bytes = value_bytes.next_multiple_of(8);
        self.locked(memory, variable, key, value_bytes, |chain| {
            let entry = match (chain.found, value) {
                (None, None) => return Ok(()),
                (Some(entry), None) => return Ok(memory.store_u32(entry.wrapping_add(LIVE), 0)?),
                (Some(entry), Some(_)) => entry,
                (None, Some(_)) => self.add(memory, variable, key, value_bytes, &chain)?,
            };
            let mut padded = value.unwrap_or_default().to_vec();
            padded.resize(value_bytes as usize, 0);
            memory.write(entry.wrapping_add(ENTRY + key.len() as u64), &padded)?;
            Ok(memory.store_u32(entry.wrapping_add(LIVE), 1)?)
        })
    }

    /// All elements with a value, bucket by bucket, each bucket under its lock.
    pub fn values<M: Memory>(&self, memory: &M) -> Result<Vec<DynamicValue>, DynamicError> {
        let mut values = Vec::new();
        for bucket in 0..self.buckets {
            let at = self.bucket(bucket);
            if memory.load_u32(at.wrapping_add(FIRST))? == 0 {
                continue;
            }
            self.lock(memory, at)?;
            let walked = self.walk(memory, at, |entry, start| {
                if entry.live != 0 {
                    let key = memory.copy(start.wrapping_add(ENTRY), u64::from(entry.key_bytes))?;
                    let value = start.wrapping_add(ENTRY + u64::from(entry.key_bytes));
                    let value = memory.copy(value, u64::from(entry.value_bytes))?;
                    values.push(DynamicValue {
                        variable: entry.variable,
                        key,
                        value,
                    });
                }
                Ok(true)
            });
            memory.store_u32(at, 0)?;
            walked?;
        }
        Ok(values)
    }

    fn bucket(&self, index: u64) -> u64 {
        self.table
            .wrapping_add(DynamicTable::BYTES as u64 + index * DynamicBucket::BYTES as u64)
    }

    fn lock<M: Memory>(&self, memory: &M, bucket: u64) -> Result<(), DynamicError> {
        // The agent's threads hold the lock for well below a microsecond, unless they are preempted.
        for spin in 0..DYNAMIC_SPINS {
            if memory.compare_exchange_u32(bucket, 0, 1)? {
                return Ok(());
            }
            if spin % 64 == 63 {
                std::thread::yield_now()
            } else {
                hint::spin_loop()
            }
        }
        Err(DynamicError::Busy)
    }

    /// Runs `action` with the bucket of `key` locked. A key of odd size is in no table.
    fn locked<M: Memory, T>(
        &self,
        memory: &M,
        variable: u32,
        key: &[u8],
        value_bytes: u64,
        action: impl FnOnce(Chain) -> Result<T, DynamicError>,
    ) -> Result<T, DynamicError> {
        let hash = hash_key(variable, key);
        let bucket = self.bucket(u64::from(hash) & (self.buckets - 1));
        self.lock(memory, bucket)?;
        let result = self
            .find(memory, bucket, hash, variable, key, value_bytes)
            .and_then(action);
        memory.store_u32(bucket, 0)?;
        result
    }

    fn find<M: Memory>(
        &self,
        memory: &M,
        bucket: u64,
        hash: u32,
        variable: u32,
        key: &[u8],
        value_bytes: u64,
    ) -> Result<Chain, DynamicError> {
        let mut chain = Chain {
            bucket,
            hash,
            found: None,
            spare: None,
        };
        self.walk(memory, bucket, |entry, start| {
            if u64::from(entry.key_bytes) != key.len() as u64 || u64::from(entry.value_bytes) != value_bytes {
                return Ok(true);
            }
            if entry.hash == hash
                && entry.variable == variable
                && memory.copy(start.wrapping_add(ENTRY), key.len() as u64)? == key
            {
                chain.found = Some(start);
                return Ok(false);
            }
            if entry.live == 0 {
                chain.spare = Some(start);
            }
            Ok(true)
        })?;
        Ok(chain)
    }

    /// Calls `visit` with every entry of a bucket and its offset in the arena, until it returns `false`.
    fn walk<M: Memory>(
        &self,
        memory: &M,
        bucket: u64,
        mut visit: impl FnMut(&DynamicEntry, u64) -> Result<bool, DynamicError>,
    ) -> Result<(), DynamicError> {
        let mut next = memory.load_u32(bucket.wrapping_add(FIRST))?;
        for _ in 0..CHAIN_MAX {
            if next == 0 {
                return Ok(());
            }
            let offset = u64::from(next) * 8;
            let damaged = Corrupt::Table {
                table: self.table,
                offset,
            };
            if offset < self.first_entry() || offset + ENTRY > self.bytes {
                return Err(damaged.into());
            }
            let start = self.table.wrapping_add(offset);
            let entry: DynamicEntry = memory.structure(start)?;
            if u64::from(entry.key_bytes) + u64::from(entry.value_bytes) > self.bytes - offset - ENTRY {
                return Err(damaged.into());
            }
            if !visit(&entry, start)? {
                return Ok(());
            }
            next = entry.next;
        }
        Ok(())
    }

    /// A new entry, still dead: the spare one, or new room after the last entry.
    fn add<M: Memory>(
        &self,
        memory: &M,
        variable: u32,
        key: &[u8],
        value_bytes: u64,
        chain: &Chain,
    ) -> Result<u64, DynamicError> {
        let mut header = DynamicEntry {
            next: 0,
            hash: chain.hash,
            variable,
            key_bytes: key.len() as u32,
            value_bytes: value_bytes as u32,
            live: 0,
        };
        if let Some(spare) = chain.spare {
            header.next = memory.load_u32(spare)?;
            memory.write_structure(spare, &header)?;
            memory.write(spare.wrapping_add(ENTRY), key)?;
            return Ok(spare);
        }
        let offset = self.allocate(memory, ENTRY + key.len() as u64 + value_bytes)?;
        let start = self.table.wrapping_add(offset);
        header.next = memory.load_u32(chain.bucket.wrapping_add(FIRST))?;
        memory.write_structure(start, &header)?;
        memory.write(start.wrapping_add(ENTRY), key)?;
        memory.store_u32(chain.bucket.wrapping_add(FIRST), (offset / 8) as u32)?;
        Ok(start)
    }

    fn allocate<M: Memory>(&self, memory: &M, bytes: u64) -> Result<u64, DynamicError> {
        let at = self.table.wrapping_add(offset_of!(DynamicTable, used) as u64);
        for _ in 0..DYNAMIC_SPINS {
            let used = memory.load_u64(at)?;
            if used < self.first_entry() || used > self.bytes || !used.is_multiple_of(8) {
                return Err(Corrupt::Table {
                    table: self.table,
                    offset: offset_of!(DynamicTable, used) as u64,
                }
                .into());
            }
            if bytes > self.bytes - used {
                return Err(DynamicError::Full);
            }
            if memory.compare_exchange_u64(at, used, used + bytes)? {
                return Ok(used);
            }
        }
        Err(DynamicError::Busy)
    }
}

const FIRST: u64 = offset_of!(DynamicBucket, first) as u64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bytes;

    fn key(value: u64) -> [u8; 8] {
        value.to_le_bytes()
    }

    fn table(bytes: u64) -> (Bytes, DynamicVariables) {
        let memory = Bytes::zeroed(64 + bytes as usize);
        let variables = DynamicVariables::new(64, bytes);
        variables.initialise(&memory).unwrap();
        (memory, variables)
    }

    #[test]
    fn values_are_kept_by_variable_and_key() {
        let (memory, variables) = table(65536);
        for number in 0..100 {
            variables
                .store(
                    &memory,
                    number % 2,
                    &key(u64::from(number)),
                    8,
                    Some(&key(u64::from(number) * 3)),
                )
                .unwrap();
        }
        for number in 0..100_u32 {
            let value = variables.get(&memory, number % 2, &key(u64::from(number)), 8).unwrap();
            assert_eq!(value.unwrap(), key(u64::from(number) * 3));
            assert_eq!(
                variables.get(&memory, 1 - number % 2, &key(u64::from(number)), 8),
                Ok(None)
            );
        }
        assert_eq!(variables.values(&memory).unwrap().len(), 100);
    }

    #[test]
    fn deleted_entries_are_used_again() {
        let (memory, variables) = table(1024);
        for number in 0..100_000 {
            variables.store(&memory, 1, &key(number), 8, Some(&key(1))).unwrap();
            variables.store(&memory, 1, &key(number), 8, None).unwrap();
            assert_eq!(variables.get(&memory, 1, &key(number), 8), Ok(None));
        }
        assert_eq!(variables.values(&memory).unwrap(), []);
    }

    #[test]
    fn full_and_busy() {
        let (memory, variables) = table(1024);
        let stored = (0..100)
            .take_while(|n| variables.store(&memory, 1, &key(*n), 8, Some(&key(9))).is_ok())
            .count();
        assert!(stored > 10, "{stored}");
        assert_eq!(
            variables.store(&memory, 1, &key(1000), 8, Some(&key(9))),
            Err(DynamicError::Full)
        );
        for bucket in 0..variables.buckets {
            memory.store_u32(variables.bucket(bucket), 1).unwrap();
        }
        assert_eq!(variables.get(&memory, 1, &key(1), 8), Err(DynamicError::Busy));
    }

    #[test]
    fn strings_are_padded_and_cut() {
        let (memory, variables) = table(4096);
        variables.store(&memory, 1, &key(1), 16, Some(b"abc")).unwrap();
        assert_eq!(
            variables.get(&memory, 1, &key(1), 16).unwrap().unwrap(),
            b"abc\0\0\0\0\0\0\0\0\0\0\0\0\0"
        );
        variables.store(&memory, 1, &key(1), 16, Some(&[b'x'; 40])).unwrap();
        assert_eq!(variables.get(&memory, 1, &key(1), 16).unwrap().unwrap(), [b'x'; 16]);
    }

    #[test]
    fn a_chain_in_a_circle_ends() {
        let (memory, variables) = table(1024);
        for number in 0..8 {
            variables.store(&memory, 1, &key(number), 8, Some(&key(9))).unwrap();
        }
        let first = variables.first_entry();
        memory.store_u32(64 + first, (first / 8) as u32).unwrap();
        for number in 0..8 {
            // Whether or not the key is found, the call returns, and the lock is free afterwards.
            let _ = variables.get(&memory, 1, &key(number), 8).unwrap();
        }
        for bucket in 0..variables.buckets {
            assert_eq!(memory.load_u32(variables.bucket(bucket)), Ok(0));
        }
    }
}
