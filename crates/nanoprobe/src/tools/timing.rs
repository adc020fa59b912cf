//! The arguments that all tools share: how often a tool reports, when it ends, and time stamps.
//!
//! It becomes part of the tool's D text. The clause END of a script is its report. With an interval, a clause `tick-`
//! makes the report as well, and then empties the aggregations: one clause does both, so that no value is lost between.

use clap::{Arg, ArgAction};

use super::clauses::{aggregations, report, stamped};

/// A year: a longer time is a mistake.
const MILLISECONDS_MAX: u64 = 366 * 24 * 3600 * 1000;

/// The last part of every tool's help.
pub const HELP: &str = "
Every tool also takes
  INTERVAL [COUNT]  after its arguments: a report of each INTERVAL (seconds, or
                    with a unit: 500ms, 2m), and the end after COUNT of them
  -i INTERVAL       the same interval, given before the arguments
  -d TIME           the end after this time
  -T                the time before each line, or report
  --json            JSON lines
and the flags of tracing. On a terminal, without INTERVAL, a tool that counts
shows its state every second.
";

/// `-i`
pub fn interval() -> Arg {
    let help = "Report each interval: seconds, or with a unit: 500ms, 2m";
    Arg::new("interval").short('i').value_name("time").help(help)
}

/// `-d`
pub fn duration() -> Arg {
    let flag = Arg::new("duration").short('d').value_name("time");
    flag.overrides_with("duration")
        .help("End after this time: seconds, or with a unit: 500ms, 2m")
}

/// `-T`
pub fn stamps() -> Arg {
    let flag = Arg::new("stamps").short('T').action(ArgAction::SetTrue);
    flag.overrides_with("stamps")
        .help("Print the time before each line, or report")
}

/// When to report and to end. Times are in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    pub interval: Option<u64>,
    pub count: Option<u64>,
    pub duration: Option<u64>,
    pub has_stamps: bool,
}

/// The times as the command line gives them.
#[derive(Clone, Debug, Default)]
pub struct Given {
    pub interval: Option<String>,
    pub duration: Option<String>,
    pub has_stamps: bool,
}

impl Timing {
    /// From the flags, and from the words after a tool's own arguments.
    pub fn new(given: &Given, words: &[String]) -> Result<Timing, String> {
        if let Some(word) = words.first().filter(|word| milliseconds(word).is_none()) {
            return Err(format!("one argument too many: {word}"));
        }
        let words = given.interval.iter().chain(words).collect::<Vec<_>>();
        let (interval, count) = match words[..] {
            [] => (None, None),
            [interval] => (Some(interval), None),
            [interval, count] => (Some(interval), Some(count)),
            [_, _, surplus, ..] => return Err(format!("one argument too many: {surplus}")),
        };
        let time = |word: &String| {
            milliseconds(word).ok_or_else(|| {
                format!(
                    "`{word}` is no time: a whole number of seconds, or a time like 500ms, 10s, 5m, 1h, up to a year"
                )
            })
        };
        let count = count.map(|word| match word.parse::<u32>() {
            Ok(count @ 1..) => Ok(u64::from(count)),
            _ => Err(format!("`{word}` is no number of intervals")),
        });
        let mut timing = Timing {
            interval: interval.map(time).transpose()?,
            count: count.transpose()?,
            duration: given.duration.as_ref().map(time).transpose()?,
            has_stamps: given.has_stamps,
        };
        // The interval and the duration would end at the same moment.
        if let (Some(interval), None, Some(duration)) = (timing.interval, timing.count, timing.duration)
            && duration.is_multiple_of(interval)
        {
            timing.count = Some(duration / interval);
            timing.duration = None;
        }
        Ok(timing)
    }

    /// A script with these times put in. `is_total`: every report shows the values since the beginning.
    pub fn put_into(&self, text: &str, is_total: bool) -> String {
        let mut text = text.to_owned();
        if self.has_stamps {
            text = stamped(&text);
        }
        if let Some(interval) = self.interval {
            text = self.with_reports(&text, interval, is_total);
        }
        if let Some(duration) = self.duration {
            text += &format!("\ntick-{duration}ms\n{{\n\texit(0);\n}}\n");
        }
        text
    }

    fn with_reports(&self, text: &str, interval: u64, is_total: bool) -> String {
        let (before, body, after) = report(text);
        let names = aggregations(text);
        let mut body = body.to_owned();
        let printed = |name: &String| {
            body.lines()
                .any(|line| line.contains("printa(") && has_word(line, name))
        };
        let rest: Vec<String> = names.iter().filter(|name| !printed(name)).cloned().collect();
        for name in rest {
            body += &format!("\tprinta({name});\n");
        }
        if names.is_empty() {
            // The script prints events as they happen, so this line separates one interval from the next.
            body += "\tprintf(\"%Y\\n\", walltimestamp);\n";
        }
        let empty: String = names.iter().map(|name| format!("\ttrunc({name});\n")).collect();
        let emptied = if is_total { "" } else { empty.as_str() };
        let tick = format!("tick-{interval}ms");
        // A tracer that is late makes up for several ticks at once.
        let is_wanted = self
            .count
            .map(|count| format!("/intervals < {count}/\n"))
            .unwrap_or_default();
        let mut made = format!("int64_t intervals;\n\n{tick}\n{is_wanted}");
        made += &format!("{{\n\tprintf(\"\\n\");\n{body}{emptied}\tintervals++;\n}}\n");
        let last = if names.is_empty() { "" } else { body.as_str() };
        match self.count {
            // By then the last report was made, and later values belong to no report.
            Some(count) => {
                made += &format!("\n{tick}\n/intervals >= {count}/\n{{\n\texit(0);\n}}\n");
                if !last.is_empty() {
                    made += &format!("\nEND\n/intervals < {count}/\n{{\n{last}}}\n");
                    made += &format!("\nEND\n/intervals >= {count}/\n{{\n{empty}}}\n");
                }
            }
            None if last.is_empty() => {}
            None => made += &format!("\nEND\n{{\n{last}}}\n"),
        }
        format!("{before}{made}{after}")
    }
}

