//! What stands before a line: the thread and the time.

use std::time::SystemTime;

use crate::date::{LocalTime, clock, utc};

/// The time before each line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stamps {
    #[default]
    None,
    /// `-t`: the local time.
    Seconds,
    /// `-tt`
    Microseconds,
    /// `-ttt`: seconds since the epoch.
    Epoch,
    /// `-r`: since the call before.
    Relative,
}

/// A time by two clocks, in ns.
#[derive(Clone, Copy)]
pub(super) struct Moment {
    /// `timestamp`; `None`: the event has none.
    pub(super) monotonic: Option<i64>,
    /// Since the epoch.
    pub(super) wall: i64,
}

impl Moment {
    /// Of what the tracer itself has seen.
    pub(super) fn now() -> Moment {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Moment {
            monotonic: None,
            wall: since.map_or(0, |since| i64::try_from(since.as_nanos()).unwrap_or(0)),
        }
    }

    /// A later moment, by one of the clocks.
    pub(super) fn later(self, monotonic: i64) -> Moment {
        let since = self.monotonic.map_or(0, |earlier| monotonic.saturating_sub(earlier));
        Moment {
            monotonic: Some(monotonic),
            wall: self.wall.saturating_add(since),
        }
    }

    pub(super) fn since(self, earlier: Moment) -> i64 {
        match (self.monotonic, earlier.monotonic) {
            (Some(now), Some(then)) => now.saturating_sub(then),
            _ => self.wall.saturating_sub(earlier.wall),
        }
    }
}

/// Writes the times.
pub(super) struct Clock {
    stamps: Stamps,
    pub(super) local: LocalTime,
    /// When the event of the last line was.
    last: Option<Moment>,
}

impl Clock {
    pub(super) fn new(stamps: Stamps) -> Clock {
        Clock {
            stamps,
            local: utc,
            last: None,
        }
    }

    /// The time before a line.
    pub(super) fn stamp(&mut self, moment: Moment) -> String {
        let microseconds = moment.wall / 1000;
        let (seconds, fraction) = (microseconds / 1_000_000, microseconds % 1_000_000);
        let text = match self.stamps {
            Stamps::None => String::new(),
            Stamps::Seconds => format!("{} ", clock(moment.wall, self.local)),
            Stamps::Microseconds => format!("{}.{fraction:06} ", clock(moment.wall, self.local)),
            Stamps::Epoch => format!("{seconds}.{fraction:06} "),
            Stamps::Relative => {
                let since = moment.since(self.last.unwrap_or(moment)).max(0) / 1000;
                format!("{:>6}.{:06} ", since / 1_000_000, since % 1_000_000)
            }
        };
        self.last = Some(moment);
        text
    }
}
