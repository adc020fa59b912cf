//! Many system calls in one resumption: the thread makes them all, and is stopped after the last.
//!
//! See [`list`](crate::homing::list) for the code that the thread executes. Calls of a list do not depend on each
//! other's results.

use std::time::Instant;

use nanoprobe_patch::TargetAddress;

use super::Remote;
use crate::error::{RemoteError, StopError};
use crate::homing::list::{ENTRY_BYTES, RESULT, entry, place};
use crate::process::Process;
use crate::raw::{self, Event, Registers, Resume};
use crate::stop::{Patience, Progress};
use crate::threads;

/// The trap flag (TF).
const TRAP_FLAG: u64 = 0x100;
/// The offset of the entries, after the cursor.
const ENTRIES: u64 = 64;

/// A system call to be made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listed {
    pub number: i64,
    pub arguments: [u64; 6],
}

/// The tracer's memory in the process for a list of calls, with a fixed number of data bytes for each call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListRoom {
    start: TargetAddress,
    calls: u64,
}

impl ListRoom {
    /// The number of calls for which `data_bytes` bytes have room.
    pub const fn calls_max(data_bytes: u64) -> usize {
        ((Process::SCRATCH_BYTES - ENTRIES - ENTRY_BYTES) / (ENTRY_BYTES + data_bytes)) as usize
    }

    fn entry(self, index: u64) -> TargetAddress {
        TargetAddress(self.start.0 + ENTRIES + index * ENTRY_BYTES)
    }

    /// The offset of the data: after the entries and the end mark.
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

    /// Makes the calls, and returns the result of each.
    ///
    /// # Errors
    /// [`RemoteError`]; some of the calls may have been made. A call's own failure is no error here.
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
        bytes.truncate(calls.len() * ENTRY_BYTES as usize);
        self.process().memory().read(first, &mut bytes)?;
        let result = |entry: &[u8]| {
            entry
                .get(RESULT as usize..)?
                .first_chunk()
                .copied()
                .map(i64::from_le_bytes)
        };
        let entries = bytes.chunks_exact(ENTRY_BYTES as usize);
        Ok(entries.map(|entry| result(entry).unwrap_or(-1)).collect())
    }

    /// Takes the thread from its present stop to PTRACE_EVENT_STOP after the last call.
    fn run_list(&mut self, cursor: TargetAddress, last: TargetAddress, calls: usize) -> Result<(), RemoteError> {
        let name = || format!("a list of {calls} system calls");
        let mut progress = self.progress();
        self.resume(Resume::Continue, 0)?;
        self.until_made(cursor, last, &mut progress, &name)?;
        // The thread has made all calls, and waits for the tracer.
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
            // The thread stands where it stood at first, so it need not run again before it is given back.
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
                // The kernel's reports about job control can wait.
                Ok(Some(_)) => Some(0),
            };
            match signal {
                Some(signal) => self.resume(Resume::Continue, signal)?,
                // An error means that the thread is gone; the next look at it will show that.
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

    /// Stops a stuck thread, and returns the error: the given one, or why it did not stop.
    fn interrupted(&mut self, timeout: RemoteError) -> RemoteError {
        // An error means that the thread has just ended, which the next look shows.
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
