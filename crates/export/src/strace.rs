//! System calls as strace prints them, from the records of the program that [`nanoprobe_syscalls::capture`] makes.
//!
//! ```text
//! thread 7: ENTRY openat | RETURN's memory: the path | RETURN openat      -> a line
//! thread 7: ENTRY read   | ENTRY write, by a signal's handler | RETURN write | RETURN read
//! thread 7: ENTRY read   | thread 8: ...                      | RETURN read              -> a line in two parts
//! thread 7: SIGNAL                                                                       -> a line
//! ```
//!
//! A line has its place where its call begins, and is printed when its call has returned ([`order`]). A call that is
//! left (exit, a signal's handler) ends with the next record of its thread, or at the end.

mod order;
mod sink;
mod stamps;
mod summary;

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use nanoprobe_lang::interpret::Value;
use nanoprobe_lang::options::Options;
use nanoprobe_syscalls::{Interfaces, Line, Made, Outcome, Part, signal_name, signals};

use crate::Error;
use crate::console::Console;
use crate::sink::Ended;
use crate::text::Text;
use order::{Id, Next, Order, What};
pub use stamps::Stamps;
use stamps::{Clock, Moment};
use summary::Summary;

/// How the lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StraceStyle {
    pub stamps: Stamps,
    /// `-T`: how long each call took.
    pub has_durations: bool,
    /// Each line begins with its thread: what several processes do goes to one file.
    pub has_threads: bool,
    /// The records of several processes come one process after the other.
    pub has_processes: bool,
    /// `-C`: a table of all calls at the end.
    pub has_summary: bool,
    /// `--summary-only`: nothing else.
    pub has_no_lines: bool,
}

/// The most calls that a thread may be in. Handlers that are left by longjmp leave their calls behind.
const DEPTH_MAX: usize = 16;
/// How much later the records of one process may come than those of another, in ns.
const WINDOW: i64 = 100_000_000;
/// The most time that passes between two looks at the records: a tracer that got no processor knows nothing of it.
const STEP: Duration = Duration::from_millis(20);

struct Call {
    made: Made,
    thread: i64,
    process: i64,
    began: Moment,
    ended: Option<Moment>,
}

/// A line that is no call.
struct Told {
    thread: i64,
    moment: Moment,
    text: String,
}

/// The state of the output.
pub struct Strace {
    style: StraceStyle,
    /// Prints what is no call.
    text: Text,
    clock: Clock,
    values: Vec<Value>,
    order: Order<Told>,
    /// Calls that are not printed to their end.
    calls: HashMap<Id, Call>,
    count: Id,
    /// Calls of each thread that have not returned. More than one: a signal's handler makes the last of them.
    threads: HashMap<i64, Vec<Id>>,
    /// The threads of each process that were seen, and have not ended.
    living: HashMap<i64, BTreeSet<i64>>,
    /// Processes whose end has its line.
    ended: BTreeSet<i64>,
    /// The first thread, and whether there are others.
    first: Option<i64>,
    has_several: bool,
    rested: Instant,
    summary: Summary,
}

impl Strace {
    /// The state before the first line.
    #[must_use]
    pub fn new(style: StraceStyle, options: &Options, is_verbose: bool) -> Strace {
        Strace {
            style,
            text: Text::new(options, is_verbose),
            clock: Clock::new(style.stamps),
            values: Vec::new(),
            order: Order::new(if style.has_processes { WINDOW } else { 0 }),
            calls: HashMap::new(),
            count: 0,
            threads: HashMap::new(),
            living: HashMap::new(),
            ended: BTreeSet::new(),
            first: None,
            has_several: false,
            rested: Instant::now(),
            summary: Summary::default(),
        }
    }

    fn integer(&self, index: usize) -> i64 {
        self.values.get(index).map_or(0, Value::as_integer)
    }

