//! A table in which hits look addresses up. It has two parts: the recent entries, which are few and written anew at
//! each registration, and the older ones, which are many and stay in place.
//!
//! ```text
//!   recent | older = . | from to | from to |           at most RECENT_MAX entries
//!                    \
//!                     older | 0 | from to | from to | from to | ...
//! ```
//!
//! An entry of the recent part overrides an older one of the same address. When the recent part is full, both are
//! merged. So a registration writes only some kilobytes, however many registrations there were before.

use std::collections::BTreeMap;

use nanoprobe_agent::redirect_table_over;

/// Entries of 16 bytes each.
const RECENT_MAX: usize = 256;

/// The entries, and where the written parts of the table lie.
#[derive(Default)]
pub struct Table {
    recent: BTreeMap<u64, u64>,
    /// The older entries, ascending by the first address.
    older: Vec<(u64, u64)>,
    recent_part: Part,
    older_part: Part,
    is_older_written: bool,
    is_current: bool,
}

/// A part in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// The part's address; 0: the part was never written.
    pub address: u64,
    /// Its bytes.
    pub bytes: usize,
}

/// The result of [`Table::write`].
#[derive(Debug, PartialEq, Eq)]
pub struct Written {
    /// The address to publish.
    pub address: u64,
    /// Parts that no look-up finds after the publication.
    pub replaced: Vec<Part>,
}

impl Table {
    /// The entry of an address.
    pub fn get(&self, from: u64) -> Option<u64> {
        let older = || {
            let found = self.older.binary_search_by_key(&from, |entry| entry.0).ok()?;
            self.older.get(found).map(|entry| entry.1)
        };
        self.recent.get(&from).copied().or_else(older)
    }

    /// Adds an entry from `from` to `to`, which holds from the next publication on.
    pub fn insert(&mut self, from: u64, to: u64) {
        if self.get(from) != Some(to) {
            self.recent.insert(from, to);
            self.is_current = false;
        }
    }

    /// Removes the entries that `keeps` rejects. Look-ups find them until the next publication.
    pub fn retain(&mut self, keeps: impl Fn(u64) -> bool) {
        let before = self.recent.len() + self.older.len();
        self.recent.retain(|from, _| keeps(*from));
        let recent = self.recent.len();
        self.older.retain(|(from, _)| keeps(*from));
        if recent + self.older.len() != before {
            self.is_older_written = false;
            self.is_current = false;
        }
    }

    /// Writes the changed parts by `put`, which yields where they lie. `None`: nothing has changed.
    ///
    /// # Errors
    /// Those of `put`: the published tables stay valid.
    pub fn write<E>(&mut self, mut put: impl FnMut(&[u8]) -> Result<u64, E>) -> Result<Option<Written>, E> {
        if self.is_current {
            return Ok(None);
        }
        let mut write = |older, entries: &mut dyn ExactSizeIterator<Item = (u64, u64)>| {
            let bytes = redirect_table_over(older, entries);
            let address = put(&bytes)?;
            Ok(Part {
                address,
                bytes: bytes.len(),
            })
        };
        let mut replaced = Vec::new();
        if self.recent.len() > RECENT_MAX {
            self.merge();
        }
        if !self.is_older_written && !self.older.is_empty() {
            let part = write(0, &mut self.older.iter().copied())?;
            replaced.push(std::mem::replace(&mut self.older_part, part));
        }
        self.is_older_written = true;
        let older = if self.older.is_empty() {
            0
        } else {
            self.older_part.address
        };
        let part = write(older, &mut self.recent.iter().map(|(from, to)| (*from, *to)))?;
        replaced.push(std::mem::replace(&mut self.recent_part, part));
        replaced.retain(|part| part.address != 0);
        self.is_current = true;
        Ok(Some(Written {
            address: part.address,
            replaced,
        }))
    }

