//! The screen of a running trace, on a pseudo-terminal and read as a person sees it.

use std::process::Command;

use nanoprobe_tests::command::Running;
use nanoprobe_tests::program::program;
use nanoprobe_tests::terminal::Terminal;
use nanoprobe_tests::text::Snapshot;
use nix::sys::signal::Signal;

/// Counts by function, and sizes of them.
const COUNTS: &str = "pid$target:a.out:often:entry,pid$target:a.out:rare:entry \
                      { @calls[probefunc] = count(); @sizes[probefunc] = quantize(arg0); }";

/// A program that calls functions on request.
struct Told {
    running: Running,
    snapshot: Snapshot,
    /// The number of requests so far.
    times: usize,
}

impl Told {
    #[track_caller]
    fn start() -> Told {
        let mut running = Running::start(&mut Command::new(program("screen.c")));
        running.wait_for("ready\n");
        let snapshot = Snapshot::take(running.pid());
        Told {
            running,
            snapshot,
            times: 0,
        }
    }

    #[track_caller]
    fn call(&mut self, often: u32, rare: u32) {
        self.running.write(&format!("{often} {rare}\n"));
        self.times += 1;
        let times = self.times;
        self.running
            .wait_until("calling", |running| running.stdout().matches("\ndid ").count() == times);
    }

    /// Ends the program, after a check that its text is restored and that it still runs.
    #[track_caller]
    fn ends_unharmed(mut self) {
        self.snapshot.assert_restored(self.running.pid());
        self.call(1, 1);
        self.running.close_input();
        assert!(self.running.finish().success().stdout.ends_with("OK\n"));
    }
}

fn nanoprobe(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nanoprobe"));
    command.args(arguments);
    command
}

/// A trace of a process on a terminal of 80 columns and 24 rows, once its screen is shown.
#[track_caller]
fn on_screen(told: &Told, arguments: &[&str]) -> Terminal {
    let pid = told.running.pid().to_string();
    let mut command = nanoprobe(arguments);
    command.args(["-p", &pid]);
    let mut terminal = Terminal::start(&mut command, 80, 24);
    terminal.wait_until("the screen is shown", |screen| screen.contains(" q quit"));
    assert!(terminal.is_taken());
    terminal
}

/// The words of the line that has this text.
fn words<'s>(screen: &'s str, text: &str) -> Vec<&'s str> {
    let line = screen.lines().find(|line| line.contains(text)).unwrap_or_default();
    line.split_whitespace().collect()
}

fn row(screen: &str, text: &str) -> usize {
    screen
        .lines()
        .position(|line| line.trim_end().ends_with(text))
        .unwrap_or(usize::MAX)
}

#[test]
fn the_state_is_shown_sorted_and_frozen_and_the_terminal_is_given_back() {
    let mut told = Told::start();
    let mut terminal = on_screen(&told, &["-x", "top", "-n", COUNTS]);
    terminal.wait_until("nothing is counted", |screen| screen.contains("nothing yet"));
    told.call(300, 20);
    let has = |often: &'static str, rare: &'static str| {
        move |screen: &str| {
            words(screen, "  often").first() == Some(&often) && words(screen, "  rare").first() == Some(&rare)
        }
    };
    let screen = terminal.wait_until("the calls are counted", has("300", "20"));
    assert!(
        screen.starts_with(&format!(" nanoprobe  screen (pid {})", told.running.pid())),
        "{screen}"
    );
    assert!(row(&screen, "often") < row(&screen, "rare"), "{screen}");
    assert!(
        screen.contains("▼CALLS") && screen.contains("> @calls  2 keys"),
        "{screen}"
    );
    // The distribution is drawn, too: the more, the further up.
    assert!(
        screen.contains("64 |████████████████████████████████████████ 300"),
        "{screen}"
    );
    // Sorts by the keys, in reverse.
    terminal.press("\x1b[D");
    terminal.wait_until("sorted by their keys", |screen| screen.contains("▲KEY"));
    terminal.press("r");
    let screen = terminal.wait_until("the other way round", |screen| screen.contains("▼KEY"));
    assert!(row(&screen, "often") > row(&screen, "rare"), "{screen}");
    terminal.press("s");
    terminal.wait_until("by their values again", |screen| screen.contains("▲CALLS"));
    // A frozen screen does not change, but the events meanwhile are not lost.
    terminal.press(" ");
    terminal.wait_until("frozen", |screen| screen.contains("FROZEN"));
    told.call(4, 5);
    // A key makes the screen draw once more.
    terminal.press("\x0c\x1b[D");
    terminal.wait_until("sorted by their keys", |screen| {
        screen.contains("▼KEY") && has("300", "20")(screen)
    });
    terminal.press(" ");
    terminal.wait_until("the latest", has("304", "25"));
    terminal.press("q");
    let left = terminal.finish();
    assert!(left.status.success(), "{left:?}");
    let bytes = String::from_utf8_lossy(&left.bytes).into_owned();
    assert!(bytes.contains("\x1b[38;5;"), "there are colours");
    // After the screen, the results are printed as text, as without a screen.
    assert!(
        left.screen.contains("\n  often  ") && left.screen.contains(" 304\n"),
        "{}",
        left.screen
    );
    assert!(
        left.screen.contains("------------- Distribution -------------"),
        "{}",
        left.screen
    );
    told.ends_unharmed();
}

