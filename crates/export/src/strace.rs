//! System calls as strace prints them, from the records of the program that [`nanoprobe_syscalls::capture`] makes.
//!
//! ```text
//! thread 7: ENTRY openat | RETURN's memory: the path | RETURN openat      -> a line
//! thread 7: ENTRY read   | ENTRY write, by a signal's handler | RETURN write | RETURN read
//! ```
//!
//! A line is printed when its call returns, in the order of the returns. A call that is left (exit, a signal's handler)
//! gets its line with the next record of its thread, or at the end.

use std::collections::HashMap;
use std::time::SystemTime;

use nanoprobe_lang::interpret::{ClauseFault, Value};
use nanoprobe_lang::options::Options;
use nanoprobe_syscalls::capture::{ENTRY, RETURN};
use nanoprobe_syscalls::{Interfaces, Made, Outcome, Part, line, signal_name};

use crate::Error;
use crate::console::Console;
use crate::date::{LocalTime, clock, utc};
use crate::event::{Event, ProbeName};
use crate::sink::{Action, Ended, Loss, Sink, Unplaced, View};
use crate::text::Text;

/// The time before each line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stamps {
    #[default]
    None,
    /// `-t`: the local time.
    Seconds,
    /// `-tt`
    Microseconds,
    /// `-ttt`: seconds since the epoch.
    Epoch,
    /// `-r`: since the call before.
    Relative,
}

/// How the lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StraceStyle {
    pub stamps: Stamps,
    /// `-T`: how long each call took.
    pub has_durations: bool,
    /// Each line begins with its thread: what several processes do goes to one file.
    pub has_threads: bool,
}

/// Calls of a thread that have not returned. More than one: a signal's handler makes the last of them.
type Calls = Vec<Pending>;

/// The most calls that a thread may be in. Handlers that are left by longjmp leave their calls behind.
const DEPTH_MAX: usize = 16;

struct Pending {
    made: Made,
    process: i64,
    began: Moment,
}

/// A time by two clocks, in ns.
#[derive(Clone, Copy)]
struct Moment {
    /// `timestamp`; `None`: the event has none.
    monotonic: Option<i64>,
    /// Since the epoch.
    wall: i64,
}

impl Moment {
    /// Of what the tracer itself has seen.
    fn now() -> Moment {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Moment {
            monotonic: None,
            wall: since.map_or(0, |since| i64::try_from(since.as_nanos()).unwrap_or(0)),
        }
    }

    fn since(self, earlier: Moment) -> i64 {
        match (self.monotonic, earlier.monotonic) {
            (Some(now), Some(then)) => now.saturating_sub(then),
            _ => self.wall.saturating_sub(earlier.wall),
        }
    }
}

/// The state of the output.
pub struct Strace {
    style: StraceStyle,
    /// Prints what is no call.
    text: Text,
    local: LocalTime,
    values: Vec<Value>,
    threads: HashMap<i64, Calls>,
    /// The first thread, and whether there are others.
    first: Option<i64>,
    has_several: bool,
    /// When the event of the last line was.
    last: Option<Moment>,
}

impl Strace {
    /// The state before the first line.
    #[must_use]
    pub fn new(style: StraceStyle, options: &Options, is_verbose: bool) -> Strace {
        Strace {
            style,
            text: Text::new(options, is_verbose),
            local: utc,
            values: Vec::new(),
            threads: HashMap::new(),
            first: None,
            has_several: false,
            last: None,
        }
    }

    fn integer(&self, index: usize) -> i64 {
        self.values.get(index).map_or(0, Value::as_integer)
    }

    /// A call begins.
    fn entered(&mut self, out: &mut dyn Console, thread: i64, name: &str) -> Result<(), Error> {
        self.left(out, thread)?;
        let arguments = std::array::from_fn(|index| self.integer(5 + index) as u64);
        let mut made = Made::new(name, arguments);
        made.interfaces = Interfaces(interface);
        let pending = Pending {
            made,
            process: self.integer(2),
            began: Moment {
                monotonic: Some(self.integer(3)),
                wall: self.integer(4),
            },
        };
        self.has_several |= *self.first.get_or_insert(thread) != thread;
        if ["exit", "exit_group"].contains(&name) {
            // Nothing of the thread follows, and its line need not wait for the end.
            let mut pending = pending;
            pending.made.outcome = Outcome::Left;
            return self.print(out, thread, &pending, None);
        }
        let calls = self.threads.entry(thread).or_default();
        calls.push(pending);
        if calls.len() > DEPTH_MAX {
            let mut oldest = calls.remove(0);
            oldest.made.outcome = Outcome::Left;
            self.print(out, thread, &oldest, None)?;
        }
        Ok(())
    }

