//! Many processes that are attached to at once.

use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::kernel::Everywhere;
use crate::looping::on_all_processors;
use crate::memory::Held;
use crate::report::Row;
use crate::tracer::Tracer;
use crate::{interrupt, programs};

const PROCESSES: usize = 200;
const CLAUSE: &str = "pid$target:a.out:bench_allocate:entry { @ = count(); }";

/// Programs that wait until they are dropped.
struct Waiting(Vec<(Child, Option<ChildStdin>)>);

impl Waiting {
    fn start(program: &Path) -> Result<Waiting> {
        let mut waiting = Waiting(Vec::new());
        for _ in 0..PROCESSES {
            let mut command = Command::new(program);
            command.arg("wait").stdin(Stdio::piped());
            let mut child = on_all_processors(&mut command).spawn().context("starting a program")?;
            let stdin = child.stdin.take();
            waiting.0.push((child, stdin));
        }
        Ok(waiting)
    }

    fn pids(&self) -> impl Iterator<Item = u32> {
        self.0.iter().map(|(child, _)| child.id())
    }

    /// The memory of one of them on average, in KiB.
    fn each(&self) -> Result<f64> {
        let mut sum = 0.0;
        for pid in self.pids() {
            sum += Held::by(pid)?.resident;
        }
        Ok(sum / PROCESSES as f64)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        for (child, stdin) in &mut self.0 {
            drop(stdin.take());
            let _ = child.wait();
        }
    }
}

pub fn measure(rounds: usize, say: &dyn Fn(&str), rows: &mut Vec<Row>) -> Result<()> {
    let program = programs::compile("trees")?;
    let offset = programs::file_offset(&program, "bench_allocate")?;
    let (mut attached, mut each, mut tracer, mut kernel) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut kernels_error = None;
    for round in 1..=rounds {
        interrupt::check()?;
        say(&format!("round {round} of {rounds}: {PROCESSES} processes"));
        let waiting = Waiting::start(&program)?;
        let before = waiting.each()?;
        let start = Instant::now();
        let list: Vec<String> = waiting.pids().map(|pid| pid.to_string()).collect();
        let tracing = Tracer::attach_to(&list.join(","), CLAUSE, &[])?;
        attached.push(start.elapsed().as_secs_f64());
        each.push(waiting.each()? - before);
        tracer.push(Held::by(tracing.pid())?.resident / 1024.0);
        let ended = tracing.detach()?;
        ensure!(ended.lost() == 0, "{}", ended.stderr);
        let start = Instant::now();
        match Everywhere::attach(&program, offset) {
            Ok(_events) => kernel.push(start.elapsed().as_secs_f64()),
            Err(error) => kernels_error = Some(error),
        }
    }
    let name = |what: &str| format!("{PROCESSES} processes: {what}");
    rows.push(Row::of(&name("attached to all: nanoprobe"), "s", Ok(attached)).reach(3.0));
    let kernel = kernels_error.map_or(Ok(kernel), Err);
    rows.push(Row::of(&name("attached to all: kernel uprobe"), "s", kernel));
    rows.push(Row::of(&name("memory in each: nanoprobe"), "KiB", Ok(each)).reach(512.0));
    rows.push(Row::of(&name("memory of the tracer: nanoprobe"), "MiB", Ok(tracer)).reach(64.0));
    Ok(())
}
