//! Decides which samples are kept, since more samples are taken than requested.

/// The processor time between two samples of a thread is this long, or up to twice as long. It is shorter only if a
/// shorter period was requested.
const FINE_NS: u64 = 1_000_000;
/// At most this many samples are taken for each sample that is kept.
const EACH_MAX: u64 = 100;

/// Keeps one sample of each group of `each`, at a random place in the group. If every tenth sample were kept, for
/// example, threads that take turns might be kept always, or never.
#[derive(Clone, Debug)]
pub(super) struct Thinning {
    each: u64,
    /// The number of samples of this group so far. `chosen` is the index of the sample to keep.
    come: u64,
    chosen: u64,
    random: u64,
}

impl Thinning {
    /// How samples are thinned for this requested period.
    pub fn of(period_ns: u64) -> Thinning {
        let mut thinning = Thinning {
            each: (period_ns / FINE_NS).clamp(1, EACH_MAX),
            come: 0,
            chosen: 0,
            random: 0x9e37_79b9_7f4a_7c15,
        };
        thinning.choose();
        thinning
    }

    /// One of this many samples is kept.
    pub fn each(&self) -> u64 {
        self.each
    }

    /// Whether the next sample is kept.
    pub fn keeps(&mut self) -> bool {
        let keeps = self.come == self.chosen;
        self.come += 1;
        if self.come == self.each {
            self.come = 0;
            self.choose();
        }
        keeps
    }

    fn choose(&mut self) {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.chosen = self.random % self.each;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_sample_of_each_group_is_kept_at_a_random_place() {
        let mut thinning = Thinning::of(10_309_278);
        assert_eq!(thinning.each(), 10);
        let kept: Vec<u64> = (0..10_000).filter(|_| thinning.keeps()).collect();
        assert_eq!(kept.len(), 1000);
        assert!(kept.iter().zip(0..).all(|(kept, block)| kept / 10 == block));
        for place in 0..10 {
            let count = kept.iter().filter(|kept| **kept % 10 == place).count();
            assert!((50..150).contains(&count), "{count} at {place}");
        }
    }

    #[test]
    fn all_samples_of_a_short_period_are_kept() {
        for period_ns in [0, 200_000, 1_000_000, 1_003_009] {
            let mut thinning = Thinning::of(period_ns);
            assert!((0..100).all(|_| thinning.keeps()));
        }
        assert_eq!(Thinning::of(u64::MAX).each(), 100);
    }
}
