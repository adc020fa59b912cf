//! Periods, as used by the rates of options and by the names of the profile provider's probes.
//!
//! Both are digits and a unit. `tick-5s` fires every five seconds on one CPU, `profile-97` 97 times a second; without a
//! unit the number is a frequency. Manual: "profile Provider".

/// The shortest period of a probe, in ns (DTrace: 5000 hz).
pub const PERIOD_MIN_NS: u64 = 200_000;

/// The two kinds of probes of the profile provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IntervalKind {
    /// `profile-N`: on every CPU in DTrace; here always in the tracer.
    Profile,
    /// `tick-N`: the probe fires on one CPU.
    Tick,
}

/// A probe of the profile provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Interval {
    pub kind: IntervalKind,
    /// The period in ns.
    pub period_ns: u64,
}

/// The meaning of the name of a probe of the profile provider: `tick-100ms`, `profile-97`. `None`:
/// another name, or a period that is 0, below [`PERIOD_MIN_NS`] or too long.
pub fn parse_interval(name: &str) -> Option<Interval> {
    let (kind, period) = match name.strip_prefix("tick-") {
        Some(period) => (IntervalKind::Tick, period),
        None => (IntervalKind::Profile, name.strip_prefix("profile-")?),
    };
    let period_ns = parse_period(period)?;
    (period_ns >= PERIOD_MIN_NS).then_some(Interval { kind, period_ns })
}

/// A period in ns from digits and a unit, in either case; without a unit it is a frequency. 0 of
/// any unit means: as often as possible.
pub(super) fn parse_period(text: &str) -> Option<u64> {
    let unit = text.trim_start_matches(|character: char| character.is_ascii_digit());
    let number: u64 = text.get(..text.len() - unit.len())?.parse().ok()?;
    let ns = match unit.to_ascii_lowercase().as_str() {
        "" | "hz" => return Some(1_000_000_000u64.checked_div(number).unwrap_or(0)),
        "ns" | "nsec" => 1,
        "us" | "usec" => 1_000,
        "ms" | "msec" => 1_000_000,
        "s" | "sec" => 1_000_000_000,
        "m" | "min" => 60 * 1_000_000_000,
        "h" | "hour" => 60 * 60 * 1_000_000_000,
        "d" | "day" => 24 * 60 * 60 * 1_000_000_000,
        _ => return None,
    };
    number.checked_mul(ns)
}
