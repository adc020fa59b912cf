//! Padding as a range of bytes: see `find_padding.rs`.

use std::sync::Arc;

use crate::{Shift, TargetAddress};

/// Padding of at least six bytes. Copies share the bytes, because all functions around the padding have a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Padding {
    /// Address of the first byte.
    pub start: TargetAddress,
    /// The original bytes.
    pub bytes: Arc<[u8]>,
    /// The nops in it, ascending: start and length in bytes.
    pub nops: Arc<[(TargetAddress, usize)]>,
}

impl Padding {
    /// The address after the last byte.
    pub fn end(&self) -> TargetAddress {
        TargetAddress(self.start.0.saturating_add(self.bytes.len() as u64))
    }

    /// The same padding where the file is mapped elsewhere.
    pub fn moved(&self, shift: Shift) -> Padding {
        let nops = self.nops.iter();
        Padding {
            start: shift.address(self.start),
            bytes: self.bytes.clone(),
            nops: nops.map(|(start, bytes)| (shift.address(*start), *bytes)).collect(),
        }
    }
}
