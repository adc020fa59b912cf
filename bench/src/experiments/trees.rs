//! Whole process trees: children and executed programs that are traced, too, beside the kernel's uprobes on the same
//! files in all processes, and beside nobody.
//!
//! A round runs the program untraced, and with each watcher in turn; a sample compares the two runs of one round. Each
//! run measures the same thing many times, and has the median.

mod beside;
mod configure;
mod postgres;
mod run;
mod together;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::report::{Row, Section};
use crate::statistics::median;
use crate::{interrupt, peers, programs};
use run::{Probed, Ran, Watcher};

/// The commands of the script.
const COMMANDS: usize = 300;
/// The memory of a program with much of it.
const MIB_MAX: u64 = 4096;

pub fn measure(rounds: usize, say: &dyn Fn(&str), section: &mut Section) -> Result<()> {
    let rounds = rounds.max(crate::SAMPLES);
    let program = programs::compile("trees")?;
    let allocate = Probed::new(&program, "bench_allocate", "a.out")?;
    let rows = &mut section.rows;
    let round_of = |what: &str, measure: &mut dyn FnMut() -> Result<()>| -> Result<()> {
        for round in 1..=rounds {
            interrupt::check()?;
            say(&format!("round {round} of {rounds}: {what}"));
            measure()?;
        }
        Ok(())
    };

    let mut counted = Compared::new(
        "3,001 calls in four processes",
        "calls",
        |_, with| Ok(with.count as f64),
    );
    round_of("the count", &mut || {
        counted.round(&allocate, &[&program, Path::new("count")])
    })?;
    rows.extend(counted.rows(None));

    let mut forks = Compared::new("a fork, a hit, its end: more than untraced", "us", more(1, 1e3));
    round_of("forks", &mut || forks.words(&allocate, &program, &["fork", "200", "0"]))?;
    rows.extend(forks.rows(Some(100.0)));

    let mib = (memory_available_mib()? / 3).min(MIB_MAX);
    let name = format!("a fork of a process with {mib} MiB: of untraced");
    let mut large = Compared::new(&name, "x", times(0));
    round_of("forks with memory", &mut || {
        large.words(&allocate, &program, &["fork", "9", &mib.to_string()])
    })?;
    rows.extend(large.rows(Some(1.1)));

    let (known, new) = files(&program)?;
    let mut execs = Compared::new("an exec of a known file: more than untraced", "ms", more(0, 1e6));
    round_of("known files", &mut || {
        execs.words(&allocate, &program, &["execute", "15", &known])
    })?;
    rows.extend(execs.rows(Some(10.0)));
    let mut execs = Compared::new("an exec of a new file: more than untraced", "ms", more(0, 1e6));
    round_of("new files", &mut || {
        execs.words(&allocate, &program, &["execute", "7", &new])
    })?;
    rows.extend(execs.rows(Some(60.0)));

    let script = script()?;
    let malloc = Probed::new(&programs::libc()?, "malloc", "libc")?;
    let name = format!("a script with {COMMANDS} commands that do nothing, malloc counted: of untraced");
    let mut scripts = Compared::new(&name, "x", |plain, with| Ok(with.seconds / plain.seconds));
    round_of("the script", &mut || {
        scripts.round(&malloc, &[Path::new("sh"), &script])
    })?;
    rows.extend(scripts.rows(None));
    configure::measure(rounds, say, &malloc, rows)?;

    for (name, column) in [("a hit in the parent", 0), ("a hit in a child", 1)] {
        let mut hits = Compared::new(name, "ns/call", more(column, 1e3));
        round_of(name, &mut || hits.words(&allocate, &program, &["hit", "7", "100000"]))?;
        rows.extend(hits.rows(None));
    }
    beside::measure(rounds, say, rows)?;
    together::measure(rounds, say, rows)?;
    postgres::measure(rounds, say, rows)
}

/// The difference of the medians of a column of what the program says, in a unit of so many of its units.
fn more(column: usize, unit: f64) -> impl Fn(&Ran, &Ran) -> Result<f64> {
    move |plain, with| Ok((with.median(column)? - plain.median(column)?) / unit)
}

