//! What is known of the image around a function.

use std::ops::Range;

use super::restartable::Restartable;
use crate::TargetAddress;

/// What is known of the image around a function.
pub trait Surroundings {
    /// `bytes` bytes of constant data: in no writable segment, and not relocated.
    fn constant(&self, address: TargetAddress, bytes: usize) -> Option<&[u8]>;

    /// Addresses in a range that are entered from elsewhere: landing pads of exceptions, other functions' symbols.
    fn entries(&self, range: Range<TargetAddress>) -> Vec<TargetAddress>;

    /// Whether a cold fragment of some function lies there.
    fn is_fragment(&self, address: TargetAddress) -> bool;

    /// Addresses in a range to which pointers in the image's data lead: tables of labels, where the
    /// function has computed branches.
    fn pointers(&self, range: Range<TargetAddress>) -> Vec<TargetAddress>;

    /// The restartable sequences of the image of which any byte, or the signature, lies in a range or next to it.
    fn restartable(&self, range: Range<TargetAddress>) -> Vec<Restartable> {
        let _ = range;
        Vec::new()
    }
}
