//! Decoded functions that are kept for a short time. Functions are planned in ascending order, and planning looks
//! at the padding of the next functions. So these are decoded early, and planned soon after.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use nanoprobe_patch::{FunctionMap, Padding};

/// How many functions are kept, at most.
const KEPT_MAX: usize = 128;

/// Functions by start: the end of each, and its parts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Decoded {
    functions: BTreeMap<u64, (u64, Vec<FunctionMap>)>,
}

impl Decoded {
    /// The parts of a function, if they are kept. Functions before this function are forgotten.
    pub fn take(&mut self, extent: &Range<u64>) -> Option<Vec<FunctionMap>> {
        while let Some(first) = self.functions.first_entry().filter(|first| *first.key() < extent.start) {
            first.remove();
        }
        let is_same = self
            .functions
            .get(&extent.start)
            .is_some_and(|(end, _)| *end == extent.end);
        let (_, parts) = self.functions.remove(&extent.start).filter(|_| is_same)?;
        Some(parts)
    }

    /// Keeps a function.
    pub fn put(&mut self, extent: Range<u64>, parts: Vec<FunctionMap>) {
        self.functions.insert(extent.start, (extent.end, parts));
        if self.functions.len() > KEPT_MAX {
            self.functions.pop_last();
        }
    }

    /// The padding in a function, and directly after it. A function that is not kept yet is decoded, and kept.
    pub fn padding_of(
        &mut self,
        extent: &Range<u64>,
        decode: impl FnOnce() -> Option<Vec<FunctionMap>>,
    ) -> Vec<Padding> {
        let of_parts = |parts: &[FunctionMap]| parts.first().map_or_else(Vec::new, FunctionMap::padding);
        if let Some((end, parts)) = self.functions.get(&extent.start)
            && *end == extent.end
        {
            return of_parts(parts);
        }
        let parts = decode().unwrap_or_default();
        let padding = of_parts(&parts);
        if !parts.is_empty() {
            self.put(extent.clone(), parts);
        }
        padding
    }
}

/// For how many functions padding is kept. The functions around the planned one are requested repeatedly.
const PADDING_KEPT_MAX: usize = 256;

/// The padding of functions, by their extents. The oldest is forgotten, and computed again on demand.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownPadding {
    padding: BTreeMap<(u64, u64), Vec<Padding>>,
    /// The extents, the oldest first.
    order: VecDeque<(u64, u64)>,
}

impl KnownPadding {
    /// Stores the padding of a function.
    pub fn know(&mut self, extent: Range<u64>, padding: Vec<Padding>) {
        let key = (extent.start, extent.end);
        if self.padding.insert(key, padding).is_some() {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > PADDING_KEPT_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.padding.remove(&oldest);
        }
    }

    /// The kept padding; if none is kept, the result of `find`, which is then kept.
    pub fn of(&mut self, extent: Range<u64>, find: impl FnOnce(&Range<u64>) -> Vec<Padding>) -> &[Padding] {
        let key = (extent.start, extent.end);
        if !self.padding.contains_key(&key) {
            let found = find(&extent);
            self.know(extent, found);
        }
        self.padding.get(&key).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use nanoprobe_patch::TargetAddress;

    use super::*;

    #[test]
    fn forgotten_padding_is_found_again() {
        let at = |start: u64| Padding {
            start: TargetAddress(start),
            bytes: [0x90; 6].into(),
            nops: [].into(),
        };
        let mut known = KnownPadding::default();
        let count = 2 * PADDING_KEPT_MAX as u64;
        for start in 0..count {
            known.know(start..start + 1, vec![at(start)]);
            known.know(start..start + 1, vec![at(start)]);
        }
        assert_eq!(
            (known.padding.len(), known.order.len()),
            (PADDING_KEPT_MAX, PADDING_KEPT_MAX)
        );
        let last = count - 1;
        assert_eq!(known.of(last..count, |_| panic!("it is known")), [at(last)]);
        assert_eq!(known.of(0..1, |extent| vec![at(extent.start)]), [at(0)]);
    }
}
