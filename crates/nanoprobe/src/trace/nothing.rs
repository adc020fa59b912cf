//! Explains an empty result: the probes, the duration, and possible reasons why no probe fired.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use nanoprobe_lang::Program;
use nanoprobe_lang::program::{Clause, ProbeDescription, Statement};
use nanoprobe_session::{Known, Place, Probe, Stripped};
use nanoprobe_target::Process;
use nanoprobe_target::proc_file;

use crate::cost::hits::is_in_target;

/// The shortest time between two reads of the process's children.
const CHILDREN_PERIOD: Duration = Duration::from_millis(100);
/// The same when a probe has fired: then children are told of at the end only.
const SEEN_PERIOD: Duration = Duration::from_secs(1);
/// A process with many threads has many lists of children. Reading them takes at most this fraction (1/50) of the time.
const LOOK_SHARE: u32 = 50;
/// The numbers of at most this many children are collected.
const CHILDREN_MAX: usize = 1000;
/// So many processes, and so many modules, are remembered by number and by name: a set may have ever new ones.
const TRACED_MAX: usize = 10_000;
const MODULES_MAX: usize = 1000;
/// The number of modules, or children, that a message names.
const NAMED_MAX: usize = 4;

/// The run's observations of the traced processes.
pub struct Seen {
    began: Instant,
    /// Whether a probe of a process has fired, or may have fired without a trace.
    any: bool,
    /// Whether a clause leaves no trace when it fires.
    may_assign: bool,
    /// Whether forked children are traced, too.
    follows: bool,
    has_predicates: bool,
    /// The probes that were in place, in all processes.
    probes: usize,
    modules: BTreeSet<String>,
    stripped: BTreeMap<String, Stripped>,
    /// How many processes had probes.
    processes: usize,
    /// The numbers of the first of them.
    traced: BTreeSet<i32>,
    /// The children of each process.
    children: BTreeMap<i32, BTreeSet<i32>>,
    /// The processes that have waited for children that have ended.
    had_children: BTreeSet<i32>,
    /// The time of the next look at the children.
    next: Option<Instant>,
}

impl Seen {
    pub fn new(program: &Program) -> Seen {
        // A clause that only assigns leaves no trace, so its firing cannot be observed.
        let in_target = || program.clauses.iter().filter(|clause| is_of_target(clause));
        Seen {
            began: Instant::now(),
            any: !in_target().any(leaves_a_trace),
            may_assign: !in_target().all(leaves_a_trace),
            follows: program.follows,
            has_predicates: program.clauses.iter().any(|clause| clause.predicate.is_some()),
            probes: 0,
            modules: BTreeSet::new(),
            stripped: BTreeMap::new(),
            processes: 0,
            traced: BTreeSet::new(),
            children: BTreeMap::new(),
            had_children: BTreeSet::new(),
            next: None,
        }
    }

    /// Notes the time at which the probes are in place.
    pub fn begin(&mut self) {
        self.began = Instant::now();
    }

    /// Notes a record or a fault of this probe.
    pub fn fired(&mut self, probe: &Probe) {
        self.any |= is_in_target(probe);
    }

    /// Notes whether anything was aggregated or lost.
    pub fn counted(&mut self, is_any: bool) {
        self.any |= is_any;
    }

