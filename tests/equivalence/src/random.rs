//! Random numbers that are the same in every run with the same seed (splitmix64).

pub struct Random(u64);

/// Values at the edges of arithmetic.
const EDGES: [u64; 10] = [
    0,
    1,
    2,
    0x7f,
    0x80,
    0x7fff_ffff,
    0x8000_0000,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];

impl Random {
    /// A stream of its own for each pair of numbers.
    pub fn new(seed: u64, stream: u64) -> Random {
        let mut random = Random(seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95));
        random.next();
        random
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, which is not 0.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// Once in `of` times.
    pub fn once_in(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }

    pub fn byte(&mut self) -> u8 {
        self.next() as u8
    }

    /// One of these values, of which there is at least one.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// A random value. Values at the edges of ranges come more often.
    pub fn value(&mut self) -> u64 {
        match self.below(4) {
            0 => self.pick(&EDGES),
            1 => u64::from(self.byte()),
            _ => self.next(),
        }
    }

    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}
