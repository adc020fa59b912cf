//! Reading and writing the target's memory.
//!
//! Writes go through /proc/PID/mem, which needs no stopped thread, ignores page protection (a private page is copied,
//! so the file stays unchanged), and works on the vDSO. The descriptor is bound to the process's address space at its
//! opening: after an execve it reaches nothing, so bytes meant for the old program can never land in the new one. Reads
//! use process_vm_readv, which respects the process's own protection, and fall back to the same descriptor. What is
//! read again and again is read through the descriptor only ([`Memory::read_shared`]).

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use nanoprobe_patch::TargetAddress;
use nix::errno::Errno;

use crate::error::MemoryError;
use crate::{ProcessId, raw};

const PAGE: u64 = 4096;
/// The largest size of a merged write, in bytes.
const CLUSTER_LIMIT: u64 = 64 * 1024;

/// The memory of a [`Process`](crate::Process).
#[derive(Debug)]
pub struct Memory {
    pid: ProcessId,
    file: File,
}

impl Memory {
    pub(crate) fn new(pid: ProcessId, file: File) -> Memory {
        Memory { pid, file }
    }

    /// The open file, on which tracers lock the process: [`crate::Claim`].
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// The memory of this process.
    ///
    /// # Errors
    /// /proc/self/mem cannot be opened.
    pub fn of_self() -> std::io::Result<Memory> {
        let file = File::options().read(true).write(true).open("/proc/self/mem")?;
        Ok(Memory::new(std::process::id() as ProcessId, file))
    }

    /// A file as if it were memory: an offset in the file is an address.
    pub fn of_file(file: File) -> Memory {
        const NOBODY: ProcessId = 0;
        Memory::new(NOBODY, file)
    }

    /// Fills `into` from `address` on.
    ///
    /// # Errors
    /// [`MemoryError::Unreadable`] with the first address that could not be read; `into` is filled up to that
    /// address.
    pub fn read(&self, address: TargetAddress, into: &mut [u8]) -> Result<(), MemoryError> {
        let read = self.read_some(address, into)?;
        if read == into.len() {
            return Ok(());
        }
        Err(MemoryError::Unreadable {
            pid: self.pid,
            address: TargetAddress(address.0.saturating_add(read as u64)),
            bytes: into.len() - read,
            read,
            errno: Errno::EFAULT,
        })
    }

