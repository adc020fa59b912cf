//! System calls and function calls made in a stopped thread.
//!
//! The thread is borrowed: its registers, signal mask and SIMD state are saved, and it is moved into a block of code
//! that would restore them (`homing`). No byte of its stack is written. For each call, `PTRACE_SYSCALL` takes the
//! thread from the stop before `syscall` to the stop after it. There is no single step and no breakpoint, so there is
//! no SIGTRAP, which would kill a thread that blocks or ignores it.
//!
//! Meanwhile all signals are blocked, except those that the kernel raises for the thread's own instructions: to
//! *force* a blocked one, the kernel would reset the program's handler. If a signal is reported nevertheless, it is
//! put back into the queue: the signal is blocked, then the thread is resumed *with* it, and the kernel queues it
//! again with all its information. SIGSTOP cannot be blocked, and is sent again at the end.
//!
//! To give the thread back, the tracer interrupts it once more. Then the thread stands where it stood at first:
//! inside the kernel, on the way to user space, before the kernel decides whether to make its own system call again.
//! `rax`, `orig_rax` and the other registers are put back, so the decision is the same as without us.

use std::time::Instant;

use nanoprobe_patch::TargetAddress;
use nix::errno::Errno;

use crate::chain::Doubt;
use crate::error::{RemoteError, StopError};
use crate::homing::HomingCode;
use crate::process::Process;
use crate::raw::{self, Event, Registers, Resume};
use crate::sandbox::{Sandbox, sandbox_of};
use crate::status::Seccomp;
use crate::stop::{Patience, Progress, Stopped};
use crate::{ThreadId, restart, threads};

mod function;
pub(crate) mod listed;

/// The trap flag (TF).
const TRAP_FLAG: u64 = 0x100;
/// How often a call is made again if the kernel requests that.
const ATTEMPTS: u32 = 16;

/// A thread that makes calls for us. Dropping it gives the thread back unchanged.
#[derive(Debug)]
pub struct Remote<'stopped> {
    stopped: &'stopped mut Stopped,
    tid: ThreadId,
    saved: Registers,
    saved_mask: u64,
    /// The registers with which the thread will continue: the saved registers, or those after the kernel's abort of
    /// a restartable sequence.
    resumed: Registers,
    code: HomingCode,
    /// The registers with which the thread would return to its own work (go home).
    home: Registers,
    /// Pages that were mapped because the tracer has no other memory in the process.
    page: Option<TargetAddress>,
    mask: u64,
    /// Whether the thread has run since it was borrowed.
    moved: bool,
    stop_signal: bool,
    ended: bool,
    /// Whether the thread has gone home by itself, because the tracer was delayed too long. Then there is nothing
    /// to restore.
    is_home: bool,
}

impl Stopped {
    /// Borrows a thread to make calls. [`Stopped::best_thread`] is a good choice.
    ///
    /// # Errors
    /// [`RemoteError`]; the thread's state is as before.
    pub fn remote(&mut self, tid: ThreadId) -> Result<Remote<'_>, RemoteError> {
        let saved = self.registers(tid)?;
        let saved_mask = self.signal_mask(tid)?;
        let pid = self.process().pid();
        let is_known = self.process().stands_at_start() && self.process().facts().seccomp == Seccomp::Disabled;
        let sandbox = match is_known {
            true => Sandbox::None,
            false => sandbox_of(tid, || self.process().unreadable_filters()),
        };
        match sandbox {
            Sandbox::None | Sandbox::SameAsOurs | Sandbox::Insisted => {}
            // Filters that can be read can be suspended as well.
            Sandbox::Permits => raw::suspend_seccomp(tid).map_err(|errno| RemoteError::Sandboxed {
                pid,
                tid,
                sandbox: Sandbox::Unknown {
                    doubt: Doubt::NotSuspended { errno },
                },
            })?,
            sandbox => return Err(RemoteError::Sandboxed { pid, tid, sandbox }),
        }
        let mut resumed = saved;
        if let Some(abort) = self.rseq_abort(tid)? {
            resumed.rip = abort.0;
        }
        let process = self.process();
        let installed = HomingCode::install(
            process.unused(),
            &|| process.map(),
            process.memory(),
            &restart::rewound(&resumed),
            saved_mask,
        )?;
        let (code, unused) = installed.ok_or(RemoteError::NoRoomForCode { pid })?;
        process.note_unused(unused);
        let home = Registers {
            rip: code.home(),
            rax: 0,
            orig_rax: u64::MAX,
            ..saved
        };
        let remote = Remote {
            stopped: self,
            tid,
            saved,
            saved_mask,
            resumed,
            code,
            home,
            page: None,
            mask: !threads::raised_by_itself(),
            moved: false,
            stop_signal: false,
            ended: false,
            is_home: false,
        };
        // The registers come first: with them, the thread can return to its place by itself. Only then may its mask
        // be changed.
        remote.set_registers(home)?;
        remote.set_mask()?;
        Ok(remote)
    }
}

