//! Output to the terminal: messages on stderr, with our name before them, and results to stdout or
//! the file of `-o`.

use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Seek as _, SeekFrom, Stdout, Write};

use nanoprobe_export::{Console, Effect, Ended, Printer, ProbeName, Sink, Symbolizer};
use nanoprobe_lang::Program;
use nanoprobe_lang::bytes::readable;
use nanoprobe_lang::options::Options;
use nanoprobe_lang::program::SymbolKind;
use nanoprobe_session::{Detached, Known, Probe};
use nanoprobe_target::Exit;

use crate::progress;

/// `nanoprobe: text` on stderr, in one write, so that lines of other processes do not mix with it.
pub fn message(text: impl Display) {
    tell(&format!("nanoprobe: {}\n", readable(&text.to_string())));
}

/// A text on stderr, in one write.
pub fn tell(text: &str) {
    progress::erase();
    // When stderr is gone, nothing can be reported.
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Whether the reader of the output has gone, as `head` does: it has read what it wanted, and nothing is wrong.
pub fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let of_output = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    error.downcast_ref().is_some_and(of_output)
        || matches!(error.downcast_ref(), Some(nanoprobe_export::Error::Write(error)) if of_output(error))
}

/// Where results go.
pub struct Stream {
    /// Standard output, or the file of `-o`.
    first: Writer,
    path: Option<String>,
    /// The file of a `freopen()`.
    reopened: Option<BufWriter<File>>,
    /// The process that gets the signals of `stop()` and `raise()`.
    target: Option<i32>,
}

enum Writer {
    Terminal(BufWriter<Stdout>),
    File(BufWriter<File>),
}

impl Stream {
    /// Opens it; a file is appended to.
    pub fn open(path: Option<&str>) -> io::Result<Stream> {
        const BUFFER: usize = 1 << 16;
        let first = match path {
            None => Writer::Terminal(BufWriter::with_capacity(BUFFER, io::stdout())),
            Some(path) => {
                let file = OpenOptions::new().create(true).append(true).open(path);
                let file = file.map_err(|error| {
                    io::Error::new(error.kind(), format!("failed to open output file '{path}': {error}"))
                })?;
                Writer::File(BufWriter::with_capacity(BUFFER, file))
            }
        };
        Ok(Stream {
            first,
            path: path.map(str::to_owned),
            reopened: None,
            target: None,
        })
    }

    /// Sets the process that gets signals.
    pub fn set_target(&mut self, pid: Option<i32>) {
        self.target = pid;
    }

    /// An error with the name of its file.
    fn told(&self, error: io::Error) -> io::Error {
        match (&self.reopened, &self.path) {
            (None, Some(path)) => io::Error::new(
                error.kind(),
                format!("cannot write to the output file '{path}': {error}"),
            ),
            _ => error,
        }
    }

    fn writer(&mut self) -> &mut dyn Write {
        progress::erase();
        match (&mut self.reopened, &mut self.first) {
            (Some(file), _) | (None, Writer::File(file)) => file,
            (None, Writer::Terminal(terminal)) => terminal,
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.writer().write(bytes);
        written.map_err(|error| self.told(error))
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.writer().flush();
        flushed.map_err(|error| self.told(error))
    }
}

impl Console for Stream {
    /// A failure is reported, and the tracing goes on.
    fn act(&mut self, effect: Effect) -> io::Result<()> {
        self.flush()?;
        match effect {
            Effect::System(command) => {
                if let Err(error) = std::process::Command::new("/bin/sh").arg("-c").arg(&command).status() {
                    message(format_args!("failed to run {command:?}: {error}"));
                }
            }
            Effect::Reopen(path) if path.is_empty() => self.reopened = None,
            Effect::Reopen(path) => match File::create(&path) {
                Ok(file) => self.reopened = Some(BufWriter::new(file)),
                Err(error) => message(format_args!("failed to freopen \"{path}\": {error}")),
            },
            Effect::Truncate => {
                let file = match (&mut self.reopened, &mut self.first) {
                    (Some(file), _) | (None, Writer::File(file)) => file,
                    // Output to a terminal or a pipe cannot be taken back.
                    (None, Writer::Terminal(_)) => return Ok(()),
                };
                file.get_ref().set_len(0)?;
                file.seek(SeekFrom::Start(0))?;
            }
            Effect::Signal(number) => self.signal(number),
        }
        Ok(())
    }

