//! Programs that a traced process, or a child of it, executes: the new program is traced by a session of its own.
//!
//! ```text
//!   a thread is about to execute    agent/exec.c asks, and waits
//!   serve                           the file is looked at, the thread is seized, the answer is written
//!   take                            the new program stands before its first instruction
//! ```
//!
//! The target can write to the arena, so the arena's data may be false. A thread is seized only if it has this arena
//! mapped. docs/design/trees.md has the argument.

use std::collections::VecDeque;
use std::mem::offset_of;
use std::sync::Arc;
use std::time::Duration;

use nanoprobe_arena::layout::{Control, EXEC_ALONE, EXEC_ASKED, EXEC_FAILED, EXEC_FREE, EXEC_HELD, EXECS, Exec};
use nanoprobe_arena::{ControlBlock, Memory as _, OutOfBounds};
use nanoprobe_patch::TargetAddress;
use nanoprobe_target::executing::{Executing, Execution, Looked, Path, look};
use nanoprobe_target::proc_file;
use nanoprobe_target::{Map, Seccomp};

use crate::acquire::{Acquired, Role};
use crate::arena_memory::ArenaMemory;
use crate::attachment::Attachment;
use crate::error::SessionError;
use crate::holders::ArenaFile;

/// An execve takes no longer. A thread may also never make the call: a signal handler may have left ours.
const HELD_MAX: Duration = Duration::from_secs(10);
/// The most messages about programs left alone that are kept.
const MESSAGES_MAX: usize = 100;

/// The requests of one traced process, its children included.
pub(crate) struct Requests {
    arena: Arc<ArenaMemory>,
    address: TargetAddress,
    /// Device and inode of the arena.
    file: ArenaFile,
    /// The number of requests at the last look.
    seen: u32,
    /// The programs that were executed without an answer by then.
    alone: u32,
    sandboxed: u32,
    /// The process for which the program was compiled.
    root: i32,
}

impl Requests {
    /// The requests of a process; `None`: its programs are not followed.
    pub fn of(attachment: &Attachment, role: Role) -> Option<Requests> {
        if !attachment.parameters.follows_programs {
            return None;
        }
        let arena = attachment.arena.clone()?;
        Some(Requests {
            address: attachment.addresses.arena,
            file: arena.identity()?,
            arena,
            seen: 0,
            alone: 0,
            sandboxed: 0,
            root: role.root().unwrap_or(attachment.process.pid()),
        })
    }

    /// The word that changes with each request, and its value at the last look. Who changes it wakes the tracer.
    pub fn word(&self) -> (&ArenaMemory, u64, u32) {
        (&self.arena, offset_of!(Control, exec_requests) as u64, self.seen)
    }

    /// Threads that are about to execute programs wait no longer.
    pub fn end(&self) {
        // A damaged arena is reported by others.
        let _ = ControlBlock::open(self.arena.memory()).and_then(|control| control.beat(0));
    }

    /// Whether a thread belongs to the traced processes.
    fn has_thread(&self, tid: i32) -> bool {
        let text = proc_file::read(format!("/proc/{tid}/maps")).unwrap_or_default();
        let map = Map::parse(&text);
        let found = map.find(self.address);
        found.is_some_and(|found| (found.device, found.inode) == self.file && found.start == self.address)
    }

    fn load(&self, field: usize) -> Result<u32, OutOfBounds> {
        self.arena.memory().load_u32(field as u64)
    }

    /// Warnings about the programs that were executed without an answer since the last look.
    fn untold(&mut self) -> Result<Vec<String>, OutOfBounds> {
        let (alone, sandboxed) = (
            self.load(offset_of!(Control, execs_alone))?,
            self.load(offset_of!(Control, execs_sandboxed))?,
        );
        let mut told = Vec::new();
        for (before, now, why) in [
            (&mut self.alone, alone, "nanoprobe was too late"),
            (
                &mut self.sandboxed,
                sandboxed,
                "their processes are under a seccomp filter",
            ),
        ] {
            let new = now.wrapping_sub(std::mem::replace(before, now));
            if new > 0 {
                told.push(format!("{new} executed programs are not traced: {why}"));
            }
        }
        Ok(told)
    }
}

/// Where an entry lies.
struct Entry {
    arena: Arc<ArenaMemory>,
    offset: u64,
}

impl Entry {
    fn state(&self) -> u32 {
        self.arena.memory().load_u32(self.offset).unwrap_or(EXEC_FREE)
    }

    /// Changes the state; false: it was another one by then.
    fn change(&self, from: u32, to: u32) -> bool {
        let memory = self.arena.memory();
        let is_changed = memory.compare_exchange_u32(self.offset, from, to).unwrap_or(false);
        if is_changed {
            self.arena.wake(self.offset);
        }
        is_changed
    }
}

struct Held {
    executing: Executing,
    entry: Option<Entry>,
    root: i32,
}

