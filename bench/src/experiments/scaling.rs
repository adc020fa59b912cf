//! Seed 003, Figure 4: hits a second, all threads together.

use anyhow::{Result, ensure};

use crate::kernel::{self, Kind};
use crate::looping::Looping;
use crate::report::{Row, Section};
use crate::tracer::Tracer;
use crate::{own, processors, programs, thread_counts};

pub fn measure(rounds: usize, say: &dyn Fn(&str), section: &mut Section) -> Result<()> {
    section.beside =
        "seed 003, Figure 4: with one spinlock the rate falls as processors are added; with per-processor state and \
                      RCU it grows with them"
            .to_owned();
    type Measure = fn(&Looping) -> Result<f64>;
    let ways: [(&str, Measure); 2] = [
        ("nanoprobe: @ = count() by jump", ours),
        ("kernel uprobe, recorded (tracefs)", kernels),
    ];
    for (name, way) in ways {
        for threads in thread_counts(processors().max(2)) {
            let row = format!("{name}: {threads} thread{}", if threads == 1 { "" } else { "s" });
            say(&row);
            let samples = (0..rounds.max(crate::SAMPLES)).map(|_| rate(threads, way)).collect();
            section.rows.push(Row::of(&row, "Mhits/s", samples));
        }
    }
    say("the library's probes");
    section.rows.extend(own::measure("scaling", rounds, "Mhits/s")?);
    Ok(())
}

/// Millions of hits a second. The rate of a thread is the inverse of the processor time of a call.
fn rate(threads: usize, attached: fn(&Looping) -> Result<f64>) -> Result<f64> {
    let running = Looping::start(threads, 0)?;
    Ok(threads as f64 * 1000.0 / attached(&running)?)
}

/// The cost of a call with the probe.
fn ours(running: &Looping) -> Result<f64> {
    let tracer = Tracer::attach(
        running.pid(),
        "pid$target:a.out:bench_function:entry { @ = count(); }",
        &[],
    )?;
    let cost = running.median_from_now()?;
    ensure!(tracer.detach()?.value()? > 0, "it did not fire");
    Ok(cost)
}

fn kernels(running: &Looping) -> Result<f64> {
    let program = programs::compile("loop")?;
    let offset = programs::file_offset(&program, "bench_function")?;
    let probe = kernel::attach(Kind::Recorded, running.pid(), &program, offset)?;
    let cost = running.median_from_now()?;
    ensure!(probe.hits()? > 0, "it did not fire");
    Ok(cost)
}
