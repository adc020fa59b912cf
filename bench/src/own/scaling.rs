//! Seed 003, Figure 4: hits a second on 1 to N threads, with one lock for all handlers (as kprobes up to 2.6.16) and
//! without a lock.

use std::io::Write;

use anyhow::{Result, ensure};

use super::calls::{Function, Handler, JUMP_ONLY, NO_SIMD, Registered, TRAP, locked, together};

const METHODS: [(&str, Handler, u32); 4] = [
    ("probe by jump, no lock", Handler::NoOp, JUMP_ONLY | NO_SIMD),
    (
        "probe by jump, one lock for all handlers",
        Handler::CountLocked,
        JUMP_ONLY | NO_SIMD,
    ),
    ("probe by trap, no lock", Handler::NoOp, TRAP | NO_SIMD),
    (
        "probe by trap, one lock for all handlers",
        Handler::CountLocked,
        TRAP | NO_SIMD,
    ),
];

/// Millions of hits a second, all threads together.
pub fn run(rounds: usize, out: &mut dyn Write) -> Result<()> {
    let processors = crate::processors().max(2);
    for _ in 0..rounds {
        for (name, handler, flags) in METHODS {
            for threads in crate::thread_counts(processors) {
                let probe = Registered::probe(Function::Small, handler, flags)?;
                let locked_before = locked();
                let rate = rate(threads)?;
                ensure!(probe.hits() > 0, "the probe did not fire");
                let is_locked = matches!(handler, Handler::CountLocked);
                ensure!(is_locked == (locked() > locked_before), "another handler ran");
                writeln!(
                    out,
                    "sample\t{name}: {threads} thread{}\t{rate}",
                    if threads == 1 { "" } else { "s" }
                )?;
            }
        }
    }
    Ok(())
}

fn rate(threads: usize) -> Result<f64> {
    Ok(together(threads)?.into_iter().map(|cost| 1000.0 / cost).sum())
}
