//! The data that comes out of an arena, and the clauses that fire in the tracer: from the first probe to END.

mod events;
mod exiting;
mod reading;

use std::collections::VecDeque;
use std::sync::Arc;

use nanoprobe_arena::{DynamicVariables, Mapping, Memory as _, Record};
use nanoprobe_export::Speculations;
use nanoprobe_lang::program::Clause;
use nanoprobe_patch::TargetAddress;

use super::known::Known;
use super::output::Output;
use crate::aggregations::Aggregations;
use crate::arena_memory::ArenaMemory;
use crate::attachment::Attachment;
use crate::drain::{self, Consumer};
use crate::error::SessionError;
use crate::made_code;
use crate::others;
use crate::tracer_state::TracerState;
use crate::unseen_calls::UnseenCalls;

/// See the module's description.
pub struct Tracing {
    pub(super) known: Known,
    pub(super) arena: Arena,
    pub(super) consumer: Consumer,
    pub(super) outputs: VecDeque<Output>,
    aggregations: Aggregations,
    pub(super) tracer: TracerState,
    speculations: Speculations<Output>,
    exit_status: Option<i32>,
    /// A clause that the tracer ran has called `exit()`.
    handlers_stopped: Option<HandlersStopped>,
    pub(super) lost: Lost,
    /// Whether the program has stacks.
    walks_stacks: bool,
    unseen_calls: UnseenCalls,
    /// What `BEGIN` has left in the variables, for the programs that the process and its children execute.
    begun: Option<BegunVariables>,
}

/// The bytes of a program's variables.
struct BegunVariables {
    globals: Vec<u8>,
    /// Of associative arrays.
    dynamic: Vec<u8>,
}

/// The memory in which a program keeps its variables and its records.
pub(super) struct Arena {
    memory: Arc<ArenaMemory>,
    /// `None` where no process is traced, and the memory is the tracer's own.
    shared: Option<Shared>,
}

/// Present when a process has the arena, too.
#[derive(Clone, Copy)]
struct Shared {
    /// The arena's address in the process.
    address: TargetAddress,
    /// One of `RING_*`.
    ring_policy: u32,
}

/// Records that were lost outside of the arena.
#[derive(Clone, Copy, Default)]
pub(super) struct Lost {
    /// Calls that were left without a return, or whose return was not seen.
    pub(super) calls: u64,
    /// Samples of threads for which there was no room.
    pub(super) samples: u64,
    /// Records of switches for which there was no room.
    pub(super) switches: u64,
    /// Firings of `tick-` and `profile-` for which the tracer was too late.
    pub(super) ticks: u64,
}

/// The moment from which no handler may begin.
#[derive(Clone, Copy, Debug)]
struct HandlersStopped {
    /// The moment, as a reading of the time stamp counter.
    time: u64,
    /// Hits that had been missed by then.
    missed: u64,
}

impl HandlersStopped {
    /// Whether a record was made before that moment. A record without a time counts as made before.
    fn is_before(&self, record: &Record) -> bool {
        record.tsc > self.time
    }
}

impl Arena {
    /// The arena of a program that traces no process.
    pub(super) fn private(bytes: u64) -> Result<Arena, SessionError> {
        Ok(Arena {
            memory: Arc::new(ArenaMemory::private(bytes).map_err(SessionError::Arena)?),
            shared: None,
        })
    }

    /// The memory that an attachment has mapped.
    pub(super) fn of(attachment: &Attachment) -> Result<Arena, SessionError> {
        Ok(Arena {
            memory: attachment.arena.clone().ok_or(SessionError::NotAttached)?,
            shared: Some(Shared {
                address: attachment.addresses.arena,
                ring_policy: attachment.parameters.ring_policy,
            }),
        })
    }

    fn memory(&self) -> &Mapping {
        self.memory.memory()
    }

    /// The memory, if a process has it, too.
    fn shared(&self) -> Option<(&Mapping, Shared)> {
        Some((self.memory.memory(), self.shared?))
    }
}

impl Tracing {
    pub(super) fn new(known: Known, arena: Arena, warnings: Vec<String>) -> Tracing {
        let options = &known.compiled.options;
        Tracing {
            arena,
            consumer: Consumer::default(),
            outputs: warnings.into_iter().map(Output::Warning).collect(),
            aggregations: Aggregations::default(),
            tracer: TracerState::on(options.recording.processor),
            speculations: Speculations::new(options.recording.speculation_bytes),
            exit_status: None,
            unseen_calls: UnseenCalls::new(!options.tracing.made_calls),
            handlers_stopped: None,
            lost: Lost::default(),
            walks_stacks: known.program().clauses.iter().any(Clause::walks_stack),
            begun: None,
            known,
        }
    }

