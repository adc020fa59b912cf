//! What the first probe adds to the target's resident memory.

use anyhow::{Context, Result};

use crate::looping::Looping;
use crate::report::Row;
use crate::statistics::Measured;
use crate::tracer::Tracer;

/// Resident size in KiB, of all mappings: `Rss` of smaps_rollup.
pub fn resident_kib(pid: u32) -> Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).context("reading smaps_rollup")?;
    let line = text.lines().find(|line| line.starts_with("Rss:")).context("no Rss")?;
    Ok(line.split_whitespace().nth(1).context("no number")?.parse()?)
}

/// The rows about memory: one thread, one probe; what is left after the detach.
pub fn measure() -> Result<Vec<Row>> {
    let (mut added, mut left) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let running = Looping::start(1, 0)?;
        running.median_from_now()?;
        let before = resident_kib(running.pid())?;
        let program = "pid$target:a.out:bench_function:entry { @ = count(); }";
        let tracer = Tracer::attach(running.pid(), program, &[])?;
        running.median_from_now()?;
        added.push(resident_kib(running.pid())? - before);
        tracer.detach()?;
        left.push(resident_kib(running.pid())? - before);
    }
    let row = |name: &str, values: &[f64]| -> Result<Row> {
        Ok(Row::new(
            name,
            "KiB",
            Measured::of(values).context("nothing was measured")?,
        ))
    };
    Ok(vec![
        row("memory added by the first probe", &added)?.reach(1024.0),
        row("memory left after the detach", &left)?,
    ])
}