    /// Fills `into` as far as memory is mapped, and returns the number of bytes: 0 when nothing is mapped at
    /// `address`.
    ///
    /// # Errors
    /// [`MemoryError::Gone`] when the address space no longer exists.
    pub fn read_some(&self, address: TargetAddress, into: &mut [u8]) -> Result<usize, MemoryError> {
        let mut done = 0;
        while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let Some(from) = address.0.checked_add(done as u64) else {
                break;
            };
            match raw::read_memory(self.pid, from, rest) {
                Ok(read) if read > 0 => done += read,
                // ESRCH means that the process is gone, or that only its main thread has ended. The descriptor shows
                // which of the two.
                _ => match self.read_forced(from, rest)? {
                    0 => break,
                    read => done += read,
                },
            }
        }
        Ok(done)
    }

    /// Fills `into` as far as memory is mapped, and yields the number of bytes. Pages that the process shares with
    /// children that it has forked stay shared: process_vm_readv pins pages, and the kernel copies a shared one before
    /// it is pinned (`gup_must_unshare` in its mm/gup.c).
    pub fn read_shared(&self, address: TargetAddress, into: &mut [u8]) -> usize {
        let mut done = 0;
        while let Some(rest) = into.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, address.0.saturating_add(done as u64)) {
                Ok(read) if read > 0 => done += read,
                _ => break,
            }
        }
        done
    }

    /// Whether the address space that was opened no longer exists. If the process still lives, it has executed another
    /// program.
    pub fn is_gone(&self) -> bool {
        // Reading an unmapped address is an error; reading an address space that is gone yields 0 bytes.
        matches!(self.file.read_at(&mut [0], 0), Ok(0))
    }

    /// Reads through the descriptor. This also reads pages that the process itself may not read, and works in kernels
    /// without process_vm_readv.
    fn read_forced(&self, from: u64, into: &mut [u8]) -> Result<usize, MemoryError> {
        // Each read ends at the end of a page, because in some kernels a longer read would fail as a whole.
        let in_page = usize::try_from(PAGE - from % PAGE).unwrap_or(1).min(into.len());
        let Some(part) = into.get_mut(..in_page) else {
            return Ok(0);
        };
        if i64::try_from(from).is_err() {
            return Ok(0);
        }
        match self.file.read_at(part, from) {
            // Reading 0 bytes means that the address space of the descriptor is gone. At an unmapped address the
            // kernel would report EIO.
            Ok(0) => Err(MemoryError::Gone { pid: self.pid }),
            Ok(read) => Ok(read),
            Err(_) => Ok(0),
        }
    }

    /// Reads `N` bytes.
    ///
    /// # Errors
    /// As [`Memory::read`].
    pub fn read_array<const N: usize>(&self, address: TargetAddress) -> Result<[u8; N], MemoryError> {
        let mut bytes = [0; N];
        self.read(address, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads a little-endian `u64`.
    ///
    /// # Errors
    /// As [`Memory::read`].
    pub fn read_u64(&self, address: TargetAddress) -> Result<u64, MemoryError> {
        self.read_array(address).map(u64::from_le_bytes)
    }

    /// Writes bytes, whatever the protection of the pages is.
    ///
    /// # Errors
    /// [`MemoryError::Unwritable`], [`MemoryError::Gone`].
    pub fn write(&self, address: TargetAddress, bytes: &[u8]) -> Result<(), MemoryError> {
        let mut done = 0;
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            let at = address.0.saturating_add(done as u64);
            let failed = |errno| MemoryError::Unwritable {
                pid: self.pid,
                address: TargetAddress(at),
                bytes: rest.len(),
                errno,
            };
            if i64::try_from(at).is_err() {
                return Err(failed(Errno::EFAULT));
            }
            match self.file.write_at(rest, at) {
                Ok(0) => return Err(MemoryError::Gone { pid: self.pid }),
                Ok(written) => done += written,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(Errno::from_raw(error.raw_os_error().unwrap_or(0)))),
            }
        }
        Ok(())
    }

    /// Writes many short pieces, in ascending order of address. Pieces that lie in one page (or in adjoining pages,
    /// when a piece crosses) are merged with the bytes between them and written at once. The target must not change
    /// the bytes in between meanwhile: they must be text, or the target must be stopped.
    ///
    /// # Errors
    /// [`MemoryError::Overlap`]: nothing was written. [`MemoryError::Unwritable`]: everything below the address was
    /// written.
    pub fn write_text(&self, pieces: &[(TargetAddress, &[u8])]) -> Result<(), MemoryError> {
        let place = |(address, bytes): &(TargetAddress, &[u8])| (*address, bytes.len());
        let pieces = sorted(pieces, place);
        for cluster in clusters(self.pid, pieces.iter().map(place))? {
            let cluster = pieces.get(cluster).unwrap_or_default();
            match cluster {
                [] => {}
                [(address, bytes)] => self.write(*address, bytes)?,
                [(start, _), .., (last, last_bytes)] => {
                    let length = (last.0 - start.0) as usize + last_bytes.len();
                    let mut merged = vec![0; length];
                    self.read(*start, &mut merged)?;
                    for (address, bytes) in cluster {
                        let from = (address.0 - start.0) as usize;
                        if let Some(part) = merged.get_mut(from..from + bytes.len()) {
                            part.copy_from_slice(bytes);
                        }
                    }
                    self.write(*start, &merged)?;
                }
            }
        }
        Ok(())
    }
}

impl Memory {
    /// As [`Memory::write_text`], but writes a piece only where the text has the expected bytes. Returns the start of
    /// each piece whose text differs or is no longer mapped: a program may unload a library at any time.
    ///
    /// # Errors
    /// As [`Memory::write_text`].
    pub fn exchange_text(&self, exchanges: &[Exchange]) -> Result<Vec<TargetAddress>, MemoryError> {
        let place = |(address, _, after): &Exchange| (*address, after.len());
        let exchanges = sorted(exchanges, place);
        let mut skipped = Vec::new();
        let mut merged = Vec::new();
        for cluster in clusters(self.pid, exchanges.iter().map(place))? {
            let cluster = exchanges.get(cluster).unwrap_or_default();
            let together = self.exchange(cluster, &mut merged, &mut skipped);
            if matches!(together, Err(MemoryError::Unreadable { .. })) {
                for piece in cluster {
                    match self.exchange(std::slice::from_ref(piece), &mut merged, &mut skipped) {
                        Err(MemoryError::Unreadable { .. }) => skipped.push(piece.0),
                        other => other?,
                    }
                }
            } else {
                together?;
            }
        }
        Ok(skipped)
    }

