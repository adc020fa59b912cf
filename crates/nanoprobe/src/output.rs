//! Output to the terminal: messages on stderr, with our name before them, and results to stdout or
//! the file of `-o`.

mod file;

use std::collections::HashMap;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal as _, Seek as _, SeekFrom, Write};
use std::sync::{Mutex, PoisonError};

use nanoprobe_export::{Console, Effect, Ended, ModulePlace, Printer, ProbeName, Sink, Source, Symbolizer};
use nanoprobe_lang::Program;
use nanoprobe_lang::bytes::readable;
use nanoprobe_lang::options::{Options, Rotation};
use nanoprobe_lang::program::SymbolKind;
use nanoprobe_session::{Detached, Known, Probe};
use nanoprobe_target::Exit;

use self::file::OutputFile;
use crate::progress;
use crate::screen::captured;
use crate::standard_output::Standard;

/// `nanoprobe: text` on stderr, in one write, so that lines of other processes do not mix with it.
pub fn message(text: impl Display) {
    tell(&format!("nanoprobe: {}\n", readable(&text.to_string())));
}

/// Writes a text to stderr, in one write.
pub fn tell(text: &str) {
    progress::erase();
    if captured::is_shown() && io::stderr().is_terminal() && captured::keep(text.as_bytes()) {
        return;
    }
    // When stderr is closed, nothing can be reported.
    let _ = Standard::Error.write_all(text.as_bytes());
}

/// Whether the reader of the output has closed its end, as `head` does. The reader has read enough, so this is no
/// error.
pub fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let of_output = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    error.downcast_ref().is_some_and(of_output)
        || matches!(error.downcast_ref(), Some(nanoprobe_export::Error::Write(error)) if of_output(error))
}

/// The place to which results are written.
pub struct Stream {
    /// Standard output, or the file of `-o`.
    first: Writer,
    /// The file of a `freopen()`.
    reopened: Option<BufWriter<File>>,
    /// The process that gets the signals of `stop()` and `raise()`.
    target: Option<i32>,
}

enum Writer {
    Terminal(BufWriter<Standard>),
    File(BufWriter<OutputFile>),
}

impl Stream {
    /// Opens the output; a file is appended to. `may_lose`: output that a full disk takes away is reported, and is no
    /// error.
    pub fn open(path: Option<&str>, rotation: Option<Rotation>, may_lose: bool) -> io::Result<Stream> {
        const BUFFER: usize = 1 << 16;
        let first = match path {
            None => Writer::Terminal(BufWriter::with_capacity(BUFFER, Standard::Output)),
            Some(path) => {
                let file = OutputFile::open(path, rotation, may_lose, |text| message(text));
                let file = file.map_err(|error| {
                    io::Error::new(error.kind(), format!("failed to open output file '{path}': {error}"))
                })?;
                Writer::File(BufWriter::with_capacity(BUFFER, file))
            }
        };
        Ok(Stream {
            first,
            reopened: None,
            target: None,
        })
    }

    /// Opens the file of `-o` anew, after it was moved.
    pub fn reopen(&mut self) -> io::Result<()> {
        let Writer::File(file) = &mut self.first else {
            return Ok(());
        };
        file.flush()?;
        if let Err(error) = file.get_mut().reopen() {
            message(format_args!(
                "cannot open the output file '{}' anew, so the old one is still written: {error}",
                file.get_ref().path()
            ));
        }
        Ok(())
    }

    /// Sets the process that gets signals.
    pub fn set_target(&mut self, pid: Option<i32>) {
        self.target = pid;
    }

    /// Adds the name of the output file to an error.
    fn told(&self, error: io::Error) -> io::Error {
        match (&self.reopened, &self.first) {
            (None, Writer::File(file)) => io::Error::new(
                error.kind(),
                format!("cannot write to the output file '{}': {error}", file.get_ref().path()),
            ),
            _ => error,
        }
    }

    /// Whether results go where a screen may be shown.
    fn is_on_terminal(&self) -> bool {
        matches!((&self.reopened, &self.first), (None, Writer::Terminal(_)))
    }

    fn writer(&mut self) -> &mut dyn Write {
        progress::erase();
        match (&mut self.reopened, &mut self.first) {
            (Some(file), _) => file,
            (None, Writer::File(file)) => file,
            (None, Writer::Terminal(terminal)) => terminal,
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_on_terminal() && captured::keep(bytes) {
            return Ok(bytes.len());
        }
        let written = self.writer().write(bytes);
        written.map_err(|error| self.told(error))
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.writer().flush();
        flushed.map_err(|error| self.told(error))
    }
}

impl Console for Stream {
    /// Performs an action of a clause. A failure is reported, and the tracing continues.
    fn act(&mut self, effect: Effect) -> io::Result<()> {
        self.flush()?;
        match effect {
            Effect::System(command) => {
                if let Err(error) = run(&command) {
                    message(format_args!("failed to run {command:?}: {error}"));
                }
            }
            Effect::Reopen(path) if path.is_empty() => self.reopened = None,
            Effect::Reopen(path) => match File::create(&path) {
                Ok(file) => self.reopened = Some(BufWriter::new(file)),
                Err(error) => message(format_args!("failed to freopen \"{path}\": {error}")),
            },
            Effect::Truncate => {
                match (&mut self.reopened, &mut self.first) {
                    (Some(file), _) => {
                        file.get_ref().set_len(0)?;
                        file.seek(SeekFrom::Start(0))?;
                    }
                    (None, Writer::File(file)) => file.get_mut().empty()?,
                    // Output to a terminal or a pipe cannot be taken back.
                    (None, Writer::Terminal(_)) => {}
                }
            }
            Effect::Signal(number) => self.signal(number),
        }
        Ok(())
    }