#[test]
fn ctrl_c_and_signals_end_it_as_without_a_screen() {
    for end in [None, Some(Signal::SIGINT), Some(Signal::SIGTERM)] {
        let mut told = Told::start();
        let mut terminal = on_screen(&told, &["-x", "top", "-n", COUNTS]);
        told.call(7, 3);
        match end {
            None => terminal.press("\x03"),
            Some(signal) => terminal.signal(signal),
        }
        let left = terminal.finish();
        assert!(left.status.success(), "{left:?}");
        assert!(
            left.screen.contains(" 7\n") && left.screen.contains(" 3\n"),
            "{}",
            left.screen
        );
        told.ends_unharmed();
    }
}

#[test]
fn a_terminal_that_is_gone_leaves_no_probe() {
    for _ in 0..3 {
        let mut told = Told::start();
        let terminal = on_screen(&told, &["-x", "top", "-n", COUNTS]);
        told.call(3, 2);
        // Output that cannot be written is an error, as without a screen.
        assert_eq!(terminal.hang_up().code(), Some(1));
        told.ends_unharmed();
    }
}

#[test]
fn a_terminal_may_have_any_size() {
    let mut told = Told::start();
    let mut terminal = on_screen(&told, &["-x", "top", "-n", COUNTS]);
    told.call(12, 5);
    terminal.wait_until("the calls are counted", |screen| {
        words(screen, "  often").first() == Some(&"12")
    });
    for (columns, rows) in [(20, 5), (1, 1), (3, 2), (200, 60)] {
        terminal.resize(columns, rows);
        let shown = terminal.wait_until("drawn anew", |screen| match (columns, rows) {
            (20, 5) => screen.starts_with(" nanoprobe") && screen.contains(" q quit"),
            (200, 60) => words(screen, "  often").first() == Some(&"12") && screen.contains("scroll"),
            _ => true,
        });
        assert!(shown.lines().count() <= usize::from(rows), "{shown}");
    }
    terminal.press("q");
    assert!(terminal.finish().status.success());
    told.ends_unharmed();
}

#[test]
fn printed_text_scrolls_in_a_pane_and_is_printed_again_afterwards() {
    let mut told = Told::start();
    let program = "pid$target:a.out:often:entry { @ = count(); } \
                   pid$target:a.out:say:entry { printf(\"said %s\\n\", copyinstr(arg0)); @texts[copyinstr(arg0)] = count(); } \
                   END { printf(\"the end\\n\"); }";
    let mut terminal = on_screen(&told, &["-x", "top", "-q", "-n", program]);
    told.call(1, 3);
    let screen = terminal.wait_until("lines are printed, and counted", |screen| {
        screen.contains("printed: 3 lines") && screen.contains("@texts  1 key")
    });
    // Escape sequences in the program's text are shown as text, and not carried out.
    assert!(screen.contains("said \\033[2J\\033[31mred\\a"), "{screen}");
    let line = screen
        .lines()
        .find(|line| line.contains("\\033") && !line.starts_with("said"));
    assert_eq!(
        line.map(|line| line.split_whitespace().next()),
        Some(Some("3")),
        "{screen}"
    );
    terminal.press("q");
    let left = terminal.finish();
    let text = String::from_utf8_lossy(&left.bytes).into_owned();
    let after = text.rsplit_once("\x1b[?1049l").expect("the screen is left").1;
    assert_eq!(after.matches("said ").count(), 3, "{after}");
    assert!(after.contains("the end\r\n"), "{after}");
    told.ends_unharmed();
}

