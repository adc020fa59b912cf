//! The hand-made floor: programs/floor.c.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::programs;
use crate::report::{FLOOR, Row};
use crate::statistics::Measured;

/// The row of the floor on each of several threads at once, and the cost of a plain call.
pub fn measure(rounds: usize, threads: usize) -> Result<(Row, Option<Measured>)> {
    let program = programs::compile("floor")?;
    let output = Command::new(&program)
        .args([(rounds * 20).to_string(), threads.to_string()])
        .output()
        .context("running the floor")?;
    ensure!(
        output.status.success(),
        "the floor lost counts: {}",
        String::from_utf8_lossy(&output.stdout)
    );
    let text = String::from_utf8_lossy(&output.stdout);
    let of = |name: &str| -> Vec<f64> {
        text.lines()
            .filter_map(|line| line.strip_prefix(name)?.trim().parse().ok())
            .collect()
    };
    let (plain, patched) = (of("plain "), of("patched "));
    let overheads: Vec<f64> = plain
        .iter()
        .zip(&patched)
        .map(|(plain, patched)| patched - plain)
        .collect();
    let overhead = Measured::of(&overheads).context("the floor printed nothing")?;
    // The lines of each thread are in order, but mixed with the lines of other threads. The pairing of the lines does
    // not matter.
    let row = Row::new(FLOOR, "ns/call", overhead).note("patched by itself");
    Ok((row, Measured::of(&plain)))
}
