//! A program, and what follows from it and its options alone.

use std::rc::Rc;
use std::sync::Arc;

use nanoprobe_lang::Program;
use nanoprobe_lang::layout::{Limits, RecordLayout, Storage, record_layout};
use nanoprobe_lang::options::Options;
use nanoprobe_lang::program::ProbeDescription;
use nanoprobe_patch::Tactic;

use crate::error::SessionError;
use crate::holders::Searches;
use crate::kept_files::KeptFiles;
use crate::layout::ArenaLayout;
use crate::probes::named_process;

/// A program, its options, and where its variables and records lie: the same for each process that it traces.
pub struct Compiled {
    pub(super) program: Program,
    pub(super) options: Options,
    pub(super) limits: Limits,
    pub(super) storage: Storage,
    pub(super) layout: ArenaLayout,
    /// The layout of each clause's records.
    pub(super) records: Vec<RecordLayout>,
    pub(super) tactic: Option<Tactic>,
    /// The processes that its descriptions may name.
    pids: Vec<i32>,
    /// What is known of the files that these processes map.
    pub(super) files: Arc<KeptFiles>,
    /// The latest search for children.
    pub(super) searches: Arc<Searches>,
}

impl Compiled {
    /// Lays out what a program keeps.
    ///
    /// # Errors
    /// Its variables or options need more than an arena can hold, or the value of an option is wrong.
    pub fn new(program: Program, options: Options) -> Result<Rc<Compiled>, SessionError> {
        Compiled::for_processes(program, options, Vec::new(), None)
    }

    /// As [`Compiled::new`], for a program that traces several processes, each in its own session. A description that
    /// names one of them (`pid7:...`) matches in that session, and is ignored in the others. `first`: the program that
    /// was compiled for another one of them. What is known of files is common to all.
    ///
    /// # Errors
    /// As [`Compiled::new`].
    pub fn for_processes(
        mut program: Program,
        options: Options,
        pids: Vec<i32>,
        first: Option<&Compiled>,
    ) -> Result<Rc<Compiled>, SessionError> {
        program.follows = options.tracing.follow.forks();
        let limits = options.limits();
        let storage = Storage::new(&program, limits);
        let layout = ArenaLayout::new(&program, &storage, &options)?;
        let clauses = program.clauses.iter();
        let records = clauses.map(|clause| record_layout(clause, limits)).collect();
        let tactic = options.tracing.tactic.as_deref().map(str::parse).transpose();
        Ok(Rc::new(Compiled {
            tactic: tactic.map_err(SessionError::Option)?,
            pids,
            program,
            options,
            limits,
            storage,
            layout,
            records,
            files: first.map_or_else(Arc::default, |first| first.files.clone()),
            searches: first.map_or_else(Arc::default, |first| first.searches.clone()),
        }))
    }

    /// The same program, compiled for a process that executes another file: types and addresses are that file's.
    ///
    /// # Errors
    /// As [`Compiled::new`].
    pub fn anew(&self, program: Program, options: Options) -> Result<Rc<Compiled>, SessionError> {
        Compiled::for_processes(program, options, self.pids.clone(), Some(self))
    }

    /// Whether a description names another of the processes than `pid`.
    pub(super) fn is_for_another(&self, description: &ProbeDescription, pid: Option<i32>) -> bool {
        let named = named_process(std::iter::once(description)).map(|(named, _)| named);
        named.is_some_and(|named| Some(named) != pid && self.pids.contains(&named))
    }

    /// The D program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// How many mapped files were read, and how many more were known from another process.
    pub fn file_counts(&self) -> (u64, u64) {
        self.files.counts()
    }

    /// Its options.
    pub fn options(&self) -> &Options {
        &self.options
    }
}
