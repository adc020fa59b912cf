//! What can be asked of, and changed in, threads that stand.

use nanoprobe_patch::TargetAddress;

use super::{State, Stopped};
use crate::error::StopError;
use crate::raw::Registers;
use crate::sandbox::{Sandbox, sandbox_of};
use crate::{ThreadId, raw, restart};

impl Stopped {
    /// The thread to make system calls in: the main one when it lives.
    ///
    /// # Errors
    /// [`StopError::Gone`] when there is none.
    pub fn best_thread(&self) -> Result<ThreadId, StopError> {
        let pid = self.process.pid();
        let main = (self.threads.get(&pid) == Some(&State::Standing)).then_some(pid);
        main.or_else(|| self.threads().next()).ok_or(StopError::Gone { pid })
    }

    /// The registers of a thread. Where [`Stopped::in_restart`] holds, `rip` is after the `syscall` that will be made
    /// again.
    ///
    /// # Errors
    /// [`StopError::NoSuchThread`], [`StopError::Ptrace`].
    pub fn registers(&self, tid: ThreadId) -> Result<Registers, StopError> {
        self.check(tid)?;
        raw::registers(tid).map_err(self.failed(tid, "PTRACE_GETREGS"))
    }

    /// Sets the registers of a thread for good. To move one that is about to make a system call again, move it to
    /// after the copy of its `syscall` instruction, and leave `rax` and `orig_rax` alone.
    ///
    /// # Errors
    /// As [`Stopped::registers`].
    pub fn set_registers(&mut self, tid: ThreadId, registers: &Registers) -> Result<(), StopError> {
        self.check(tid)?;
        raw::set_registers(tid, registers).map_err(self.failed(tid, "PTRACE_SETREGS"))
    }

    /// Whether the registers are those of a thread whose interrupted system call will be made again: the kernel will
    /// rewind `rip` by two bytes.
    pub fn in_restart(registers: &Registers) -> bool {
        restart::is_pending(registers)
    }

    /// The thread pointer.
    ///
    /// # Errors
    /// As [`Stopped::registers`].
    pub fn thread_pointer(&self, tid: ThreadId) -> Result<TargetAddress, StopError> {
        self.registers(tid).map(|registers| TargetAddress(registers.fs_base))
    }

    /// What the seccomp filters of all standing threads mean for us: the worst of them counts.
    pub fn sandbox(&self) -> Sandbox {
        let mut found = Sandbox::None;
        for tid in self.threads() {
            match sandbox_of(tid) {
                Sandbox::None => {}
                Sandbox::Permits => found = Sandbox::Permits,
                other => return other,
            }
        }
        found
    }

    /// Whether a SIGTRAP or SIGILL waits for the thread: it has met a trap, and has not received the signal yet.
    pub fn has_queued_trap(&self, tid: ThreadId) -> bool {
        // An error: the thread was killed, and will take no signal.
        raw::has_queued(tid, 1 << (libc::SIGTRAP - 1) | 1 << (libc::SIGILL - 1)).unwrap_or(false)
    }

    /// Which signals the thread blocks; bit n-1 is signal n. Of a thread in ppoll, sigsuspend and the like: which it
    /// will block afterwards.
    ///
    /// # Errors
    /// As [`Stopped::registers`].
    pub fn signal_mask(&self, tid: ThreadId) -> Result<u64, StopError> {
        self.check(tid)?;
        raw::signal_mask(tid).map_err(self.failed(tid, "PTRACE_GETSIGMASK"))
    }

    /// Sets which signals the thread blocks, for good.
    ///
    /// # Errors
    /// As [`Stopped::registers`].
    pub fn set_signal_mask(&mut self, tid: ThreadId, mask: u64) -> Result<(), StopError> {
        self.check(tid)?;
        raw::set_signal_mask(tid, mask).map_err(self.failed(tid, "PTRACE_SETSIGMASK"))
    }

    /// Where the kernel would send the thread because it was interrupted inside of a restartable sequence (rseq(2)).
    ///
    /// A caller that moves a thread away from such a place has to send it there. The kernel will not any more,
    /// and the sequence would go on as if it had never been interrupted. `None` also where the kernel is too old
    /// to say (before 5.13).
    ///
    /// # Errors
    /// As [`Stopped::registers`].
    pub fn rseq_abort(&self, tid: ThreadId) -> Result<Option<TargetAddress>, StopError> {
        let registers = self.registers(tid)?;
        let Ok(configuration) = raw::rseq_configuration(tid) else {
            return Ok(None);
        };
        if configuration.abi_pointer == 0 {
            return Ok(None);
        }
        // struct rseq: cpu_id_start, cpu_id, then the address of the sequence's descriptor.
        let memory = self.process.memory();
        let descriptor = memory
            .read_u64(TargetAddress(configuration.abi_pointer.saturating_add(8)))
            .unwrap_or(0);
        if descriptor == 0 {
            return Ok(None);
        }
        // struct rseq_cs: version, flags, start, length, abort.
        let field = |offset: u64| memory.read_u64(TargetAddress(descriptor.saturating_add(offset)));
        let (Ok(start), Ok(length), Ok(abort)) = (field(8), field(16), field(24)) else {
            return Ok(None);
        };
        let inside = registers.rip.wrapping_sub(start) < length;
        Ok(inside.then_some(TargetAddress(abort)))
    }

    pub(super) fn check(&self, tid: ThreadId) -> Result<(), StopError> {
        if self.threads.get(&tid) == Some(&State::Standing) {
            return Ok(());
        }
        Err(StopError::NoSuchThread {
            pid: self.process.pid(),
            tid,
        })
    }
}