    /// A call begins.
    fn entered(&mut self, thread: i64, name: &str) {
        let began = Moment {
            monotonic: Some(self.integer(3)),
            wall: self.integer(4),
        };
        self.left(thread, began);
        let mut made = Made::new(name, std::array::from_fn(|index| self.integer(5 + index) as u64));
        made.interfaces = Interfaces(interface);
        let process = self.integer(2);
        self.saw(thread, process);
        let status = made.arguments[0] & 0xff;
        let id = self.count;
        self.count += 1;
        self.order.add(self.time(began), thread, What::Begins(id));
        let call = Call {
            made,
            thread,
            process,
            began,
            ended: None,
        };
        self.calls.insert(id, call);
        if ["exit", "exit_group"].contains(&name) {
            // Nothing of the thread follows, and its line need not wait for the end.
            self.ends(id, Outcome::Left, began);
            self.exits((thread, process), name == "exit_group", status, began);
            return;
        }
        let calls = self.threads.entry(thread).or_default();
        calls.push(id);
        if calls.len() > DEPTH_MAX {
            let oldest = calls.remove(0);
            self.ends(oldest, Outcome::Left, began);
        }
    }

    /// A thread has done something.
    fn saw(&mut self, thread: i64, process: i64) {
        self.has_several |= *self.first.get_or_insert(thread) != thread;
        self.living.entry(process).or_default().insert(thread);
        if thread == process {
            self.ended.remove(&process);
        }
    }

    /// A handler of the program begins.
    fn handles(&mut self, thread: i64) {
        let moment = Moment {
            monotonic: Some(self.integer(3)),
            wall: self.integer(4),
        };
        self.saw(thread, self.integer(2));
        let has_information = self.integer(6) != 0;
        let information = self.values.get(7).map(Value::as_bytes);
        let line = signals::line(self.integer(5) as i32, information.filter(|_| has_information));
        self.tells(thread, moment, line);
    }

    /// The place of a moment in the order.
    fn time(&self, moment: Moment) -> i64 {
        moment.monotonic.unwrap_or(self.order.latest())
    }

    /// A call ends, in one of the ways.
    fn ends(&mut self, id: Id, outcome: Outcome, moment: Moment) {
        let time = self.time(moment);
        if let Some(call) = self.calls.get_mut(&id) {
            call.made.outcome = outcome;
            call.ended = Some(moment);
            if let Outcome::Returned { error, .. } = outcome {
                self.summary
                    .count(&call.made.name, error != 0, moment.since(call.began));
            }
            self.order.add(time, call.thread, What::Ends(id));
        }
    }

    fn tells(&mut self, thread: i64, moment: Moment, text: String) {
        let told = Told { thread, moment, text };
        self.order.add(self.time(moment), thread, What::Other(told));
    }

    /// A thread or a whole process ends itself.
    fn exits(&mut self, (thread, process): (i64, i64), is_process: bool, status: u64, moment: Moment) {
        // The child of a vfork has its parent's numbers.
        let last = self.threads.get(&thread).and_then(|calls| calls.last());
        let last = last.and_then(|id| self.calls.get(id));
        if last.is_some_and(|last| ["vfork", "clone", "clone3"].contains(&last.made.name.as_str())) {
            return;
        }
        let threads = match is_process {
            true => self.living.remove(&process).unwrap_or_default(),
            false => BTreeSet::from([thread]),
        };
        for thread in threads.iter().rev() {
            for id in self.threads.remove(thread).unwrap_or_default() {
                self.ends(id, Outcome::Left, moment);
            }
        }
        // A process ends after all of its threads, also after the first one.
        let text = format!("+++ exited with {status} +++");
        for other in threads.into_iter().rev().filter(|other| *other != process) {
            self.tells(other, moment, text.clone());
        }
        if is_process {
            self.tells(process, moment, text);
            self.ended.insert(process);
        } else if let Some(living) = self.living.get_mut(&process).filter(|_| thread != process) {
            living.remove(&thread);
        }
    }

