//! Decides which probes cost too much. The decision needs only numbers, and no process.

/// The cost of a probe.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost<Key> {
    pub probe: Key,
    /// The number of hits in a second.
    pub rate: f64,
    /// ns a hit.
    pub ns: f64,
}

impl<Key> Cost<Key> {
    /// The share of one processor's time that the probe takes.
    pub fn share(&self) -> f64 {
        self.rate * self.ns / 1e9
    }
}

/// The probes to turn off, so that the remaining probes together take at most `share` of a processor. The most
/// expensive probes are turned off, and no more than necessary.
pub fn over<Key: Clone>(costs: &[Cost<Key>], share: f64) -> Vec<Cost<Key>> {
    let mut sorted = costs.to_vec();
    sorted.sort_by(|left, right| right.share().total_cmp(&left.share()));
    let mut total: f64 = sorted.iter().map(Cost::share).sum();
    let mut gone = Vec::new();
    for cost in sorted {
        if total <= share {
            break;
        }
        total -= cost.share();
        gone.push(cost);
    }
    gone
}

/// Words for a share: 1000 events a second of 6 us are 0.6 %, "don't worry"; 10,000 "noticeable";
/// 100,000 "may be painful" (Brendan Gregg, DTrace pid Provider Overhead, "Expressing Overhead").
pub fn word(share: f64) -> &'static str {
    match share {
        share if share < 0.01 => "do not worry",
        share if share < 0.1 => "noticeable",
        _ => "painful",
    }
}

/// Hundredths of a percent, as a share of a processor.
pub fn share_of(hundredths: u32) -> f64 {
    f64::from(hundredths) / 10_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(probe: &'static str, rate: f64, ns: f64) -> Cost<&'static str> {
        Cost { probe, rate, ns }
    }

    fn names(costs: &[Cost<&'static str>]) -> Vec<&'static str> {
        costs.iter().map(|cost| cost.probe).collect()
    }

    #[test]
    fn the_dearest_go_first_and_no_more_than_must() {
        // These take 50 %, 3 %, 30 % and 0.1 % of a processor.
        let costs = [
            cost("a", 5e8, 1.0),
            cost("b", 3e7, 1.0),
            cost("c", 1e6, 300.0),
            cost("d", 1e3, 1000.0),
        ];
        assert_eq!(names(&over(&costs, 1.0)), Vec::<&str>::new());
        assert_eq!(names(&over(&costs, 0.5)), ["a"]);
        assert_eq!(names(&over(&costs, 0.05)), ["a", "c"]);
        assert_eq!(names(&over(&costs, 0.01)), ["a", "c", "b"]);
        assert_eq!(names(&over(&costs, 0.0)), ["a", "c", "b", "d"]);
        assert_eq!(names(&over(&[], 0.0)), Vec::<&str>::new());
    }

    #[test]
    fn shares_have_the_seed_s_words() {
        let share = |rate: f64| cost("", rate, 6000.0).share();
        assert_eq!(word(share(1e3)), "do not worry");
        assert_eq!(word(share(1e4)), "noticeable");
        assert_eq!(word(share(1e5)), "painful");
    }
}
