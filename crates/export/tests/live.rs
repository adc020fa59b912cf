//! The screen of a running trace, as text: what a person would see at each moment.
#![allow(clippy::unwrap_used, reason = "a test ends where it goes wrong")]

mod support;

use std::time::Duration;

use nanoprobe_export::AggregateTable;
use nanoprobe_export::live::{Characters, Key, Live, Style, Traced};
use nanoprobe_lang::interpret::{Value, key};
use nanoprobe_lang::options::Options;
use nanoprobe_lang::program::AggregationId;
use nanoprobe_lang::{MacroValues, Program, Source};
use support::{Names, golden, integer, string};

/// A screen for the aggregations of a D program, which are filled by hand.
struct Screen {
    program: Program,
    options: Options,
    table: AggregateTable,
    live: Live,
    seconds: u64,
}

impl Screen {
    fn new(text: &str) -> Screen {
        Screen::with(text, Characters::Blocks)
    }

    fn with(text: &str, characters: Characters) -> Screen {
        let program = nanoprobe_lang::compile(&[Source::new("test", text)], &MacroValues::default()).unwrap();
        Screen {
            live: Live::new(&program, "test  pid 1234 (server)", characters),
            program,
            options: Options::default(),
            table: AggregateTable::new(),
            seconds: 0,
        }
    }

    /// Does `@name[key] = function(value)` this many times.
    fn add(&mut self, name: &str, key: &[Value], value: i64, times: i64) {
        let names = &self.program.aggregations;
        let id = names.iter().position(|found| found.name == name).unwrap();
        let bytes = key::key_bytes(key, self.options.limits().string_limit());
        let mut snapshot = nanoprobe_export::Snapshot::new();
        for _ in 0..times {
            assert!(snapshot.update(&self.program, AggregationId(id as u32), &bytes, value, 1));
        }
        self.table.add(&self.program, snapshot);
    }

    /// Advances the time by one second.
    fn tick(&mut self) {
        self.seconds += 1;
        self.live
            .update(&self.program, &self.table, Duration::from_secs(self.seconds));
    }

    fn press(&mut self, keys: &[Key]) {
        keys.iter().for_each(|key| self.live.press(*key));
    }

    fn frame(&self, columns: usize, rows: usize) -> nanoprobe_export::live::Frame {
        let mut traced = Traced {
            program: &self.program,
            options: &self.options,
            symbolizer: &mut Names,
        };
        self.live.draw(&mut traced, columns, rows)
    }

    fn shown(&self, columns: usize, rows: usize) -> String {
        self.frame(columns, rows).text()
    }

    /// The first words of the lines under the heads of the only table.
    fn first_words(&self) -> Vec<String> {
        let shown = self.shown(80, 24);
        let lines = shown
            .lines()
            .skip(3)
            .filter(|line| line.starts_with(' ') && !line.contains(" quit "));
        lines
            .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
            .collect()
    }
}

const CALLS: &str = "BEGIN { @calls[probemod, probefunc] = count(); }";

fn call(screen: &mut Screen, function: &str, times: i64) {
    screen.add("@calls", &[string("libc.so.6"), string(function)], 0, times);
}

#[test]
fn counts_are_sorted_with_their_rates_and_a_sparkline() {
    let mut screen = Screen::new(CALLS);
    for (second, times) in [0, 5, 40, 3].into_iter().enumerate() {
        call(&mut screen, "strlen", 1000);
        call(&mut screen, "strchr", times);
        if second == 0 {
            call(&mut screen, "strcoll_l_with_a_long_name", 12_345);
        }
        screen.tick();
    }
    golden("live_counts", &screen.shown(80, 12));
}

#[test]
fn what_one_printa_joins_is_one_table() {
    let mut screen = Screen::new(
        "BEGIN { @waits[arg0, uaddr(arg1)] = count(); @average_us[arg0, uaddr(arg1)] = avg(arg2); \
         @longest_us[arg0, uaddr(arg1)] = max(arg2); @other = sum(arg0); } \
         END { printa(\"%17x %@12u %@13u %@13u  %A\\n\", @waits, @average_us, @longest_us); }",
    );
    for (lock, caller, times) in [(0x7f01_0000, 0x2010, 3), (0x7f02_0000, 0x3000, 20)] {
        let key = [integer(lock), integer(caller)];
        screen.add("@waits", &key, 0, times);
        screen.add("@average_us", &key, 100 * times, times);
        screen.add("@longest_us", &key, 5000 * times, 1);
    }
    screen.add("@other", &[], 77, 2);
    screen.tick();
    golden("live_joined", &screen.shown(80, 14));
}

#[test]
fn histograms_are_redrawn() {
    let mut screen =
        Screen::new("BEGIN { @sizes[probefunc] = quantize(arg0); @[probefunc] = lquantize(arg0, 0, 100, 10); }");
    screen.add("@sizes", &[string("read")], 1024, 30);
    screen.add("@sizes", &[string("read")], 5000, 10);
    screen.add("@sizes", &[string("write")], 64, 100);
    screen.add("@", &[string("read")], 55, 2);
    screen.tick();
    golden("live_histograms", &screen.shown(80, 24));
    screen.add("@sizes", &[string("read")], 5000, 100);
    screen.tick();
    let shown = screen.shown(80, 24);
    let of = |text: &str| shown.lines().position(|line| line.starts_with(text)).unwrap();
    // The line with the larger count is further up.
    assert!(of("read  140  100/s") < of("write  100  0/s"), "{shown}");
}

