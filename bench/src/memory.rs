//! The memory that probes add to the target.

use anyhow::{Context, Result};

use crate::looping::Looping;
use crate::report::Row;
use crate::statistics::Measured;
use crate::tracer::Tracer;

/// The memory of a process, in KiB (proc_pid_smaps(5), smaps_rollup: the sums over all mappings).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Held {
    /// In memory, including pages shared with other processes.
    pub resident: f64,
    /// The proportional share: a page in n processes counts as one n-th. This includes pages that a tool maps from its
    /// own file or process.
    pub proportional: f64,
    /// The pages that only this process has and that were written: they are freed with the process.
    pub private_dirty: f64,
}

impl Held {
    /// The memory of a process now.
    pub fn by(pid: u32) -> Result<Held> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).context("reading smaps_rollup")?;
        Held::parse(&text)
    }

    fn parse(text: &str) -> Result<Held> {
        let of = |name: &str| -> Result<f64> {
            let rest = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            let number = rest.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
            number.with_context(|| format!("no {name} in smaps_rollup"))
        };
        Ok(Held {
            resident: of("Rss")?,
            proportional: of("Pss")?,
            private_dirty: of("Private_Dirty")?,
        })
    }

    /// The increase since an earlier measurement.
    pub fn since(self, before: Held) -> Held {
        Held {
            resident: self.resident - before.resident,
            proportional: self.proportional - before.proportional,
            private_dirty: self.private_dirty - before.private_dirty,
        }
    }
}

/// The row of the memory that a tool adds to the probed process: the proportional share, and the private, written part
/// of it.
pub fn added(name: &str, all: &[Held]) -> Option<Row> {
    let of = |field: fn(&Held) -> f64| Measured::of(&all.iter().map(field).collect::<Vec<_>>());
    let row = Row::new(name, "KiB", of(|held| held.proportional)?);
    let private = of(|held| held.private_dirty)?.median;
    Some(row.note(format!("Pss; private and dirty: {private:.0} KiB")))
}

fn resident_kib(pid: u32) -> Result<f64> {
    Ok(Held::by(pid)?.resident)
}

/// The rows about memory: with one thread and one probe, and the rest after the detach.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smaps_rollup_is_read_by_whole_names() {
        let text = "55d0-7fff ---p 00000000 00:00 0    [rollup]\nRss:    4000 kB\nPss:    1500 kB\nPss_Dirty:  9 kB\n\
                    Shared_Dirty:   1 kB\nPrivate_Dirty:   700 kB\n";
        let held = Held::parse(text).expect("all three");
        let expected = Held {
            resident: 4000.0,
            proportional: 1500.0,
            private_dirty: 700.0,
        };
        assert_eq!(held, expected);
        assert_eq!(held.since(held), Held::default());
        let error = Held::parse("Rss: 1 kB\n").expect_err("no Pss").to_string();
        assert!(error.contains("Pss"), "{error}");
    }

    /// Pages of our own that are written are counted as private and written.
    #[test]
    fn memory_that_is_written_is_private_and_dirty() {
        const BYTES: usize = 8 << 20;
        let before = Held::by(std::process::id()).expect("this process");
        let written = vec![1_u8; BYTES];
        let added = Held::by(std::process::id()).expect("this process").since(before);
        assert!(std::hint::black_box(&written)[BYTES - 1] == 1);
        let (most, least) = ((BYTES >> 10) as f64 * 1.5, (BYTES >> 10) as f64 * 0.9);
        assert!((least..most).contains(&added.private_dirty), "{added:?}");
        let row = super::added("a tool", &[added; 3]).expect("a row");
        assert!(row.note.contains("private and dirty"), "{row:?}");
        assert!(super::added("a tool", &[]).is_none());
    }
}