    /// The tracer's knowledge of the process.
    pub fn known(&self) -> &Known {
        &self.known
    }

    /// The status of an `exit()` that was run, when one was.
    pub fn exit_status(&self) -> Option<i32> {
        self.exit_status
    }

    pub(super) fn memory(&self) -> &Mapping {
        self.arena.memory()
    }

    /// The arena that the process has, too.
    pub(super) fn shared_arena(&self) -> Option<&Mapping> {
        self.arena.shared().map(|(memory, _)| memory)
    }

    pub(super) fn warn(&mut self, text: impl Into<String>) {
        self.outputs.push_back(Output::Warning(text.into()));
    }

    /// Names the interpreted code that stacks show, while it exists.
    pub(super) fn look_for_code(&mut self) -> Result<(), SessionError> {
        let mut interpreted = self.known.interpreted.borrow_mut();
        if let (Some((arena, _)), Some(process)) = (self.arena.shared(), self.known.process()) {
            interpreted.look(arena, process.memory())?;
        }
        if let (true, Some(process)) = (self.walks_stacks, self.known.process()) {
            let arena = self.arena.shared.is_some().then_some(&self.arena.memory);
            self.known.made_code.borrow_mut().look(process, arena);
        }
        if self.unseen_calls.is_due() {
            let process = self.known.process().filter(|_| self.known.traces_calls());
            let arena = self.arena.shared.is_some().then_some(&self.arena.memory);
            let own = || {
                let mut own = arena.and_then(made_code::own_code).unwrap_or_default();
                own.extend(process.map(others::code_of_tracers).unwrap_or_default());
                own
            };
            let told = self.unseen_calls.look(process, own);
            self.outputs.extend(told.into_iter().map(Output::Warning));
        }
        let warnings = interpreted.take_warnings();
        self.outputs.extend(warnings.into_iter().map(Output::Warning));
        Ok(())
    }

    /// Variables are zero at first, or have the values of another session's.
    pub(super) fn initialise_variables(&self, like: Option<&Tracing>) -> Result<(), SessionError> {
        let compiled = &self.known.compiled;
        let layout = &compiled.layout;
        let table = DynamicVariables::new(layout.dynamic_offset, layout.dynamic_bytes);
        if layout.dynamic_bytes > 0 {
            table.initialise(self.memory())?;
        }
        let Some(other) = like else { return Ok(()) };
        let to = self.memory();
        let of_other = &other.known.compiled.layout;
        // The two programs come from one text, so their variables differ only if their types do.
        if compiled.program.globals != other.known.program().globals {
            return Err(SessionError::OtherVariables);
        }
        // No process uses a leader's variables, so they may be copied at any time.
        let copied;
        let begun = match &other.begun {
            Some(begun) => begun,
            None => {
                copied = other.copy_variables()?;
                &copied
            }
        };
        to.write(layout.globals_offset, &begun.globals)?;
        if layout.dynamic_bytes > 0 && layout.dynamic_bytes == of_other.dynamic_bytes {
            to.write(layout.dynamic_offset, &begun.dynamic)?;
        }
        Ok(())
    }

    /// Keeps the variables as they are, for programs that will be executed. No handler may run yet.
    pub(super) fn keep_variables(&mut self) -> Result<(), SessionError> {
        self.begun = Some(self.copy_variables()?);
        Ok(())
    }

    fn copy_variables(&self) -> Result<BegunVariables, SessionError> {
        let (compiled, memory) = (&self.known.compiled, self.memory());
        let layout = &compiled.layout;
        let globals = memory.copy(layout.globals_offset, u64::from(compiled.storage.globals_bytes))?;
        let dynamic = match layout.dynamic_bytes {
            0 => Vec::new(),
            bytes => {
                let used = DynamicVariables::new(layout.dynamic_offset, bytes).used(memory)?;
                memory.copy(layout.dynamic_offset, used)?
            }
        };
        Ok(BegunVariables { globals, dynamic })
    }

    /// Looks whether a clause in the process has run `exit()`.
    pub(super) fn look_for_exit(&mut self) -> Result<(), SessionError> {
        if self.exit_status.is_none()
            && let Some(status) = drain::exit_requested(self.memory())?
        {
            self.exit_status = Some(status);
        }
        Ok(())
    }
}
