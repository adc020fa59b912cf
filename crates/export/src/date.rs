//! `%Y` and `%T`: `walltimestamp` as a date.
//!
//! This module computes the calendar. The caller provides the local time.

/// Seconds east of UTC, and the zone's name, at a time in seconds since the epoch.
pub type LocalTime = fn(i64) -> (i32, &'static str);

/// UTC, for callers without a time zone.
pub(crate) fn utc(_seconds: i64) -> (i32, &'static str) {
    (0, "UTC")
}

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];
const WEEKDAYS: [&str; 7] = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];

/// A date of the proleptic Gregorian calendar.
struct Date {
    year: i64,
    month: &'static str,
    day: i64,
    weekday: &'static str,
    second_of_day: i64,
    zone: &'static str,
}

impl Date {
    /// Days are counted in eras of 400 years from 1 March of the year 0, so that the leap day is
    /// the last day of a year.
    fn new(ns: i64, local: LocalTime) -> Date {
        let seconds = ns.div_euclid(1_000_000_000);
        let (offset, zone) = local(seconds);
        let seconds = seconds.saturating_add(i64::from(offset));
        let days = seconds.div_euclid(86_400);
        let from_march = days + 719_468;
        let (era, day_of_era) = (from_march.div_euclid(146_097), from_march.rem_euclid(146_097));
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let month = (month_from_march + 2) % 12;
        let name = |names: &[&'static str], index: i64| {
            usize::try_from(index)
                .ok()
                .and_then(|index| names.get(index))
                .copied()
                .unwrap_or("???")
        };
        Date {
            year: year_of_era + era * 400 + i64::from(month < 2),
            month: name(&MONTHS, month),
            day: day_of_year - (153 * month_from_march + 2) / 5 + 1,
            weekday: name(&WEEKDAYS, (days + 4).rem_euclid(7)),
            second_of_day: seconds.rem_euclid(86_400),
            zone,
        }
    }

    fn clock(&self) -> String {
        let second = self.second_of_day;
        format!("{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)
    }
}

/// The time of the day: `00:00:00`.
pub(crate) fn clock(ns: i64, local: LocalTime) -> String {
    Date::new(ns, local).clock()
}

/// `%Y`: `1990 Jan  1 00:00:00`.
pub(crate) fn date(ns: i64, local: LocalTime) -> String {
    let date = Date::new(ns, local);
    format!("{:04} {} {:2} {}", date.year, date.month, date.day, date.clock())
}

/// `%T`: `Mon, 01 Jan 1990 00:00:00 UTC`.
pub(crate) fn mail_date(ns: i64, local: LocalTime) -> String {
    let date = Date::new(ns, local);
    format!(
        "{}, {:02} {} {:04} {} {}",
        date.weekday,
        date.day,
        date.month,
        date.year,
        date.clock(),
        date.zone
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        const S: i64 = 1_000_000_000;
        for (seconds, expected) in [
            (0, "1970 Jan  1 00:00:00"),
            (-1, "1969 Dec 31 23:59:59"),
            (123_732_000, "1973 Dec  3 02:00:00"),
            (951_782_399, "2000 Feb 28 23:59:59"),
            (951_782_400, "2000 Feb 29 00:00:00"),
            (951_868_800, "2000 Mar  1 00:00:00"),
            (1_709_164_800, "2024 Feb 29 00:00:00"),
            (4_107_542_399, "2100 Feb 28 23:59:59"),
            (4_107_542_400, "2100 Mar  1 00:00:00"),
            (1_767_225_599, "2025 Dec 31 23:59:59"),
        ] {
            assert_eq!(date(seconds * S, utc), expected, "{seconds}");
        }
        assert_eq!(mail_date(1_297_987_200 * S, utc), "Fri, 18 Feb 2011 00:00:00 UTC");
        assert_eq!(
            mail_date(1_297_987_200 * S, |_| (-8 * 3600, "PST")),
            "Thu, 17 Feb 2011 16:00:00 PST"
        );
        // These are the extremes of what a record may hold.
        assert_eq!(date(i64::MAX, utc), "2262 Apr 11 23:47:16");
        assert_eq!(date(i64::MIN, utc), "1677 Sep 21 00:12:43");
    }
}