#[test]
fn a_terminal_without_utf_8_gets_ascii() {
    let mut screen = Screen::with(
        "BEGIN { @[ustack()] = count(); @sizes = quantize(arg0); }",
        Characters::Ascii,
    );
    screen.add("@", &[Value::Stack(vec![0x4000, 0x5010, 0xa020])], 0, 7);
    screen.add("@sizes", &[], 64, 3);
    screen.tick();
    let shown = screen.shown(80, 20);
    assert!(shown.is_ascii(), "{shown}");
    golden("live_ascii", &shown);
}

#[test]
fn keys_sort_by_another_column() {
    let mut screen = Screen::new(CALLS);
    for (function, times) in [("b", 30), ("a", 10), ("c", 20)] {
        call(&mut screen, function, times);
    }
    screen.tick();
    call(&mut screen, "a", 5);
    call(&mut screen, "c", 2);
    screen.tick();
    assert_eq!(screen.first_words(), ["30", "22", "15"]);
    screen.press(&[Key::SortRight]);
    assert_eq!(screen.first_words(), ["15", "22", "30"], "by their rates");
    assert!(screen.shown(80, 24).contains("▼/s"));
    screen.press(&[Key::SortRight]);
    assert_eq!(screen.first_words(), ["15", "30", "22"], "by their keys");
    assert!(screen.shown(80, 24).contains("▲KEY"));
    screen.press(&[Key::Reverse]);
    assert_eq!(screen.first_words(), ["22", "30", "15"]);
    screen.press(&[Key::Reverse, Key::SortRight, Key::Reverse]);
    assert_eq!(
        screen.first_words(),
        ["15", "22", "30"],
        "the first column again, reversed"
    );
    screen.press(&[Key::SortLeft]);
    assert!(screen.shown(80, 24).contains("▼KEY"));
}

#[test]
fn a_frozen_screen_stands_still_and_loses_nothing() {
    let mut screen = Screen::new(CALLS);
    call(&mut screen, "read", 10);
    screen.tick();
    screen.press(&[Key::Freeze]);
    let frozen = screen.shown(80, 10);
    assert!(frozen.contains("FROZEN") && frozen.contains("space go on"), "{frozen}");
    call(&mut screen, "read", 5);
    screen.live.print(b"printed\n");
    screen.tick();
    assert_eq!(screen.shown(80, 10), frozen);
    // Sorting still works.
    screen.press(&[Key::SortRight]);
    assert!(screen.shown(80, 10).contains("▼/s"));
    screen.press(&[Key::Freeze]);
    let shown = screen.shown(80, 10);
    assert!(
        shown.contains("15") && shown.contains("printed: 1 line") && !shown.contains("FROZEN"),
        "{shown}"
    );
}

#[test]
fn a_long_table_is_scrolled() {
    let mut screen = Screen::new("BEGIN { @[arg0] = count(); }");
    for number in 0..100 {
        screen.add("@", &[integer(1000 + number)], 0, 200 - number);
    }
    screen.tick();
    assert_eq!(screen.first_words().first().map(String::as_str), Some("200"));
    screen.press(&[Key::Down, Key::Down, Key::PageDown]);
    assert_eq!(screen.first_words().first().map(String::as_str), Some("188"));
    assert!(screen.shown(80, 24).contains("100 keys from 13"));
    screen.press(&[Key::End, Key::Down]);
    assert_eq!(screen.first_words(), ["101"]);
    screen.press(&[Key::PageUp, Key::Up]);
    assert_eq!(screen.first_words().first().map(String::as_str), Some("112"));
    screen.press(&[Key::Home, Key::Up]);
    assert_eq!(screen.first_words().first().map(String::as_str), Some("200"));
}

#[test]
fn keys_are_for_the_chosen_table() {
    let mut screen = Screen::new("BEGIN { @a[arg0] = count(); @empty[arg0] = count(); @b[arg0] = count(); }");
    for number in 1..3 {
        screen.add("@a", &[integer(number)], 0, number);
        screen.add("@b", &[integer(number)], 0, number);
    }
    screen.tick();
    let marked = |screen: &Screen| {
        let shown = screen.shown(80, 24);
        shown
            .lines()
            .find_map(|line| line.strip_prefix("> ")?.get(..2).map(str::to_owned))
    };
    assert_eq!(marked(&screen).as_deref(), Some("@a"));
    screen.press(&[Key::Table]);
    assert_eq!(marked(&screen).as_deref(), Some("@b"), "an empty one is passed over");
    screen.press(&[Key::SortLeft]);
    let shown = screen.shown(80, 24);
    assert!(shown.contains("▼A") && shown.contains("▲KEY"), "{shown}");
    screen.press(&[Key::Table]);
    assert_eq!(marked(&screen).as_deref(), Some("@a"));
    // If not all tables fit, the chosen table is shown.
    screen.press(&[Key::Table]);
    let small = screen.shown(80, 5);
    assert!(small.contains("> @b") && !small.contains("@a"), "{small}");
}

