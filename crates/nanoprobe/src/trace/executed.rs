//! Programs that the traced processes execute (`-x follow=exec`, `all`): each has a session of its own, and all have
//! one output.

use std::collections::BTreeSet;
use std::rc::Rc;

use nanoprobe_lang::Program;
use nanoprobe_lang::options::Follow;
use nanoprobe_lang::program::KeyType;
use nanoprobe_session::{Attached, Compiled, Known, Programs};
use nanoprobe_target::Process;

use super::aggregating::needs_aggregations;

/// Why a program cannot be traced in several processes: its aggregations have keys that the symbols of one process
/// explain.
pub fn refusal(program: &Program, follow: Follow) -> Option<&'static str> {
    let mut keys = program.aggregations.iter().flat_map(|found| &found.keys);
    let has_addresses = keys.any(|key| matches!(key, KeyType::UserStack { .. } | KeyType::Symbol(_)));
    (follow.programs() && has_addresses).then_some(
        "addresses mean other functions in each program: with -x follow=exec or all, no aggregation may have ustack(), \
         usym(), uaddr() or umod() as a key (as actions they may be used)",
    )
}

/// The executed programs of a run.
pub struct Executed {
    pub(super) compiled: Rc<Compiled>,
    pub(super) programs: Programs,
    pub(super) sessions: Vec<Attached>,
    /// Whether clauses print aggregations while tracing goes on.
    pub(super) prints_aggregations: bool,
    /// The descriptions that have matched in no program so far.
    unmatched: Option<BTreeSet<String>>,
}

impl Executed {
    /// `None`: executed programs are not traced.
    pub fn of(compiled: &Rc<Compiled>, known: &Known) -> Option<Executed> {
        let root = known.process().map(Process::pid)?;
        compiled.options().tracing.follow.programs().then(|| Executed {
            programs: Programs::new(root),
            sessions: Vec::new(),
            prints_aggregations: compiled.program().clauses.iter().any(needs_aggregations),
            unmatched: None,
            compiled: compiled.clone(),
        })
    }

    /// Whether executed programs live, or are about to begin.
    pub fn is_busy(&self) -> bool {
        !self.sessions.is_empty() || self.programs.is_waiting()
    }

    /// Whether something is to be done at once.
    pub fn is_hurried(&self) -> bool {
        self.programs.is_waiting() || self.sessions.iter().any(|session| !session.known().is_loaded())
    }

    /// Notes which descriptions have matched in a program.
    pub fn note_matches(&mut self, known: &Known) {
        let unmatched: BTreeSet<String> = known.unmatched().into_iter().collect();
        self.unmatched = Some(match self.unmatched.take() {
            Some(before) => before.intersection(&unmatched).cloned().collect(),
            None => unmatched,
        });
    }

    /// The descriptions that have matched in no program.
    pub fn unmatched(&self) -> impl Iterator<Item = &String> {
        self.unmatched.iter().flatten()
    }
}
