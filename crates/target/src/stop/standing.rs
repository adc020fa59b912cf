//! Requests to threads that stand still, and changes of these threads.

use nanoprobe_patch::TargetAddress;

use super::{State, Stopped};
use crate::error::StopError;
use crate::raw::Registers;
use crate::sandbox::{Sandbox, sandbox_of};
use crate::{ThreadId, raw, restart};

impl Stopped {
    /// The thread that is to make system calls for us: the main thread if it lives.
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

    /// Sets the registers of a thread for good. A thread that is about to repeat a system call must be moved to the
    /// instruction after a copy of its `syscall`, with unchanged `rax` and `orig_rax`.
    ///
    /// # Errors
    /// As [`Stopped::registers`].
    pub fn set_registers(&mut self, tid: ThreadId, registers: &Registers) -> Result<(), StopError> {
        self.check(tid)?;
        raw::set_registers(tid, registers).map_err(self.failed(tid, "PTRACE_SETREGS"))
    }

    /// Whether these registers are those of a thread whose interrupted system call will be repeated: the kernel will
    /// rewind `rip` by two bytes.
    pub fn in_restart(registers: &Registers) -> bool {
        restart::is_pending(registers)
    }

    /// The thread pointer (FS base) of a thread.
    ///
    /// # Errors
    /// As [`Stopped::registers`].
    pub fn thread_pointer(&self, tid: ThreadId) -> Result<TargetAddress, StopError> {
        self.registers(tid).map(|registers| TargetAddress(registers.fs_base))
    }

    /// The calls that the seccomp filters of all stopped threads permit; the strictest filter counts.
    pub fn sandbox(&self) -> Sandbox {
        let mut found = Sandbox::None;
        for tid in self.threads() {
            match sandbox_of(tid, || self.process.unreadable_filters()) {
                Sandbox::None => {}
                permitted @ (Sandbox::Permits | Sandbox::SameAsOurs | Sandbox::Insisted) => found = permitted,
                other => return other,
            }
        }
        found
    }

    /// Whether a SIGTRAP or SIGILL is queued for the thread: it has met a trap, and has not received the signal yet.
    pub fn has_queued_trap(&self, tid: ThreadId) -> bool {
        // An error means that the thread was killed, and will receive no signal.
        raw::has_queued(tid, 1 << (libc::SIGTRAP - 1) | 1 << (libc::SIGILL - 1)).unwrap_or(false)
    }

    /// The signals that the thread blocks; bit n-1 is signal n. For a thread in ppoll, sigsuspend and the like: the
    /// signals that it will block afterwards.
    ///
    /// # Errors
    /// As [`Stopped::registers`].
    pub fn signal_mask(&self, tid: ThreadId) -> Result<u64, StopError> {
        self.check(tid)?;
        raw::signal_mask(tid).map_err(self.failed(tid, "PTRACE_GETSIGMASK"))
    }

    /// Sets the signals that the thread blocks, for good.
    ///
    /// # Errors
    /// As [`Stopped::registers`].
    pub fn set_signal_mask(&mut self, tid: ThreadId, mask: u64) -> Result<(), StopError> {
        self.check(tid)?;
        raw::set_signal_mask(tid, mask).map_err(self.failed(tid, "PTRACE_SETSIGMASK"))
    }

    /// The address to which the kernel would send the thread, because it was interrupted inside of a restartable
    /// sequence (rseq(2)).
    ///
    /// A caller that moves such a thread has to send it there. The kernel would no longer do so, and the sequence
    /// would continue as if it had not been interrupted. Also `None` if the kernel is too old to tell (before 5.13).
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