#[test]
fn cleared_extremes_begin_again() {
    let mut screen = Screen::new("BEGIN { @bytes = sum(arg0); @calls[arg0] = count(); }");
    screen.add("@bytes", &[], 500, 2);
    screen.add("@calls", &[integer(1)], 0, 9);
    screen.tick();
    screen.table.clear(&screen.program, AggregationId(0));
    screen.table.clear(&screen.program, AggregationId(1));
    screen.add("@bytes", &[], 40, 1);
    screen.add("@calls", &[integer(1)], 0, 3);
    screen.tick();
    let shown = screen.shown(80, 12);
    assert!(
        shown.contains("1 key  40/s") && shown.contains("1 key  3.0/s"),
        "{shown}"
    );
    // The value of a sum may become smaller.
    screen.add("@bytes", &[], -90, 1);
    screen.tick();
    assert!(
        screen.shown(80, 12).contains("1 key  -90/s"),
        "{}",
        screen.shown(80, 12)
    );
    // A removed key is no longer shown.
    screen.table.truncate(&screen.program, AggregationId(1), 0);
    screen.tick();
    assert!(!screen.shown(80, 12).contains("@calls"), "{}", screen.shown(80, 12));
}

#[test]
fn a_sparkline_has_a_minute() {
    let mut screen = Screen::with(CALLS, Characters::Ascii);
    for _ in 0..70 {
        call(&mut screen, "read", 1);
        screen.tick();
    }
    let shown = screen.shown(120, 5);
    assert_eq!(shown.matches('#').count(), 60, "{shown}");
    assert!(shown.contains("1:10"), "{shown}");
}

#[test]
fn printed_lines_are_in_a_pane_and_counted() {
    let mut screen = Screen::new(CALLS);
    call(&mut screen, "read", 10);
    screen.tick();
    (1..=30).for_each(|number| screen.live.print(format!("  query {number}\n").as_bytes()));
    screen.live.print(b"with \x1b[31m");
    golden("live_printed", &screen.shown(60, 16));
    let (lost, printed) = screen.live.take_printed();
    assert!(lost == 0 && printed.starts_with(b"  query 1\n") && printed.ends_with(b"with \x1b[31m"));
}

/// This holds for all names of the program and all sizes of the terminal.
#[test]
fn no_terminal_is_too_small_and_no_name_is_obeyed() {
    let mut screen = Screen::new(
        "BEGIN { @calls[probefunc, execname] = count(); @h[probefunc] = quantize(arg0); @s[ustack()] = sum(arg0); }",
    );
    for name in [
        "a\u{1b}[2Jb",
        "\u{9b}2J\r\n",
        "漢字漢字漢字",
        "e\u{301}\u{202e}",
        "",
        "x\u{0}y",
    ] {
        screen.add("@calls", &[string(name), string(name)], 0, 3);
        screen.add("@h", &[string(name)], i64::MIN, 3);
        screen.add("@h", &[string(name)], i64::MAX, 3);
    }
    screen.add(
        "@calls",
        &[Value::String(vec![0xff, 0xfe, 0x1b]), string("")],
        0,
        i64::from(u8::MAX),
    );
    screen.add("@s", &[Value::Stack(Vec::new())], i64::MIN, 1);
    screen.live.print(b"\x1b]0;title\x07\xff\n\r\x08");
    for _ in 0..3 {
        screen.tick();
        for columns in (0..90).step_by(7).chain([1, 2, 20, 300]) {
            for rows in (0..30).chain([100]) {
                let frame = screen.frame(columns, rows);
                assert_eq!((frame.columns(), frame.rows()), (columns, rows));
                let shown = frame.text();
                assert!(
                    shown
                        .chars()
                        .all(|character| character == '\n' || !character.is_control()),
                    "{shown:?}"
                );
                assert!(!shown.contains('\u{202e}') && !shown.contains('\u{301}'), "{shown:?}");
                assert_eq!(shown.lines().count(), rows);
            }
        }
        screen.press(&[Key::Table, Key::SortLeft, Key::PageDown]);
    }
    let small = screen.shown(20, 5);
    assert!(small.starts_with(" test") && small.contains("q quit"), "{small}");
}

#[test]
fn before_the_first_event_the_screen_says_so() {
    let mut screen = Screen::new(CALLS);
    assert!(screen.shown(40, 6).contains("nothing yet"));
    screen.press(&[Key::Table, Key::Down, Key::SortLeft, Key::End, Key::Freeze]);
    screen.tick();
    let frame = screen.frame(40, 6);
    assert!(frame.text().contains("nothing yet"));
    assert!(frame.parts(0).iter().any(|(style, _)| *style == Style::Warning));
    // In a program without aggregations, there is nothing to sort.
    let mut none = Screen::new("BEGIN { trace(1); }");
    none.press(&[Key::SortRight, Key::Table]);
    none.tick();
    assert!(none.shown(40, 6).contains("nothing yet"));
}
