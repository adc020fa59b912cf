//! The CRC-32 of IEEE 802.3, computed eight bytes at a time. The section .gnu_debuglink has the CRC-32 of a file.

/// The polynomial of the CRC, with its lowest power in the highest bit.
const POLYNOMIAL: u32 = 0xedb8_8320;
/// The number of bytes of one step.
const STEP: usize = 8;

/// The sum of the bytes so far.
pub(crate) struct Crc32 {
    /// The effect of a byte on the sum, by the number of bytes that follow it in the step.
    tables: Vec<[u32; 256]>,
    state: u32,
}

impl Crc32 {
    /// The sum of no bytes.
    pub fn new() -> Crc32 {
        let mut first = [0; 256];
        for (entry, byte) in first.iter_mut().zip(0_u32..) {
            *entry = (0..8).fold(byte, |sum, _| sum >> 1 ^ if sum & 1 == 0 { 0 } else { POLYNOMIAL });
        }
        let next = |table: &[u32; 256]| Some(table.map(|sum| sum >> 8 ^ entry(&first, sum)));
        let tables = std::iter::successors(Some(first), next).take(STEP).collect();
        Crc32 { tables, state: !0 }
    }

    /// Adds bytes to the sum.
    pub fn update(&mut self, bytes: &[u8]) {
        let (steps, rest) = bytes.as_chunks::<STEP>();
        let mut sum = self.state;
        if let [t0, t1, t2, t3, t4, t5, t6, t7] = self.tables.as_slice() {
            for &[b0, b1, b2, b3, b4, b5, b6, b7] in steps {
                let low = sum ^ u32::from_le_bytes([b0, b1, b2, b3]);
                let high = u32::from_le_bytes([b4, b5, b6, b7]);
                let of_low = entry(t7, low) ^ entry(t6, low >> 8) ^ entry(t5, low >> 16) ^ entry(t4, low >> 24);
                let of_high = entry(t3, high) ^ entry(t2, high >> 8) ^ entry(t1, high >> 16) ^ entry(t0, high >> 24);
                sum = of_low ^ of_high;
            }
            for byte in rest {
                sum = sum >> 8 ^ entry(t0, sum ^ u32::from(*byte));
            }
        }
        self.state = sum;
    }

    pub fn sum(&self) -> u32 {
        !self.state
    }
}

/// The entry for the lowest byte.
fn entry(table: &[u32; 256], value: u32) -> u32 {
    table.get((value & 0xff) as usize).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_that_of_the_standard_however_the_bytes_come() {
        let mut known = Crc32::new();
        known.update(b"123456789");
        assert_eq!(known.sum(), 0xcbf4_3926);
        let bytes: Vec<u8> = (0..1000_u32).map(|number| (number * 7 % 251) as u8).collect();
        let mut whole = Crc32::new();
        whole.update(&bytes);
        for piece in [1, 3, 8, 13] {
            let mut parts = Crc32::new();
            bytes.chunks(piece).for_each(|part| parts.update(part));
            assert_eq!(parts.sum(), whole.sum());
        }
        assert_eq!(Crc32::new().sum(), 0);
    }
}
