//! The format of `--folded`: a line for each stack, its frames separated by `;`, then its value. `flamegraph.pl`,
//! `inferno-flamegraph` and speedscope read it.

use std::collections::HashMap;
use std::io::{self, Write};

use super::file;
use super::names::{NameId, Names};
use super::stacks::{Stacks, kinds};
use crate::Error;
use crate::console::Console;
use crate::sink::{Sink, View};

/// The number of frames that are held in memory, so that stacks with the same functions share one line. Beyond it, the
/// lines so far are written, and a stack may have several lines.
const HELD_FRAMES_MAX: usize = 1 << 22;

/// A file of folded stacks, which is written at the end.
pub(crate) struct Folded {
    pub path: String,
}

impl Sink for Folded {
    fn aggregations(&mut self, _: &mut dyn Console, view: &mut View<'_>) -> Result<(), Error> {
        file::write(&self.path, |out| {
            let kinds = kinds(view.program);
            let mut stacks = Stacks::default();
            for kind in &kinds {
                // If there are several profiles, the first frame of every stack is the name of its profile.
                let base = (kinds.len() > 1).then(|| stacks.names.number(&kind.name));
                let mut lines = Lines::new(HELD_FRAMES_MAX);
                stacks.each(view, kind, &mut |names, frames, value| {
                    let frames = frames.iter().map(|frame| frame.name);
                    lines.add(out, names, base.into_iter().chain(frames).collect(), value)
                })?;
                lines.write(out, &stacks.names)?;
            }
            Ok(())
        })
    }
}

/// The lines that are not written yet.
struct Lines {
    held: HashMap<Vec<NameId>, u64>,
    frames: usize,
    frames_max: usize,
}

impl Lines {
    fn new(frames_max: usize) -> Lines {
        Lines {
            held: HashMap::new(),
            frames: 0,
            frames_max,
        }
    }

    fn add(&mut self, out: &mut dyn Write, names: &Names, frames: Vec<NameId>, value: u64) -> io::Result<()> {
        if frames.is_empty() {
            return Ok(());
        }
        let length = frames.len();
        match self.held.get_mut(&frames) {
            Some(sum) => *sum = sum.saturating_add(value),
            None => {
                self.held.insert(frames, value);
                self.frames += length;
            }
        }
        match self.frames > self.frames_max {
            true => self.write(out, names),
            false => Ok(()),
        }
    }

    fn write(&mut self, out: &mut dyn Write, names: &Names) -> io::Result<()> {
        let mut lines: Vec<(Vec<NameId>, u64)> = self.held.drain().collect();
        self.frames = 0;
        let texts = |frames: &[NameId]| -> Vec<&str> { frames.iter().map(|name| names.text(*name)).collect() };
        lines.sort_by(|(left, _), (right, _)| {
            let left = left.iter().map(|name| names.text(*name));
            left.cmp(right.iter().map(|name| names.text(*name)))
        });
        for (frames, value) in lines {
            for (index, text) in texts(&frames).into_iter().enumerate() {
                let separator = if index == 0 { "" } else { ";" };
                write!(out, "{separator}{}", text.replace(';', ":"))?;
            }
            writeln!(out, " {value}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_held_than_is_allowed() {
        let mut names = Names::default();
        let main = names.number("main");
        let other = names.number("a;b");
        let mut out = Vec::new();
        let mut lines = Lines::new(3);
        for _ in 0..2 {
            lines.add(&mut out, &names, vec![main], 1).unwrap();
            lines.add(&mut out, &names, vec![main, other], 5).unwrap();
            assert!(lines.frames <= 3);
        }
        lines.add(&mut out, &names, vec![other, main], 7).unwrap();
        assert!(lines.held.is_empty());
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "a:b;main 7\nmain 2\nmain;a:b 10\n");
    }
}
