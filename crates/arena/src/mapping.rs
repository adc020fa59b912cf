//! A mapping that is shared with another process. This file has the crate's only unsafe code.

#![allow(unsafe_code)]

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crate::memory::{Memory, OutOfBounds, check, check_aligned};

/// A view of shared memory that other processes may write at any time. Every access is volatile or atomic and goes
/// through a raw pointer; no reference into the memory outlives one atomic operation. The view does not own the
/// mapping.
#[derive(Debug)]
pub struct Mapping {
    start: *mut u8,
    bytes: u64,
}

// SAFETY: the accesses are volatile or atomic, from whichever thread they are made.
unsafe impl Send for Mapping {}
// SAFETY: as above; no method hands out a reference.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// A view of `bytes` bytes from `start`.
    ///
    /// # Safety
    /// `start` is aligned to eight. As long as this value lives, the memory stays mapped, readable and
    /// writable, and no Rust reference is used to access it.
    pub unsafe fn new(start: *mut u8, bytes: usize) -> Self {
        Self {
            start,
            bytes: bytes as u64,
        }
    }

    /// Where a word lies, for a system call that waits for its change.
    ///
    /// # Errors
    /// It lies outside of the mapping, or is not aligned.
    pub fn futex(&self, offset: u64) -> Result<*mut u32, OutOfBounds> {
        self.half(offset)
    }

    /// Pointer to `offset`, which the caller has checked.
    fn at(&self, offset: u64) -> *mut u8 {
        self.start.wrapping_add(offset as usize)
    }

    fn word(&self, offset: u64) -> Result<*mut u64, OutOfBounds> {
        check_aligned(self.bytes, offset, 8)?;
        Ok(self.at(offset).cast())
    }

    fn half(&self, offset: u64) -> Result<*mut u32, OutOfBounds> {
        check_aligned(self.bytes, offset, 4)?;
        Ok(self.at(offset).cast())
    }
}

impl Memory for Mapping {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), OutOfBounds> {
        check(self.bytes, offset, into.len() as u64)?;
        let mut done = 0;
        while done < into.len() {
            let at = offset + done as u64;
            let rest = into.get_mut(done..).unwrap_or_default();
            if at.is_multiple_of(8) && rest.len() >= 8 {
                // SAFETY: the eight bytes lie inside (checked above) and are aligned; `new` promises they are mapped.
                let word = unsafe { self.at(at).cast::<u64>().read_volatile() };
                for (to, from) in rest.iter_mut().zip(word.to_le_bytes()) {
                    *to = from;
                }
                done += 8;
            } else if let Some(to) = rest.first_mut() {
                // SAFETY: the byte lies inside (checked above); `new` promises that it is mapped.
                *to = unsafe { self.at(at).read_volatile() };
                done += 1;
            }
        }
        fence(Ordering::Acquire);
        Ok(())
    }

    fn write(&self, offset: u64, from: &[u8]) -> Result<(), OutOfBounds> {
        check(self.bytes, offset, from.len() as u64)?;
        fence(Ordering::Release);
        let mut done = 0;
        while done < from.len() {
            let at = offset + done as u64;
            let rest = from.get(done..).unwrap_or_default();
            if let (true, Some(word)) = (at.is_multiple_of(8), rest.first_chunk::<8>()) {
                // SAFETY: the eight bytes lie inside (checked above) and are aligned; `new` promises they are mapped.
                unsafe { self.at(at).cast::<u64>().write_volatile(u64::from_le_bytes(*word)) };
                done += 8;
            } else if let Some(byte) = rest.first() {
                // SAFETY: the byte lies inside (checked above); `new` promises that it is mapped.
                unsafe { self.at(at).write_volatile(*byte) };
                done += 1;
            }
        }
        Ok(())
    }

    fn load_u32(&self, offset: u64) -> Result<u32, OutOfBounds> {
        let half = self.half(offset)?;
        // SAFETY: checked to lie inside and to be aligned; `new` promises that it is mapped.
        Ok(unsafe { AtomicU32::from_ptr(half) }.load(Ordering::Acquire))
    }

    fn load_u64(&self, offset: u64) -> Result<u64, OutOfBounds> {
        let word = self.word(offset)?;
        // SAFETY: checked to lie inside and to be aligned; `new` promises that it is mapped.
        Ok(unsafe { AtomicU64::from_ptr(word) }.load(Ordering::Acquire))
    }

    fn store_u32(&self, offset: u64, value: u32) -> Result<(), OutOfBounds> {
        let half = self.half(offset)?;
        // SAFETY: checked to lie inside and to be aligned; `new` promises that it is mapped.
        unsafe { AtomicU32::from_ptr(half) }.store(value, Ordering::Release);
        Ok(())
    }

    fn store_u64(&self, offset: u64, value: u64) -> Result<(), OutOfBounds> {
        let word = self.word(offset)?;
        // SAFETY: checked to lie inside and to be aligned; `new` promises that it is mapped.
        unsafe { AtomicU64::from_ptr(word) }.store(value, Ordering::Release);
        Ok(())
    }

    fn compare_exchange_u32(&self, offset: u64, current: u32, new: u32) -> Result<bool, OutOfBounds> {
        let half = self.half(offset)?;
        // SAFETY: checked to lie inside and to be aligned; `new` promises that it is mapped.
        let half = unsafe { AtomicU32::from_ptr(half) };
        Ok(half
            .compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
            .is_ok())
    }

    fn compare_exchange_u64(&self, offset: u64, current: u64, new: u64) -> Result<bool, OutOfBounds> {
        let word = self.word(offset)?;
        // SAFETY: checked to lie inside and to be aligned; `new` promises that it is mapped.
        let word = unsafe { AtomicU64::from_ptr(word) };
        Ok(word
            .compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
            .is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_agrees_with_bytes() {
        let mut words = vec![0_u64; 8];
        // SAFETY: the vector is aligned, outlives the mapping, and is not touched meanwhile.
        let mapping = unsafe { Mapping::new(words.as_mut_ptr().cast(), 60) };
        let bytes = crate::Bytes::zeroed(60);
        let memories: [&dyn Check; 2] = [&mapping, &bytes];
        for memory in memories {
            memory.check();
        }
        assert_eq!(mapping.copy(0, 60).unwrap(), bytes.copy(0, 60).unwrap());
    }

    trait Check {
        fn check(&self);
    }

    impl<M: Memory> Check for M {
        fn check(&self) {
            self.write(3, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15])
                .unwrap();
            self.store_u32(20, 77).unwrap();
            self.store_u64(24, u64::MAX).unwrap();
            assert!(self.compare_exchange_u64(24, u64::MAX, 5).unwrap());
            assert!(!self.compare_exchange_u32(20, 76, 5).unwrap());
            assert_eq!(self.load_u64(24), Ok(5));
            assert!(self.store_u64(56, 1).is_err());
            assert!(self.read(59, &mut [0; 2]).is_err());
            assert!(self.load_u32(58).is_err());
        }
    }
}
