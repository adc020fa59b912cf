//! A line on a terminal's standard error that says what takes so long. It appears after a third of
//! a second, and is removed when the step ends or another message comes.
//!
//! ```text
//! nanoprobe: planning 12345 of 79000 functions ...
//! ```
//!
//! [`line`] makes the text, and knows no terminal. A thread looks ten times a second at the
//! current step ([`nanoprobe_session::progress`]).

use std::io::{IsTerminal as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nanoprobe_session::progress::{self, State, Work};

use crate::numbers::thousands;
use crate::screen::captured;

/// How long a step may take before the line appears.
const SILENT: Duration = Duration::from_millis(300);
const PERIOD: Duration = Duration::from_millis(100);
/// Goes to the start of the line and clears it.
const ERASE: &[u8] = b"\r\x1b[K";
/// The width of a terminal that does not report its width.
const COLUMNS: usize = 80;

/// Whether the line is on the terminal. A write needs its lock.
static LINE: Mutex<bool> = Mutex::new(false);
/// The state of [`LINE`], for a signal handler.
static STANDS: AtomicBool = AtomicBool::new(false);

/// Whether standard error is a terminal and messages are wanted.
static IS_READ: AtomicBool = AtomicBool::new(false);

/// If a person reads the output, prints that the probes are in place, and how tracing ends.
pub fn begun(sites: usize) {
    if sites > 0 && IS_READ.load(Ordering::Relaxed) {
        crate::output::message(began(sites));
    }
}

fn began(sites: usize) -> String {
    let count = thousands(sites as f64);
    let things = if sites == 1 { "site" } else { "sites" };
    format!("tracing {count} {things}; Ctrl-C ends")
}

/// The text for a state in this many columns, of which one stays free for the cursor.
pub fn line(state: State, columns: usize) -> String {
    let (verb, things) = match state.work {
        Work::Reading => ("reading symbols and debug information", ""),
        Work::Matching => ("matching", " probes"),
        Work::Planning => ("planning", " functions"),
        Work::Building => ("making code for", " jumps"),
        Work::Writing => ("writing", " probes"),
        Work::Restoring => ("taking back", " probes"),
    };
    let counted = match (things, state.done, state.of) {
        ("", ..) => String::new(),
        (_, 0, None) => things.to_owned(),
        (_, done, None) => format!(" {done}{things}"),
        (_, done, Some(of)) => format!(" {} of {of}{things}", done.min(of)),
    };
    let text = format!("nanoprobe: {verb}{counted} ...");
    text.chars().take(columns.saturating_sub(1)).collect()
}

/// Shows the line while the value exists.
#[must_use]
pub struct Shown {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Shown {
    /// Starts to show progress, but only on a terminal that can clear a line, and only if messages are wanted.
    pub fn start(quiet: bool) -> Option<Shown> {
        IS_READ.store(!quiet && std::io::stderr().is_terminal(), Ordering::Relaxed);
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        if quiet || is_dumb || !std::io::stderr().is_terminal() {
            return None;
        }
        let over = Arc::new(AtomicBool::new(false));
        let until = over.clone();
        let thread = std::thread::Builder::new().name("progress".to_owned());
        let thread = thread.spawn(move || show(&until)).ok()?;
        Some(Shown {
            over,
            thread: Some(thread),
        })
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // An error would mean that the thread has panicked. It cannot panic, and there would be nothing to do about
            // it.
            let _ = thread.join();
        }
        erase();
    }
}

fn show(over: &AtomicBool) {
    let mut since: Option<Instant> = None;
    while !over.load(Ordering::Acquire) {
        std::thread::park_timeout(PERIOD);
        let Some(state) = progress::now().filter(|_| !over.load(Ordering::Acquire) && !captured::is_shown()) else {
            since = None;
            erase();
            continue;
        };
        if since.get_or_insert_with(Instant::now).elapsed() + PERIOD >= SILENT {
            let mut stands = held();
            let text = [ERASE, line(state, columns()).as_bytes()].concat();
            // When stderr is closed, nothing can be reported.
            *stands = std::io::stderr().write_all(&text).is_ok();
            STANDS.store(*stands, Ordering::Release);
        }
    }
}

/// Removes the progress line, if it is shown, before another message is written.
pub fn erase() {
    if !STANDS.load(Ordering::Acquire) {
        return;
    }
    let mut stands = held();
    if std::mem::take(&mut *stands) {
        let _ = std::io::stderr().write_all(ERASE);
    }
    STANDS.store(false, Ordering::Relaxed);
}

/// Removes the progress line in a signal handler that ends this process.
pub fn erase_at_end() {
    if STANDS.load(Ordering::Relaxed) {
        say_at_end(ERASE);
    }
}

/// Writes to standard error in a signal handler that ends this process. If the write would block, as on a terminal that
/// was stopped, nothing is written: a request to end must end the process.
pub fn say_at_end(text: &[u8]) {
    let mut standard_error = libc::pollfd {
        fd: libc::STDERR_FILENO,
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: a signal handler may make both calls, and they use only this variable and these bytes.
    unsafe {
        if libc::poll(&raw mut standard_error, 1, 0) == 1 && standard_error.revents & libc::POLLOUT != 0 {
            libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len());
        }
    }
}

fn held() -> MutexGuard<'static, bool> {
    LINE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn columns() -> usize {
    // SAFETY: all fields may be zero.
    let mut size: libc::winsize = unsafe { std::mem::zeroed() };
    // SAFETY: fills in our own winsize.
    let known = unsafe { libc::ioctl(libc::STDERR_FILENO, libc::TIOCGWINSZ, &raw mut size) } == 0;
    match usize::from(size.ws_col) {
        columns @ 1.. if known => columns,
        _ => COLUMNS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(work: Work, done: usize, of: Option<usize>, columns: usize) -> String {
        line(State { work, done, of }, columns)
    }

    #[test]
    fn a_line_says_what_is_done_and_how_much_of_it() {
        for (work, done, of, expected) in [
            (
                Work::Reading,
                0,
                None,
                "nanoprobe: reading symbols and debug information ...",
            ),
            (Work::Matching, 0, None, "nanoprobe: matching probes ..."),
            (Work::Matching, 79_000, None, "nanoprobe: matching 79000 probes ..."),
            (
                Work::Planning,
                5,
                Some(79_000),
                "nanoprobe: planning 5 of 79000 functions ...",
            ),
            (Work::Writing, 9, Some(8), "nanoprobe: writing 8 of 8 probes ..."),
            (Work::Restoring, 0, None, "nanoprobe: taking back probes ..."),
        ] {
            assert_eq!(shown(work, done, of, 100), expected);
        }
    }

    #[test]
    fn sites_are_counted_in_thousands() {
        assert_eq!(began(1), "tracing 1 site; Ctrl-C ends");
        assert_eq!(began(745), "tracing 745 sites; Ctrl-C ends");
        assert_eq!(began(1_745), "tracing 1,745 sites; Ctrl-C ends");
        assert_eq!(began(1_234_567), "tracing 1,234,567 sites; Ctrl-C ends");
    }

    #[test]
    fn a_line_never_fills_the_terminal_s() {
        assert_eq!(shown(Work::Matching, 1, None, 12), "nanoprobe: ");
        assert_eq!(shown(Work::Matching, 1, None, 1), "");
        assert_eq!(shown(Work::Matching, 1, None, 0), "");
    }
}
