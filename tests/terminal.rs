//! A command on a pseudo-terminal, whose screen a test reads as a person sees it.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::num::NonZero;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, poll};
use nix::pty::{grantpt, posix_openpt, ptsname_r, unlockpt};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::termios::{FlowArg, Termios, tcflow, tcgetattr};
use nix::unistd::Pid;

use crate::LIMIT;
use crate::in_time::{EndsInTime as _, default_signals};

/// A terminal, and a command that has it as its standard files and as its controlling terminal.
pub struct Terminal {
    /// The person's end of the terminal: keys are written to it, and the picture is read from it.
    ours: File,
    /// The command's end of the terminal, kept open so that its modes can be examined.
    theirs: OwnedFd,
    before: Termios,
    seen: Arc<Mutex<Seen>>,
    reader: Option<JoinHandle<()>>,
    /// The reader of the terminal must stop.
    is_over: Arc<AtomicBool>,
    child: Child,
    reaped: bool,
}

struct Seen {
    parser: vt100::Parser,
    bytes: Vec<u8>,
}

/// The state in which a command has left a terminal.
#[derive(Debug)]
pub struct Left {
    /// The command's exit status.
    pub status: ExitStatus,
    /// Everything that was written, escape sequences included.
    pub bytes: Vec<u8>,
    /// The text on the screen.
    pub screen: String,
}

