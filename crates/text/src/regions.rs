//! Memory near the text, which is mapped before detours are written into it: in another process by a tracing session,
//! in its own process by the library.

use std::ops::Range;

use nanoprobe_patch::TargetAddress;

/// The memory of a process, in which places for detours were chosen. The process may map something else there at any
/// time.
pub trait NearMemory {
    type Error;

    /// Maps a region for code. False: something else is mapped there by now, and nothing was done.
    ///
    /// # Errors
    /// The region is not mapped. An implementation that cannot choose other places any more yields an error for a
    /// place that is taken, too.
    fn map(&mut self, region: &Range<TargetAddress>) -> Result<bool, Self::Error>;
}

/// Maps the parts of regions that are not `mapped` yet, and adds them there. False: some places were taken, so other
/// places are needed.
///
/// # Errors
/// The first error of the memory. Parts that were mapped before the error stay mapped, and are in `mapped`.
pub fn map_missing<M: NearMemory>(
    memory: &mut M,
    regions: &[Range<TargetAddress>],
    mapped: &mut Vec<Range<TargetAddress>>,
) -> Result<bool, M::Error> {
    let mut is_whole = true;
    for region in regions {
        for part in without(region.clone(), mapped) {
            match memory.map(&part)? {
                true => mapped.push(part),
                false => is_whole = false,
            }
        }
    }
    Ok(is_whole)
}

/// The parts of a region that are not mapped yet. (Regions merge with their neighbours as they grow.)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A memory with one byte that is taken, and one that cannot be mapped.
    struct Fake(Vec<Range<u64>>);

    const TAKEN: u64 = 0x2800;
    const REFUSED: u64 = 0x9000;

    impl NearMemory for Fake {
        type Error = u64;

        fn map(&mut self, region: &Range<TargetAddress>) -> Result<bool, u64> {
            let range = region.start.0..region.end.0;
            if range.contains(&REFUSED) {
                return Err(range.start);
            }
            let is_free = !range.contains(&TAKEN);
            if is_free {
                self.0.push(range);
            }
            Ok(is_free)
        }
    }

    fn region(start: u64, end: u64) -> Range<TargetAddress> {
        TargetAddress(start)..TargetAddress(end)
    }

    #[test]
    fn only_what_is_missing_is_mapped() {
        let (mut memory, mut mapped) = (Fake(Vec::new()), vec![region(0x5000, 0x6000)]);
        let regions = [region(0x2000, 0x3000), region(0x4000, 0x7000)];
        assert_eq!(map_missing(&mut memory, &regions, &mut mapped), Ok(false));
        assert_eq!(memory.0, [0x4000..0x5000, 0x6000..0x7000]);
        assert_eq!(map_missing(&mut memory, &regions[1..], &mut mapped), Ok(true));
        assert_eq!(memory.0.len(), 2, "nothing is mapped twice");
    }

    #[test]
    fn regions_that_were_mapped_before_an_error_are_known() {
        let (mut memory, mut mapped) = (Fake(Vec::new()), Vec::new());
        let regions = [region(0x4000, 0x5000), region(0x8000, 0xa000), region(0xb000, 0xc000)];
        assert_eq!(map_missing(&mut memory, &regions, &mut mapped), Err(0x8000));
        assert_eq!(mapped, [region(0x4000, 0x5000)]);
    }
}
