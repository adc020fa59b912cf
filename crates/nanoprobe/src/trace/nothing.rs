//! Explains an empty result: the probes, the duration, and possible reasons why no probe fired.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use nanoprobe_lang::Program;
use nanoprobe_lang::program::{Clause, Statement};
use nanoprobe_session::{Known, Probe};

use crate::cost::hits::is_in_target;

/// The shortest time between two reads of the process's children.
const CHILDREN_PERIOD: Duration = Duration::from_millis(100);
/// A process with many threads has many lists of children. Reading them takes at most this fraction (1/50) of the time.
const LOOK_SHARE: u32 = 50;
/// The numbers of at most this many children are collected.
const CHILDREN_MAX: usize = 1000;
/// The number of modules, or children, that a message names.
const NAMED_MAX: usize = 4;

/// The run's observations of the traced process.
pub struct Seen {
    began: Instant,
    /// Whether a probe of the process has fired, or may have fired without a trace.
    any: bool,
    /// Whether forked children are traced, too.
    follows: bool,
    children: BTreeSet<u32>,
    /// Whether the process has waited for children that have ended.
    had_children: bool,
    /// The time of the next look at the children.
    next: Option<Instant>,
}

impl Seen {
    pub fn new(program: &Program) -> Seen {
        Seen {
            began: Instant::now(),
            // A clause that only assigns leaves no trace, so its firing cannot be observed.
            any: !program.clauses.iter().all(leaves_a_trace),
            follows: program.follows,
            children: BTreeSet::new(),
            had_children: false,
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

    /// Looks for children, now and then, while no probe has fired.
    pub fn look(&mut self, known: &Known) {
        let Some(process) = known.process().filter(|_| !self.any) else {
            return;
        };
        let now = Instant::now();
        if self.next.is_some_and(|next| now < next) || self.children.len() >= CHILDREN_MAX {
            return;
        }
        let pid = process.pid();
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task"))
            .into_iter()
            .flatten()
            .flatten();
        let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
        for list in lists {
            self.children
                .extend(list.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        self.had_children |= had_children(&stat);
        self.next = Some(now + (now.elapsed() * LOOK_SHARE).max(CHILDREN_PERIOD));
    }

    /// The message when no probe of the process has fired; `None` if one has, or if the process has no probes.
    pub fn nothing(&self, known: &Known) -> Option<String> {
        let mut modules: BTreeMap<&str, usize> = BTreeMap::new();
        for probe in known.probes().filter(|probe| is_in_target(probe)) {
            *modules.entry(&probe.module).or_default() += 1;
        }
        if self.any || modules.is_empty() {
            return None;
        }
        let probes: usize = modules.values().sum();
        let mut text = format!(
            "nothing was seen in {}: {} in {} did not fire",
            time(self.began.elapsed()),
            counted(probes, "probe"),
            some(modules.keys().map(|module| (*module).to_owned()))
        );
        for reason in self.reasons(known) {
            let _ = write!(text, "\n           {reason}");
        }
        Some(text)
    }

    fn reasons(&self, known: &Known) -> Vec<String> {
        let mut reasons = Vec::new();
        let pid = known.process().map_or(0, nanoprobe_target::Process::pid);
        if !self.follows && !self.children.is_empty() {
            let children = some(self.children.iter().map(u32::to_string));
            let number = self.children.len();
            let (noun, verb) = if number == 1 {
                ("child", "is")
            } else {
                ("children", "are")
            };
            reasons.push(format!(
                "process {pid} has {number} {noun} that {verb} not traced: {children} (-x follow=fork traces new ones)"
            ));
        } else if !self.follows && self.had_children {
            reasons.push(format!(
                "process {pid} had children, which were not traced (-x follow=fork traces them)"
            ));
        }
        for stripped in known.stripped() {
            let mut reason = format!(
                "{} is stripped: only {} of it {} a name",
                stripped.module,
                counted(stripped.named, "function"),
                if stripped.named == 1 { "has" } else { "have" }
            );
            if let Some(example) = &stripped.example {
                let others = stripped.unnamed;
                let go = if others == 1 { "goes" } else { "go" };
                let _ = write!(reason, "; {others} more {go} by where they begin ({example})");
            }
            reasons.push(reason);
        }
        let unmatched = known.unmatched();
        if !unmatched.is_empty() {
            reasons.push(format!("nothing there matches {}", some(unmatched.into_iter())));
        }
        let mut clauses = known.program().clauses.iter();
        if clauses.any(|clause| clause.predicate.is_some()) {
            reasons.push("predicates may have let nothing pass".to_owned());
        }
        reasons
    }
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
fn some(mut list: impl Iterator<Item = String>) -> String {
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
        assert!(!Seen::new(&program("BEGIN { @ = count(); }")).any);
        assert!(!Seen::new(&program("BEGIN { x = 1; trace(x); }")).any);
        assert!(!Seen::new(&program("BEGIN")).any);
        assert!(Seen::new(&program("BEGIN { x = 1; } END { trace(x); }")).any);
    }
}