/// A program that was executed.
pub enum Came {
    /// It stands before its first instruction.
    Program(Acquired),
    /// It is not traced, for this reason.
    Left(String),
}

/// The threads that are about to execute programs, in all processes of one run.
#[derive(Default)]
pub struct Programs {
    held: Vec<Held>,
    came: VecDeque<Came>,
}

impl Programs {
    /// Whether a thread is held that has not executed its program yet.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        !self.held.is_empty() || !self.came.is_empty()
    }

    /// Whether a thread of this process is held.
    #[must_use]
    pub fn is_holding(&self, pid: i32) -> bool {
        self.held.iter().any(|held| held.executing.pid() == pid)
    }

    /// Answers the requests of one process.
    pub(crate) fn serve(&mut self, requests: &mut Requests) -> Result<(), SessionError> {
        let count = requests.load(offset_of!(Control, exec_requests))?;
        for told in requests.untold()? {
            self.leave(told);
        }
        if count == requests.seen {
            return Ok(());
        }
        requests.seen = count;
        for index in 0..EXECS {
            let offset = (offset_of!(Control, execs) + index * size_of::<Exec>()) as u64;
            let exec: Exec = requests.arena.memory().structure(offset)?;
            if exec.state == EXEC_ASKED {
                let arena = requests.arena.clone();
                self.answer(requests, &exec, Entry { arena, offset });
            }
        }
        Ok(())
    }

    fn answer(&mut self, requests: &Requests, exec: &Exec, entry: Entry) {
        let (tid, pid) = (exec.tid.cast_signed(), exec.pid.cast_signed());
        let path = Path {
            address: exec.path,
            folder: exec.folder,
            flags: exec.flags,
        };
        // The memory and the paths of other threads are none of the target's affairs.
        let looked = match requests.has_thread(tid) {
            true => look(tid, tid, path),
            false => Looked::LeftAlone("a program".to_owned(), "it is in another pid namespace".to_owned()),
        };
        let seized = match looked {
            Looked::NoProgram => Err(None),
            Looked::LeftAlone(program, reason) => Err(Some((program, reason))),
            Looked::Program(program) => Executing::seize(tid, pid).map_err(|reason| Some((program, reason))),
        };
        match seized {
            Ok(executing) => {
                // The number may have passed to another process since the look.
                let is_ours = requests.has_thread(tid);
                let mut held = Held {
                    executing,
                    entry: Some(entry),
                    root: requests.root,
                };
                let answer = if is_ours { EXEC_HELD } else { EXEC_ALONE };
                if !held
                    .entry
                    .as_ref()
                    .is_some_and(|entry| entry.change(EXEC_ASKED, answer))
                    || !is_ours
                {
                    held.executing.ask_to_leave();
                    held.entry = None;
                }
                self.held.push(held);
            }
            Err(told) => {
                entry.change(EXEC_ASKED, EXEC_ALONE);
                if let Some((program, reason)) = told {
                    self.leave(format!(
                        "process {pid} executes {program}, which is not traced: {reason}"
                    ));
                }
            }
        }
    }

    fn leave(&mut self, told: String) {
        if self.came.len() < MESSAGES_MAX {
            self.came.push_back(Came::Left(told));
        }
    }

    /// The next program that was executed.
    pub fn take(&mut self) -> Option<Came> {
        let mut held = std::mem::take(&mut self.held);
        held.retain_mut(|held| self.is_still_held(held));
        self.held = held;
        self.came.pop_front()
    }

    fn is_still_held(&mut self, held: &mut Held) -> bool {
        let pid = held.executing.pid();
        if held.entry.as_ref().is_some_and(|entry| entry.state() == EXEC_FAILED) || held.executing.held_for() > HELD_MAX
        {
            held.executing.ask_to_leave();
        }
        match held.executing.look() {
            Execution::Pending => return true,
            Execution::Executed(executed) => {
                let (process, stopped) = *executed;
                let came = match process.facts().seccomp {
                    Seccomp::Disabled => Came::Program(Acquired::executed(process, stopped, held.root)),
                    _ => Came::Left(format!(
                        "process {pid} executed {}, which is not traced: it is under a seccomp filter",
                        process.facts().executable.display()
                    )),
                };
                self.came.push_back(came);
            }
            Execution::Untraceable(reason) => {
                self.leave(format!("process {pid} executed a program that is not traced: {reason}"));
            }
            Execution::Gone => {}
        }
        // The entry may have been left in any state by a thread that has ended or executed.
        if let Some(entry) = &held.entry {
            let _ = entry.change(EXEC_HELD, EXEC_FREE) || entry.change(EXEC_FAILED, EXEC_FREE);
        }
        false
    }
}

/// The threads are let go, and execute their programs untraced.
impl Drop for Programs {
    fn drop(&mut self) {
        for held in self.held.drain(..) {
            held.executing.let_go();
        }
    }
}
