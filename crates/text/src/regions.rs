//! Near memory that is to be mapped.

use std::ops::Range;

use nanoprobe_patch::TargetAddress;

/// The parts of a region that are not mapped yet: regions merge with their neighbours as they grow.
pub fn without(region: Range<TargetAddress>, known: &[Range<TargetAddress>]) -> Vec<Range<TargetAddress>> {
    let mut rest = vec![region];
    for taken in known {
        let parts = |part: Range<TargetAddress>| {
            let before = part.start..part.end.min(taken.start);
            let behind = part.start.max(taken.end)..part.end;
            [before, behind].into_iter().filter(|part| part.start < part.end)
        };
        rest = rest.into_iter().flat_map(parts).collect();
    }
    rest
}
