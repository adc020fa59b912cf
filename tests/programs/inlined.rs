//! Inlined copies of Rust.

use std::sync::atomic::{AtomicU64, Ordering};

static TOTAL: AtomicU64 = AtomicU64::new(0);

#[inline(always)]
fn add(amount: u64) -> u64 {
    TOTAL.fetch_add(amount, Ordering::SeqCst) // line: add
}

#[inline(never)]
pub fn twice(amount: u64) -> u64 {
    let before = add(amount);
    before + add(amount + 1)
}

fn main() {
    let rounds: u64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(5);
    let mut sum = 0;
    for round in 0..rounds {
        sum += twice(std::hint::black_box(round));
    }
    println!("{sum}\nOK");
}
