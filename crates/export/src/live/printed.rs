//! The text that the program prints while the screen is shown: the last lines, and how many lines were dropped.

use std::collections::VecDeque;

/// How many lines are kept.
const LINES_MAX: usize = 1000;
/// Bytes of the longest line; a longer one is split.
const LINE_MAX: usize = 4096;

/// The last lines.
#[derive(Clone, Debug, Default)]
pub(super) struct Printed {
    /// Lines with their line ends. A part of a split line has no line end.
    lines: VecDeque<Vec<u8>>,
    /// The beginning of a line whose end was not printed yet.
    open: Vec<u8>,
    /// The number of lines that were dropped.
    lost: u64,
}

impl Printed {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.open.push(*byte);
            if *byte == b'\n' || self.open.len() >= LINE_MAX {
                let line = std::mem::take(&mut self.open);
                self.lines.push_back(line);
            }
        }
        while self.lines.len() > LINES_MAX {
            self.lines.pop_front();
            self.lost += 1;
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.lost + self.lines.len() as u64 + u64::from(!self.open.is_empty())
    }

    /// The last lines that are not empty, the latest last.
    pub(super) fn last(&self, count: usize) -> Vec<String> {
        let open = Some(&self.open);
        let lines = self
            .lines
            .iter()
            .chain(open)
            .filter(|line| !line.trim_ascii().is_empty());
        let text = |line: &Vec<u8>| String::from_utf8_lossy(line.trim_ascii_end()).into_owned();
        let mut last: Vec<String> = lines.rev().take(count).map(text).collect();
        last.reverse();
        last
    }

    /// All kept lines, and how many lines before them were dropped.
    pub(super) fn take(&mut self) -> (u64, Vec<u8>) {
        let mut bytes: Vec<u8> = self.lines.drain(..).flatten().collect();
        bytes.append(&mut self.open);
        (std::mem::take(&mut self.lost), bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_kept_up_to_a_limit_and_the_others_are_counted() {
        let mut printed = Printed::default();
        (0..1500).for_each(|number| printed.add(format!("line {number}\n").as_bytes()));
        printed.add(b"beg");
        printed.add(b"un");
        assert_eq!(printed.count(), 1501);
        assert_eq!(printed.last(2), ["line 1499", "begun"]);
        let (lost, bytes) = printed.take();
        assert_eq!(lost, 500);
        assert!(bytes.starts_with(b"line 500\n") && bytes.ends_with(b"line 1499\nbegun"));
        assert_eq!((printed.count(), printed.take()), (0, (0, Vec::new())));
    }

    #[test]
    fn a_line_without_an_end_takes_bounded_room() {
        let mut printed = Printed::default();
        printed.add(&vec![b'a'; LINE_MAX * 3 + 1]);
        assert_eq!((printed.count(), printed.clone().take().1.len()), (4, LINE_MAX * 3 + 1));
        assert!(printed.last(9).iter().all(|line| line.len() <= LINE_MAX));
    }
}
