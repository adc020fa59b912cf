//! The hash of keys, as in `agent/hash.h`; a test there compares the two.

const SEED: u64 = 0x243f_6a88_85a3_08d3;
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

fn step(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ word) * u128::from(FACTOR);
    (product as u64) ^ ((product >> 64) as u64)
}

/// Hash of a key for the variable or aggregation `id`. A key has whole words; bytes after the last
/// one are ignored.
pub(crate) fn hash_key(id: u32, key: &[u8]) -> u32 {
    let words = key
        .chunks_exact(8)
        .map(|word| word.iter().rev().fold(0, |sum, byte| (sum << 8) | u64::from(*byte)));
    words.fold(step(SEED, u64::from(id)), step) as u32
}