    /// If the thread's last call is one that does not return: the thread is past it.
    fn left(&mut self, out: &mut dyn Console, thread: i64) -> Result<(), Error> {
        let last = self.threads.get_mut(&thread);
        let Some(mut pending) = last.and_then(|calls| calls.pop_if(|last| may_not_return(&last.made))) else {
            return Ok(());
        };
        pending.made.outcome = match pending.made.name.as_str() {
            // The program that was executed makes the next call.
            "execve" | "execveat" => Outcome::Returned { value: 0, error: 0 },
            _ => Outcome::Left,
        };
        self.print(out, thread, &pending, None)
    }

    /// A call returns.
    fn returned(&mut self, out: &mut dyn Console, thread: i64, name: &str) -> Result<(), Error> {
        let last = self.threads.get(&thread).and_then(|calls| calls.last());
        if last.is_some_and(|last| last.made.name != name) {
            self.left(out, thread)?;
        }
        let outcome = Outcome::Returned {
            value: self.integer(3),
            error: self.integer(4) as i32,
        };
        let ended = self.integer(2);
        let Some(calls) = self.threads.get_mut(&thread) else {
            return Ok(());
        };
        let Some(at) = calls.iter().rposition(|call| call.made.name == name) else {
            return Ok(());
        };
        // The calls above it were left by their handler.
        let returned = calls.drain(at..).next();
        // There may be ever new threads.
        if calls.is_empty() {
            self.threads.remove(&thread);
        }
        let Some(mut pending) = returned else { return Ok(()) };
        pending.made.outcome = outcome;
        self.print(out, thread, &pending, Some(ended))
    }

    /// The memory of the thread's last call.
    fn memory(&mut self, thread: i64, name: &str, part: Part, string_bytes: usize) {
        let Some(pending) = self.threads.get_mut(&thread).and_then(|calls| calls.last_mut()) else {
            return;
        };
        if pending.made.name != name {
            return;
        }
        let values = self.values.get(2..).unwrap_or_default();
        let pieces = (part.index..).map(|index| Part { index, ..part });
        if let [Value::String(_), ..] = values {
            for (part, text) in pieces.zip(values) {
                let text = text.as_bytes();
                pending.made.add(part, text, text.len() + 1 >= string_bytes);
            }
            return;
        }
        // Pairs of a number of bytes and the bytes.
        for (part, pair) in pieces.zip(values.chunks_exact(2)) {
            if let [count, memory] = pair {
                let count = usize::try_from(count.as_integer()).unwrap_or_default();
                let memory = memory.as_bytes();
                pending.made.add(part, memory.get(..count).unwrap_or(memory), false);
            }
        }
    }

    fn print(
        &mut self,
        out: &mut dyn Console,
        thread: i64,
        pending: &Pending,
        ended: Option<i64>,
    ) -> Result<(), Error> {
        let before = self.before(thread, pending.began);
        let mut text = line(&pending.made, before.chars().count());
        if let (true, Some(ended)) = (self.style.has_durations, ended) {
            let began = pending.began.monotonic.unwrap_or(ended);
            let microseconds = ended.saturating_sub(began) / 1000;
            text += &format!(" <{}.{:06}>", microseconds / 1_000_000, microseconds % 1_000_000);
        }
        Ok(writeln!(out, "{before}{text}")?)
    }

    /// What stands before a line: the thread and the time.
    fn before(&mut self, thread: i64, moment: Moment) -> String {
        let mut text = self.of_thread(thread);
        let microseconds = moment.wall / 1000;
        let (seconds, fraction) = (microseconds / 1_000_000, microseconds % 1_000_000);
        match self.style.stamps {
            Stamps::None => {}
            Stamps::Seconds => text += &format!("{} ", clock(moment.wall, self.local)),
            Stamps::Microseconds => text += &format!("{}.{fraction:06} ", clock(moment.wall, self.local)),
            Stamps::Epoch => text += &format!("{seconds}.{fraction:06} "),
            Stamps::Relative => {
                let since = moment.since(self.last.unwrap_or(moment)).max(0) / 1000;
                text += &format!("{:>6}.{:06} ", since / 1_000_000, since % 1_000_000);
            }
        }
        self.last = Some(moment);
        text
    }