/// Whether a word may be an interval.
pub fn is_time(word: &str) -> bool {
    milliseconds(word).is_some()
}

/// Whether a line has this name as a whole word, not as a part of a longer name.
fn has_word(line: &str, name: &str) -> bool {
    let is_end = |rest: &str| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_');
    line.match_indices(name)
        .any(|(at, _)| line.get(at + name.len()..).is_some_and(is_end))
}

/// A time: whole seconds, or with a unit.
fn milliseconds(given: &str) -> Option<u64> {
    let digits = given.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let unit = match given.get(digits.len()..)? {
        "" | "s" | "sec" => 1000,
        "ms" | "msec" => 1,
        "m" | "min" => 60_000,
        "h" | "hour" => 3_600_000,
        _ => return None,
    };
    let count = digits.parse::<u64>().ok()?.checked_mul(unit)?;
    (1..=MILLISECONDS_MAX).contains(&count).then_some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timing(flags: (Option<&str>, Option<&str>), words: &[&str]) -> Result<Timing, String> {
        let given = Given {
            interval: flags.0.map(str::to_owned),
            duration: flags.1.map(str::to_owned),
            has_stamps: false,
        };
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        Timing::new(&given, &words)
    }

    #[test]
    fn times_have_units() {
        let times = ["1", "2s", "500ms", "5m", "1h", "366h"].map(milliseconds);
        let expected = [1000, 2000, 500, 300_000, 3_600_000, 1_317_600_000];
        assert_eq!(times, expected.map(Some));
        for wrong in [
            "",
            "0",
            "0ms",
            "s",
            "-1",
            "1.5",
            "5µs",
            "1d",
            "99999999999999999999",
            "9999h9",
            "10000h",
        ] {
            assert_eq!(milliseconds(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn intervals_come_from_flags_or_words() {
        let of = |interval, count, duration| Timing {
            interval,
            count,
            duration,
            has_stamps: false,
        };
        assert_eq!(timing((None, None), &[]), Ok(of(None, None, None)));
        assert_eq!(timing((None, None), &["2", "5"]), Ok(of(Some(2000), Some(5), None)));
        assert_eq!(timing((Some("100ms"), None), &["7"]), Ok(of(Some(100), Some(7), None)));
        assert_eq!(timing((None, Some("5")), &["2"]), Ok(of(Some(2000), None, Some(5000))));
        assert_eq!(timing((None, Some("6")), &["2"]), Ok(of(Some(2000), Some(3), None)));
        for (flags, words, what) in [
            ((None, None), &["x"][..], "one argument too many: x"),
            ((None, None), &["1", "x"], "`x` is no number of intervals"),
            ((None, None), &["1", "0"], "`0` is no number of intervals"),
            ((None, None), &["1", "2", "3"], "one argument too many: 3"),
            ((Some("x"), None), &[], "`x` is no time"),
            ((None, Some("0")), &[], "`0` is no time"),
        ] {
            assert!(timing(flags, words).is_err_and(|error| error.contains(what)), "{what}");
        }
    }

    #[test]
    fn a_report_is_made_at_each_interval_and_the_last_one_only_once() {
        let text = "/* a */\nBEGIN\n{\n\tx = 1;\n}\n\nEND\n{\n\tprinta(\"%@d\\n\", @a);\n\ttrunc(@b, $1);\n}\n";
        let text = format!("{text}\ntick-1s\n{{\n\t@a = count();\n\t@b[1] = sum(2);\n}}\n");
        let every = timing((None, None), &["2"]).unwrap().put_into(&text, false);
        assert!(
            every.contains(
                "tick-2000ms\n{\n\tprintf(\"\\n\");\n\tprinta(\"%@d\\n\", @a);\n\ttrunc(@b, $1);\n\tprinta(@b);\n\
                 \ttrunc(@a);\n\ttrunc(@b);\n\tintervals++;\n}\n"
            ),
            "{every}"
        );
        assert_eq!(every.matches("\nEND\n").count(), 1, "{every}");
        let thrice = timing((None, None), &["2", "3"]).unwrap().put_into(&text, true);
        assert!(
            thrice.contains("tick-2000ms\n/intervals >= 3/\n{\n\texit(0);\n}\n"),
            "{thrice}"
        );
        assert!(
            thrice.contains("END\n/intervals < 3/\n") && thrice.contains("END\n/intervals >= 3/\n"),
            "{thrice}"
        );
        // Aggregations that count from the beginning are not emptied by a tick.
        let (tick, _) = thrice.split_once("END").unwrap();
        assert!(!tick.contains("trunc(@a)"), "{thrice}");
    }
}