    fn exchange(
        &self,
        cluster: &[Exchange],
        merged: &mut Vec<u8>,
        skipped: &mut Vec<TargetAddress>,
    ) -> Result<(), MemoryError> {
        let (Some((start, ..)), Some((last, _, last_bytes))) = (cluster.first(), cluster.last()) else {
            return Ok(());
        };
        merged.clear();
        merged.resize((last.0 - start.0) as usize + last_bytes.len(), 0);
        self.read(*start, merged)?;
        let mut differs = Vec::new();
        for (address, before, after) in cluster {
            let from = (address.0 - start.0) as usize;
            match merged.get_mut(from..from + after.len()) {
                Some(part) if *before == part => part.copy_from_slice(after),
                _ => differs.push(*address),
            }
        }
        if differs.len() < cluster.len() {
            match self.write(*start, merged) {
                // The memory was unmapped after it was read.
                Err(MemoryError::Unwritable {
                    pid,
                    address,
                    bytes,
                    errno,
                }) if self.read(*start, merged).is_err() => {
                    return Err(MemoryError::Unreadable {
                        pid,
                        address,
                        bytes,
                        read: 0,
                        errno,
                    });
                }
                other => other?,
            }
        }
        skipped.extend(differs);
        Ok(())
    }
}

/// The address, the expected bytes, and the new bytes.
pub type Exchange<'bytes> = (TargetAddress, &'bytes [u8], &'bytes [u8]);

/// The pieces that are not empty, in ascending order of address. `place` gives a piece's address and size.
fn sorted<T: Copy>(pieces: &[T], place: impl Fn(&T) -> (TargetAddress, usize)) -> Vec<T> {
    let mut sorted: Vec<T> = pieces.iter().copied().filter(|piece| place(piece).1 > 0).collect();
    sorted.sort_by_key(|piece| place(piece).0);
    sorted
}

/// Groups the sorted places, by index, so that one write can serve each group.
fn clusters(
    pid: ProcessId,
    places: impl Iterator<Item = (TargetAddress, usize)>,
) -> Result<Vec<Range<usize>>, MemoryError> {
    let mut clusters: Vec<Range<usize>> = Vec::new();
    let mut first = TargetAddress(0);
    let mut last_byte: Option<u64> = None;
    for (index, (address, bytes)) in places.enumerate() {
        if last_byte.is_some_and(|last| address.0 <= last) {
            return Err(MemoryError::Overlap { pid, address });
        }
        let joins = last_byte.is_some_and(|last| last / PAGE == address.0 / PAGE);
        match clusters.last_mut() {
            Some(cluster) if joins && address.0 - first.0 < CLUSTER_LIMIT => cluster.end = index + 1,
            _ => {
                clusters.push(index..index + 1);
                first = address;
            }
        }
        last_byte = Some(address.0.saturating_add(bytes as u64 - 1));
    }
    Ok(clusters)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(pieces: &[(u64, usize)]) -> Result<Vec<Vec<u64>>, MemoryError> {
        let place = |(at, length): &(u64, usize)| (TargetAddress(*at), *length);
        let pieces = sorted(pieces, place);
        Ok(clusters(1, pieces.iter().map(place))?
            .into_iter()
            .map(|cluster| pieces[cluster].iter().map(|piece| piece.0).collect())
            .collect())
    }

    #[test]
    fn neighbours_in_a_page_are_written_together() {
        assert_eq!(
            shape(&[(0x2000, 5), (0x1010, 5), (0x1000, 5)]).unwrap(),
            [vec![0x1000, 0x1010], vec![0x2000]]
        );
    }

    #[test]
    fn a_piece_across_pages_joins_both() {
        assert_eq!(
            shape(&[(0x1f00, 5), (0x1ffe, 5), (0x2010, 5), (0x3000, 1)]).unwrap(),
            [vec![0x1f00, 0x1ffe, 0x2010], vec![0x3000]]
        );
    }

    #[test]
    fn overlaps_are_refused_and_touching_is_not() {
        assert_eq!(shape(&[(0x1000, 5), (0x1005, 5)]).unwrap(), [vec![0x1000, 0x1005]]);
        assert_eq!(
            shape(&[(0x1005, 5), (0x1000, 6)]),
            Err(MemoryError::Overlap {
                pid: 1,
                address: TargetAddress(0x1005)
            })
        );
        assert_eq!(
            shape(&[(0x1000, 5), (0x1000, 0)]).unwrap(),
            [vec![0x1000]],
            "empty pieces do not count"
        );
    }
}