    fn tell(&mut self, text: &str) {
        message(text);
    }
}

/// Has the shell run a command. The command's output does not disturb a screen.
fn run(command: &str) -> io::Result<()> {
    let mut shell = std::process::Command::new("/bin/sh");
    shell.arg("-c").arg(command);
    if !captured::is_shown() {
        return shell.status().map(drop);
    }
    let output = shell.stdin(std::process::Stdio::null()).output()?;
    captured::keep(&output.stdout);
    captured::keep(&output.stderr);
    Ok(())
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

/// Names for addresses, from the session's knowledge of the target.
pub struct Names<'a>(pub &'a Known);

impl Symbolizer for Names<'_> {
    fn symbolize(&mut self, address: u64) -> String {
        self.0.symbolize(address)
    }

    fn symbolize_return(&mut self, address: u64) -> String {
        self.0.symbolize_return(address)
    }

    fn interpreted_function(&mut self, frame: u64) -> Option<String> {
        self.0.interpreted_function(frame)
    }

    fn is_nameless_code(&mut self, address: u64) -> bool {
        self.0.is_nameless_code(address)
    }

    fn is_address(&mut self, address: u64) -> bool {
        self.0.is_address(address)
    }

    fn unresolved(&mut self, address: u64) -> String {
        self.0.place_in_mapping(address)
    }

    fn start_of(&mut self, address: u64, kind: SymbolKind) -> u64 {
        self.0.start_of(address, kind)
    }

    fn function_name(&mut self, name: &str) -> Option<String> {
        self.0.function_name(name)
    }

    fn sources(&mut self, addresses: &[u64]) -> HashMap<u64, Source> {
        let found = self.0.sources(addresses).into_iter();
        found
            .map(|(address, (file, line))| (address, Source { file, line }))
            .collect()
    }

    fn module(&mut self, address: u64) -> Option<ModulePlace> {
        let (module, range) = self.0.module_at(address)?;
        let build_id = module.linkage().build_id.iter().flatten();
        Some(ModulePlace {
            start: range.start,
            end: range.end,
            path: module.path().to_string_lossy().into_owned(),
            build_id: build_id.map(|byte| format!("{byte:02x}")).collect(),
        })
    }
}

/// The names of a probe, in the form that the printer needs.
pub fn probe_name(known: &Known, probe: &Probe) -> ProbeName {
    let linked = known.linked_name(probe);
    ProbeName {
        linked: linked.to_string(),
        shown: known.readable(&linked).into_owned(),
        id: probe.id,
        provider: probe.provider.to_string(),
        module: probe.module.to_string(),
        function: probe.function.to_string(),
        name: probe.name().into_owned(),
    }
}

/// Reports code and data that a detachment could not remove from the process.
pub fn detached(detached: &Detached) {
    if detached.damaged > 0 {
        message(format_args!(
            "{} entries of the tracer's tables are damaged: the process wrote into them. Patches that they describe \
             may remain in it; restart the process to be sure",
            detached.damaged
        ));
    }
    if let Some(tracer) = detached.needed_by {
        message(format_args!(
            "another nanoprobe (process {tracer}) needs some of the patches: they stay in the text, record nothing, and are \
             taken away with that one's"
        ));
    } else if let Some(sandbox) = detached.sandbox {
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

/// The end of a process, in the words of the output.
pub fn ended(exit: Exit) -> Ended {
    match exit {
        Exit::Status(status) => Ended::Status(status),
        Exit::Signal { number, dumped_core } => Ended::Signal { number, dumped_core },
        Exit::Unknown => Ended::Unknown,
    }
}

/// A printer for a session's program.
pub fn printer<'a>(program: &'a Program, options: &Options, sink: Box<dyn Sink>) -> Printer<'a> {
    Printer::new(program, options, sink).with_local_time(local_time)
}

/// Seconds east of UTC and the name of the time zone at a time, from libc.
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
    (offset, interned(zone))
}

/// The name of a time zone, for ever. A place has a handful of them, each of which is kept once.
fn interned(name: String) -> &'static str {
    static NAMES: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = names.iter().find(|known| **known == name) {
        return known;
    }
    let new: &'static str = Box::leak(name.into_boxed_str());
    names.push(new);
    new
}
