//! Decoded functions that are kept for a short time. Functions are planned in ascending order, and planning looks
//! at the padding of the next functions. So these are decoded early, and planned soon after.

use std::collections::BTreeMap;
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
    /// The parts of a function, if they are kept. Functions before it are forgotten.
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
