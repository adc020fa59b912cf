//! What goes to the terminal: messages on stderr, with our name in front, and results to stdout or the file of `-o`.

use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Seek as _, SeekFrom, Stdout, Write};

use nanoprobe_export::{Console, Effect, Printer, ProbeName, Symbolizer};
use nanoprobe_lang::bytes::readable;
use nanoprobe_lang::program::SymbolKind;
use nanoprobe_session::{Detached, Losses, Probe, Session};

use crate::progress;

/// `nanoprobe: text` on stderr, by one write: lines of others come before it or behind it.
pub fn message(text: impl Display) {
    tell(&format!("nanoprobe: {}\n", readable(&text.to_string())));
}

/// A text on stderr, by one write.
pub fn tell(text: &str) {
    progress::erase();
    // Nobody is left to tell when stderr is gone.
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Where results go.
pub struct Sink {
    /// Standard output, or the file of `-o`.
    first: Writer,
    /// That file's name.
    path: Option<String>,
    /// The file of a `freopen()`.
    reopened: Option<BufWriter<File>>,
    /// Who gets the signals of `stop()` and `raise()`.
    target: Option<i32>,
}

enum Writer {
    Terminal(BufWriter<Stdout>),
    File(BufWriter<File>),
}

impl Sink {
    /// Opens it; a file is appended to.
    pub fn open(path: Option<&str>) -> io::Result<Sink> {
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
        Ok(Sink {
            first,
            path: path.map(str::to_owned),
            reopened: None,
            target: None,
        })
    }

    /// Says who gets signals.
    pub fn set_target(&mut self, pid: Option<i32>) {
        self.target = pid;
    }

    /// What went wrong, with the file that it was about.
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

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.writer().write(bytes);
        written.map_err(|error| self.told(error))
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.writer().flush();
        flushed.map_err(|error| self.told(error))
    }
}

impl Console for Sink {
    /// What fails is told, and the tracing goes on.
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
                    // A terminal or a pipe has nothing that could be taken back.
                    (None, Writer::Terminal(_)) => return Ok(()),
                };
                file.get_ref().set_len(0)?;
                file.seek(SeekFrom::Start(0))?;
            }
            Effect::Signal(number) => self.signal(number),
            Effect::Complaint(text) => message(text),
        }
        Ok(())
    }
}

impl Sink {
    fn signal(&self, number: i32) {
        use nix::errno::Errno;
        use nix::sys::signal::{Signal, kill};
        let Some(pid) = self.target else {
            message("there is no process to send a signal to");
            return;
        };
        let sent = Signal::try_from(number).and_then(|signal| kill(nix::unistd::Pid::from_raw(pid), signal));
        match sent {
            // It may have ended meanwhile.
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(error) => message(format_args!(
                "cannot send signal {number} to pid {pid}: {}",
                error.desc()
            )),
        }
    }
}

/// Names for addresses, by what the session knows of the target.
pub struct Names<'a>(pub &'a Session);

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

/// Something that was lost.
pub struct Loss {
    /// What, in one word; with the option `droptags` DTrace's word for it stands in front of the message.
    pub kind: &'static str,
    /// DTrace's word.
    tag: &'static str,
    /// How many since the last time.
    pub count: u64,
    /// The message.
    pub text: String,
}

impl Loss {
    /// The message, with its tag if that is wanted.
    pub fn message(&self, tagged: bool) -> String {
        if tagged && !self.tag.is_empty() {
            format!("[{}] {}", self.tag, self.text)
        } else {
            self.text.clone()
        }
    }
}

