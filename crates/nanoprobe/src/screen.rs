//! The screen of a running trace (`-x top`, and tools on a terminal): the edge of [`nanoprobe_export::live`].
//!
//! While it is shown, all output for the terminal is kept ([`captured`]): the last lines are shown in a pane, and
//! everything is written as text once the screen is left. Ctrl-C stays a signal. The terminal is given back at the end,
//! after an error, and when this program panics.

pub mod captured;
pub mod files;
mod keys;
mod terminal;

use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Write};
use std::time::{Duration, Instant};

use nanoprobe_export::live::{Characters, Live, Traced};
use nanoprobe_export::{AggregateTable, Symbolizer};
use nanoprobe_lang::Program;
use nanoprobe_lang::options::{Encoding, Options};

use self::keys::{Keys, Pressed};
use self::terminal::Terminal;
use crate::arguments::Arguments;
use crate::compile::is_utf8;
use crate::output::message;

/// How often the aggregations are read and drawn.
const PERIOD: Duration = Duration::from_secs(1);
/// How often keys and the terminal's size are looked at.
const KEYS_PERIOD: Duration = Duration::from_millis(30);

/// Whether a trace is shown on a screen. `has_files`: the command (`-c`), if there is one, does not use the terminal.
pub fn is_wanted(arguments: &Arguments, options: &Options, program: &Program, has_files: bool) -> bool {
    let asked = options.tracing.top;
    let is_free = arguments.command.is_none() || has_files;
    if !asked.unwrap_or(arguments.tool.has_screen) || !is_free || !is_possible(arguments) {
        return false;
    }
    if program.aggregations.is_empty() {
        if asked == Some(true) {
            message("-x top shows aggregations, and this program has none");
        }
        return false;
    }
    true
}

/// Whether results go to a terminal that can show a screen, and may.
fn is_possible(arguments: &Arguments) -> bool {
    let is_read = arguments.output.is_none() && arguments.format.is_for_people;
    let is_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    is_read && is_terminal && can_show(&|name| std::env::var_os(name)) && terminal::is_ours()
}

/// If `NO_COLOR` is set, plain text is wanted. A dumb terminal can show nothing but plain text.
fn can_show(variable: &dyn Fn(&str) -> Option<OsString>) -> bool {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    set("NO_COLOR").is_none() && set("TERM").is_some_and(|term| term != "dumb")
}

/// A screen that is shown.
pub struct Screen {
    live: Live,
    terminal: Terminal,
    keys: Keys,
    began: Instant,
    update_at: Instant,
    keys_at: Instant,
    /// Whether there is something new to draw.
    is_changed: bool,
    /// The size of the terminal, when it was last drawn on.
    size: (usize, usize),
    is_open: bool,
}

impl Screen {
    /// Takes the terminal.
    pub fn open(program: &Program, options: &Options, title: &str) -> io::Result<Screen> {
        let characters = match options.printing.encoding {
            Encoding::Ascii => Characters::Ascii,
            Encoding::Utf8 => Characters::Blocks,
            Encoding::Auto if is_utf8() => Characters::Blocks,
            Encoding::Auto => Characters::Ascii,
        };
        let now = Instant::now();
        let terminal = Terminal::enter()?;
        captured::begin();
        Ok(Screen {
            live: Live::new(program, title, characters),
            terminal,
            keys: Keys::default(),
            began: now,
            update_at: now,
            keys_at: now,
            is_changed: true,
            size: (0, 0),
            is_open: true,
        })
    }

    /// Whether the aggregations are to be read now, and given to [`Screen::update`].
    pub fn is_due(&self) -> bool {
        Instant::now() >= self.update_at
    }

    /// Takes the present values of the aggregations.
    pub fn update(&mut self, program: &Program, aggregations: &AggregateTable) {
        let now = Instant::now();
        self.live.update(program, aggregations, now - self.began);
        while self.update_at <= now {
            self.update_at += PERIOD;
        }
        self.is_changed = true;
        // It is drawn at once.
        self.keys_at = now;
    }

    /// Obeys the pressed keys, and draws. True: the tracing is to end.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn show(&mut self, program: &Program, options: &Options, symbolizer: &mut dyn Symbolizer) -> io::Result<bool> {
        let now = Instant::now();
        if now < self.keys_at {
            return Ok(false);
        }
        self.keys_at = now + KEYS_PERIOD;
        let printed = captured::take();
        self.live.print(&printed);
        let pressed = self.keys.read();
        let size = terminal::size();
        let is_same = printed.is_empty() && pressed.is_empty() && size == self.size;
        if is_same && !std::mem::take(&mut self.is_changed) {
            return Ok(false);
        }
        self.is_changed = false;
        self.size = size;
        for pressed in pressed {
            match pressed {
                Pressed::Key(key) => self.live.press(key),
                Pressed::Quit => return Ok(true),
                Pressed::Redraw => self.terminal.forget(),
                Pressed::Suspend => self.terminal.suspend()?,
            }
        }
        let (columns, rows) = size;
        let mut traced = Traced {
            program,
            options,
            symbolizer,
        };
        let frame = self.live.draw(&mut traced, columns, rows);
        self.terminal.draw(frame)?;
        Ok(false)
    }

    /// Gives the terminal back, and writes the output that was kept meanwhile.
    pub fn close(&mut self, out: &mut dyn Write) -> io::Result<()> {
        if !std::mem::replace(&mut self.is_open, false) {
            return Ok(());
        }
        terminal::leave();
        self.live.print(&captured::end());
        let (lost, printed) = self.live.take_printed();
        if lost > 0 {
            writeln!(
                out,
                "nanoprobe: {lost} lines that were printed before these are not kept"
            )?;
        }
        out.write_all(&printed)?;
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // After an error. If the output is gone, nothing can be reported.
        let _ = self.close(&mut crate::standard_output::Standard::Output);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dumb_terminal_and_no_color_want_text() {
        let can = |variables: &[(&str, &str)]| {
            can_show(&|name| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| OsString::from(value))
            })
        };
        assert!(can(&[("TERM", "xterm")]));
        assert!(can(&[("TERM", "xterm"), ("NO_COLOR", "")]));
        assert!(!can(&[("TERM", "xterm"), ("NO_COLOR", "1")]));
        assert!(!can(&[("TERM", "dumb")]) && !can(&[("TERM", "")]) && !can(&[]));
    }
}
