//! Which displacements a jump may have: the bytes that fall onto boundaries must trap; the bytes that fall onto
//! instructions that stay in place must equal the bytes of those instructions.
//!
//! ```text
//!   start  +1  +2  +3  +4
//!    e9    d0  d1  d2  d3      displacement = detour - (start + 5), little endian
//!          ^           ^
//!          a boundary at start+1 and start+4: d0 and d3 must be trapping bytes
//! ```
//!
//! With N trapping bytes a constraint on d3 leaves N windows of 16 MiB, one on d3 and d2 leaves N*N windows of 64 KiB,
//! and so on down to single addresses, of which four constrained bytes leave N^4.
//!
//! A *punned* byte must equal the original byte. It leaves one window, where a trapping byte leaves N. The punned
//! bytes are the last ones: from the end of the displaced instructions on, the text stays as it is.
//!
//! ```text
//!   start   48 83 ec 08    sub rsp, 8        e9 d0 d1 d2      displacement = e8 d2 d1 d0: 384 to 400 MiB below
//!   start+4 e8 .. .. .. .. call x            e8 .. .. .. ..   the same call
//! ```

use std::ops::Range;

/// The bytes that trap whatever follows them, in 64-bit mode, on every processor: `int3`, and the one-byte opcodes that
/// 64-bit mode made invalid.
///
/// | bytes | were |
/// |---|---|
/// | 06 07 0E 16 17 1E 1F | push and pop of es, cs, ss, ds |
/// | 27 2F 37 3F | daa das aaa aas |
/// | 60 61 | pusha popa |
/// | 9A EA | far call and jump with an immediate address |
/// | CE | into |
/// | D4 | aam |
/// | D6 | salc; documented as UDB, undefined for good |
/// | CC | `int3` itself |
///
/// Left out, since they found or may find another meaning: 62 (bound: EVEX), C4 and C5 (les, lds: VEX), D5 (aad: REX2
/// of APX), 82 (an alias of 80 in 32-bit mode, free space in 64-bit mode), 40-4F (REX).
pub const TRAPPING_BYTES: [u8; 19] = [
    0x06, 0x07, 0x0e, 0x16, 0x17, 0x1e, 0x1f, 0x27, 0x2f, 0x37, 0x3f, 0x60, 0x61, 0x9a, 0xcc, 0xce, 0xd4, 0xd6, 0xea,
];

/// Whether executing this byte as an opcode traps: see [`TRAPPING_BYTES`].
pub const fn is_trapping_byte(byte: u8) -> bool {
    let mut index = 0;
    while index < TRAPPING_BYTES.len() {
        if TRAPPING_BYTES[index] == byte {
            return true;
        }
        index += 1;
    }
    false
}

/// Which of the four displacement bytes of a jump must be trapping bytes, and which must have a given value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct JumpConstraint {
    /// Bit k: byte k of the displacement, which is the byte at offset k + 1 of the jump, must trap.
    mask: u8,
    /// Bit k is set if byte k must equal byte k of `values`.
    punned: u8,
    /// The values of the punned bytes; all other bytes are 0.
    values: [u8; 4],
}

/// Marks a byte without a successor; larger than every byte.
const NONE: u16 = 256;

/// `SUCCESSOR[0][b]`: the smallest trapping byte >= b; `[1]`: the same in the order of signed bytes, biased by 0x80,
/// for the topmost byte of the displacement.
static SUCCESSOR: [[u16; 256]; 2] = [successors(0), successors(0x80)];

const fn successors(bias: u8) -> [u16; 256] {
    let mut table = [NONE; 256];
    let mut next = NONE;
    let mut index = 256;
    while index > 0 {
        index -= 1;
        if is_trapping_byte(index as u8 ^ bias) {
            next = index as u16;
        }
        table[index] = next;
    }
    table
}

impl JumpConstraint {
    /// No constraint.
    pub const FREE: Self = Self {
        mask: 0,
        punned: 0,
        values: [0; 4],
    };

    /// Demands a trapping byte at `offset` of the jump; offsets other than 1..=4 change nothing.
    #[must_use]
    pub const fn with_boundary_at(self, offset: usize) -> Self {
        match offset {
            1..=4 => Self {
                mask: self.mask | 1 << (offset - 1),
                ..self
            },
            _ => self,
        }
    }

