//! Medians and their spread.

/// A measured quantity: the median of several, and the median absolute deviation from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    pub median: f64,
    pub deviation: f64,
}

impl Measured {
    /// Of a list of values; `None` for an empty one.
    pub fn of(values: &[f64]) -> Option<Measured> {
        let middle = median(values)?;
        let deviations: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
        Some(Measured {
            median: middle,
            deviation: median(&deviations)?,
        })
    }
}

/// The median; `None` of nothing.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(
            Measured::of(&[1.0, 2.0, 3.0, 100.0, 2.0]),
            Some(Measured {
                median: 2.0,
                deviation: 1.0
            })
        );
    }
}
