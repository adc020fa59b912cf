//! The processes of a run that have sessions beside the first one: those of a set (`-p A,B`, `--exe`), and the programs
//! that traced processes execute (`-x follow=exec`). All have one output and one set of aggregations.

use std::collections::HashMap;
use std::rc::Rc;

use nanoprobe_export::Unplaced;
use nanoprobe_lang::Program;
use nanoprobe_session::{Attached, Heartbeat, Known, Programs, TracedProgram};
use nanoprobe_target::Process;

use super::aggregating::{Aggregated, needs_aggregations};
use super::anew::Root;
use super::early::Early;
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

    /// Adds its values to those of the run.
    pub fn load_into(&mut self, aggregated: &mut Aggregated) -> Result<(), anyhow::Error> {
        let limit = self.limit.as_mut();
        aggregated.load_from(self.session.tracing_mut(), limit, &mut self.numbers)
    }
}

/// The members of a run.
pub struct Members<'a> {
    pub(super) programs: Programs,
    pub(super) list: Vec<Member<'a>>,
    /// Whether clauses print or clear aggregations.
    pub(super) prints_aggregations: bool,
    /// The program as compiled for a process, by the process's number.
    pub(super) compiled: HashMap<i32, Root>,
    /// The descriptions that have matched in no process so far.
    unmatched: Option<Unmatched>,
    /// Whether no member has recorded anything in the last round.
    pub(super) are_quiet: bool,
    /// How often a wait may still end at once.
    pub(super) early: Early,
    /// Whether a member has ended since memory was last given back.
    pub(super) have_ended: bool,
    /// Whether a clause that assigns a global variable has had probes in an executed program, which has a variable of
    /// its own.
    pub(super) has_own_variables: bool,
    /// Whether a program was told of for which the text is not good.
    pub(super) has_left: bool,
    /// The first place that could not be probed.
    pub(super) unplaced: Option<Unplaced>,
    /// `None`: all members are programs that the first process or a child of it has executed.
    pub(super) set: Option<Set>,
}

impl<'a> Members<'a> {
    /// `None`: a run of one process whose executed programs are not traced.
    pub fn of(root: &Root, known: &Known, set: Option<Set>) -> Option<Members<'a>> {
        let pid = known.process().map(Process::pid);
        let compiled = &root.compiled;
        let follows = pid.is_some() && compiled.options().tracing.follow.programs();
        (follows || set.is_some()).then(|| Members {
            programs: Programs::default(),
            list: Vec::new(),
            prints_aggregations: compiled.program().clauses.iter().any(needs_aggregations),
            compiled: pid.map(|pid| (pid, root.clone())).into_iter().collect(),
            unmatched: None,
            are_quiet: false,
            early: Early::new(),
            have_ended: false,
            has_own_variables: false,
            has_left: false,
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

    /// The same while each of them is polled. One may have loaded a library whose probes take seconds, and another one
    /// may wait for its own.
    pub fn keep_alive_while_polled(&self, first: &Attached) -> Option<Heartbeat> {
        let may_wait = self.list.len() > 1 || self.list.iter().any(|member| !member.session.known().is_loaded());
        may_wait.then(|| self.keep_alive(first))
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
        if self.set.is_none() && known.is_member() && !self.has_own_variables {
            let clauses = &known.program().clauses;
            let mut enabled = known.enablings().filter_map(|enabling| clauses.get(enabling.clause));
            self.has_own_variables = enabled.any(|clause| {
                let is_hidden = clause.derived.as_ref().is_some_and(|derived| derived.is_hidden);
                !is_hidden && clause.assigns_globals()
            });
        }
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