    /// Demands this very byte at `offset` of the jump; offsets other than 1..=4 change nothing. It replaces a boundary
    /// at the same place.
    #[must_use]
    pub const fn with_punned(mut self, offset: usize, byte: u8) -> Self {
        if let 1..=4 = offset {
            self.punned |= 1 << (offset - 1);
            self.values[offset - 1] = byte;
        }
        self
    }

    /// Whether the byte at `offset` of the jump must trap.
    pub const fn has_boundary_at(self, offset: usize) -> bool {
        matches!(offset, 1..=4) && self.mask & 1 << (offset - 1) != 0
    }

    /// How many of the four bytes must have a given value.
    pub const fn punned(self) -> u32 {
        self.punned.count_ones()
    }

    /// A measure of how little choice is left, by which constraints are compared: a punned byte leaves less than a
    /// trapping one.
    pub const fn rank(self) -> u32 {
        4 * self.punned.count_ones() + (self.mask & !self.punned).count_ones()
    }

    /// The constraint of a jump that has only its first `length` bytes for itself. The others are those of the jump
    /// directly after them, whose constraint is `behind`.
    ///
    /// ```text
    ///   start    c3              ret               e9              displacement = d2 d1 d0 e9
    ///   start+1  31 c0 0f ..     xor eax, eax ..   e9 d0 d1 d2 d3  d0 to d2 are this jump's choice, too
    /// ```
    #[must_use]
    pub fn over(self, length: usize, behind: JumpConstraint) -> Self {
        let shared = (length + 1..=4).map(|offset| (offset, offset - length));
        shared.fold(
            self.with_punned(length, 0xe9),
            |constraint, (offset, theirs)| match behind.punned_at(theirs) {
                Some(byte) => constraint.with_punned(offset, byte),
                None if behind.has_boundary_at(theirs) => constraint.with_boundary_at(offset),
                None => constraint,
            },
        )
    }

    /// The constraint of a jump whose first bytes are the last bytes of an earlier jump. The earlier jump begins
    /// `length` bytes before this jump, and has this displacement.
    #[must_use]
    pub fn under(self, length: usize, displacement: i32) -> Self {
        let bytes = displacement.to_le_bytes();
        let shared = (length + 1..=4).map(|offset| (offset - length, offset));
        shared.fold(self, |constraint, (theirs, offset)| match bytes.get(offset - 1) {
            Some(byte) => constraint.with_punned(theirs, *byte),
            None => constraint,
        })
    }

    /// The value that the byte at `offset` of the jump must have.
    const fn punned_at(self, offset: usize) -> Option<u8> {
        match offset {
            1..=4 if self.punned & 1 << (offset - 1) != 0 => Some(self.values[offset - 1]),
            _ => None,
        }
    }

    /// The range of displacements that the punned bytes at the top leave: 16 MiB if one byte is punned, 64 KiB if two
    /// are, and so on. All 32 bits when the topmost byte is not punned.
    pub fn window(self) -> Range<i64> {
        let mut window = Range {
            start: i64::from(i32::MIN),
            end: 1 << 31,
        };
        for digit in (0..4).rev() {
            if self.punned & 1 << digit == 0 {
                break;
            }
            let byte = i64::from(self.values[digit] ^ if digit == 3 { 0x80 } else { 0 });
            window.start += byte << (8 * digit);
            window.end = window.start + (1 << (8 * digit));
        }
        window
    }

    /// Whether a jump with this displacement has the bytes that the constraint demands.
    pub fn allows(self, displacement: i32) -> bool {
        self.next(i64::from(displacement)) == Some(displacement)
    }

