//! Medians and their spread.

/// A measured quantity: the median of several samples, and the median absolute deviation from it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// The median of the samples.
    pub median: f64,
    /// The median of the samples' distances from the median.
    pub deviation: f64,
    /// The samples in the order in which they were taken.
    pub samples: Vec<f64>,
}

/// A spread is good up to this fraction of the median.
const GOOD_SPREAD: f64 = 0.15;
/// A spread is good up to this value, whatever the median is: alignment alone changes a figure by a nanosecond.
const GOOD_SPREAD_ABSOLUTE: f64 = 0.25;

impl Measured {
    /// The quantity of a list of values; `None` for an empty list.
    pub fn of(values: &[f64]) -> Option<Measured> {
        let middle = median(values)?;
        let deviations: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
        Some(Measured {
            median: middle,
            deviation: median(&deviations)?,
            samples: values.to_vec(),
        })
    }

    /// The warning beside a doubtful figure: too few samples, or too wide a spread.
    pub fn doubt(&self) -> Option<&'static str> {
        // One sample is enough if nothing varies: a count.
        if !self.samples.is_empty() && self.samples.len() < 3 {
            Some("too few samples")
        } else if self.deviation > GOOD_SPREAD_ABSOLUTE && self.deviation > GOOD_SPREAD * self.median.abs() {
            Some("wide spread")
        } else {
            None
        }
    }
}

/// The median; `None` for an empty list.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    match count {
        0 => None,
        _ if count % 2 == 1 => Some(sorted[count / 2]),
        _ => Some((sorted[count / 2 - 1] + sorted[count / 2]) / 2.0),
    }
}

/// The overhead of a probe, paired: the cost with the probe, minus the mean of the costs before and after it. If the
/// machine's speed changes evenly meanwhile, the figure does not.
pub fn paired(before: f64, with: f64, after: f64) -> f64 {
    with - (before + after) / 2.0
}

/// The paired overheads of lists of samples.
pub fn paired_samples(before: &[f64], with: &[f64], after: &[f64]) -> Vec<f64> {
    let all = before.iter().zip(with).zip(after);
    all.map(|((before, with), after)| paired(*before, *with, *after))
        .collect()
}

/// The greatest number of rounds for something that should be measured `rounds` times: doubtful figures are measured
/// again.
pub fn most(rounds: usize) -> usize {
    rounds.max(3)
}

/// Whether another round is needed after `round` of them: always up to `rounds`, then while the figure is doubtful.
pub fn another(samples: &[f64], round: usize, rounds: usize) -> bool {
    let good = Measured::of(samples).is_some_and(|measured| measured.doubt().is_none());
    round < rounds || (round < most(rounds) && !good)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        let measured = Measured::of(&[1.0, 2.0, 3.0, 100.0, 2.0]).expect("some values");
        assert_eq!((measured.median, measured.deviation), (2.0, 1.0));
        assert_eq!(measured.samples, [1.0, 2.0, 3.0, 100.0, 2.0]);
    }

    #[test]
    fn a_wide_spread_and_few_samples_are_doubtful() {
        let doubt = |values: &[f64]| Measured::of(values).and_then(|measured| measured.doubt());
        assert_eq!(doubt(&[10.0, 10.1, 10.2]), None);
        assert_eq!(doubt(&[10.0, 20.0, 30.0]), Some("wide spread"));
        assert_eq!(doubt(&[10.0, 10.0]), Some("too few samples"));
        // A fifth of a nanosecond comes from alignment and is no noise.
        assert_eq!(doubt(&[0.5, 0.7, 0.9]), None);
        let exact = Measured {
            median: 0.0,
            ..Measured::default()
        };
        assert_eq!(exact.doubt(), None);
    }

    #[test]
    fn doubtful_figures_are_measured_again() {
        let (good, wide) = ([10.0, 10.1, 10.2], [10.0, 20.0, 30.0]);
        assert!(another(&[], 0, 1) && !another(&good, 1, 1));
        assert!(another(&wide, 1, 1) && another(&wide, 2, 1) && !another(&wide, 3, 1));
        assert!(another(&good, 6, 7) && !another(&wide, 7, 7));
        assert_eq!(paired_samples(&[1.0, 2.0], &[11.0, 13.0], &[3.0, 4.0]), [9.0, 10.0]);
    }

    /// A clock whose speed drifts by a tenth in each batch, and disturbs some batches: a probe of 7 ns still comes out
    /// as 7 ns.
    #[test]
    fn a_known_delay_comes_out_of_a_drifting_and_jumping_clock() {
        let mut time = 0.0;
        let mut batch = |cost: f64| {
            time += 1.0;
            let hiccup = if time % 11.0 == 0.0 { 400.0 } else { 0.0 };
            cost + 0.1 * time + hiccup
        };
        let mut samples = Vec::new();
        for _ in 0..21 {
            let (before, with, after) = (batch(1.0), batch(1.0 + 7.0), batch(1.0));
            samples.push(paired(before, with, after));
        }
        let measured = Measured::of(&samples).expect("samples");
        assert!((measured.median - 7.0).abs() < 1e-9, "{measured:?}");
        assert!(measured.deviation < 1e-9, "{measured:?}");
        assert!(
            measured.samples.iter().any(|sample| (sample - 7.0).abs() > 100.0),
            "the hiccups were there"
        );
    }
}
