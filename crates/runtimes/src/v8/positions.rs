//! V8's tables: which bytecode belongs to which place of the source, and which piece of baseline code to which
//! bytecode.

/// Integers of 7 bits a byte, the lowest first.
struct Integers<'a>(std::slice::Iter<'a, u8>);

impl Integers<'_> {
    fn unsigned(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = *self.0.next()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn signed(&mut self) -> Option<i64> {
        let value = self.unsigned()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }
}

/// Each offset of a bytecode with a place in the source that a table of positions contains, ascending.
pub fn source_positions(table: &[u8]) -> Vec<(u32, u32)> {
    let mut integers = Integers(table.iter());
    // The first difference is that to the function's entry, which is -1.
    let (mut offset, mut place) = (-1i64, 0i64);
    let mut positions = Vec::new();
    while let (Some(step), Some(difference)) = (integers.signed(), integers.signed()) {
        // The sign says whether a statement begins there.
        let step = if step < 0 { !step } else { step };
        offset = offset.saturating_add(step);
        place = place.wrapping_add(difference);
        // A position outside of the script has bit 0; a place counts from 1 in the 30 bits after it.
        let position = (place >> 1 & 0x3fff_ffff).checked_sub(1);
        let position = position.filter(|_| place & 1 == 0);
        if let (Ok(offset), Some(Ok(position))) = (u32::try_from(offset), position.map(u32::try_from)) {
            positions.push((offset, position));
        }
    }
    positions
}

/// Each end of a piece of baseline code, ascending, with the offset of the bytecode that it was made from.
pub fn baseline_offsets(table: &[u8], bytecode: &[u8], sizes: &[Vec<u8>; 3]) -> Vec<(u32, u32)> {
    const WIDE: [u8; 4] = [0, 1, 2, 3];
    let mut integers = Integers(table.iter());
    let mut pieces = Vec::new();
    // The code before the first bytecode.
    let Some(mut end) = integers.unsigned() else {
        return pieces;
    };
    let mut at = 0;
    while let (Some(length), Some(first)) = (integers.unsigned(), bytecode.get(at)) {
        end = end.saturating_add(length);
        let Ok(piece) = u32::try_from(end) else { break };
        pieces.push((piece, at as u32));
        let (width, byte) = match WIDE.contains(first) {
            true => (usize::from(first % 2) + 1, bytecode.get(at + 1)),
            false => (0, Some(first)),
        };
        let Some(size) = byte.and_then(|byte| sizes.get(width)?.get(usize::from(*byte))) else {
            break;
        };
        at += usize::from(*size).max(1) + usize::from(width > 0);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_differences_with_signs() {
        // Offset 4 (a statement) at 10; 3 bytes later (an expression) at 7.
        let table = [10, 2 * 22, (2 * 4) - 1, 2 * 6 - 1];
        assert_eq!(source_positions(&table), [(4, 10), (7, 7)]);
        assert_eq!(source_positions(&[0x80; 40]), []);
    }

    #[test]
    fn pieces_of_baseline_code_follow_the_bytecodes() {
        let mut sizes: [Vec<u8>; 3] = std::array::from_fn(|_| vec![1; 16]);
        sizes[0][10] = 3;
        sizes[1][10] = 5;
        let bytecode = [10, 0, 0, 0, 10, 1, 1, 1, 1, 11];
        let pieces = baseline_offsets(&[20, 4, 6, 8], &bytecode, &sizes);
        assert_eq!(pieces, [(24, 0), (30, 3), (38, 9)]);
        assert_eq!(baseline_offsets(&[1, 1], &bytecode, &Default::default()), [(2, 0)]);
    }
}