    fn of_thread(&self, thread: i64) -> String {
        match (self.style.has_threads, self.has_several) {
            (true, _) => format!("{thread:<5} "),
            (false, true) => format!("[pid {thread:>5}] "),
            (false, false) => String::new(),
        }
    }

    /// The calls in which threads are, of one process or of all.
    fn unfinished(&mut self, out: &mut dyn Console, process: Option<i64>) -> Result<(), Error> {
        let mut threads: Vec<i64> = self.threads.keys().copied().collect();
        threads.sort_unstable();
        for thread in threads {
            let is_meant = |pending: &Pending| process.is_none_or(|process| pending.process == process);
            if !self
                .threads
                .get(&thread)
                .is_some_and(|calls| calls.iter().any(is_meant))
            {
                continue;
            }
            for mut pending in self.threads.remove(&thread).unwrap_or_default() {
                if may_not_return(&pending.made) {
                    pending.made.outcome = Outcome::Left;
                }
                self.print(out, thread, &pending, None)?;
            }
        }
        Ok(())
    }
}

/// The name of a network interface, as it is now for the tracer.
fn interface(index: u32) -> Option<String> {
    let all = std::fs::read_dir("/sys/class/net").ok()?;
    let found = all.flatten().find(|interface| {
        let number = std::fs::read_to_string(interface.path().join("ifindex")).unwrap_or_default();
        number.trim().parse() == Ok(index)
    });
    found?.file_name().into_string().ok()
}

/// Calls of which no return is seen, if they succeed.
fn may_not_return(made: &Made) -> bool {
    ["rt_sigreturn", "execve", "execveat"].contains(&made.name.as_str())
}

impl Sink for Strace {
    fn refused(&mut self, out: &mut dyn Console, new: &[Unplaced]) -> Result<(), Error> {
        self.text.refused(out, new)
    }

    fn record_begins(&mut self, _: &mut dyn Console, _: &Options, _: &Event<'_>) -> Result<(), Error> {
        self.values.clear();
        Ok(())
    }

    fn action(&mut self, _: &mut dyn Console, view: &mut View<'_>, action: Action<'_>) -> Result<(), Error> {
        self.local = view.local;
        self.values
            .extend(action.recorded.iter().map(|(_, value)| value.clone()));
        Ok(())
    }

    fn record_ends(&mut self, out: &mut dyn Console, options: &Options, event: &Event<'_>) -> Result<(), Error> {
        let (number, thread) = (self.integer(0) as u64, self.integer(1));
        let name = event.probe.function.as_str();
        match (number, Part::of_number(number)) {
            (ENTRY, _) => self.entered(out, thread, name),
            (RETURN, _) => self.returned(out, thread, name),
            (_, Some(part)) => {
                self.memory(thread, name, part, options.limits().strsize as usize);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// An address that leads nowhere is printed as an address.
    fn fault(&mut self, _: &mut dyn Console, _: u32, _: &ProbeName, _: &ClauseFault) -> Result<(), Error> {
        Ok(())
    }

    fn warning(&mut self, out: &mut dyn Console, text: &str) -> Result<(), Error> {
        self.text.warning(out, text)
    }

    fn losses(&mut self, out: &mut dyn Console, losses: &[Loss]) -> Result<(), Error> {
        self.text.losses(out, losses)
    }

    fn exited(&mut self, out: &mut dyn Console, pid: Option<i32>, how: Ended) -> Result<(), Error> {
        let Some(pid) = pid.map(i64::from) else { return Ok(()) };
        self.unfinished(out, Some(pid))?;
        if matches!(how, Ended::Unknown) {
            return Ok(());
        }
        let before = self.before(pid, Moment::now());
        match how {
            Ended::Status(status) => writeln!(out, "{before}+++ exited with {status} +++")?,
            Ended::Signal(signal) => writeln!(out, "{before}+++ killed by {} +++", signal_name(signal))?,
            Ended::Unknown => {}
        }
        Ok(())
    }

    fn ended(&mut self, out: &mut dyn Console) -> Result<(), Error> {
        self.unfinished(out, None)
    }

    fn unplaced(&mut self, out: &mut dyn Console, first: &Unplaced) -> Result<(), Error> {
        self.text.unplaced(out, first)
    }

    fn nothing_seen(&mut self, out: &mut dyn Console, text: &str) -> Result<(), Error> {
        self.text.nothing_seen(out, text)
    }
}
