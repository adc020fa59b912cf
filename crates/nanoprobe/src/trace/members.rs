//! The processes of a run that have sessions beside the first one: those of a set (`-p A,B`, `--exe`), and the programs
//! that traced processes execute (`-x follow=exec`). All have one output and one set of aggregations.

use std::cell::Cell;
use std::collections::HashMap;
use std::rc::Rc;

use nanoprobe_export::Unplaced;
use nanoprobe_lang::Program;
use nanoprobe_session::{Attached, Compiled, Heartbeat, Known, Programs, TracedProgram};
use nanoprobe_target::Process;

use super::aggregating::needs_aggregations;
use super::matches::{Unmatched, texts_of, without_match};
use super::reporting::{Told, unplaced};
use super::set::Set;
use crate::cost::limit::Limit;
use crate::places::OfProcess;

/// A process with a session of its own.
pub struct Member<'a> {
    pub(super) session: Attached,
    pub(super) told: Told<'a>,
    /// The limit of `-x maxcost` in this process.
    pub(super) limit: Option<Limit>,
    /// The numbers that replace its addresses in keys.
    pub(super) numbers: OfProcess,
    /// The types of a program that was compiled for this process refer to it.
    pub(super) _traced: Option<Rc<TracedProgram>>,
}

impl Member<'_> {
    pub fn pid(&self) -> Option<i32> {
        self.session.known().process().map(Process::pid)
    }
}

/// The members of a run.
pub struct Members<'a> {
    pub(super) programs: Programs,
    pub(super) list: Vec<Member<'a>>,
    /// Whether clauses print aggregations while tracing goes on.
    pub(super) prints_aggregations: bool,
    /// The program as compiled for a process, by the process's number.
    pub(super) compiled: HashMap<i32, Rc<Compiled>>,
    /// The descriptions that have matched in no process so far.
    unmatched: Option<Unmatched>,
    /// Whether no member has recorded anything in the last round.
    pub(super) are_quiet: bool,
    /// Whether the last wait ended at once.
    pub(super) was_early: Cell<bool>,
    /// Whether a member has ended since memory was last given back.
    pub(super) have_ended: bool,
    /// The first place that could not be probed.
    pub(super) unplaced: Option<Unplaced>,
    /// `None`: all members are programs that the first process or a child of it has executed.
    pub(super) set: Option<Set>,
}

impl<'a> Members<'a> {
    /// `None`: a run of one process whose executed programs are not traced.
    pub fn of(compiled: &Rc<Compiled>, known: &Known, set: Option<Set>) -> Option<Members<'a>> {
        let root = known.process().map(Process::pid);
        let follows = root.is_some() && compiled.options().tracing.follow.programs();
        (follows || set.is_some()).then(|| Members {
            programs: Programs::default(),
            list: Vec::new(),
            prints_aggregations: compiled.program().clauses.iter().any(needs_aggregations),
            compiled: root.map(|root| (root, compiled.clone())).into_iter().collect(),
            unmatched: None,
            are_quiet: false,
            was_early: Cell::new(false),
            have_ended: false,
            unplaced: None,
            set,
        })
    }

    /// Whether members live, or are about to begin.
    pub fn are_busy(&self) -> bool {
        !self.list.is_empty() || self.programs.is_waiting() || self.set.as_ref().is_some_and(Set::is_awaiting)
    }

    /// Shows all members, and the first process, a living tracer: another process is worked on for a while.
    pub fn keep_alive(&self, first: &Attached) -> Heartbeat {
        Attached::keep_alive(self.list.iter().map(|member| &member.session).chain([first]))
    }

    /// Whether something is to be done at once.
    pub fn are_hurried(&self) -> bool {
        self.programs.is_waiting() || self.list.iter().any(|member| !member.session.known().is_loaded())
    }

    /// Whether a process has a session of its own, or is about to execute a program that will have one.
    pub fn has(&self, pid: i32) -> bool {
        self.programs.is_holding(pid) || self.list.iter().any(|member| member.pid() == Some(pid))
    }

    /// Notes what matched in a process, and what could not be placed there.
    pub fn note_matches(&mut self, known: &Known) {
        let unmatched = without_match(known);
        self.unmatched = Some(match self.unmatched.take() {
            Some(before) => &before & &unmatched,
            None => unmatched,
        });
        if self.unplaced.is_none() {
            let mut refused = known.refused().iter();
            self.unplaced = refused.find(|refused| !refused.is_early_return()).map(unplaced);
        }
    }

    /// The descriptions of the first program that have matched in no process.
    pub fn unmatched(&self, program: &Program) -> Vec<String> {
        let unmatched = self.unmatched.iter().flatten();
        texts_of(program, unmatched)
    }

    /// Drops the program that was compiled for a process of a set whose sessions have ended. Without a set the process
    /// is no member, and may execute programs until the run ends.
    pub fn forget(&mut self, root: Option<i32>) {
        if self.set.is_none() {
            return;
        }
        let is_used = self.list.iter().any(|member| member.session.known().root() == root);
        if let (Some(root), false, false) = (root, is_used, self.programs.is_waiting()) {
            self.compiled.remove(&root);
        }
    }
}