impl Remote<'_> {
    pub fn process(&self) -> &Process {
        self.stopped.process()
    }

    pub fn tid(&self) -> ThreadId {
        self.tid
    }

    /// Makes a system call and returns its result. A result of -errno becomes [`RemoteError::Call`].
    ///
    /// # Errors
    /// [`RemoteError`].
    pub fn syscall(&mut self, number: i64, arguments: [u64; 6]) -> Result<i64, RemoteError> {
        self.named_syscall(number, arguments, || format!("system call {number}"))
    }

    pub(crate) fn named_syscall(
        &mut self,
        number: i64,
        arguments: [u64; 6],
        name: impl Fn() -> String,
    ) -> Result<i64, RemoteError> {
        let pid = self.process().pid();
        for _ in 0..ATTEMPTS {
            let returned = self.syscall_once(number, arguments, &name)?;
            match returned {
                -516 | -514..=-512 => continue,
                _ => return self.check_result(returned, number, name),
            }
        }
        Err(RemoteError::Call {
            pid,
            call: name(),
            errno: Errno::EINTR,
            hint: "",
        })
    }

    /// The result of a system call, or the error that this result stands for.
    pub(crate) fn check_result(
        &self,
        returned: i64,
        number: i64,
        name: impl Fn() -> String,
    ) -> Result<i64, RemoteError> {
        if !(-4095..=-1).contains(&returned) {
            return Ok(returned);
        }
        let errno = Errno::from_raw(i32::try_from(-returned).unwrap_or(0));
        let hint = match errno {
            Errno::EACCES => "; a security module (SELinux execmem) may forbid it",
            Errno::ENOMEM => "; its memory limit (ulimit -v, vm.max_map_count) may be reached",
            Errno::EAGAIN if number == libc::SYS_mmap => {
                "; its memory is locked (mlockall), and its limit (ulimit -l) is reached"
            }
            Errno::EMFILE => "; its limit of open files (ulimit -n) is reached",
            _ => "",
        };
        Err(RemoteError::Call {
            pid: self.process().pid(),
            call: name(),
            errno,
            hint,
        })
    }

    fn syscall_once(
        &mut self,
        number: i64,
        arguments: [u64; 6],
        name: &impl Fn() -> String,
    ) -> Result<i64, RemoteError> {
        let [rdi, rsi, rdx, r10, r8, r9] = arguments;
        let rip = self.code.call();
        self.set_registers(Registers {
            rip,
            rax: number as u64,
            rdi,
            rsi,
            rdx,
            r10,
            r8,
            r9,
            // A thread that is being single-stepped would trap after the call.
            eflags: self.home.eflags & !TRAP_FLAG,
            ..self.home
        })?;
        let mut progress = self.progress();
        // The first stop is at the entry, the second at the exit.
        for _ in 0..2 {
            self.run_to_system_call(&mut progress, name)?;
        }
        Ok(self.registers()?.rax as i64)
    }

    /// Gives the thread back unchanged.
    ///
    /// # Errors
    /// [`RemoteError::Ended`] when it was killed; [`RemoteError::Timeout`].
    pub fn finish(mut self) -> Result<(), RemoteError> {
        self.restore()
    }

    fn restore(&mut self) -> Result<(), RemoteError> {
        if self.ended {
            return Ok(());
        }
        if self.is_home {
            self.ended = true;
            self.code.remove(self.stopped.process().memory());
            return Ok(());
        }
        let unmapped = self.page.take().map(|page| self.unmap(page, Process::SCRATCH_BYTES));
        // If this fails, a second attempt in `drop` would fail, too.
        let outcome = self.restore_thread();
        let already_ended = std::mem::replace(&mut self.ended, true);
        if outcome.is_err() && !already_ended {
            // The thread hangs in the kernel. When it leaves the kernel, it goes home by itself and needs the block
            // for that. So the block stays.
            self.stopped.lost(self.tid);
            return outcome;
        }
        // The block is removed last, because until now the thread might have needed it.
        self.code.remove(self.stopped.process().memory());
        outcome.and(unmapped.unwrap_or(Ok(())))
    }

    fn restore_thread(&mut self) -> Result<(), RemoteError> {
        if self.moved {
            self.set_registers(self.home)?;
            self.back_to_our_stop()?;
        }
        self.mask = self.saved_mask;
        self.set_mask()?;
        self.set_registers(self.resumed)?;
        if self.stop_signal {
            // An error: the thread was killed.
            let _ = raw::send_signal(self.process().pid(), self.tid, libc::SIGSTOP);
        }
        Ok(())
    }

    /// Takes the thread from the exit of a system call (or a signal's delivery) to PTRACE_EVENT_STOP, without executing
    /// an instruction.
    fn back_to_our_stop(&mut self) -> Result<(), RemoteError> {
        let mut progress = self.progress();
        let name = || "the way back".to_owned();
        let mut signal = 0;
        loop {
            raw::interrupt(self.tid).map_err(self.stopped.failed(self.tid, "PTRACE_INTERRUPT"))?;
            self.resume(Resume::Continue, signal)?;
            signal = match self.wait(&mut progress, &name)? {
                Event::Interrupted => return Ok(()),
                // An instruction that the thread executed for the tracer raised this signal. The error reports it,
                // and the program must not receive it.
                Event::Signal(signal) => self.send_back(signal, &name).unwrap_or(0),
                _ => 0,
            };
        }
    }

    /// Runs to the next system call stop.
    fn run_to_system_call(&mut self, progress: &mut Progress, name: &impl Fn() -> String) -> Result<(), RemoteError> {
        let mut signal = 0;
        loop {
            self.resume(Resume::ToSystemCall, signal)?;
            signal = match self.wait(progress, name)? {
                Event::SystemCall => return Ok(()),
                Event::Signal(signal) => self.send_back(signal, name)?,
                // The kernel's reports about job control can wait.
                _ => 0,
            };
        }
    }

    /// Handles a signal that arrived although nearly all signals are blocked. Returns the signal with which to
    /// resume.
    fn send_back(&mut self, signal: i32, name: &impl Fn() -> String) -> Result<i32, RemoteError> {
        if signal == libc::SIGSTOP {
            self.stop_signal = true;
            return Ok(0);
        }
        let code = raw::signal_code(self.tid).map_err(self.stopped.failed(self.tid, "PTRACE_GETSIGINFO"))?;
        if code > 0 {
            let (pid, address) = (self.process().pid(), TargetAddress(self.registers()?.rip));
            return Err(match signal {
                libc::SIGSYS => RemoteError::Dispatched { pid, call: name() },
                _ => RemoteError::Fault { pid, signal, address },
            });
        }
        if let 1..=64 = signal {
            self.mask |= 1 << (signal - 1);
            self.set_mask()?;
        }
        Ok(signal)
    }

    fn resume(&mut self, how: Resume, signal: i32) -> Result<(), RemoteError> {
        self.moved = true;
        self.stopped.count_resume();
        self.process().at_start().note_call();
        match raw::resume(self.tid, how, signal) {
            Err(Errno::ESRCH) => Err(self.has_ended()),
            other => Ok(other.map_err(self.stopped.failed(self.tid, "PTRACE_SYSCALL"))?),
        }
    }

    /// Waits for the next event. A thread that is stuck is interrupted, so the thread is stopped in any case.
    fn wait(&mut self, progress: &mut Progress, name: &impl Fn() -> String) -> Result<Event, RemoteError> {
        let (pid, tid) = (self.process().pid(), self.tid);
        let keep_end = self.process().keeps_end(tid);
        let mut patience = Patience::until(Instant::now());
        let mut timed_out = None;
        loop {
            match raw::poll_event(tid, keep_end) {
                Ok(None) => {}
                Ok(Some(Event::Ended)) | Err(_) => return Err(self.has_ended()),
                Ok(Some(event)) => return timed_out.map_or(Ok(event), Err),
            }
            if patience.is_long() && threads::has_ended(pid, tid) {
                return Err(self.has_ended());
            }
            patience.pause();
            if !progress.is_stuck() {
                continue;
            }
            if timed_out.is_some() {
                let state = threads::state(pid, tid).unwrap_or('?');
                let place = threads::waits_at(pid, tid);
                return Err(StopError::Uninterruptible { pid, tid, state, place }.into());
            }
            timed_out = Some(RemoteError::Timeout {
                pid,
                call: name(),
                executed: progress.executed(),
                slept: progress.slept(),
            });
            *progress = Progress::of(pid, tid);
            patience = Patience::until(Instant::now());
            // An error means that the thread has just ended, which the next look shows.
            let _ = raw::interrupt(tid);
        }
    }

    fn progress(&self) -> Progress {
        Progress::of(self.process().pid(), self.tid)
    }

    fn has_ended(&mut self) -> RemoteError {
        self.ended = true;
        RemoteError::Ended {
            pid: self.process().pid(),
            tid: self.tid,
        }
    }

    fn registers(&self) -> Result<Registers, StopError> {
        raw::registers(self.tid).map_err(self.stopped.failed(self.tid, "PTRACE_GETREGS"))
    }

    fn set_registers(&self, registers: Registers) -> Result<(), StopError> {
        raw::set_registers(self.tid, &registers).map_err(self.stopped.failed(self.tid, "PTRACE_SETREGS"))
    }

    fn set_mask(&self) -> Result<(), StopError> {
        raw::set_signal_mask(self.tid, self.mask).map_err(self.stopped.failed(self.tid, "PTRACE_SETSIGMASK"))
    }

    /// The address at which a short text for a system call may be put.
    pub(crate) fn text_room(&self) -> TargetAddress {
        self.code.text()
    }

    /// The address of the tracer's memory in the process, to which system calls may write.
    pub(crate) fn scratch(&mut self) -> Result<TargetAddress, RemoteError> {
        if let Some(known) = self.process().scratch().or(self.page) {
            return Ok(known);
        }
        let page = self.map_page()?;
        self.page = Some(page);
        Ok(page)
    }

    /// The registers that the thread had before it was borrowed, and will have again.
    pub fn saved_registers(&self) -> &Registers {
        &self.saved
    }
}

impl Drop for Remote<'_> {
    fn drop(&mut self) {
        // An error means that the thread was killed, or hangs in the kernel; the next request will say so.
        let _ = self.restore();
    }
}
