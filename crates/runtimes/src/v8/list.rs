//! A list of the frames that a call in optimised code stands for: `enum np_v8_operation` in `agent/contract/v8.h`. The
//! agent reads it in the same way (`agent/v8_code.c`).

use nanoprobe_arena::layout::{
    V8_BEGIN_FIRST, V8_BEGIN_LAST, V8_BUILTIN_FRAME, V8_CONSTRUCT_FRAME, V8_EXTRA_FRAME, V8_FRAME_LAST,
    V8_INTERPRETED_FIRST, V8_INTERPRETED_LAST, V8_LIST_BYTES_MAX, V8_MATCH, V8_OPERANDS, V8_OPERATIONS,
};

/// The position in a function's bytecode, and the number of the function's literal.
type Frame = (u32, u32);

/// Where in the bytes something is read.
#[derive(Clone, Copy)]
enum At {
    /// This list.
    Own,
    /// The list that this one refers to.
    Other,
}

/// A list that is being read.
pub(super) struct List<'a> {
    bytes: &'a [u8],
    own: usize,
    other: usize,
    /// One more than the operations that the other one still has in place of this one's.
    matching: u32,
    /// The number of operations that the other one is behind.
    behind: u32,
    /// How many bytes may still be read.
    left: u32,
}

impl List<'_> {
    /// The functions of the list that begins at `start`, outermost first. `None`: it makes no sense.
    pub fn read(bytes: &[u8], start: u32) -> Option<Vec<Frame>> {
        let mut list = List {
            bytes,
            own: start as usize,
            other: 0,
            matching: 0,
            behind: 0,
            left: V8_LIST_BYTES_MAX,
        };
        let (operation, at) = list.operation()?;
        if !(V8_BEGIN_FIRST..=V8_BEGIN_LAST).contains(&operation) {
            return None;
        }
        list.number(at)?;
        let mut frames = list.signed(at)?;
        list.number(at)?;
        let mut functions = Vec::new();
        while frames > 0 {
            let (operation, at) = list.operation()?;
            let mut left = operands(operation);
            if (V8_INTERPRETED_FIRST..=V8_INTERPRETED_LAST).contains(&operation) {
                let position = list.signed(at)?;
                let literal = list.signed(at)?.try_into().ok()?;
                // -1: the function is being entered.
                functions.push((position.max(0) as u32, literal));
                left -= 2;
            }
            let is_frame = matches!(operation, V8_BUILTIN_FRAME | V8_CONSTRUCT_FRAME | V8_EXTRA_FRAME)
                || (V8_INTERPRETED_FIRST..=V8_FRAME_LAST).contains(&operation);
            frames -= i32::from(is_frame);
            for _ in 0..left {
                list.number(at)?;
            }
        }
        Some(functions)
    }

    fn byte(&mut self, at: At) -> Option<u8> {
        self.left = self.left.checked_sub(1)?;
        let at = match at {
            At::Own => &mut self.own,
            At::Other => &mut self.other,
        };
        let byte = *self.bytes.get(*at)?;
        *at += 1;
        Some(byte)
    }

    /// A number of at most five bytes, the lowest bits first.
    fn number(&mut self, at: At) -> Option<u32> {
        let mut sum = 0_u32;
        for shift in (0..35).step_by(7) {
            let byte = self.byte(at)?;
            sum |= u32::from(byte & 0x7f).wrapping_shl(shift);
            if byte & 0x80 == 0 {
                break;
            }
        }
        Some(sum)
    }

    /// The lowest bit is the sign.
    fn signed(&mut self, at: At) -> Option<i32> {
        let number = self.number(at)?;
        let value = (number >> 1) as i32;
        Some(if number & 1 == 1 { -value } else { value })
    }

    /// The next operation, and where its numbers are.
    fn operation(&mut self) -> Option<(u8, At)> {
        self.matching = self.matching.saturating_sub(1);
        if self.matching > 0 {
            return Some((self.byte(At::Other)?, At::Other));
        }
        let begin = self.own;
        let operation = self.byte(At::Own)?;
        if operation < V8_MATCH {
            self.behind += 1;
            if (V8_BEGIN_FIRST..=V8_BEGIN_LAST).contains(&operation) {
                let after = self.own;
                self.other = begin.checked_sub(self.number(At::Own)? as usize)?;
                (self.own, self.behind) = (after, 1);
            }
            return Some((operation, At::Own));
        }
        self.matching = match operation {
            V8_MATCH => self.number(At::Own)?,
            _ => u32::from(operation - V8_OPERATIONS),
        };
        for _ in 0..std::mem::take(&mut self.behind) {
            for _ in 0..operands(self.byte(At::Other)?) {
                self.number(At::Other)?;
            }
        }
        Some((self.byte(At::Other)?, At::Other))
    }
}

/// How many numbers an operation has.
fn operands(operation: u8) -> u32 {
    let digits = V8_OPERANDS.get(usize::from(operation / 16)).copied().unwrap_or(0);
    (digits >> (4 * u32::from(operation % 16)) & 15) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of node 20.20: `mid` and `leaf` of `function mid(x) { return leaf(x) + leaf(x + 1); }`.
    const LISTS: [u8; 36] = [
        0x02, 0x00, 0x04, 0x04, // two frames
        0x18, 0x06, 0x06, 0x06, // offset 3 of literal 3, of a height
        0x1f, 0x06, 0x1f, 0x03, // values
        0x17, 0x08, 0x04, 0x02, 0x00, 0x00, // offset 4 of literal 2, whose result is used
        0x1c, 0x1c, // values
        0x03, 0x14, 0x04, 0x04, // the second list, which refers to the first
        0x25, // one operation of the first
        0x1f, 0x08, // another value
        0x26, // two operations of the first: a value and the second frame
        0x1c, 0x1c, 0x1c, 0x1c, 0x1c, 0x1c, 0x1c, 0x1c,
    ];

    #[test]
    fn a_list_names_the_functions_of_a_call() {
        assert_eq!(List::read(&LISTS, 0), Some(vec![(3, 3), (4, 2)]));
    }

    #[test]
    fn a_list_that_refers_to_another_one_has_its_functions() {
        assert_eq!(List::read(&LISTS, 20), Some(vec![(3, 3), (4, 2)]));
    }

    #[test]
    fn a_damaged_list_has_no_end() {
        for at in 0..LISTS.len() {
            for value in 0..=255 {
                let mut damaged = LISTS;
                damaged[at] = value;
                for start in 0..40 {
                    let _ = List::read(&damaged, start);
                }
            }
        }
        assert_eq!(List::read(&LISTS, 1), None);
        let endless: Vec<u8> = [2, 0, 0xfe, 0xff, 0xff, 0x7f, 0]
            .into_iter()
            .chain([0x1c; 9000])
            .collect();
        assert_eq!(List::read(&endless, 0), None, "more bytes than are read");
    }
}