    /// Moves all entries to the older part.
    fn merge(&mut self) {
        let recent = std::mem::take(&mut self.recent);
        let mut merged = Vec::with_capacity(self.older.len() + recent.len());
        let mut older = std::mem::take(&mut self.older).into_iter().peekable();
        for (from, to) in recent {
            while let Some(entry) = older.next_if(|entry| entry.0 < from) {
                merged.push(entry);
            }
            older.next_if(|entry| entry.0 == from);
            merged.push((from, to));
        }
        merged.extend(older);
        self.older = merged;
        self.is_older_written = false;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use std::collections::HashMap;

    use super::*;

    /// Memory in which tables are put, and what the agent would find there.
    #[derive(Default)]
    struct Put {
        parts: HashMap<u64, Vec<u8>>,
        next: u64,
        bytes: usize,
        published: u64,
    }

    impl Put {
        fn publish(&mut self, table: &mut Table) -> bool {
            let (parts, next, bytes) = (&mut self.parts, &mut self.next, &mut self.bytes);
            let written = table.write(|table| {
                *next += 0x1000;
                *bytes += table.len();
                parts.insert(*next, table.to_vec());
                Ok::<u64, ()>(*next)
            });
            let Some(written) = written.unwrap() else { return false };
            self.published = written.address;
            for part in written.replaced {
                assert_eq!(self.parts.remove(&part.address).unwrap().len(), part.bytes);
            }
            true
        }

        fn entries(&self) -> BTreeMap<u64, u64> {
            let word = |bytes: &[u8], at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
            let read = |address: u64| -> (u64, BTreeMap<u64, u64>) {
                let bytes = &self.parts[&address];
                let pairs: Vec<(u64, u64)> = bytes[16..]
                    .chunks_exact(16)
                    .map(|pair| (word(pair, 0), word(pair, 8)))
                    .collect();
                assert_eq!(word(bytes, 0) as usize, pairs.len());
                assert!(pairs.is_sorted_by(|left, right| left.0 < right.0));
                (word(bytes, 8), pairs.into_iter().collect())
            };
            let (older, recent) = read(self.published);
            let mut all = match older {
                0 => BTreeMap::new(),
                older => read(older).1,
            };
            all.extend(recent);
            all
        }
    }

    #[test]
    fn both_parts_say_what_was_inserted() {
        let (mut table, mut put, mut model) = (Table::default(), Put::default(), BTreeMap::new());
        assert!(put.publish(&mut table) && !put.publish(&mut table));
        assert_eq!(put.entries(), model);
        let mut number = 1_u64;
        for step in 0..2000 {
            // A simple generator of pseudo-random numbers, which yields the same numbers in every run.
            number = number
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let from = (number >> 33) % 1500;
            table.insert(from, step);
            model.insert(from, step);
            if step % 500 == 499 {
                table.retain(|from| from % 7 != 3);
                model.retain(|from, _| from % 7 != 3);
            }
            assert!(put.publish(&mut table));
            assert_eq!(put.entries(), model);
            assert!(model.iter().all(|(from, to)| table.get(*from) == Some(*to)));
            assert_eq!(table.get(from ^ 1), model.get(&(from ^ 1)).copied());
            // Only the two parts of the table are kept.
            assert!(put.parts.len() <= 2);
        }
        table.insert(0, 7);
        put.publish(&mut table);
        table.insert(0, 7);
        table.retain(|_| true);
        assert!(!put.publish(&mut table), "nothing has changed");
        table.retain(|_| false);
        assert!(put.publish(&mut table));
        assert_eq!(put.entries(), BTreeMap::new());
    }

    #[test]
    fn the_bytes_written_do_not_grow_with_the_existing_entries() {
        let (mut table, mut put) = (Table::default(), Put::default());
        for from in 0..10_000 {
            table.insert(from, from + 1);
            put.publish(&mut table);
        }
        // 2 KiB for the recent part on average, and the whole table every 256th time.
        assert!(put.bytes < 10_000 * (16 * (RECENT_MAX / 2 + 2) + 160_000 / RECENT_MAX));
        assert_eq!(put.entries().len(), 10_000);
    }
}
