//! Reads nanoprobe's output, which has the form of dtrace(1)'s output.

use std::collections::BTreeMap;

/// The values of an aggregation without keys: the lines that hold one integer and nothing else.
pub fn values(text: &str) -> Vec<i64> {
    text.lines().filter_map(|line| line.trim().parse().ok()).collect()
}

/// The one value of the one aggregation without keys.
///
/// # Panics
/// When there is none or more than one.
#[track_caller]
pub fn value(text: &str) -> i64 {
    match values(text)[..] {
        [value] => value,
        ref other => panic!("one value expected, found {other:?} in:\n{text}"),
    }
}

/// The rows of a keyed aggregation: the keys as printed, blanks between them squeezed to one, and the value.
///
/// # Panics
/// When a key occurs twice: then it was not aggregated.
#[track_caller]
pub fn table(text: &str) -> BTreeMap<String, i64> {
    let mut rows = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("  ")) {
        let Some((key, value)) = line.trim().rsplit_once(char::is_whitespace) else {
            continue;
        };
        let Ok(value) = value.parse() else { continue };
        let key = key.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(rows.insert(key.clone(), value).is_none(), "{key} twice in:\n{text}");
    }
    rows
}

/// The stacks of an aggregation by `ustack()`: frames innermost first, each as printed, and the value.
pub fn stacks(text: &str) -> Vec<(Vec<String>, i64)> {
    let mut all = Vec::new();
    let mut frames: Vec<String> = Vec::new();
    for line in text.lines() {
        let content = line.trim();
        if content.is_empty() {
            frames.clear();
        } else if let (Ok(value), false) = (content.parse(), frames.is_empty()) {
            all.push((std::mem::take(&mut frames), value));
        } else {
            frames.push(content.to_owned());
        }
    }
    all
}

/// The function of a printed frame: ``bash`readline+0x49`` gives `readline`.
pub fn function_of(frame: &str) -> &str {
    let name = frame.split_once('`').map_or(frame, |(_, name)| name);
    name.rsplit_once("+0x").map_or(name, |(function, _)| function)
}

/// The records of the default output, `CPU ID FUNCTION:NAME` and what follows: `(function:name, rest)`.
pub fn records(text: &str) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some(cpu), Some(id), Some(probe)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        if cpu.parse::<u32>().is_ok() && id.parse::<u32>().is_ok() && probe.contains(':') {
            all.push((probe.to_owned(), words.collect::<Vec<_>>().join(" ")));
        }
    }
    all
}

/// The number in `description '...' matched N probes`; the sum over all such lines.
///
/// # Panics
/// When there is no such line.
#[track_caller]
pub fn matched(stderr: &str) -> u64 {
    let numbers: Vec<u64> = stderr
        .lines()
        .filter(|line| line.starts_with("nanoprobe: "))
        .filter_map(|line| line.split_once("' matched ").or_else(|| line.split_once(" matched ")))
        .filter_map(|(_, rest)| rest.split_whitespace().next()?.parse().ok())
        .collect();
    assert!(!numbers.is_empty(), "no line with the number of probes in:\n{stderr}");
    numbers.iter().sum()
}

/// Lines of a program's output that start with `NAME `, with the rest as an integer. The test programs print what
/// they did in such lines (`calls 1000`).
///
/// # Panics
/// When there is none.
#[track_caller]
pub fn said(stdout: &str, name: &str) -> i64 {
    stdout
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
        .unwrap_or_else(|| panic!("the program did not say {name}:\n{stdout}"))
}

/// What processes of a tree report of themselves: calls, by number (`by 1234 1000`).
///
/// # Panics
/// When such a line has no count.
#[track_caller]
pub fn said_by_processes(stdout: &str) -> BTreeMap<String, i64> {
    let lines = stdout.lines().filter_map(|line| line.strip_prefix("by "));
    lines
        .map(|line| {
            let (pid, calls) = line.split_once(' ').expect("a number and a count");
            (pid.to_owned(), calls.parse().expect("a count"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_value_among_other_lines() {
        assert_eq!(value("checksum 12\nOK\n\n        100000000\n"), 100_000_000);
    }

    #[test]
    fn reads_keys_with_blanks() {
        let rows = table("\n  hello DTrace                                              100000000\n  a  1   7\n");
        assert_eq!(rows["hello DTrace"], 100_000_000);
        assert_eq!(rows["a 1"], 7);
    }

    #[test]
    #[should_panic(expected = "twice")]
    fn a_key_printed_twice_is_an_error() {
        table("  a    1\n  a    2\n");
    }

    #[test]
    fn reads_stacks() {
        let text =
            "\n\n              bash`read_key+0x1\n              libc.so.6`main+0x49\n               48\n\n  x`f\n 2\n";
        let all = stacks(text);
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].1, 48);
        assert_eq!(
            all[0].0.iter().map(|frame| function_of(frame)).collect::<Vec<_>>(),
            ["read_key", "main"]
        );
    }

    #[test]
    fn reads_records_and_matches() {
        let text =
            "CPU     ID                    FUNCTION:NAME\n 13  75978                     strlen:entry     3479933\n";
        assert_eq!(records(text), [("strlen:entry".to_owned(), "3479933".to_owned())]);
        assert_eq!(
            matched("nanoprobe: description 'pid$target:a.out:func:entry ' matched 1 probe\n"),
            1
        );
    }
}