    /// The smallest allowed displacement that is not below `from`.
    pub fn next(self, from: i64) -> Option<i32> {
        // In the order of unsigned numbers after adding 2^31; only the topmost byte changes by that.
        let mut value = u64::try_from(from.max(i64::from(i32::MIN)) + (1 << 31)).ok()?;
        'again: loop {
            if value >> 32 != 0 {
                return None;
            }
            for digit in (0..4).rev() {
                let shift = 8 * digit;
                let byte = (value >> shift) as u8;
                let successor = if self.punned & 1 << digit != 0 {
                    let wanted = self.values[digit] ^ if digit == 3 { 0x80 } else { 0 };
                    if byte <= wanted {
                        u64::from(wanted)
                    } else {
                        u64::from(NONE)
                    }
                } else if self.mask & 1 << digit != 0 {
                    u64::from(SUCCESSOR[usize::from(digit == 3)][usize::from(byte)])
                } else {
                    continue;
                };
                if successor == u64::from(byte) {
                    continue;
                }
                // Raise this byte and clear the lower bytes. If the byte has no successor, carry into the next byte.
                let above = value >> (shift + 8);
                value = if successor < u64::from(NONE) {
                    (above << 8 | successor) << shift
                } else {
                    (above + 1) << (shift + 8)
                };
                continue 'again;
            }
            return i32::try_from(value as i64 - (1 << 31)).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn naive(mask: u8, punned: &[u8], displacement: i32) -> bool {
        let bytes = displacement.to_le_bytes();
        let (free, last) = bytes.split_at(4 - punned.len());
        last == punned
            && free
                .iter()
                .enumerate()
                .all(|(k, byte)| mask & 1 << k == 0 || is_trapping_byte(*byte))
    }

    #[test]
    fn the_free_constraint_allows_all() {
        assert_eq!(JumpConstraint::FREE.next(-5), Some(-5));
        assert_eq!(JumpConstraint::FREE.next(i64::MIN), Some(i32::MIN));
        assert_eq!(JumpConstraint::FREE.next(1 << 31), None);
    }

    #[test]
    fn the_topmost_byte_is_signed() {
        let constraint = JumpConstraint::FREE.with_boundary_at(4);
        assert_eq!(constraint.next(0), Some(0x0600_0000));
        assert_eq!(constraint.next(i64::MIN), Some(0x9a00_0000_u32 as i32));
        assert_eq!(constraint.next(-1), Some(0x0600_0000));
        assert_eq!(constraint.next(0x6200_0000), None);
    }

    #[test]
    fn punned_bytes_leave_a_window() {
        let call = JumpConstraint::FREE.with_boundary_at(1).with_punned(4, 0xe8);
        assert_eq!(call.window(), -0x1800_0000..-0x1700_0000);
        assert_eq!(call.next(i64::MIN), Some(-0x1800_0000 + 0x06));
        assert_eq!(call.next(-0x1700_0000), None);
        assert!(call.rank() > JumpConstraint::FREE.with_boundary_at(1).with_boundary_at(4).rank());
        assert_eq!(call.with_punned(3, 0x20).window(), -0x17e0_0000..-0x17df_0000);
        assert_eq!(
            JumpConstraint::FREE.with_punned(4, 0x48).window(),
            0x4800_0000..0x4900_0000
        );
        assert_eq!(JumpConstraint::FREE.window(), i64::from(i32::MIN)..1 << 31);
    }

    proptest! {
        #[test]
        fn next_is_the_smallest_allowed(
            mask in 0_u8..16,
            punned in prop::collection::vec(any::<u8>(), 0..4),
            from in any::<i32>(),
            gap in 0_i64..0x2_0000,
        ) {
            let mut constraint = JumpConstraint { mask, ..JumpConstraint::FREE };
            for (index, byte) in punned.iter().enumerate() {
                constraint = constraint.with_punned(5 - punned.len() + index, *byte);
            }
            match constraint.next(i64::from(from)) {
                Some(found) => {
                    prop_assert!(found >= from);
                    prop_assert!(naive(mask, &punned, found));
                    prop_assert!(constraint.allows(found));
                    prop_assert!(constraint.window().contains(&i64::from(found)));
                    // No allowed displacement may lie between the two. The test searches from both ends.
                    for between in (i64::from(from)..i64::from(found)).take(0x2_0000) {
                        prop_assert!(!naive(mask, &punned, between as i32));
                    }
                    let below = (i64::from(found) - 1 - gap).max(i64::from(from))..i64::from(found);
                    for between in below {
                        prop_assert!(!naive(mask, &punned, between as i32));
                    }
                }
                None => {
                    for above in (i64::from(from)..=i64::from(i32::MAX)).take(0x2_0000) {
                        prop_assert!(!naive(mask, &punned, above as i32));
                    }
                }
            }
        }
    }
}