    /// A process has ended; of one that has ended itself this is told before ([`Strace::exits`]).
    fn process_ends(&mut self, process: i64, how: Ended) {
        let moment = Moment::now();
        self.unfinished(Some(process), moment);
        let threads = self.living.remove(&process).unwrap_or_default();
        let has_line = self.ended.remove(&process);
        let text = match how {
            Ended::Status(status) if !has_line => format!("+++ exited with {status} +++"),
            Ended::Signal { number, dumped_core } => {
                let core = if dumped_core { " (core dumped)" } else { "" };
                format!("+++ killed by {}{core} +++", signal_name(number))
            }
            Ended::Status(_) | Ended::Unknown => return,
        };
        // A signal ends all threads, the first one as the last.
        let others = threads.into_iter().rev().filter(|thread| *thread != process);
        for thread in others.filter(|_| matches!(how, Ended::Signal { .. })) {
            self.tells(thread, moment, text.clone());
        }
        self.tells(process, moment, text);
    }

    /// If the thread's last call is one that does not return: the thread is past it.
    fn left(&mut self, thread: i64, moment: Moment) {
        let Some(calls) = self.threads.get_mut(&thread) else {
            return;
        };
        let Some(call) = calls.last().and_then(|id| self.calls.get(id)) else {
            return;
        };
        if !may_not_return(&call.made) {
            return;
        }
        let (process, name) = (call.process, call.made.name.as_str());
        let outcome = match name {
            // The program that was executed makes the next call, in the only thread that is left.
            "execve" | "execveat" => {
                self.living.insert(process, BTreeSet::from([thread]));
                Outcome::Returned { value: 0, error: 0 }
            }
            _ => Outcome::Left,
        };
        if let Some(id) = calls.pop() {
            self.ends(id, outcome, moment);
        }
    }

    /// A call returns.
    fn returned(&mut self, thread: i64, name: &str) {
        let outcome = Outcome::Returned {
            value: self.integer(3),
            error: self.integer(4) as i32,
        };
        let ended = self.integer(2);
        let name_of = |strace: &Strace, id: &Id| strace.calls.get(id).map(|call| call.made.name.clone());
        let last = self.threads.get(&thread).and_then(|calls| calls.last());
        let Some(last) = last.and_then(|id| self.calls.get(id)) else {
            return;
        };
        let moment = last.began.later(ended);
        if last.made.name != name {
            self.left(thread, moment);
        }
        let Some(calls) = self.threads.get(&thread) else { return };
        let Some(at) = calls
            .iter()
            .rposition(|id| name_of(self, id).is_some_and(|of| of == name))
        else {
            return;
        };
        let Some(calls) = self.threads.get_mut(&thread) else {
            return;
        };
        let mut returned = calls.split_off(at).into_iter();
        // There may be ever new threads.
        if calls.is_empty() {
            self.threads.remove(&thread);
        }
        if let Some(id) = returned.next() {
            let moment = self.calls.get(&id).map_or(moment, |call| call.began.later(ended));
            // The calls above it were left by their handler.
            returned.for_each(|above| self.ends(above, Outcome::Left, moment));
            self.ends(id, outcome, moment);
        }
    }

    /// The memory of the thread's last call.
    fn memory(&mut self, thread: i64, name: &str, part: Part, string_bytes: usize) {
        let last = |strace: &Strace| strace.threads.get(&thread).and_then(|calls| calls.last().copied());
        let Some(mut id) = last(self) else { return };
        if let Some(call) = self.calls.get(&id).filter(|call| call.made.name != name) {
            // The end of a handler, which has no record of its own.
            let moment = call.began;
            self.left(thread, moment);
            let Some(next) = last(self) else { return };
            id = next;
        }
        let Some(call) = self.calls.get_mut(&id).filter(|call| call.made.name == name) else {
            return;
        };
        let values = self.values.get(2..).unwrap_or_default();
        let pieces = (part.index..).map(|index| Part { index, ..part });
        if let [Value::String(_), ..] = values {
            for (part, text) in pieces.zip(values) {
                let text = text.as_bytes();
                call.made.add(part, text, text.len() + 1 >= string_bytes);
            }
            return;
        }
        // Pairs of a number of bytes and the bytes.
        for (part, pair) in pieces.zip(values.chunks_exact(2)) {
            if let [count, memory] = pair {
                let count = usize::try_from(count.as_integer()).unwrap_or_default();
                let memory = memory.as_bytes();
                call.made.add(part, memory.get(..count).unwrap_or(memory), false);
            }
        }
        let (restored, began) = (call.made.restored(), call.began);
        if let Some(outcome) = restored {
            if let Some(calls) = self.threads.get_mut(&thread) {
                calls.pop();
            }
            self.ends(id, outcome, began);
        }
    }

