//! Access to an arena's bytes.
//!
//! The target writes while we read, so there is never a reference or a slice into the arena. Every
//! access copies word by word, and is checked against the arena's size. Readers are generic over
//! [`Memory`]: they run on a shared mapping ([`crate::Mapping`]) and on plain bytes ([`Bytes`]).

use core::sync::atomic::{AtomicU64, Ordering};

use crate::structure::Structure;

/// An access that does not lie inside the arena, or is not aligned to its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("offset {offset:#x}, {bytes} bytes: outside of the arena or misaligned")]
pub struct OutOfBounds {
    /// Bytes from the start of the arena.
    pub offset: u64,
    /// Size of the access.
    pub bytes: u64,
}

/// The bytes of an arena, by their offset. Loads of one value are acquiring, stores of one value are
/// releasing. Accesses of 4 and 8 bytes are atomic and must be aligned. All methods take `&self`,
/// because the memory is shared with another process anyway.
pub trait Memory {
    /// Size of the arena in bytes.
    fn bytes(&self) -> u64;
    /// Copies bytes from the memory. The copy is not atomic as a whole, but no aligned u64 is torn.
    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), OutOfBounds>;
    /// Copies bytes to the memory. The copy is not atomic as a whole, but no aligned u64 that lies wholly inside is
    /// torn.
    fn write(&self, offset: u64, from: &[u8]) -> Result<(), OutOfBounds>;
    /// Loads four bytes.
    fn load_u32(&self, offset: u64) -> Result<u32, OutOfBounds>;
    /// Loads eight bytes.
    fn load_u64(&self, offset: u64) -> Result<u64, OutOfBounds>;
    /// Stores four bytes.
    fn store_u32(&self, offset: u64, value: u32) -> Result<(), OutOfBounds>;
    /// Stores eight bytes.
    fn store_u64(&self, offset: u64, value: u64) -> Result<(), OutOfBounds>;
    /// Stores `new` if the memory holds `current`; yields whether it did.
    fn compare_exchange_u32(&self, offset: u64, current: u32, new: u32) -> Result<bool, OutOfBounds>;
    /// Stores `new` if the memory holds `current`; yields whether it did.
    fn compare_exchange_u64(&self, offset: u64, current: u64, new: u64) -> Result<bool, OutOfBounds>;

    /// Copies `bytes` bytes out. The size is checked before memory is allocated for it.
    fn copy(&self, offset: u64, bytes: u64) -> Result<Vec<u8>, OutOfBounds> {
        check(self.bytes(), offset, bytes)?;
        let mut out = vec![0; usize::try_from(bytes).map_err(|_| OutOfBounds { offset, bytes })?];
        self.read(offset, &mut out)?;
        Ok(out)
    }

    /// Reads a structure of the contract from the memory.
    fn structure<S: Structure>(&self, offset: u64) -> Result<S, OutOfBounds>
    where
        Self: Sized,
    {
        let bytes = self.copy(offset, S::BYTES as u64)?;
        S::from_bytes(&bytes).ok_or(OutOfBounds {
            offset,
            bytes: S::BYTES as u64,
        })
    }

    /// Writes a structure of the contract to the memory.
    fn write_structure<S: Structure>(&self, offset: u64, value: &S) -> Result<(), OutOfBounds>
    where
        Self: Sized,
    {
        self.write(offset, &value.to_bytes())
    }
}

/// Fails unless `bytes` bytes at `offset` lie within `size`.
pub(crate) fn check(size: u64, offset: u64, bytes: u64) -> Result<(), OutOfBounds> {
    match offset.checked_add(bytes) {
        Some(end) if end <= size => Ok(()),
        _ => Err(OutOfBounds { offset, bytes }),
    }
}

/// Fails unless `bytes` bytes at `offset` lie within `size` and are aligned to `bytes`.
pub(crate) fn check_aligned(size: u64, offset: u64, bytes: u64) -> Result<(), OutOfBounds> {
    if !offset.is_multiple_of(bytes) {
        return Err(OutOfBounds { offset, bytes });
    }
    check(size, offset, bytes)
}

/// An arena in ordinary memory: a test's, or a copy (of a core file, of a process that cannot be
/// mapped). Threads may share it.
#[derive(Debug)]
pub struct Bytes {
    words: Vec<AtomicU64>,
    bytes: u64,
}

impl Bytes {
    /// `bytes` bytes of zeros.
    pub fn zeroed(bytes: usize) -> Self {
        Self {
            words: (0..bytes.div_ceil(8)).map(|_| AtomicU64::new(0)).collect(),
            bytes: bytes as u64,
        }
    }

    fn word(&self, offset: u64) -> Option<&AtomicU64> {
        self.words.get(usize::try_from(offset / 8).ok()?)
    }

    fn aligned_word(&self, offset: u64, bytes: u64) -> Result<&AtomicU64, OutOfBounds> {
        check_aligned(self.bytes, offset, bytes)?;
        self.word(offset).ok_or(OutOfBounds { offset, bytes })
    }
}

