//! The image around a function, as far as known.

use std::ops::Range;

use super::restartable::Restartable;
use crate::TargetAddress;

/// The image around a function, as far as known.
pub trait Surroundings {
    /// `bytes` bytes of constant data, which lie in no writable segment and are not relocated.
    fn constant(&self, address: TargetAddress, bytes: usize) -> Option<&[u8]>;

    /// The addresses in a range that are entered from elsewhere: landing pads of exceptions, other functions' symbols.
    fn entries(&self, range: Range<TargetAddress>) -> Vec<TargetAddress>;

    /// Whether a cold fragment of some function lies at an address.
    fn is_fragment(&self, address: TargetAddress) -> bool;

    /// The addresses in a range to which pointers in the image's data lead. If the function has computed branches,
    /// these may be tables of labels.
    fn pointers(&self, range: Range<TargetAddress>) -> Vec<TargetAddress>;

    /// The restartable sequences of the image that have a byte, or their signature, in a range or next to it.
    fn restartable(&self, range: Range<TargetAddress>) -> Vec<Restartable> {
        let _ = range;
        Vec::new()
    }
}