/// What was lost since the last time.
pub fn losses(before: &Losses, now: &Losses) -> Vec<Loss> {
    let drops = |count: u64, what: &str, remedy: &str| {
        format!("{} ({remedy})", nanoprobe_export::drop_message(count, what, ""))
    };
    let plural = |count: u64| if count == 1 { "" } else { "s" };
    let mut all = Vec::new();
    let mut add = |kind, tag, now: u64, before: u64, text: &dyn Fn(u64) -> String| {
        let count = now.saturating_sub(before);
        if count > 0 {
            let text = text(count);
            all.push(Loss { kind, tag, count, text });
        }
    };
    let text = |count| {
        format!(
            "{count} failed speculation{} (no speculative buffer available)",
            plural(count)
        )
    };
    let (since, until) = (before.failed_speculations, now.failed_speculations);
    add("failed speculation", "DTRACEDROP_SPECUNAVAIL", until, since, &text);
    let text = |count| drops(count, "", "increase bufsize, or record less");
    add("principal", "DTRACEDROP_PRINCIPAL", now.drops, before.drops, &text);
    let text = |count| drops(count, "aggregation", "increase aggsize, or use fewer keys");
    let (since, until) = (before.aggregation_drops, now.aggregation_drops);
    add("aggregation", "DTRACEDROP_AGGREGATION", until, since, &text);
    let text = |count| drops(count, "dynamic variable", "increase dynvarsize");
    let (since, until) = (before.dynamic_drops, now.dynamic_drops);
    add("dynamic variable", "DTRACEDROP_DYNAMIC", until, since, &text);
    let text = |count| drops(count, "speculative", "increase specsize");
    let (since, until) = (before.speculation_drops, now.speculation_drops);
    add("speculative", "DTRACEDROP_SPEC", until, since, &text);
    let text = |count| format!("{count} error{} in ERROR probe enabling", plural(count));
    let (since, until) = (before.errors_in_error, now.errors_in_error);
    add("error in ERROR", "DTRACEDROP_DBLERROR", until, since, &text);
    let text = |count| {
        format!(
            "{count} sample{} lost: profile probes sample faster than they can be read",
            plural(count)
        )
    };
    add("sample", "", now.lost_samples, before.lost_samples, &text);
    let text = |count| {
        format!(
            "{count} firing{} of tick or profile probes missed: nanoprobe got no processor for more than a second",
            plural(count)
        )
    };
    add("missed tick", "", now.missed_ticks, before.missed_ticks, &text);
    let text = |count| format!("{count} hits missed: a probe was hit while a handler ran in the same thread");
    add("missed", "", now.missed, before.missed, &text);
    let text = |count| {
        format!("{count} hits missed: all places for threads were taken, by threads that run or have just ended")
    };
    let (since, until) = (before.missed_without_context, now.missed_without_context);
    add("missed thread", "", until, since, &text);
    let text = |count| format!("{count} hits missed: a restartable sequence was aborted since it met a trap");
    add("missed sequence", "", now.aborted, before.aborted, &text);
    let text = |count| {
        format!(
            "{count} hits missed: the thread cannot be told from others (it has no thread pointer of its own, and the process \
             may make no system calls)"
        )
    };
    let (since, until) = (before.missed_unknown_thread, now.missed_unknown_thread);
    add("missed unknown thread", "", until, since, &text);
    let text = |count| {
        format!(
            "{count} returns missed: more calls at once than maxactive, or they were left by longjmp or an exception"
        )
    };
    add("missed return", "", now.missed_returns, before.missed_returns, &text);
    let text = |count| {
        format!(
            "{count} time{} the program went on before its new libraries had their probes: what it did until then is not \
             recorded",
            plural(count)
        )
    };
    let (since, until) = (before.unawaited_libraries, now.unawaited_libraries);
    add("library", "", until, since, &text);
    let text = |count| format!("{count} times a buffer was found damaged: the process writes into it");
    add("damaged", "", now.damaged, before.damaged, &text);
    all
}

/// Says what a detachment left.
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

/// The session's printer prints into this, and forgets what it cannot write.
pub fn print_error(error: &nanoprobe_export::Error) {
    message(error);
}

/// A printer for a session's program.
pub fn printer<'a>(program: &'a nanoprobe_lang::Program, options: &'a nanoprobe_lang::options::Options) -> Printer<'a> {
    Printer::new(program, options).with_local_time(local_time)
}

/// Seconds east of UTC and the zone's name at a time, by libc.
fn local_time(seconds: i64) -> (i32, &'static str) {
    // SAFETY: all fields of tm may be zero (the zone a null pointer), and localtime_r writes only into it; none of our
    // threads changes TZ meanwhile.
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
    // Zones have a handful of names in all.
    (offset, Box::leak(zone.into_boxed_str()))
}