impl From<&[u8]> for Bytes {
    fn from(bytes: &[u8]) -> Self {
        let words = bytes.chunks(8).map(|chunk| {
            let mut raw = [0; 8];
            for (to, from) in raw.iter_mut().zip(chunk) {
                *to = *from;
            }
            AtomicU64::new(u64::from_le_bytes(raw))
        });
        Self {
            words: words.collect(),
            bytes: bytes.len() as u64,
        }
    }
}

/// The u32 at `offset`, taken from the u64 that contains it.
fn half(word: u64, offset: u64) -> u32 {
    (word >> ((offset & 4) * 8)) as u32
}

fn with_half(word: u64, offset: u64, value: u32) -> u64 {
    let shift = (offset & 4) * 8;
    (word & !(0xffff_ffff << shift)) | (u64::from(value) << shift)
}

impl Memory for Bytes {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), OutOfBounds> {
        check(self.bytes, offset, into.len() as u64)?;
        let mut at = offset;
        let mut rest = into;
        while !rest.is_empty() {
            let word = self
                .word(at)
                .map_or(0, |word| word.load(Ordering::Acquire))
                .to_le_bytes();
            let skip = (at % 8) as usize;
            let count = rest.len().min(8 - skip);
            let (now, later) = rest.split_at_mut(count);
            for (to, from) in now.iter_mut().zip(word.iter().skip(skip)) {
                *to = *from;
            }
            at += count as u64;
            rest = later;
        }
        Ok(())
    }

    fn write(&self, offset: u64, from: &[u8]) -> Result<(), OutOfBounds> {
        check(self.bytes, offset, from.len() as u64)?;
        let mut at = offset;
        let mut rest = from;
        while !rest.is_empty() {
            let skip = (at % 8) as usize;
            let count = rest.len().min(8 - skip);
            let (now, later) = rest.split_at(count);
            if let Some(word) = self.word(at) {
                let merge = |old: u64| {
                    let mut raw = old.to_le_bytes();
                    for (to, from) in raw.iter_mut().skip(skip).zip(now) {
                        *to = *from;
                    }
                    Some(u64::from_le_bytes(raw))
                };
                // The closure always returns Some, so the update never fails.
                let _ = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, merge);
            }
            at += count as u64;
            rest = later;
        }
        Ok(())
    }

    fn load_u32(&self, offset: u64) -> Result<u32, OutOfBounds> {
        Ok(half(self.aligned_word(offset, 4)?.load(Ordering::Acquire), offset))
    }

    fn load_u64(&self, offset: u64) -> Result<u64, OutOfBounds> {
        Ok(self.aligned_word(offset, 8)?.load(Ordering::Acquire))
    }

    fn store_u32(&self, offset: u64, value: u32) -> Result<(), OutOfBounds> {
        let word = self.aligned_word(offset, 4)?;
        let replace = |old| Some(with_half(old, offset, value));
        // The closure always returns Some, so the update never fails.
        let _ = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, replace);
        Ok(())
    }

    fn store_u64(&self, offset: u64, value: u64) -> Result<(), OutOfBounds> {
        self.aligned_word(offset, 8)?.store(value, Ordering::Release);
        Ok(())
    }

    fn compare_exchange_u32(&self, offset: u64, current: u32, new: u32) -> Result<bool, OutOfBounds> {
        let word = self.aligned_word(offset, 4)?;
        let replace = |old| (half(old, offset) == current).then(|| with_half(old, offset, new));
        Ok(word.fetch_update(Ordering::AcqRel, Ordering::Acquire, replace).is_ok())
    }

    fn compare_exchange_u64(&self, offset: u64, current: u64, new: u64) -> Result<bool, OutOfBounds> {
        let word = self.aligned_word(offset, 8)?;
        Ok(word
            .compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
            .is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unaligned_copies_keep_their_neighbours() {
        let memory = Bytes::from([0xaa; 24].as_slice());
        memory.write(5, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]).unwrap();
        let mut expected = [0xaa; 24];
        for (index, byte) in expected.iter_mut().skip(5).take(12).enumerate() {
            *byte = index as u8 + 1;
        }
        assert_eq!(memory.copy(0, 24).unwrap(), expected);
        assert_eq!(memory.copy(7, 3).unwrap(), [3, 4, 5]);
    }

    #[test]
    fn halves_are_independent() {
        let memory = Bytes::zeroed(16);
        memory.store_u32(4, 7).unwrap();
        memory.store_u32(0, 9).unwrap();
        assert_eq!(memory.load_u64(0).unwrap(), (7 << 32) | 9);
        assert!(!memory.compare_exchange_u32(4, 8, 1).unwrap());
        assert!(memory.compare_exchange_u32(4, 7, 1).unwrap());
        assert_eq!(memory.load_u64(0).unwrap(), (1 << 32) | 9);
    }

    #[test]
    fn the_end_is_respected() {
        let memory = Bytes::zeroed(12);
        assert!(memory.load_u64(8).is_err());
        assert!(memory.load_u32(8).is_ok());
        assert!(memory.load_u32(10).is_err());
        assert!(memory.copy(u64::MAX, 2).is_err());
        assert!(memory.copy(0, u64::MAX).is_err());
        assert!(memory.write(11, &[1, 2]).is_err());
    }
}
