//! Memory: the clause's scratch memory, which appears at [`SCRATCH_ADDRESS`], and the target's.

use super::arithmetic::normalise;
use super::evaluate::Evaluator;
use super::value::until_nul;
use super::{Fault, FaultKind, SCRATCH_ADDRESS, Value, World};
use crate::program::IntegerType;

impl<'a, W: World + ?Sized> Evaluator<'a, W> {
    /// Checks that scratch memory has this many bytes left.
    pub(super) fn room(&self, bytes: u64) -> Result<usize, Fault> {
        let taken = self.scratch.len().next_multiple_of(8);
        let left = self.world.scratch_bytes().saturating_sub(taken);
        let fits = usize::try_from(bytes).ok().filter(|bytes| *bytes <= left);
        fits.ok_or(Fault::new(FaultKind::Scratch))
    }

    /// Appends bytes to scratch memory. The value has their address.
    pub(super) fn in_scratch(&mut self, bytes: Vec<u8>) -> Value {
        // The last reservation may end within a word: see `store`.
        self.scratch.resize(self.scratch.len().next_multiple_of(8), 0);
        let address = SCRATCH_ADDRESS + self.scratch.len() as u64;
        self.scratch.extend_from_slice(&bytes);
        self.scratch.resize(self.scratch.len().next_multiple_of(8), 0);
        Value::Bytes { address, bytes }
    }

    /// The scratch memory from an address on; `None`: the address does not lie in it.
    fn scratch_at(&self, address: u64) -> Option<&[u8]> {
        let offset = usize::try_from(address.checked_sub(SCRATCH_ADDRESS)?).ok()?;
        (offset < self.world.scratch_bytes()).then(|| self.scratch.get(offset..).unwrap_or_default())
    }

    /// The range of offsets in scratch memory that begins at an address. The clause must have reserved these bytes.
    pub(super) fn scratch_place(&self, address: u64, bytes: u64) -> Result<std::ops::Range<usize>, Fault> {
        let start = address.checked_sub(SCRATCH_ADDRESS);
        let end = start.and_then(|start| start.checked_add(bytes));
        match (start, end) {
            (Some(start), Some(end)) if end <= self.scratch.len() as u64 => Ok(start as usize..end as usize),
            _ => Err(Fault::bad_address(address)),
        }
    }

    /// Stores bytes in scratch memory. One byte right after the last reservation may be stored, too: a
    /// NUL after the result of `copyin` (`s[n] = 0`). The reservation then ends within a word, and no
    /// further byte after it may be stored.
    pub(super) fn store(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        let end = self.scratch.len();
        let is_next = address == SCRATCH_ADDRESS + end as u64 && end.is_multiple_of(8);
        if bytes.len() == 1 && is_next && self.room(1).is_ok() {
            self.scratch.push(0);
        }
        let place = self.scratch_place(address, bytes.len() as u64)?;
        if let Some(room) = self.scratch.get_mut(place) {
            room.copy_from_slice(bytes);
        }
        Ok(())
    }

    pub(super) fn load(&mut self, address: u64, integer: IntegerType) -> Result<Value, Fault> {
        let mut word = [0; 8];
        let bytes = word
            .get_mut(..usize::from(integer.bytes))
            .ok_or(Fault::new(FaultKind::Illegal))?;
        self.read_memory(address, bytes)?;
        Ok(Value::Integer(normalise(i64::from_le_bytes(word), integer)))
    }

    pub(super) fn string_limit(&self) -> usize {
        self.limits.string_limit() as usize
    }

    pub(super) fn random(&mut self) -> i64 {
        self.world.random()
    }

    pub(super) fn world(&mut self) -> &mut W {
        self.world
    }

    /// `copyout`: copies bytes of scratch memory, given by their range, to an address of the target.
    pub(super) fn copy_out(&mut self, place: std::ops::Range<usize>, address: u64) -> Result<Value, Fault> {
        self.world.write(address, self.scratch.get(place).unwrap_or_default())?;
        Ok(Value::Integer(0))
    }

    pub(super) fn read_memory(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        if let Some(held) = self.variables_at(address, bytes.len()) {
            bytes.copy_from_slice(&held);
            return Ok(());
        }
        match self.scratch_at(address) {
            None => self.world.read(address, bytes),
            Some(scratch) => {
                bytes.copy_from_slice(scratch.get(..bytes.len()).ok_or(Fault::bad_address(address))?);
                Ok(())
            }
        }
    }

    pub(super) fn read_string(&mut self, address: u64, limit: usize) -> Result<Vec<u8>, Fault> {
        if let Some(held) = self.variables_at(address, limit) {
            return Ok(until_nul(&held).to_vec());
        }
        let mut text = match self.scratch_at(address) {
            None => self.world.read_string(address, limit)?,
            Some(scratch) => until_nul(scratch).to_vec(),
        };
        text.truncate(limit);
        Ok(until_nul(&text).to_vec())
    }
}