    /// Looks for the children of all processes, now and then, until a probe has fired and a child was seen.
    pub fn look<'k>(&mut self, all: impl Iterator<Item = &'k Known>) {
        let now = Instant::now();
        let is_known = self.any && (self.follows || !self.children.is_empty());
        if is_known || self.next.is_some_and(|next| now < next) {
            return;
        }
        for process in all.filter_map(Known::process) {
            self.look_at(process.pid());
        }
        let period = if self.any { SEEN_PERIOD } else { CHILDREN_PERIOD };
        self.next = Some(now + (now.elapsed() * LOOK_SHARE).max(period));
    }

    /// The next look is not put off: it is the last one.
    pub fn look_now(&mut self) {
        self.next = None;
    }

    fn look_at(&mut self, pid: i32) {
        if self.children.values().map(BTreeSet::len).sum::<usize>() >= CHILDREN_MAX {
            return;
        }
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))
            .into_iter()
            .flatten()
            .flatten();
        let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
        for list in lists {
            let pids = list.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok());
            let mut pids = pids.peekable();
            if pids.peek().is_some() {
                self.children.entry(pid).or_default().extend(pids);
            }
        }
        let stat = proc_file::read_text(format!("/proc/{pid}/stat")).unwrap_or_default();
        if had_children(&stat) {
            self.had_children.insert(pid);
        }
    }

    /// Notes the probes of a process when its tracing ends.
    pub fn note(&mut self, known: &Known) {
        if self.any {
            self.note_traced(known);
            return;
        }
        let before = self.probes;
        for probe in known.probes().filter(|probe| is_in_target(probe)) {
            self.probes += 1;
            let module = match probe.place {
                Place::Call { .. } => "system calls",
                _ => &*probe.module,
            };
            if !self.modules.contains(module) && self.modules.len() < MODULES_MAX {
                self.modules.insert(module.to_owned());
            }
        }
        if self.probes == before {
            return;
        }
        self.processes += 1;
        self.note_traced(known);
        for stripped in known.stripped() {
            if self.stripped.len() < MODULES_MAX {
                self.stripped.entry(stripped.module.clone()).or_insert(stripped);
            }
        }
    }

    fn note_traced(&mut self, known: &Known) {
        if self.traced.len() < TRACED_MAX {
            self.traced.extend(known.process().map(Process::pid));
        }
    }

    /// The message when probes have fired, and children were seen that are not traced.
    pub fn untraced_children(&self) -> Option<String> {
        let is_untraced = |children: &BTreeSet<i32>| !children.is_subset(&self.traced);
        (self.any && self.children.values().any(is_untraced))
            .then(|| self.of_children())
            .flatten()
    }

    /// The message when no probe of a process has fired; `None` if one has, or if there were none. `unmatched`: the
    /// descriptions that match nothing, if that is not told elsewhere.
    pub fn nothing(&self, unmatched: Vec<String>) -> Option<String> {
        if self.any || self.probes == 0 {
            return None;
        }
        let of = match self.processes {
            0 | 1 => String::new(),
            more => format!(" of {more} processes"),
        };
        let time = time(self.began.elapsed());
        let probes = counted(self.probes, "probe");
        let modules = some(self.modules.iter().cloned());
        let mut text = match self.may_assign {
            true => format!(
                "nothing was recorded in {time} by {probes} in {modules}{of} (a clause that only assigns may have run)"
            ),
            false => format!("nothing was seen in {time}: {probes} in {modules}{of} did not fire"),
        };
        for reason in self.reasons(unmatched) {
            let _ = write!(text, "\n           {reason}");
        }
        Some(text)
    }

    fn reasons(&self, unmatched: Vec<String>) -> Vec<String> {
        let mut reasons: Vec<String> = self.of_children().into_iter().collect();
        for stripped in self.stripped.values() {
            let mut reason = format!(
                "{} is stripped: only {} of it {} a name",
                stripped.module,
                counted(stripped.named, "function"),
                if stripped.named == 1 { "has" } else { "have" }
            );
            if let Some(example) = &stripped.example {
                let others = stripped.unnamed;
                let go = if others == 1 { "goes" } else { "go" };
                let _ = write!(reason, "; {others} more {go} by their addresses ({example})");
            }
            reasons.push(reason);
        }
        if !unmatched.is_empty() {
            reasons.push(format!("nothing there matches {}", some(unmatched.into_iter())));
        }
        if self.has_predicates {
            reasons.push("perhaps no predicate was true".to_owned());
        }
        reasons
    }

    /// The children that may have done what was looked for. A child that is itself one of the processes is traced.
    fn of_children(&self) -> Option<String> {
        if self.follows {
            return None;
        }
        let untraced = |children: &BTreeSet<i32>| -> Vec<i32> { children.difference(&self.traced).copied().collect() };
        let parents = self.children.iter().map(|(pid, children)| (*pid, untraced(children)));
        let parents: Vec<(i32, Vec<i32>)> = parents.filter(|(_, children)| !children.is_empty()).collect();
        let children: BTreeSet<i32> = parents.iter().flat_map(|(_, children)| children).copied().collect();
        if !children.is_empty() {
            let whose = match parents[..] {
                [(pid, _)] => format!("process {pid} has"),
                _ => format!("{} of the processes have", parents.len()),
            };
            let (noun, verb) = if children.len() == 1 {
                ("child", "is")
            } else {
                ("children", "are")
            };
            return Some(format!(
                "{whose} {} {noun} that {verb} not traced: {} (-x follow=fork traces new ones)",
                children.len(),
                some(children.iter().map(i32::to_string))
            ));
        }
        // Those that were seen were traced.
        let mut had = self.had_children.iter().filter(|pid| !self.children.contains_key(pid));
        let first = had.next()?;
        let whose = match had.count() {
            0 => format!("process {first}"),
            more => format!("{} of the processes", more + 1),
        };
        Some(format!(
            "{whose} had children, which were not traced (-x follow=fork traces them)"
        ))
    }
}