    /// Prints what it is time for. `is_last`: nothing more comes.
    fn flush(&mut self, out: &mut dyn Console, is_last: bool) -> Result<(), Error> {
        while let Some(next) = self.order.take(is_last) {
            if self.style.has_no_lines {
                if let Next::Whole(id) | Next::Resumed(id) = next {
                    self.calls.remove(&id);
                }
                continue;
            }
            let (id, has_end) = match next {
                Next::Other(told) => {
                    let before = self.before(told.thread, told.moment);
                    writeln!(out, "{before}{}", told.text)?;
                    continue;
                }
                Next::Begun(id) => {
                    if let Some((thread, began)) = self.calls.get(&id).map(|call| (call.thread, call.began)) {
                        let before = self.before(thread, began);
                        let line = self.calls.get(&id).map(|call| Line::of(&call.made).begun());
                        writeln!(out, "{before}{}", line.unwrap_or_default())?;
                    }
                    continue;
                }
                Next::Whole(id) => (id, true),
                Next::Resumed(id) => (id, false),
            };
            let Some(call) = self.calls.remove(&id) else { continue };
            let ended = call.ended.unwrap_or(call.began);
            let before = self.before(call.thread, if has_end { call.began } else { ended });
            let (line, column) = (Line::of(&call.made), before.chars().count());
            let mut text = match has_end {
                true => line.whole(column),
                false => line.resumed(column),
            };
            if self.style.has_durations && matches!(call.made.outcome, Outcome::Returned { .. }) {
                let microseconds = ended.since(call.began) / 1000;
                text += &format!(" <{}.{:06}>", microseconds / 1_000_000, microseconds % 1_000_000);
            }
            writeln!(out, "{before}{text}")?;
        }
        Ok(())
    }

    /// What stands before a line: the thread and the time.
    fn before(&mut self, thread: i64, moment: Moment) -> String {
        let of_thread = match (self.style.has_threads, self.has_several) {
            (true, _) => format!("{thread:<5} "),
            (false, true) => format!("[pid {thread:>5}] "),
            (false, false) => String::new(),
        };
        of_thread + &self.clock.stamp(moment)
    }

    /// The calls in which threads are, of one process or of all.
    fn unfinished(&mut self, process: Option<i64>, moment: Moment) {
        let mut threads: Vec<i64> = self.threads.keys().copied().collect();
        threads.sort_unstable();
        for thread in threads {
            let calls = self.threads.get(&thread).map_or(&[][..], Vec::as_slice);
            let of = |id: &Id| self.calls.get(id);
            let is_meant = |call: &Call| process.is_none_or(|process| call.process == process);
            if !calls.iter().filter_map(of).any(is_meant) {
                continue;
            }
            for id in self.threads.remove(&thread).unwrap_or_default() {
                let is_past = self.calls.get(&id).is_some_and(|call| may_not_return(&call.made));
                match (is_past, process) {
                    (true, _) => self.ends(id, Outcome::Left, moment),
                    (false, Some(_)) => self.ends(id, Outcome::Unfinished, moment),
                    // Only their beginnings are printed.
                    (false, None) => {}
                }
            }
        }
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
