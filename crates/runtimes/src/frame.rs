//! A frame of interpreted code in a list of frames, and the word of its code object: `agent/contract/runtimes.h`.

use nanoprobe_arena::layout::{FRAME_INTERPRETED, OBJECT_NONE, POSITION_NONE};

/// A position that is not known, in code that has begun.
pub const POSITION_UNKNOWN: u32 = POSITION_NONE - 1;

/// A frame of interpreted code, decoded from the number that stands for it in a list of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The frame of a code object.
    Known {
        /// The code object, by the number of its word in the agent's table. The numbers of V8's functions begin at
        /// `V8_FIRST_OBJECT`.
        object: u32,
        /// The position of the instruction in the object's code; `None`: it is unknown.
        position: Option<u32>,
    },
    /// A frame of this kind (`RUNTIME_*`), of which nothing else is known.
    Unknown {
        /// The kind.
        kind: u64,
    },
}

impl Frame {
    /// The frame of a number; `None`: the number is an address.
    pub fn of(number: u64) -> Option<Frame> {
        if number & (3 << 62) != FRAME_INTERPRETED {
            return None;
        }
        let object = number as u32 & OBJECT_NONE;
        let position = (number >> 30) as u32;
        if object == OBJECT_NONE {
            let kind = u64::from(position);
            return Some(Frame::Unknown { kind });
        }
        let position = Some(position).filter(|position| *position != POSITION_NONE);
        Some(Frame::Known { object, position })
    }
}

/// A code object, as the agent saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    /// The runtime: one of `RUNTIME_*`.
    pub kind: u64,
    /// The object's address in the target.
    pub address: u64,
    /// A checksum of its content.
    pub check: u32,
}

impl Frame {
    /// The number of the frame: the opposite of [`Frame::of`].
    pub fn number(self) -> u64 {
        let (upper, object) = match self {
            Frame::Known { object, position } => (position.unwrap_or(POSITION_NONE), object & OBJECT_NONE),
            Frame::Unknown { kind } => (kind as u32, OBJECT_NONE),
        };
        FRAME_INTERPRETED | u64::from(upper) << 30 | u64::from(object)
    }
}

impl Object {
    /// The word of the object: the opposite of [`Object::of`].
    pub fn word(self) -> u64 {
        self.address >> 3 << 20 | u64::from(self.check & 0x1_ffff) << 3 | self.kind & 7
    }

    /// The object that a word describes; `None`: the word is free.
    pub fn of(word: u64) -> Option<Object> {
        (word != 0).then_some(Object {
            kind: word & 7,
            address: word >> 20 << 3,
            check: (word >> 3) as u32 & 0x1_ffff,
        })
    }
}

#[cfg(test)]
mod tests {
    use nanoprobe_arena::layout::RUNTIME_PYTHON;

    use super::*;

    #[test]
    fn an_address_is_no_frame_of_interpreted_code() {
        for address in [0, 0x40_1000, 0x7fff_ffff_ffff, 1 << 56, 0xffff_ffff_8100_0000] {
            assert_eq!(Frame::of(address), None, "{address:#x}");
        }
    }

    #[test]
    fn a_frame_has_an_object_and_a_position() {
        let number = FRAME_INTERPRETED | 0x1234 << 30 | 77;
        let known = |position| Frame::Known { object: 77, position };
        assert_eq!(Frame::of(number), Some(known(Some(0x1234))));
        let number = FRAME_INTERPRETED | u64::from(POSITION_NONE) << 30 | 77;
        assert_eq!(Frame::of(number), Some(known(None)));
        let number = FRAME_INTERPRETED | RUNTIME_PYTHON << 30 | u64::from(OBJECT_NONE);
        assert_eq!(Frame::of(number), Some(Frame::Unknown { kind: RUNTIME_PYTHON }));
    }

    #[test]
    fn a_word_holds_an_address_a_check_and_a_kind() {
        assert_eq!(Object::of(0), None);
        let word = (0x7fff_1234_5678 / 8) << 20 | 0x1_5555 << 3 | 1;
        let object = Object {
            kind: 1,
            address: 0x7fff_1234_5678,
            check: 0x1_5555,
        };
        assert_eq!(Object::of(word), Some(object));
    }
}
