//! Many system calls in one go: the thread is resumed once, makes them all, and is stopped after the last.
//!
//! See [`list`](crate::homing::list) for what the thread executes. Calls of a list do not depend on each other's
//! results.

use std::time::Instant;

use nanoprobe_patch::TargetAddress;

use super::Remote;
use crate::error::{RemoteError, StopError};
use crate::homing::list::{ENTRY_BYTES, RESULT, entry, place};
use crate::process::Process;
use crate::raw::{self, Event, Registers, Resume};
use crate::stop::{Patience, Progress};
use crate::threads;

/// TF of the flags.
const TRAP_FLAG: u64 = 0x100;
/// Where the entries begin: after the cursor.
const ENTRIES: u64 = 64;

/// A system call to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listed {
    pub number: i64,
    pub arguments: [u64; 6],
}

/// Memory of ours for a list of so many calls, and data of so many bytes for each.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListRoom {
    start: TargetAddress,
    calls: u64,
}

impl ListRoom {
    /// How many calls there is room for.
    pub const fn calls_max(data_bytes: u64) -> usize {
        ((Process::SCRATCH_BYTES - ENTRIES - ENTRY_BYTES) / (ENTRY_BYTES + data_bytes)) as usize
    }

    fn entry(self, index: u64) -> TargetAddress {
        TargetAddress(self.start.0 + ENTRIES + index * ENTRY_BYTES)
    }

    /// After the entries, and after the one that says that there are no more.
    pub fn data(self) -> TargetAddress {
        self.entry(self.calls + 1)
    }
}

impl Remote<'_> {
    /// Room for a list of `calls` calls.
    pub(crate) fn list_room(&mut self, calls: usize) -> Result<ListRoom, RemoteError> {
        Ok(ListRoom {
            start: self.scratch()?,
            calls: calls as u64,
        })
    }

    /// Makes the calls, and returns what each has returned.
    ///
    /// # Errors
    /// [`RemoteError`]: of the calls some may have been made. What a call returned is no error.
    pub(crate) fn listed(&mut self, room: ListRoom, calls: &[Listed]) -> Result<Vec<i64>, RemoteError> {
        let mut bytes: Vec<u8> = Vec::with_capacity(calls.len() * ENTRY_BYTES as usize);
        for call in calls {
            bytes.extend(entry(call.number, call.arguments));
        }
        bytes.extend([0; ENTRY_BYTES as usize]);
        let (first, last) = (room.entry(0), room.entry(calls.len() as u64));
        let memory = self.process().memory();
        memory.write(first, &bytes)?;
        memory.write(room.start, &place(first))?;
        memory.write(self.code.list_place(), &place(room.start))?;
        self.set_registers(Registers {
            rip: self.code.list(),
            eflags: self.home.eflags & !TRAP_FLAG,
            ..self.home
        })?;
        self.run_list(room.start, last, calls.len())?;
        let mut results = Vec::with_capacity(calls.len());
        for index in 0..calls.len() as u64 {
            let result = TargetAddress(room.entry(index).0 + RESULT);
            results.push(self.process().memory().read_u64(result)? as i64);
        }
        Ok(results)
    }

    /// From the stop in which the thread is to PTRACE_EVENT_STOP after the last call.
    fn run_list(&mut self, cursor: TargetAddress, last: TargetAddress, calls: usize) -> Result<(), RemoteError> {
        let name = || format!("a list of {calls} system calls");
        let mut progress = self.progress();
        self.resume(Resume::Continue, 0)?;
        self.until_made(cursor, last, &mut progress, &name)?;
        // It waits for us now.
        raw::interrupt(self.tid).map_err(self.stopped.failed(self.tid, "PTRACE_INTERRUPT"))?;
        loop {
            let signal = match self.wait(&mut progress, &name)? {
                Event::Interrupted => break,
                Event::Signal(signal) => self.send_back(signal, &name)?,
                _ => 0,
            };
            raw::interrupt(self.tid).map_err(self.stopped.failed(self.tid, "PTRACE_INTERRUPT"))?;
            self.resume(Resume::Continue, signal)?;
        }
        if self.code.holds(self.registers()?.rip) {
            // It stands as at first: to give it back it need not run once more.
            self.moved = false;
            return Ok(());
        }
        self.is_home = true;
        Err(RemoteError::WentHome {
            pid: self.process().pid(),
            tid: self.tid,
        })
    }

    fn until_made(
        &mut self,
        cursor: TargetAddress,
        last: TargetAddress,
        progress: &mut Progress,
        name: &impl Fn() -> String,
    ) -> Result<(), RemoteError> {
        let (pid, tid) = (self.process().pid(), self.tid);
        let keep_end = self.process().keeps_end(tid);
        let mut patience = Patience::until(Instant::now());
        loop {
            let signal = match raw::poll_event(tid, keep_end) {
                Ok(None) => None,
                Ok(Some(Event::Ended)) | Err(_) => return Err(self.has_ended()),
                Ok(Some(Event::Signal(signal))) => Some(self.send_back(signal, name)?),
                // Job control has news; they are for later.
                Ok(Some(_)) => Some(0),
            };
            match signal {
                Some(signal) => self.resume(Resume::Continue, signal)?,
                // An error: it is gone, which the next look shows.
                None if self.process().memory().read_u64(cursor) == Ok(last.0) => return Ok(()),
                None => {}
            }
            if patience.is_long() && threads::has_ended(pid, tid) {
                return Err(self.has_ended());
            }
            patience.pause();
            if progress.is_stuck() {
                let timeout = RemoteError::Timeout {
                    pid,
                    call: name(),
                    executed: progress.executed(),
                    slept: progress.slept(),
                };
                return Err(self.interrupted(timeout));
            }
        }
    }

    /// A thread that is stuck stands still in any case, or the error says why not.
    fn interrupted(&mut self, timeout: RemoteError) -> RemoteError {
        // An error: it has just ended, which the next look shows.
        let _ = raw::interrupt(self.tid);
        let mut progress = Progress::of(self.process().pid(), self.tid);
        match self.wait(&mut progress, &|| "the way out of a list".to_owned()) {
            Ok(_) => timeout,
            Err(RemoteError::Timeout { .. }) => {
                let (pid, tid) = (self.process().pid(), self.tid);
                let state = threads::state(pid, tid).unwrap_or('?');
                let place = threads::waits_at(pid, tid);
                StopError::Uninterruptible { pid, tid, state, place }.into()
            }
            Err(error) => error,
        }
    }
}
