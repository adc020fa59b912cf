//! V8's objects, when they are garbage.

#![allow(clippy::unwrap_used, reason = "test code")]

use nanoprobe_arena::layout::V8;
use nanoprobe_runtimes::Memory;
use nanoprobe_runtimes::v8::{Constants, Layout, Reader, baseline_offsets, source_positions};

/// A memory in which every address can be read, and holds numbers that lead to other addresses.
struct Garbage(u64);

impl Memory for Garbage {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        for (index, byte) in (0..).zip(into) {
            let at = address.wrapping_add(index);
            let mixed = (at / 8).wrapping_add(self.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            // Each second word is a tagged pointer, the others are small integers.
            let word = if mixed >> 63 == 0 {
                mixed & 0x7fff_ffff_fff0 | 1
            } else {
                mixed >> 40 << 32
            };
            *byte = word.to_le_bytes()[(at % 8) as usize];
        }
        true
    }
}

#[test]
fn garbage_has_no_names_and_ends() {
    for seed in 0..2000 {
        let memory = Garbage(seed * 77);
        // All types are 0, and each object's type is 0, too.
        let layout = Layout {
            agent: V8 {
                page_mask: 0x3_ffff,
                map_type: 100,
                ..V8::default()
            },
            not_string: u32::MAX,
            ..Layout::default()
        };
        let mut reader = Reader::new(layout);
        assert_eq!(reader.read(&memory, seed, 0x7f00_1234_0001), None);
        assert_eq!(reader.read(&memory, seed, u64::MAX - 6), None);
    }
}

#[test]
fn garbage_is_no_table() {
    let garbage: Vec<u8> = (0..10_000u32)
        .map(|index| (index.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    assert!(source_positions(&garbage).len() < garbage.len());
    let sizes = std::array::from_fn(|_| vec![0; 256]);
    assert!(baseline_offsets(&garbage, &garbage, &sizes).len() <= garbage.len());
}

#[test]
fn a_program_without_v8_has_no_layout() {
    let constants = Constants::read(&Garbage(1), |_| None);
    assert_eq!(Layout::of(&constants), None);
}