impl Terminal {
    /// Starts a command on a terminal of this size. `TERM` is xterm and `LANG` C.UTF-8, unless it says otherwise.
    ///
    /// # Panics
    /// When it cannot be started.
    #[track_caller]
    pub fn start(command: &mut Command, columns: u16, rows: u16) -> Terminal {
        let (ours, theirs) = ends();
        resize(&ours, columns, rows);
        let before = tcgetattr(&theirs).expect("a terminal's modes");
        let handle = || Stdio::from(theirs.try_clone().expect("a second handle"));
        let set = |name: &str, command: &Command| command.get_envs().any(|(known, _)| known == name);
        for (name, value) in [("TERM", "xterm"), ("LANG", "C.UTF-8")] {
            if !set(name, command) {
                command.env(name, value);
            }
        }
        for name in ["LC_ALL", "LC_CTYPE", "NO_COLOR"] {
            if !set(name, command) {
                command.env_remove(name);
            }
        }
        command.stdin(handle()).stdout(handle()).stderr(handle());
        let lead = || {
            default_signals()?;
            // SAFETY: both are system calls on our own process and its standard input.
            match unsafe { (libc::setsid(), libc::ioctl(0, libc::TIOCSCTTY, 0)) } {
                (1.., 0) => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        };
        // SAFETY: the closure makes system calls and allocates nothing.
        unsafe { command.pre_exec(lead) };
        let child = command
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        // The standard files are replaced, because otherwise `command` would keep the terminal open.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let seen = Arc::new(Mutex::new(Seen {
            parser: vt100::Parser::new(at_least_one(rows), at_least_one(columns), 0),
            bytes: Vec::new(),
        }));
        let is_over = Arc::new(AtomicBool::new(false));
        let reader = reader(
            ours.try_clone().expect("a second handle"),
            seen.clone(),
            is_over.clone(),
        );
        Terminal {
            ours,
            theirs,
            before,
            seen,
            reader: Some(reader),
            is_over,
            child,
            reaped: false,
        }
    }

    /// The command's process id.
    pub fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// The screen as text.
    pub fn screen(&self) -> String {
        self.seen().parser.screen().contents()
    }

    /// Whether a screen of its own is shown, without a cursor.
    pub fn is_taken(&self) -> bool {
        let seen = self.seen();
        seen.parser.screen().alternate_screen() && seen.parser.screen().hide_cursor()
    }

    /// Presses keys.
    ///
    /// # Panics
    /// When the terminal is gone.
    pub fn press(&mut self, keys: &str) {
        self.ours.write_all(keys.as_bytes()).expect("pressing keys");
    }

    /// Gives the terminal another size.
    ///
    /// # Panics
    /// When the terminal is gone.
    pub fn resize(&mut self, columns: u16, rows: u16) {
        self.seen()
            .parser
            .screen_mut()
            .set_size(at_least_one(rows), at_least_one(columns));
        resize(&self.ours, columns, rows);
    }

    /// Stops the output, as Ctrl-S does in a usual mode. Writes to the terminal block from then on.
    ///
    /// # Panics
    /// When the terminal is gone.
    pub fn take_nothing(&self) {
        tcflow(&self.theirs, FlowArg::TCOOFF).expect("stopping the output");
    }

    /// Sends the command a signal.
    pub fn signal(&self, signal: Signal) {
        let _ = kill(Pid::from_raw(self.pid()), signal);
    }

    /// Waits until the screen satisfies a condition, and yields the screen.
    ///
    /// # Panics
    /// When the command ends first, or it takes too long.
    #[track_caller]
    pub fn wait_until(&mut self, what: &str, condition: impl Fn(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            let screen = self.screen();
            if condition(&screen) {
                return screen;
            }
            let has_ended = !matches!(self.child.try_wait(), Ok(None));
            self.reaped |= has_ended;
            assert!(
                !has_ended && start.elapsed() < LIMIT,
                "{what}: not so (ended: {has_ended})\n{screen}"
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits for the command's end. The terminal must be as it was before.
    ///
    /// # Panics
    /// When it hangs, or leaves the terminal changed.
    #[track_caller]
    pub fn finish(mut self) -> Left {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("waiting for a child") {
                break status;
            }
            assert!(start.elapsed() < LIMIT, "hung:\n{}", self.screen());
            std::thread::sleep(Duration::from_millis(2));
        };
        self.reaped = true;
        let after = tcgetattr(&self.theirs).expect("a terminal's modes");
        assert_eq!(after, self.before, "the terminal's modes");
        // The reader ends when no process has the other end open.
        let (read, write) = std::io::pipe().expect("a pipe");
        drop(read);
        self.theirs = write.into();
        let reader = self.reader.take().expect("a reader");
        while !reader.is_finished() {
            assert!(
                start.elapsed() < LIMIT,
                "another process keeps the terminal:\n{}",
                self.screen()
            );
            std::thread::sleep(Duration::from_millis(2));
        }
        reader.join().expect("reading the terminal");
        let seen = self.seen();
        let screen = seen.parser.screen();
        assert!(
            !screen.alternate_screen() && !screen.hide_cursor(),
            "the screen is not left"
        );
        Left {
            status,
            bytes: seen.bytes.clone(),
            screen: screen.contents(),
        }
    }

    /// Takes the terminal away, as when a connection breaks, and waits for the command's end.
    ///
    /// # Panics
    /// When the command hangs.
    #[track_caller]
    pub fn hang_up(mut self) -> ExitStatus {
        self.is_over.store(true, Ordering::Release);
        let reader = self.reader.take().expect("a reader");
        reader.join().expect("reading the terminal");
        let (_, write) = std::io::pipe().expect("a pipe");
        self.ours = OwnedFd::from(write).into();
        self.reaped = true;
        self.child.wait_in_time().expect("waiting for a child")
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if !self.reaped {
            let _ = killpg(Pid::from_raw(self.pid()), Signal::SIGKILL);
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn at_least_one(number: u16) -> NonZero<u16> {
    NonZero::new(number).unwrap_or(NonZero::<u16>::MIN)
}

/// Both ends of a new terminal. No child gets one by accident: the terminal would outlive the test's end.
fn ends() -> (File, OwnedFd) {
    let ours = posix_openpt(OFlag::O_RDWR | OFlag::O_NOCTTY | OFlag::O_CLOEXEC).expect("a pseudo-terminal");
    grantpt(&ours).expect("its other end");
    unlockpt(&ours).expect("its other end");
    let name = ptsname_r(&ours).expect("the name of its other end");
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_NOCTTY);
    let theirs = options.open(name).expect("its other end");
    (OwnedFd::from(ours).into(), theirs.into())
}

fn resize(terminal: &File, columns: u16, rows: u16) {
    let size = libc::winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: reads a size of ours.
    let result = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// Shows a parser everything that comes out of a terminal.
fn reader(mut terminal: File, seen: Arc<Mutex<Seen>>, is_over: Arc<AtomicBool>) -> JoinHandle<()> {
    const PERIOD: u8 = 50;
    std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while !is_over.load(Ordering::Acquire) {
            let mut ready = [PollFd::new(terminal.as_fd(), PollFlags::POLLIN)];
            if poll(&mut ready, PERIOD).unwrap_or(0) == 0 {
                continue;
            }
            let Ok(count @ 1..) = terminal.read(&mut bytes) else {
                break;
            };
            let new = bytes.get(..count).unwrap_or_default();
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.parser.process(new);
            seen.bytes.extend_from_slice(new);
        }
    })
}
