//! Three kinds of addresses, and the way from one to the next.
//!
//! ```text
//!   FileOffset      where a byte lies in the file
//!       | PT_LOAD: p_offset -> p_vaddr                (Module::image_address)
//!   ImageAddress    where the linker put it: what symbols, FDEs and relocations speak of
//!       | + bias: where the loader really put the image (Bias)
//!   TargetAddress   where it lies in the traced process
//! ```
//!
//! The bias of a program linked to a fixed place is 0; for a shared object, a PIE and the vDSO the loader chooses it.
//! It wraps around, because an image may be linked to a high address and loaded at a low one.

use std::fmt;

use nanoprobe_patch::TargetAddress;

/// An address as the module's own file states it, before the loader adds the bias.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageAddress(pub u64);

/// A position in a file, in bytes from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileOffset(pub u64);

/// The number that is added to an [`ImageAddress`] to get the [`TargetAddress`] of the same byte, modulo 2^64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bias(pub u64);

impl Bias {
    /// The target's address of the byte that the image has at `address`.
    pub fn to_target(self, address: ImageAddress) -> TargetAddress {
        TargetAddress(address.0.wrapping_add(self.0))
    }

    /// The inverse of [`Bias::to_target`].
    pub fn to_image(self, address: TargetAddress) -> ImageAddress {
        ImageAddress(address.0.wrapping_sub(self.0))
    }
}

impl fmt::Display for ImageAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Display for FileOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// The addresses from `start` up to `end`, exclusive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressRange {
    pub start: ImageAddress,
    /// The address after the last one.
    pub end: ImageAddress,
}

impl AddressRange {
    /// From `start` up to `end`; empty when `end` does not lie after `start`.
    pub fn new(start: u64, end: u64) -> Self {
        Self {
            start: ImageAddress(start),
            end: ImageAddress(end.max(start)),
        }
    }

    pub fn len(self) -> u64 {
        self.end.0.saturating_sub(self.start.0)
    }

    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    pub fn contains(self, address: ImageAddress) -> bool {
        self.start <= address && address < self.end
    }
}
