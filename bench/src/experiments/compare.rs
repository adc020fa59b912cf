//! Methods compared on one running program: each is attached, measured and detached, one after the other.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::interrupt;
use crate::kernel::{self, Kind};
use crate::looping::Looping;
use crate::memory::Held;
use crate::programs;
use crate::report::Row;
use crate::statistics;
use crate::tracer::Tracer;

/// The program and the function that are probed.
pub struct Subject {
    running: Looping,
    start: Box<dyn Fn() -> Result<Looping>>,
    /// Its file.
    pub program: PathBuf,
    /// The function that the program calls in its loop.
    pub function: &'static str,
    /// The offset of the function in the file.
    pub offset: u64,
}

impl Subject {
    /// `program` with `argument`, which names the `function` that it calls in its loop.
    pub fn new(program: &'static str, argument: usize, function: &'static str) -> Result<Subject> {
        Subject::on_threads(program, 1, argument, function)
    }

    /// As [`Subject::new`], on several threads at once.
    pub fn on_threads(
        program: &'static str,
        threads: usize,
        argument: usize,
        function: &'static str,
    ) -> Result<Subject> {
        let start = Box::new(move || Looping::start_program(program, threads, argument));
        let path = programs::compile(program)?;
        Ok(Subject {
            running: start()?,
            start,
            offset: programs::file_offset(&path, function)?,
            program: path,
            function,
        })
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.running.pid()
    }

    /// The cost of a call from now on.
    pub fn cost(&self) -> Result<Vec<f64>> {
        self.running.samples_from_now()
    }
}

/// An attached tracer.
pub trait Attached {
    /// Removes the probe, and checks that it fired; yields the number of lost hits.
    fn end(self: Box<Self>) -> Result<u64>;
}

impl Attached for Tracer {
    fn end(self: Box<Self>) -> Result<u64> {
        Ok(self.detach()?.lost())
    }
}

impl Attached for kernel::Probe {
    fn end(self: Box<Self>) -> Result<u64> {
        ensure!(self.hits()? > 0, "the kernel's probe did not fire");
        Ok(0)
    }
}

/// How a method attaches.
pub type Attach = Box<dyn Fn(&Subject) -> Result<Box<dyn Attached>>>;

/// A row of the table.
pub struct Method {
    /// Its name.
    pub name: String,
    /// How the method attaches.
    pub attach: Attach,
    /// Whether the method needs a process in which no tool was attached before.
    pub fresh: bool,
}

impl Method {
    /// nanoprobe with a D program, in which FUNCTION stands for the subject's function.
    pub fn nanoprobe(name: &str, text: &'static str, options: &'static [&'static str]) -> Method {
        let attach = move |subject: &Subject| -> Result<Box<dyn Attached>> {
            let text = text.replace("FUNCTION", subject.function);
            Ok(Box::new(Tracer::attach(subject.pid(), &text, options)?))
        };
        Method {
            name: name.to_owned(),
            attach: Box::new(attach),
            fresh: false,
        }
    }

    /// The kernel's uprobe.
    pub fn kernel(name: &str, kind: Kind) -> Method {
        let attach = move |subject: &Subject| -> Result<Box<dyn Attached>> {
            Ok(Box::new(kernel::attach(
                kind,
                subject.pid(),
                &subject.program,
                subject.offset,
            )?))
        };
        Method {
            name: name.to_owned(),
            attach: Box::new(attach),
            fresh: false,
        }
    }
}

/// The result of one attachment.
#[derive(Clone, Copy, Debug)]
pub struct Once {
    /// The additional cost of a call, in ns.
    pub overhead: f64,
    /// The hits that the tracer reported as lost.
    pub lost: u64,
    /// The additional memory of the process.
    pub held: Held,
}

/// The samples of each method: all methods in turn, `rounds` times, and doubtful ones a few times more.
pub fn compare(
    subject: &mut Subject,
    methods: &[Method],
    rounds: usize,
    say: &dyn Fn(&str),
) -> Result<Vec<Result<Vec<Once>>>> {
    let mut results: Vec<Result<Vec<Once>>> = methods.iter().map(|_| Ok(Vec::new())).collect();
    for round in 0..statistics::most(rounds) {
        for (method, result) in methods.iter().zip(&mut results) {
            // A failed method is not tried again, and a good one is not repeated.
            let Ok(taken) = result else { continue };
            let overheads: Vec<f64> = taken.iter().map(|once| once.overhead).collect();
            if !statistics::another(&overheads, round, rounds) {
                continue;
            }
            interrupt::check()?;
            if method.fresh || !subject.running.is_running() {
                subject.running = (subject.start)()?;
            }
            say(&format!("round {}: {}", round + 1, method.name));
            match once(subject, method) {
                Ok(samples) => taken.extend(samples),
                Err(error) => {
                    *result = Err(error);
                    // A failed method may have left something in the process.
                    subject.running = (subject.start)()?;
                }
            }
        }
    }
    Ok(results)
}

fn once(subject: &Subject, method: &Method) -> Result<Vec<Once>> {
    let before = subject.cost()?;
    let held_before = Held::by(subject.pid())?;
    let attached = (method.attach)(subject)?;
    let with = subject.cost()?;
    let held = Held::by(subject.pid())?.since(held_before);
    let lost = attached.end()?;
    let after = subject.cost()?;
    let overheads = statistics::paired_samples(&before, &with, &after);
    Ok(overheads
        .into_iter()
        .enumerate()
        .map(|(index, overhead)| Once {
            overhead,
            // The number of lost hits in all samples together.
            lost: if index == 0 { lost } else { 0 },
            held,
        })
        .collect())
}

/// A row of overheads in ns a call.
pub fn overheads(method: &Method, result: Result<Vec<Once>>) -> Row {
    let lost: u64 = result.iter().flatten().map(|once| once.lost).sum();
    let row = Row::of(
        &method.name,
        "ns/call",
        result.map(|all| all.iter().map(|once| once.overhead).collect()),
    );
    if lost > 0 {
        row.note(format!("{lost} dropped or missed, as reported"))
    } else {
        row
    }
}

/// The rows of methods on a subject.
pub fn rows(subject: &mut Subject, methods: &[Method], rounds: usize, say: &dyn Fn(&str)) -> Result<Vec<Row>> {
    let results = compare(subject, methods, rounds, say)?;
    Ok(methods
        .iter()
        .zip(results)
        .map(|(method, result)| overheads(method, result))
        .collect())
}

/// The name of a file, for tools that want it as text.
pub fn text_of(path: &std::path::Path) -> Result<&str> {
    path.to_str().context("a path that is not UTF-8")
}
