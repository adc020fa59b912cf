//! HotSpot's compressed numbers, and the table of lines of a method, which consists of them.

/// A table, copied from the target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    /// The table itself, and what follows it.
    pub bytes: Vec<u8>,
    /// The number that is added to each byte of a compressed number: 1 from version 20 on.
    pub excess: u32,
}

impl Lines {
    /// The line of a bytecode. `None`: the table does not say it.
    pub fn line(&self, position: u32) -> Option<u32> {
        const ESCAPE: u8 = 255;
        let mut reader = Reader {
            bytes: self.bytes.iter(),
            excess: self.excess,
        };
        let (mut bytecode, mut line) = (0_i64, 0_i64);
        let mut best: Option<(i64, i64)> = None;
        loop {
            match reader.bytes.next()? {
                0 => break,
                &ESCAPE => {
                    bytecode += reader.signed()?;
                    line += reader.signed()?;
                }
                byte => {
                    bytecode += i64::from(byte >> 3);
                    line += i64::from(byte & 7);
                }
            }
            if bytecode <= i64::from(position) && best.is_none_or(|(start, _)| bytecode >= start) {
                best = Some((bytecode, line));
            }
            if bytecode == i64::from(position) {
                break;
            }
        }
        best.and_then(|(_, line)| u32::try_from(line).ok())
            .filter(|line| *line > 0)
    }
}

struct Reader<'a> {
    bytes: std::slice::Iter<'a, u8>,
    excess: u32,
}

impl Reader<'_> {
    /// HotSpot's UNSIGNED5: at most five bytes, the lowest first; bytes from 192 on are followed by another.
    fn unsigned(&mut self) -> Option<u32> {
        let mut sum = 0_u32;
        for index in 0..5 {
            let byte = u32::from(*self.bytes.next()?);
            sum = sum.wrapping_add(byte.checked_sub(self.excess)?.wrapping_shl(index * 6));
            if byte < 192 {
                break;
            }
        }
        Some(sum)
    }

    fn signed(&mut self) -> Option<i64> {
        let value = self.unsigned()?;
        let sign = (value & 1).wrapping_neg();
        Some(i64::from(((value >> 1) ^ sign) as i32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_holds_up_to_the_next_one() {
        // Bytecode 0: line 7 by a pair of compressed numbers, then steps of (3, 1) and (8, 2).
        let lines = |excess: u8| Lines {
            bytes: vec![255, excess, 14 + excess, 3 << 3 | 1, 8 << 3 | 2, 0],
            excess: excess.into(),
        };
        for lines in [lines(0), lines(1)] {
            let found = |position| lines.line(position);
            assert_eq!([0, 2, 3, 10, 11, 400].map(found), [7, 7, 8, 8, 10, 10].map(Some));
        }
    }

    #[test]
    fn numbers_are_of_up_to_five_bytes_and_have_a_sign() {
        let read = |bytes: &[u8], excess| {
            let bytes = bytes.iter();
            Reader { bytes, excess }.signed()
        };
        assert_eq!(read(&[1], 0), Some(-1));
        assert_eq!(read(&[192, 0], 0), Some(96));
        assert_eq!(read(&[192, 1], 1), Some(-96));
        assert_eq!(read(&[0], 1), None);
        assert_eq!(read(&[200], 0), None);
        assert!(read(&[255; 5], 0).is_some());
    }

    #[test]
    fn a_table_without_an_end_says_nothing() {
        let lines = Lines {
            bytes: vec![9; 40],
            excess: 0,
        };
        assert_eq!(lines.line(1000), None);
    }
}