    fn tell(&mut self, text: &str) {
        message(text);
    }
}

impl Stream {
    fn signal(&self, number: i32) {
        use nix::errno::Errno;
        use nix::sys::signal::{Signal, kill};
        let Some(pid) = self.target else {
            message("there is no process to send a signal to");
            return;
        };
        let sent = Signal::try_from(number).and_then(|signal| kill(nix::unistd::Pid::from_raw(pid), signal));
        match sent {
            // The process may have ended meanwhile.
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(error) => message(format_args!(
                "cannot send signal {number} to pid {pid}: {}",
                error.desc()
            )),
        }
    }
}

/// Names for addresses, from what the session knows of the target.
pub struct Names<'a>(pub &'a Known);

impl Symbolizer for Names<'_> {
    fn symbolize(&mut self, address: u64) -> String {
        self.0.symbolize(address)
    }

    fn symbolize_return(&mut self, address: u64) -> String {
        self.0.symbolize_return(address)
    }

    fn unresolved(&mut self, address: u64) -> String {
        self.0.place_in_mapping(address)
    }

    fn start_of(&mut self, address: u64, kind: SymbolKind) -> u64 {
        self.0.start_of(address, kind)
    }
}

/// A probe as the printer wants it.
pub fn probe_name(probe: &Probe) -> ProbeName {
    ProbeName {
        id: probe.id,
        provider: probe.provider.to_string(),
        module: probe.module.to_string(),
        function: probe.function.to_string(),
        name: probe.name().into_owned(),
    }
}

/// Reports what a detachment left in the process.
pub fn detached(detached: &Detached) {
    if detached.damaged > 0 {
        message(format_args!(
            "{} entries of the tracer's tables make no sense: the process wrote into them, and what they told of may be left; \
             restart the process to be sure",
            detached.damaged
        ));
    }
    if let Some(sandbox) = detached.sandbox {
        message(format_args!(
            "{sandbox}; all original instructions are back, {} bytes stay mapped, and signals that instructions raise pass \
             through them",
            detached.left_bytes
        ));
    } else if detached.left_bytes > 0 {
        message(format_args!(
            "a thread is still inside of our code; all original instructions are back, and {} bytes stay mapped: \
             `nanoprobe restore` takes them when it has left",
            detached.left_bytes
        ));
    }
}

/// How a process ended, in the words of the output.
pub fn ended(exit: Exit) -> Ended {
    match exit {
        Exit::Status(status) => Ended::Status(status),
        Exit::Signal(signal) => Ended::Signal(signal),
        Exit::Unknown => Ended::Unknown,
    }
}

/// A printer for a session's program.
pub fn printer<'a>(program: &'a Program, options: &Options, sink: Box<dyn Sink>) -> Printer<'a> {
    Printer::new(program, options, sink).with_local_time(local_time)
}

/// Seconds east of UTC and the zone's name at a time, from libc.
fn local_time(seconds: i64) -> (i32, &'static str) {
    // SAFETY: all fields of tm may be zero (the zone a null pointer), and localtime_r writes only
    // into it. None of our threads changes TZ meanwhile.
    let (offset, zone) = unsafe {
        let mut time: libc::tm = std::mem::zeroed();
        if libc::localtime_r(&seconds, &mut time).is_null() {
            return (0, "UTC");
        }
        let zone = if time.tm_zone.is_null() {
            c"UTC"
        } else {
            std::ffi::CStr::from_ptr(time.tm_zone)
        };
        (time.tm_gmtoff as i32, zone.to_str().unwrap_or("UTC").to_owned())
    };
    // There are only a handful of names of zones.
    (offset, Box::leak(zone.into_boxed_str()))
}
