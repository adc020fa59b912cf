//! gdb: its breakpoints stop the program, so the threads' own time does not show the cost of a hit. Instead, the hits
//! in some seconds are counted.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::outside::{Ending, Outside};
use super::{absent, find};
use crate::looping::Looping;
use crate::report::Row;

const NAME: &str = "count: gdb, a breakpoint whose condition counts";
const SECONDS: Duration = Duration::from_secs(1);

/// gdb's row.
pub fn measure(rounds: usize, say: &dyn Fn(&str)) -> Vec<Row> {
    if find("gdb").is_none() {
        return vec![absent("gdb", "apt-get install gdb")];
    }
    let samples = (0..rounds).map(|round| {
        say(&format!("round {} of {rounds}: {NAME}", round + 1));
        once()
    });
    let row = Row::of(NAME, "ns/call", samples.collect());
    vec![row.note("by the clock on the wall: the program stands still at every hit")]
}

fn once() -> Result<f64> {
    let running = Looping::start(1, 0)?;
    running.median_from_now()?;
    let mut command = Command::new("gdb");
    command.args(["-q", "-nx", "-batch", "-p", &running.pid().to_string()]);
    for line in [
        "set confirm off",
        "set $hits = 0",
        "break bench_function if ($hits++, 0)",
        "echo ready\\n",
        "continue",
        "printf \"hits %d\\n\", $hits",
        "detach",
    ] {
        command.args(["-ex", line]);
    }
    let gdb = Outside::start(command, "ready", Duration::ZERO, Ending::Interrupt, |_| true)?;
    let start = Instant::now();
    std::thread::sleep(SECONDS);
    // The program is interrupted, not gdb, which then continues with its next command. SAFETY: a
    // signal to a child of ours that has not been waited for.
    unsafe { libc::kill(running.pid() as i32, libc::SIGINT) };
    let took = start.elapsed();
    let said = gdb.wait()?;
    let hits = said
        .lines()
        .find_map(|line| line.trim().strip_prefix("hits ")?.parse::<u64>().ok());
    let hits = hits.filter(|hits| *hits > 0);
    let hits = hits.with_context(|| format!("gdb counted nothing: {}", super::outside::last_line(&said)))?;
    Ok(took.as_nanos() as f64 / hits as f64)
}
