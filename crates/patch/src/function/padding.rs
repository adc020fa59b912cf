//! Padding, as a range of bytes: see `find_padding.rs`.

use crate::TargetAddress;

/// Some padding: at least six bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Padding {
    /// Address of the first byte.
    pub start: TargetAddress,
    /// The original bytes.
    pub bytes: Vec<u8>,
    /// The nops in it, ascending: where each starts, and its length in bytes.
    pub nops: Vec<(TargetAddress, usize)>,
}

impl Padding {
    /// After the last byte.
    pub fn end(&self) -> TargetAddress {
        TargetAddress(self.start.0.saturating_add(self.bytes.len() as u64))
    }
}
