//! The places where near memory may be mapped: holes of the map, at a distance from the heap and the stack, which
//! grow.
//!
//! ```text
//!   mmap_min_addr |..hole..|program|[heap]|~~~1 GiB~~~|.....hole.....|libraries|..hole..|~~~128 MiB~~~|[stack]|
//!                                          the heap grows up                              the stack grows down
//! ```
//!
//! If space is scarce, a part of the room for the heap may be used: malloc falls back to mmap when the program break
//! cannot move. The room for the stack is never used.

use nanoprobe_patch::TargetAddress;

use crate::map::{Map, MappingKind};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hole {
    /// First free byte; a multiple of the page size.
    pub start: TargetAddress,
    /// The first byte after it: a multiple of the page size.
    pub end: TargetAddress,
}

impl Hole {
    pub fn bytes(&self) -> u64 {
        self.end.0.saturating_sub(self.start.0)
    }
}

/// The rules for holes that may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoleRules {
    /// The lowest address (vm.mmap_min_addr, and never the first page).
    pub minimum: TargetAddress,
    /// The end of the usable addresses: the address after the highest usable address.
    pub maximum: TargetAddress,
    /// The address where the program break began. The heap may not exist yet.
    pub break_start: Option<TargetAddress>,
    /// The distance kept free above the heap, in bytes.
    pub heap_guard: u64,
    /// The distance kept free below the stack, in bytes.
    pub stack_guard: u64,
}

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

impl HoleRules {
    /// Distance kept above the heap by default.
    pub const HEAP_GUARD: u64 = GIB;
    /// Distance kept above the heap when space is scarce.
    pub const HEAP_GUARD_SCARCE: u64 = 16 * MIB;
    /// The least distance kept below the stack. A larger limit of the stack (plus 1 MiB) replaces it.
    pub const STACK_GUARD: u64 = 128 * MIB;
    /// End of the user space of four-level paging. mmap places nothing above it unless the caller asks for a higher
    /// address.
    pub const USER_SPACE_END: TargetAddress = TargetAddress(0x7fff_ffff_f000);

    /// These rules with a smaller distance above the heap, for when space is scarce.
    pub fn scarce(self) -> HoleRules {
        HoleRules {
            heap_guard: self.heap_guard.min(Self::HEAP_GUARD_SCARCE),
            ..self
        }
    }
}

impl Default for HoleRules {
    fn default() -> HoleRules {
        HoleRules {
            minimum: TargetAddress(0x10000),
            maximum: Self::USER_SPACE_END,
            break_start: None,
            heap_guard: Self::HEAP_GUARD,
            stack_guard: Self::STACK_GUARD,
        }
    }
}

impl Map {
    /// The holes that the rules permit, in ascending order.
    pub fn holes(&self, rules: &HoleRules) -> Vec<Hole> {
        let mut taken: Vec<(u64, u64)> = vec![(0, rules.minimum.0)];
        for mapping in self.mappings() {
            let (mut start, mut end) = (mapping.start.0, mapping.end.0);
            match mapping.kind {
                MappingKind::Heap => end = end.saturating_add(rules.heap_guard),
                MappingKind::Stack => start = start.saturating_sub(rules.stack_guard),
                _ => {}
            }
            taken.push((start, end));
        }
        if let Some(TargetAddress(start)) = rules.break_start {
            taken.push((start, start.saturating_add(rules.heap_guard)));
        }
        taken.push((rules.maximum.0, u64::MAX));
        taken.sort_unstable();

        let mut holes = Vec::new();
        let mut free_from = 0;
        for (start, end) in taken {
            if start > free_from {
                let (start, end) = (TargetAddress(free_from), TargetAddress(start));
                holes.extend(whole_pages(start, end));
            }
            free_from = free_from.max(end);
        }
        holes
    }
}

fn whole_pages(start: TargetAddress, end: TargetAddress) -> Option<Hole> {
    let (start, end) = (start.align_up(4096)?, end.align_down(4096));
    (start < end).then_some(Hole { start, end })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"400000-402000 r-xp 00000000 fe:00 12 /bin/a\n\
        500000-521000 rw-p 00000000 00:00 0 [heap]\n\
        7f0000000000-7f0000001000 rw-p 00000000 00:00 0 \n\
        7ffc2fa0b000-7ffc2fa2c000 rw-p 00000000 00:00 0 [stack]\n\
        ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]\n";

    fn holes(rules: &HoleRules) -> Vec<(u64, u64)> {
        Map::parse(TEXT)
            .holes(rules)
            .iter()
            .map(|hole| (hole.start.0, hole.end.0))
            .collect()
    }

    #[test]
    fn distances_are_kept_from_heap_and_stack() {
        assert_eq!(
            holes(&HoleRules::default()),
            [
                (0x10000, 0x400000),
                (0x402000, 0x500000),
                (0x40521000, 0x7f0000000000),
                (0x7f0000001000, 0x7ffc27a0b000),
                (0x7ffc2fa2c000, 0x7ffffffff000),
            ]
        );
    }

    #[test]
    fn scarce_space_takes_from_the_heap_only() {
        let scarce = holes(&HoleRules::default().scarce());
        assert_eq!(scarce[2], (0x1521000, 0x7f0000000000));
        assert_eq!(scarce[3], (0x7f0000001000, 0x7ffc27a0b000));
    }

    #[test]
    fn a_heap_that_does_not_exist_yet_has_its_distance_too() {
        let rules = HoleRules {
            break_start: Some(TargetAddress(0x7e0000000123)),
            ..HoleRules::default()
        };
        assert_eq!(
            holes(&rules)[2..4],
            [(0x40521000, 0x7e0000000000), (0x7e0040001000, 0x7f0000000000)]
        );
    }

    #[test]
    fn extreme_rules_leave_no_holes() {
        let rules = HoleRules {
            stack_guard: u64::MAX,
            heap_guard: u64::MAX,
            ..HoleRules::default()
        };
        assert_eq!(holes(&rules), []);
        let rules = HoleRules {
            minimum: TargetAddress(u64::MAX),
            ..HoleRules::default()
        };
        assert_eq!(holes(&rules), []);
    }
}
