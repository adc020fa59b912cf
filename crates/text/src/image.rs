//! A module in the form in which the planner follows control flow through its code, with the target's addresses.

use std::ops::Range;

use nanoprobe_patch::{Restartable, Surroundings, TargetAddress};
use nanoprobe_symbols::{AddressRange, ImageAddress, Module};

/// A module, as the planner sees it: its constants, and the places at which its code is entered from elsewhere.
pub struct Image<'a>(pub &'a Module);

impl Image<'_> {
    fn image_range(&self, range: &Range<TargetAddress>) -> AddressRange {
        let bias = self.0.bias();
        AddressRange::new(bias.to_image(range.start).0, bias.to_image(range.end).0)
    }

    fn in_target(&self, addresses: Vec<ImageAddress>) -> Vec<TargetAddress> {
        let bias = self.0.bias();
        addresses.into_iter().map(|address| bias.to_target(address)).collect()
    }
}

impl Surroundings for Image<'_> {
    fn constant(&self, address: TargetAddress, bytes: usize) -> Option<&[u8]> {
        self.0.constant_at(self.0.bias().to_image(address), bytes as u64)
    }

    fn entries(&self, range: Range<TargetAddress>) -> Vec<TargetAddress> {
        self.in_target(self.0.entered_from_elsewhere(self.image_range(&range)))
    }

    fn is_fragment(&self, address: TargetAddress) -> bool {
        self.0.is_cold_fragment(self.0.bias().to_image(address))
    }

    fn pointers(&self, range: Range<TargetAddress>) -> Vec<TargetAddress> {
        self.in_target(self.0.code_pointers(self.image_range(&range)))
    }

    fn restartable(&self, range: Range<TargetAddress>) -> Vec<Restartable> {
        let bias = self.0.bias();
        let found = self.0.restartable_in(self.image_range(&range)).into_iter();
        found
            .map(|found| Restartable {
                sequence: bias.to_target(found.start)..bias.to_target(found.end),
                abort: bias.to_target(found.abort),
            })
            .collect()
    }
}
