//! The terminal while a screen is shown: taken, drawn on, given back.

use std::io::{self, Write as _};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::queue;
use crossterm::style::{Attribute, Color, Print, SetAttribute, SetForegroundColor};
use crossterm::terminal::{
    Clear, ClearType, DisableLineWrap, EnableLineWrap, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode,
    enable_raw_mode,
};
use nanoprobe_export::live::{Frame, Style};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;
use rustix::termios::{LocalModes, OptionalActions, OutputModes, SpecialCodeIndex};

use crate::standard_output::Standard;

/// The size that is assumed if a terminal does not know its size.
const USUAL: (usize, usize) = (80, 24);
/// The largest screen that is drawn.
const MOST: (usize, usize) = (1000, 500);

/// The terminal is ours, and has to be given back.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);
static HOOK: Once = Once::new();

/// A terminal that was taken over to show a screen.
pub struct Terminal {
    /// The picture that the terminal shows, if this is known.
    shown: Option<Frame>,
}

impl Terminal {
    /// Takes it.
    pub fn enter() -> io::Result<Terminal> {
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                leave();
                before(panic);
            }));
        });
        take()?;
        Ok(Terminal { shown: None })
    }

    /// Draws everything anew the next time.
    pub fn forget(&mut self) {
        self.shown = None;
    }

    /// Shows a picture: writes the rows that have changed.
    pub fn draw(&mut self, frame: Frame) -> io::Result<()> {
        let is_known = |shown: &&Frame| (shown.columns(), shown.rows()) == (frame.columns(), frame.rows());
        let shown = self.shown.as_ref().filter(is_known);
        let mut bytes = Vec::new();
        if shown.is_none() {
            queue!(bytes, SetAttribute(Attribute::Reset), Clear(ClearType::All))?;
        }
        for row in 0..frame.rows() {
            if shown.is_some_and(|shown| shown.has_same_row(&frame, row)) {
                continue;
            }
            queue!(bytes, MoveTo(0, u16::try_from(row).unwrap_or(u16::MAX)))?;
            for (style, text) in frame.parts(row) {
                look(&mut bytes, style)?;
                queue!(bytes, Print(text), SetAttribute(Attribute::Reset))?;
            }
        }
        if !bytes.is_empty() {
            write(&bytes)?;
        }
        self.shown = Some(frame);
        Ok(())
    }

    /// For Ctrl-Z: gives the terminal back, and stops the process group until it is continued.
    pub fn suspend(&mut self) -> io::Result<()> {
        leave();
        kill(Pid::from_raw(0), Signal::SIGTSTP)?;
        if !is_ours() {
            return Err(io::Error::other("continued in the background"));
        }
        self.forget();
        take()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        leave();
    }
}

/// How a style looks.
fn look(bytes: &mut Vec<u8>, style: Style) -> io::Result<()> {
    let (attribute, color) = match style {
        Style::Plain => return Ok(()),
        Style::Title => (Some(Attribute::Reverse), None),
        Style::Help => (Some(Attribute::Dim), None),
        Style::Name => (Some(Attribute::Bold), Some(Color::Cyan)),
        Style::Head => (Some(Attribute::Bold), None),
        Style::SortedHead => (Some(Attribute::Underlined), None),
        Style::Number => (None, Some(Color::Yellow)),
        Style::Bar => (None, Some(Color::Green)),
        Style::Dim => (Some(Attribute::Dim), None),
        Style::Warning => (Some(Attribute::Reverse), Some(Color::Red)),
    };
    if let Some(attribute) = attribute {
        queue!(bytes, SetAttribute(attribute))?;
    }
    if let Some(color) = color {
        queue!(bytes, SetForegroundColor(color))?;
    }
    Ok(())
}

/// Columns and rows.
pub fn size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(rustix::stdio::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (
            usize::from(size.ws_col).min(MOST.0),
            usize::from(size.ws_row).min(MOST.1),
        ),
        _ => USUAL,
    }
}

/// Whether we are in the foreground of the terminal: another process may have it.
pub fn is_ours() -> bool {
    let group = rustix::termios::tcgetpgrp(rustix::stdio::stdin());
    group.is_ok_and(|group| group == rustix::process::getpgrp())
}

fn take() -> io::Result<()> {
    enable_raw_mode()?;
    IS_TAKEN.store(true, Ordering::Release);
    let input = rustix::stdio::stdin();
    let mut mode = rustix::termios::tcgetattr(input)?;
    // Ctrl-C reaches us, and a command of -c, as without a screen, and even while no key is read.
    mode.local_modes |= LocalModes::ISIG;
    mode.output_modes |= OutputModes::OPOST | OutputModes::ONLCR;
    // Ctrl-Z is read as a key, so that the terminal can be given back first. The signal of Ctrl-\ would leave the
    // terminal as it is.
    mode.special_codes[SpecialCodeIndex::VSUSP] = 0;
    mode.special_codes[SpecialCodeIndex::VQUIT] = 0;
    rustix::termios::tcsetattr(input, OptionalActions::Now, &mode)?;
    let mut bytes = Vec::new();
    queue!(bytes, EnterAlternateScreen, Hide, DisableLineWrap)?;
    write(&bytes)
}

/// Gives the terminal back, if it was taken over.
pub fn leave() {
    if !IS_TAKEN.swap(false, Ordering::AcqRel) {
        return;
    }
    // In the background this would stop us, with the probes in place.
    let mut stop = SigSet::empty();
    stop.add(Signal::SIGTTOU);
    let _ = stop.thread_block();
    let mut bytes = Vec::new();
    // If the terminal is gone, nothing has to be given back.
    let _ = queue!(
        bytes,
        SetAttribute(Attribute::Reset),
        EnableLineWrap,
        Show,
        LeaveAlternateScreen
    );
    let _ = write(&bytes);
    let _ = disable_raw_mode();
    let _ = stop.thread_unblock();
}

fn write(bytes: &[u8]) -> io::Result<()> {
    Standard::Output.write_all(bytes)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    #[test]
    fn a_panic_gives_the_terminal_back_and_is_read() {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        let name = "screen::terminal::tests::panics_on_a_screen";
        command.args([name, "--ignored", "--exact", "--nocapture"]);
        // It looks at the modes of the terminal, too.
        let left = nanoprobe_tests::terminal::Terminal::start(&mut command, 80, 24).finish();
        let text = String::from_utf8_lossy(&left.bytes).into_owned();
        let (before, after) = text.split_once("\x1b[?1049l").expect("the screen is left");
        assert!(
            before.contains("\x1b[?1049h") && after.contains("on purpose"),
            "{text:?}"
        );
    }

    #[test]
    #[ignore = "started by the test above"]
    fn panics_on_a_screen() {
        // The value is forgotten, so only the panic hook can give the terminal back.
        std::mem::forget(super::Terminal::enter().expect("a terminal"));
        panic!("on purpose");
    }
}
