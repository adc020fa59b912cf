//! Where in the address space a session's memory goes.

use std::ops::Range;

use nanoprobe_patch::TargetAddress;
use nanoprobe_target::Hole;

use crate::layout::PAGE_BYTES;

/// How far below the lowest library the arena lies, if the hole is large enough.
const FAR_BYTES: u64 = 64 << 30;
/// A hole of more than this is preferred for its position. The hole between libraries and stack is never so large:
/// their randomisation makes it little more than 2^40.
const LARGE_BYTES: u64 = 2 << 40;
/// The part at the start of our memory with all that most hits touch: the thread table, the code, and the arena up to
/// its first contexts.
const TOUCHED_BYTES: u64 = 512 << 20;

/// A place far from everything. Neither heap, stacks nor the kernel's own choices come near it, and near memory
/// keeps the holes next to the modules. It lies in the highest large hole, which is the one below the libraries:
/// half-way, or [`FAR_BYTES`] below its end. The kernel would map there, too. Lower regions have fixed addresses in
/// many programs (the shadows of sanitizers, a virtual machine's heap), which overwrite what is there or end over
/// it.
///
/// What a hit touches lies in the first part. For each GiB and each 2 MiB in which a process touches anything, the
/// kernel keeps a page with a table. A fork makes these anew, and the end of the child frees them, which takes
/// microseconds for each. So the first part lies within one GiB, and the thread table and the first of the code, which
/// begin it, within 2 MiB.
pub(super) fn far_place(holes: &[Hole], bytes: u64) -> Option<TargetAddress> {
    const ALIGNMENT: u64 = 2 << 20;
    const TABLE: u64 = 1 << 30;
    let largest = holes.iter().max_by_key(|hole| hole.bytes())?;
    let large = holes.iter().filter(|hole| hole.bytes() >= LARGE_BYTES.max(bytes));
    let hole = large.max_by_key(|hole| hole.start).unwrap_or(largest);
    let spare = hole.bytes().checked_sub(bytes)?;
    let mut start = (hole.start.0 + spare - (spare / 2).min(FAR_BYTES)).next_multiple_of(ALIGNMENT);
    let next = start.next_multiple_of(TABLE);
    if next - start < TOUCHED_BYTES && next + bytes <= hole.end.0 {
        start = next;
    }
    (start + bytes <= hole.end.0).then_some(TargetAddress(start))
}

/// The starts of memory of these sizes and of what follows, with a page between each two.
pub(super) fn one_after_another(start: TargetAddress, sizes: [u64; 4]) -> [TargetAddress; 5] {
    let mut next = start.0;
    let [first, second, third, fourth] = sizes.map(|bytes| {
        let here = TargetAddress(next);
        next += bytes + PAGE_BYTES;
        here
    });
    [first, second, third, fourth, TargetAddress(next)]
}

/// The parts of `range` that lie outside of `taken`.
pub(super) fn without(range: Range<u64>, taken: &Range<u64>) -> Vec<Range<u64>> {
    let before = range.start..range.end.min(taken.start);
    let behind = range.start.max(taken.end)..range.end;
    [before, behind]
        .into_iter()
        .filter(|part| part.start < part.end)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_loses_what_is_taken() {
        assert_eq!(without(0..10, &(3..5)), [0..3, 5..10]);
        assert_eq!(without(0..10, &(0..5)), vec![Range { start: 5, end: 10 }]);
        assert_eq!(without(0..10, &(20..30)), vec![Range { start: 0, end: 10 }]);
        assert!(without(4..6, &(0..10)).is_empty());
    }

    #[test]
    fn the_far_place_is_below_the_libraries_or_in_the_largest_hole() {
        let hole = |start: u64, end: u64| Hole {
            start: TargetAddress(start),
            end: TargetAddress(end),
        };
        // An executable at 0x5555..., libraries at 0x7f12..., a stack.
        let (program, libraries) = (0x5555_5555_0000, 0x7f12_3456_7000);
        let below = hole(0x5556_0000_0000, libraries);
        let holes = [
            hole(0x10000, program),
            below,
            hole(0x7f12_4000_0000, 0x7ffc_0000_0000 - 0x80_0000_0000),
        ];
        let place = far_place(&holes, 1 << 32).unwrap();
        let end = place.0 + (1 << 32);
        assert!(end > libraries - (65 << 30) && end <= libraries - (63 << 30));
        assert_eq!(place.0 % (2 << 20), 0);
        let small = [hole(0x10000, 0x400000), hole(1 << 34, 1 << 36)];
        let place = far_place(&small, 1 << 30).unwrap();
        assert!(place.0 > 1 << 35 && place.0 + (1 << 30) < 1 << 36);
        assert!(far_place(&small, 1 << 47).is_none());
    }

    #[test]
    fn what_hits_touch_lies_in_one_gib() {
        let gib = 1 << 30;
        for shift in 0..512 {
            let end = TargetAddress(0x7f12_0000_0000 + shift * (2 << 20));
            let start = TargetAddress(0x5556_0000_0000);
            let place = far_place(&[Hole { start, end }], 5 * gib).unwrap();
            assert!(place.0 % gib + TOUCHED_BYTES <= gib && place.0.is_multiple_of(2 << 20));
            assert!(place.0 + 5 * gib <= end.0);
        }
        // A hole that has no room for the next GiB.
        let (start, end) = (TargetAddress(gib - (4 << 20)), TargetAddress(2 * gib - (4 << 20)));
        assert_eq!(far_place(&[Hole { start, end }], gib), Some(start));
    }

    #[test]
    fn a_page_lies_between_each_two() {
        let places = one_after_another(TargetAddress(0x10000), [0x1000, 0x2000, 0, 0x3000]);
        let expected = [0x10000, 0x12000, 0x15000, 0x16000, 0x1a000];
        assert_eq!(places, expected.map(TargetAddress));
    }
}
