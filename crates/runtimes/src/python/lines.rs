//! The table of lines of a code object, in the form of each version.

/// The form of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Up to 3.9, `co_lnotab`: pairs of differences, of the position and of the line.
    #[default]
    Deltas,
    /// 3.10, `co_linetable`: pairs of a length and a difference of the line.
    Ranges,
    /// From 3.11 on: entries of several forms, each for some instructions.
    Locations,
}

/// A table, copied from the target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    /// The line on which the function begins.
    pub first: u32,
    /// The form of the bytes.
    pub form: Form,
    /// The table itself.
    pub bytes: Vec<u8>,
}

impl Lines {
    /// The line of the instruction that is `position` bytes after the first instruction. `None`: the instruction
    /// belongs to no line.
    pub fn line(&self, position: Option<u32>) -> Option<u32> {
        let first = i64::from(self.first);
        let line = match position {
            None => Some(first),
            Some(position) => match self.form {
                Form::Deltas => self.by_deltas(i64::from(position)),
                Form::Ranges => self.by_ranges(i64::from(position)),
                Form::Locations => self.by_locations(i64::from(position)),
            },
        };
        line.and_then(|line| u32::try_from(line).ok()).filter(|line| *line > 0)
    }

    fn by_deltas(&self, position: i64) -> Option<i64> {
        let (mut at, mut line) = (0, i64::from(self.first));
        for pair in self.bytes.chunks_exact(2) {
            let [length, difference] = pair else { break };
            at += i64::from(*length);
            if at > position {
                break;
            }
            line += i64::from(*difference as i8);
        }
        Some(line)
    }

    fn by_ranges(&self, position: i64) -> Option<i64> {
        const NO_LINE: i8 = -128;
        let (mut end, mut line) = (0, i64::from(self.first));
        for pair in self.bytes.chunks_exact(2) {
            let [length, difference] = pair else { break };
            end += i64::from(*length);
            let has_line = *difference as i8 != NO_LINE;
            if has_line {
                line += i64::from(*difference as i8);
            }
            if position < end {
                return has_line.then_some(line);
            }
        }
        None
    }

    fn by_locations(&self, position: i64) -> Option<i64> {
        const UNIT: i64 = 2;
        let (mut end, mut line) = (0, i64::from(self.first));
        let mut bytes = self.bytes.iter().copied();
        while let Some(head) = bytes.next() {
            end += UNIT * (i64::from(head & 7) + 1);
            let kind = head >> 3 & 15;
            let skipped = match kind {
                0..=9 => 1,
                10..=12 => {
                    line += i64::from(kind) - 10;
                    2
                }
                13 => {
                    line += signed(&mut bytes)?;
                    0
                }
                14 => {
                    line += signed(&mut bytes)?;
                    // After the first line's difference: the last line, and two columns.
                    for _ in 0..3 {
                        number(&mut bytes)?;
                    }
                    0
                }
                _ => 0,
            };
            for _ in 0..skipped {
                bytes.next()?;
            }
            if position < end {
                return (kind != 15).then_some(line);
            }
        }
        None
    }
}

/// Reads a number that is stored in pieces of six bits, the lowest piece first.
fn number(bytes: &mut impl Iterator<Item = u8>) -> Option<i64> {
    const PIECES_MAX: u32 = 6;
    let mut value = 0;
    for piece in 0..PIECES_MAX {
        let byte = bytes.next()?;
        value |= i64::from(byte & 63) << (6 * piece);
        if byte & 64 == 0 {
            return Some(value);
        }
    }
    None
}

/// Reads a number like `number` does; its lowest bit is the sign.
fn signed(bytes: &mut impl Iterator<Item = u8>) -> Option<i64> {
    let value = number(bytes)?;
    Some(if value & 1 == 1 { -(value >> 1) } else { value >> 1 })
}