/// Whether a clause is for more than the tracer's own probes.
fn is_of_target(clause: &Clause) -> bool {
    let is_own = |probe: &ProbeDescription| {
        ["BEGIN", "END", "ERROR"].contains(&probe.name.as_str()) || probe.name.starts_with("tick-")
    };
    !clause.probes.iter().all(is_own)
}

/// Whether some probes are written into the process. Those of `sched` and `profile` are the kernel's.
pub fn has_places(program: &Program) -> bool {
    let is_kernel_s = |probe: &ProbeDescription| probe.provider == "sched" || probe.name.starts_with("profile-");
    let mut clauses = program.clauses.iter().filter(|clause| is_of_target(clause));
    clauses.any(|clause| !clause.probes.iter().all(is_kernel_s))
}

/// Whether a clause that fires records or aggregates.
fn leaves_a_trace(clause: &Clause) -> bool {
    let mut statements = clause.statements.iter();
    // A clause without statements prints its probe.
    clause.statements.is_empty() || statements.any(|statement| !matches!(statement, Statement::Expression(_)))
}

/// Whether a process has waited for children that have ended: their page faults are then counted (`cminflt` of
/// /proc/PID/stat, proc(5)).
fn had_children(stat: &str) -> bool {
    // The program's name, in parentheses, may contain any bytes.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let faults = fields
        .split_whitespace()
        .nth(8)
        .and_then(|faults| faults.parse::<u64>().ok());
    faults.is_some_and(|faults| faults > 0)
}

fn time(duration: Duration) -> String {
    match duration.as_millis() {
        milliseconds @ ..1000 => format!("{milliseconds} ms"),
        _ => format!("{:.1} s", duration.as_secs_f64()),
    }
}

fn counted(number: usize, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ => format!("{number} {noun}s"),
    }
}

/// The first elements of a list, and the number of the others.
pub fn some(mut list: impl Iterator<Item = String>) -> String {
    let named: Vec<String> = list.by_ref().take(NAMED_MAX).collect();
    match list.count() {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_that_were_waited_for_have_left_faults() {
        let stat = |faults: u32| format!("7 (a) b (c) S 1 7 7 0 -1 4194304 120 {faults} 0 0 1 2 3 4 20 0 1 0");
        assert!(had_children(&stat(12)) && !had_children(&stat(0)));
        assert!(!had_children("") && !had_children("7 (x"));
    }

    #[test]
    fn a_long_list_is_cut() {
        let list = |number: usize| some((1..=number).map(|number| number.to_string()));
        assert_eq!(list(1), "1");
        assert_eq!(list(4), "1, 2, 3, 4");
        assert_eq!(list(6), "1, 2, 3, 4 and 2 more");
    }

    #[test]
    fn only_assignments_leave_no_trace() {
        let program = |text: &str| {
            let source = nanoprobe_lang::Source::new("test", text);
            nanoprobe_lang::compile(&[source], &nanoprobe_lang::MacroValues::default()).expect(text)
        };
        for (text, any, may_assign) in [
            ("pid7::f:entry { @ = count(); }", false, false),
            ("pid7::f:entry { x = 1; trace(x); }", false, false),
            ("pid7::f:entry", false, false),
            ("pid7::f:entry { x = 1; } pid7::f:return { trace(x); }", false, true),
            ("pid7::f:entry { x = 1; } END { trace(x); }", true, true),
            ("tick-1s, BEGIN { x = 1; } pid7::f:entry { trace(x); }", false, false),
            ("BEGIN { trace(1); }", true, false),
        ] {
            let seen = Seen::new(&program(text));
            assert_eq!((seen.any, seen.may_assign), (any, may_assign), "{text}");
        }
    }
}