/// The quotient of them.
fn times(column: usize) -> impl Fn(&Ran, &Ran) -> Result<f64> {
    move |plain, with| Ok(with.median(column)? / plain.median(column)?)
}

/// A figure, by each watcher.
struct Compared<F> {
    name: String,
    unit: &'static str,
    figure: F,
    taken: Vec<(Watcher, Result<Vec<f64>>)>,
    plain: Vec<f64>,
}

impl<F: Fn(&Ran, &Ran) -> Result<f64>> Compared<F> {
    fn new(name: &str, unit: &'static str, figure: F) -> Compared<F> {
        let watchers = [Watcher::Nanoprobe, Watcher::Kernel];
        Compared {
            name: name.to_owned(),
            unit,
            figure,
            taken: watchers.map(|watcher| (watcher, Ok(Vec::new()))).into(),
            plain: Vec::new(),
        }
    }

    fn words(&mut self, probed: &Probed, program: &Path, words: &[&str]) -> Result<()> {
        let words: Vec<&Path> = [program].into_iter().chain(words.iter().map(Path::new)).collect();
        self.round(probed, &words)
    }

    /// Runs the command untraced, and with each watcher. A watcher that fails is not tried again.
    fn round(&mut self, probed: &Probed, words: &[&Path]) -> Result<()> {
        let plain = run::run(Watcher::Nobody, probed, words)?;
        self.plain.push(plain.seconds);
        for (watcher, taken) in &mut self.taken {
            let Ok(samples) = taken else { continue };
            let sample = run::run(*watcher, probed, words).and_then(|with| {
                with.check()?;
                (self.figure)(&plain, &with)
            });
            match sample {
                Ok(sample) => samples.push(sample),
                Err(error) => *taken = Err(error),
            }
        }
        Ok(())
    }

    fn rows(self, reach: Option<f64>) -> Vec<Row> {
        let note = median(&self.plain).map_or_else(String::new, |plain| format!("the run takes {plain:.2} s untraced"));
        let row = |(watcher, taken): (Watcher, Result<Vec<f64>>)| {
            let row = Row::of(&format!("{}: {}", self.name, watcher.name()), self.unit, taken).note(note.as_str());
            match (watcher, reach) {
                (Watcher::Nanoprobe, Some(reach)) => row.reach(reach),
                _ => row,
            }
        };
        self.taken.into_iter().map(row).collect()
    }
}

/// A program that is executed again and again, and the pattern of copies of a larger one, each of which is executed
/// once.
fn files(program: &Path) -> Result<(String, String)> {
    let folder = programs::folder()?;
    let shell = peers::find("bash").unwrap_or_else(|| program.to_owned());
    for number in 0..7 {
        std::fs::copy(&shell, folder.join(format!("new{number}"))).context("copying a program")?;
    }
    let text = |path: PathBuf| path.to_str().map(str::to_owned).context("a path that is not UTF-8");
    Ok((text(program.to_owned())?, text(folder.join("new%d"))?))
}

/// Small programs, substitutions, pipes: nothing but forks and execs.
fn script() -> Result<PathBuf> {
    let path = programs::folder()?.join("script");
    let text = format!(
        "i=0\nwhile [ $i -lt {COMMANDS} ]; do\n  case $((i % 5)) in\n  0) /bin/true ;;\n  1) x=$(/bin/echo a$i) ;;\n  \
         2) /bin/cat /dev/null ;;\n  3) expr $i + 1 > /dev/null ;;\n  4) echo $i | sed s/1/2/ > /dev/null ;;\n  esac\n  \
         i=$((i + 1))\ndone\n"
    );
    std::fs::write(&path, text).context("writing the script")?;
    Ok(path)
}

fn memory_available_mib() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").context("reading /proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib: Option<u64> = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    let mib = kib.context("no MemAvailable")? >> 10;
    ensure!(mib > 0, "no memory is available");
    Ok(mib)
}
