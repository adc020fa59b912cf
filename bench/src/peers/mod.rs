//! Other tools on the same function, in the same run. A missing tool is named with its package; a failing one is shown
//! as failed, with its message.

pub mod attaching;
mod building;
pub mod functions;
pub mod outside;
mod stopping;

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::experiments::compare::{Method, Subject, compare, overheads};
use crate::kernel::Kind;
use crate::memory::{self, Held};
use crate::report::{Row, Section};
use crate::statistics::Measured;

const COUNT: &str = "pid$target:a.out:FUNCTION:entry { @ = count(); }";
const LATENCY: &str = "pid$target:a.out:FUNCTION:entry { self->t = timestamp; }
    pid$target:a.out:FUNCTION:return /self->t/ { @ = quantize(timestamp - self->t); self->t = 0; }";
const STRING: &str = "pid$target:a.out:FUNCTION:entry { @[copyinstr(arg0)] = count(); }";
const STACK: &str = "pid$target:a.out:FUNCTION:entry { @[ustack()] = count(); }";
const RECORD: &str = "pid$target:a.out:FUNCTION:entry { trace(arg0); trace(arg1); }";
const RECORD_CLOCK: &str = "pid$target:a.out:FUNCTION:entry { trace(timestamp); trace(arg0); trace(arg1); }";

/// Measures all tools that are installed.
pub fn measure(rounds: usize, say: &dyn Fn(&str), section: &mut Section) -> Result<()> {
    let ring: &[&str] = &["-x", "bufpolicy=ring", "-o", "/dev/null"];
    let untimed: &[&str] = &["-x", "bufpolicy=ring", "-x", "temporal=no", "-o", "/dev/null"];
    let mut methods = vec![
        Method::nanoprobe("count: nanoprobe", COUNT, &[]),
        Method::nanoprobe("entry and return, latency: nanoprobe", LATENCY, &[]),
        Method::nanoprobe("string key: nanoprobe", STRING, &[]),
        Method::nanoprobe("stack: nanoprobe", STACK, &[]),
        Method::nanoprobe("record without clock: nanoprobe", RECORD, untimed),
        Method::nanoprobe("record with clock: nanoprobe", RECORD_CLOCK, ring),
        Method::kernel("count: kernel uprobe (perf_event_open)", Kind::Counted),
        Method::kernel("count at return: kernel uretprobe", Kind::ReturnCounted),
        Method::kernel("record: kernel uprobe (tracefs)", Kind::Recorded),
    ];
    let mut missing = Vec::new();
    for tool in attaching::tools() {
        match tool {
            Ok(more) => methods.extend(more),
            Err(row) => missing.push(row),
        }
    }
    let mut subject = Subject::new("loop", 0, "bench_function")?;
    let results = compare(&mut subject, &methods, rounds, say)?;
    let mut memory = Vec::new();
    for (method, result) in methods.iter().zip(results) {
        if let Ok(all) = &result
            && method.name.starts_with("count: ")
        {
            let held: Vec<Held> = all.iter().map(|once| once.held).collect();
            memory.extend(memory::added(&format!("memory added, {}", method.name), &held));
        }
        section.rows.push(overheads(method, result));
    }
    drop(subject);
    let runs = rounds.max(crate::SAMPLES);
    section.rows.extend(stopping::measure(runs, say));
    section.rows.extend(building::measure(runs, say));
    section.rows.extend(missing);
    ratios(&mut section.rows);
    section.rows.extend(memory);
    Ok(())
}

/// The goal for the ratio of our cost to theirs in this run.
const RATIOS: [(&str, &str, f64); 3] = [
    ("count: nanoprobe", "count: Frida, C", 0.1),
    ("record without clock: nanoprobe", LTTNG, 0.2),
    ("record with clock: nanoprobe", LTTNG, 1.0 / 3.0),
];

/// The name of LTTng-UST's row.
const LTTNG: &str = "record with clock: LTTng-UST, a static tracepoint";

fn ratios(rows: &mut Vec<Row>) {
    let median = |rows: &[Row], name: &str| {
        let row = rows.iter().find(|row| row.name == name)?;
        row.value.as_ref().ok().map(|value| value.median)
    };
    for (ours, theirs, reach) in RATIOS {
        if let (Some(mine), Some(other)) = (median(rows, ours), median(rows, theirs)) {
            let measured = Measured {
                median: mine / other,
                ..Measured::default()
            };
            let name = format!("{ours}, over {theirs}");
            rows.push(Row::new(&name, "ratio", measured).reach((reach * 1000.0).round() / 1000.0));
        }
    }
}

/// The path of a tool, from `$PATH`.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

/// The row of a missing tool.
pub fn absent(name: &str, install: &str) -> Row {
    Row::not_measurable(name, &format!("not installed; `{install}` installs it"))
}

/// The path of a tool, which must exist.
fn need(name: &str, install: &str) -> Result<PathBuf> {
    find(name).with_context(|| format!("{name} is not installed; `{install}` installs it"))
}
