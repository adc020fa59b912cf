//! Memory that is handed out piece by piece, and of which some pieces are given back: code in the agent's block,
//! tables and strings in the arena. Pure.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use nanoprobe_patch::TargetAddress;

/// A range of the target's memory that fills up from its start. Its contents are collected here, to be written
/// later.
#[derive(Debug)]
pub struct Space {
    start: u64,
    used: u64,
    bytes: u64,
    /// Ranges that were given back, as offsets: ascending, disjoint, not adjacent.
    free: Vec<Range<u64>>,
    written: Vec<(TargetAddress, Vec<u8>)>,
    strings: Arc<HashMap<String, TargetAddress>>,
    /// The strings that were added since the last [`Space::commit`].
    new_strings: HashMap<String, TargetAddress>,
}

/// The space is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no room for {wanted} more bytes in a space of {bytes}: too many probes, narrow the description")]
pub struct Full {
    wanted: u64,
    bytes: u64,
}

impl Space {
    /// An empty space of `bytes` bytes at `start`.
    pub fn new(start: TargetAddress, bytes: u64) -> Space {
        Space {
            start: start.0,
            used: 0,
            bytes,
            free: Vec::new(),
            written: Vec::new(),
            strings: Arc::default(),
            new_strings: HashMap::new(),
        }
    }

    /// A copy for a trial. It has no effect until it is committed.
    #[must_use]
    pub fn draft(&self) -> Space {
        Space {
            free: self.free.clone(),
            written: Vec::new(),
            strings: self.strings.clone(),
            new_strings: self.new_strings.clone(),
            ..*self
        }
    }

    /// Applies a draft. Between the creation and the commit of the draft, this space must not change.
    pub fn commit(&mut self, draft: Space) {
        self.used = draft.used;
        self.free = draft.free;
        self.written.extend(draft.written);
        self.new_strings.clear();
        // The draft's reference to the strings is dropped first, so that they need not be copied.
        drop(draft.strings);
        Arc::make_mut(&mut self.strings).extend(draft.new_strings);
    }

    /// Reserves room; `alignment` is a power of two.
    ///
    /// # Errors
    /// The space is full.
    pub fn reserve(&mut self, bytes: u64, alignment: u64) -> Result<TargetAddress, Full> {
        let fits = |gap: &Range<u64>| {
            gap.start
                .next_multiple_of(alignment)
                .checked_add(bytes)
                .is_some_and(|end| end <= gap.end)
        };
        if bytes > 0
            && let Some(index) = self.free.iter().position(fits)
        {
            let gap = self.free.get(index).cloned().unwrap_or_default();
            let at = gap.start.next_multiple_of(alignment);
            let rest = [gap.start..at, at + bytes..gap.end];
            self.free
                .splice(index..=index, rest.into_iter().filter(|rest| !rest.is_empty()));
            return Ok(TargetAddress(self.start + at));
        }
        let at = self.used.next_multiple_of(alignment);
        let end = at.checked_add(bytes).filter(|end| *end <= self.bytes);
        self.used = end.ok_or(Full {
            wanted: bytes,
            bytes: self.bytes,
        })?;
        Ok(TargetAddress(self.start + at))
    }

    /// Releases a reservation, which must not be in use any more.
    pub fn release(&mut self, address: TargetAddress, bytes: u64) {
        let Some(start) = address.0.checked_sub(self.start).filter(|_| bytes > 0) else {
            return;
        };
        let mut gap = start..start.saturating_add(bytes).min(self.used);
        let first = self.free.partition_point(|free| free.end < gap.start);
        let behind = self.free.partition_point(|free| free.start <= gap.end);
        for joined in self.free.get(first..behind).unwrap_or_default() {
            gap = gap.start.min(joined.start)..gap.end.max(joined.end);
        }
        self.free.splice(first..behind.max(first), [gap]);
    }

    /// The end of the part that was ever used.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Puts bytes into the space.
    ///
    /// # Errors
    /// The space is full.
    pub fn put(&mut self, bytes: Vec<u8>, alignment: u64) -> Result<TargetAddress, Full> {
        let address = self.reserve(bytes.len() as u64, alignment)?;
        self.written.push((address, bytes));
        Ok(address)
    }

    /// Puts bytes at an address that was reserved before.
    pub fn place(&mut self, address: TargetAddress, bytes: Vec<u8>) {
        self.written.push((address, bytes));
    }

    /// Puts a string with its NUL into the space, at most `limit` bytes, and shares it between all callers.
    ///
    /// # Errors
    /// The space is full.
    pub fn string(&mut self, text: &str, limit: u32) -> Result<TargetAddress, Full> {
        let known = self.strings.get(text).or_else(|| self.new_strings.get(text));
        if let Some(address) = known {
            return Ok(*address);
        }
        let mut bytes: Vec<u8> = text.bytes().take(limit.saturating_sub(1) as usize).collect();
        bytes.push(0);
        let address = self.put(bytes, 8)?;
        self.new_strings.insert(text.to_owned(), address);
        Ok(address)
    }

    /// The bytes that were put there since the last call.
    pub fn take_written(&mut self) -> Vec<(TargetAddress, Vec<u8>)> {
        std::mem::take(&mut self.written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_aligned_disjoint_and_handed_over_once() {
        let mut space = Space::new(TargetAddress(0x1000), 64);
        assert_eq!(space.put(vec![1, 2, 3], 1), Ok(TargetAddress(0x1000)));
        assert_eq!(space.put(vec![4], 16), Ok(TargetAddress(0x1010)));
        assert_eq!(space.take_written().len(), 2);
        assert!(space.take_written().is_empty());
        assert!(space.reserve(64, 1).is_err());
        assert_eq!(space.used, 17);
    }

    #[test]
    fn only_released_memory_is_used_again() {
        let mut space = Space::new(TargetAddress(0x1000), 64);
        let places: Vec<TargetAddress> = (0..4).map(|_| space.reserve(16, 16).unwrap()).collect();
        assert!(space.reserve(1, 1).is_err());
        space.release(places[2], 16);
        space.release(places[0], 16);
        assert!(space.reserve(32, 16).is_err());
        space.release(places[1], 16);
        assert_eq!(space.reserve(40, 8), Ok(places[0]));
        assert_eq!(space.reserve(8, 8), Ok(TargetAddress(0x1028)));
        assert!(space.reserve(1, 1).is_err());
    }

    #[test]
    fn a_draft_changes_nothing_before_it_is_committed() {
        let mut space = Space::new(TargetAddress(0x1000), 64);
        let first = space.string("read", 8).unwrap();
        let before = format!("{space:?}");
        let mut draft = space.draft();
        assert_eq!(draft.string("read", 8), Ok(first));
        let second = draft.string("write", 8).unwrap();
        drop(draft);
        assert_eq!(format!("{space:?}"), before);
        let mut draft = space.draft();
        assert_eq!(draft.string("write", 8), Ok(second));
        space.commit(draft);
        assert_eq!(space.string("write", 8), Ok(second));
        assert_eq!(
            space.take_written(),
            [(first, b"read\0".to_vec()), (second, b"write\0".to_vec())]
        );
    }

    #[test]
    fn strings_are_stored_once_and_cut() {
        let mut space = Space::new(TargetAddress(0), 64);
        let first = space.string("malloc", 4).unwrap();
        assert_eq!(space.string("malloc", 4).unwrap(), first);
        assert_eq!(space.take_written(), [(first, b"mal\0".to_vec())]);
    }
}