#[test]
fn a_program_that_ends_ends_the_screen() {
    let mut told = Told::start();
    let terminal = on_screen(&told, &["-x", "top", "-n", COUNTS]);
    told.call(9, 2);
    told.running.close_input();
    let left = terminal.finish();
    assert!(left.status.success(), "{left:?}");
    assert!(
        left.screen.contains(" 9\n") && left.screen.contains("has exited"),
        "{}",
        left.screen
    );
    assert!(told.running.finish().success().stdout.ends_with("OK\n"));
}

#[test]
fn a_command_leaves_the_terminal_to_the_screen() {
    let path = program("screen.c");
    let line = format!("sh -c 'echo 40 2 | {}'", path.display());
    // The traced process is the shell, because the shell is the command.
    let mut command = nanoprobe(&[
        "-x",
        "top",
        "-n",
        "pid$target:libc:write:entry { @ = count(); }",
        "-c",
        &line,
    ]);
    let left = Terminal::start(&mut command, 80, 24).finish();
    let text = String::from_utf8_lossy(&left.bytes).into_owned();
    let (before, after) = text.rsplit_once("\x1b[?1049l").expect("a screen was shown, and left");
    assert!(
        after.contains("did 40 2\r\n") && !before.contains("did 40 2"),
        "{text:?}"
    );
    assert!(left.status.success(), "{text}");
}

/// Plain text, without a single escape sequence.
#[track_caller]
fn is_plain(command: &mut Command, told: &mut Told) {
    let mut terminal = Terminal::start(command.args(["-p", &told.running.pid().to_string()]), 80, 24);
    terminal.wait_until("tracing", |screen| screen.contains("Ctrl-C ends"));
    told.call(6, 2);
    terminal.press("\x03");
    let left = terminal.finish();
    let text = String::from_utf8_lossy(&left.bytes).into_owned();
    assert!(left.status.success(), "{text}");
    assert!(!text.contains("\x1b[?1049") && !text.contains(" q quit"), "{text:?}");
    assert!(text.contains(" 6\r\n"), "{text:?}");
}

#[test]
fn the_output_is_text_on_a_dumb_terminal_or_without_top() {
    let mut told = Told::start();
    is_plain(nanoprobe(&["-x", "top", "-n", COUNTS]).env("TERM", "dumb"), &mut told);
    is_plain(nanoprobe(&["-x", "top", "-n", COUNTS]).env("NO_COLOR", "1"), &mut told);
    is_plain(&mut nanoprobe(&["-n", COUNTS]), &mut told);
    is_plain(&mut nanoprobe(&["-x", "top", "-x", "top=no", "-n", COUNTS]), &mut told);
    told.ends_unharmed();
}

/// Without any option: what counts is shown, unless reports are asked for or a command has the terminal.
#[test]
fn tools_have_a_screen() {
    let mut told = Told::start();
    let mut terminal = on_screen(&told, &["funccount", "a.out:*e*"]);
    told.call(11, 6);
    let screen = terminal.wait_until("the calls are counted", |screen| {
        words(screen, "  rare").first() == Some(&"6")
    });
    assert!(screen.starts_with(" funccount  screen (pid "), "{screen}");
    assert_eq!(words(&screen, "  often").first(), Some(&"11"), "{screen}");
    terminal.press("q");
    let left = terminal.finish();
    assert!(
        left.screen.contains("CALLS  FUNCTION") && left.screen.contains("6  screen`rare"),
        "{}",
        left.screen
    );
    // Aggregations with the same keys share one table.
    let mut terminal = on_screen(&told, &["funclatency", "a.out:rare", "us"]);
    told.call(1, 3);
    let screen = terminal.wait_until("times are shown", |screen| screen.contains("@calls @average  1 key"));
    assert!(
        screen.contains("@histogram  1 key") && screen.contains("CALLS") && screen.contains("AVERAGE"),
        "{screen}"
    );
    // The unit is part of the key.
    assert!(
        screen.lines().any(|line| line.contains("us") && line.contains("rare")),
        "{screen}"
    );
    terminal.press("q");
    terminal.finish();
    let pid = told.running.pid().to_string();
    for arguments in [
        &["threadsnoop", "-p", &pid, "-d", "300ms"][..],
        &["funccount", "-p", &pid, "a.out:often", "100ms", "2"],
        &["funccount", "-c", "true", "-d", "300ms", "libc:exit"],
    ] {
        let left = Terminal::start(&mut nanoprobe(arguments), 80, 24).finish();
        assert!(
            left.status.success() && !String::from_utf8_lossy(&left.bytes).contains("\x1b[?1049"),
            "{left:?}"
        );
    }
    told.ends_unharmed();
}
