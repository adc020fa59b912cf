//! System calls and function calls made in a stopped thread.
//!
//! The thread is borrowed: its registers, signal mask and SIMD state are saved, and it is set on the road home
//! (`homing`): no byte of its stack is written. Each call goes by `PTRACE_SYSCALL` from the stop before `syscall` to
//! the stop after it; no single step, no breakpoint, so no SIGTRAP, which a thread that blocks or ignores it would not
//! survive.
//!
//! All signals are blocked meanwhile, but for those that the kernel raises for what a thread does itself: when it has
//! to *force* a blocked one, it resets the program's handler. A signal that comes in nevertheless is sent back into the
//! queue: it is blocked, then the thread is resumed *with* it, and the kernel requeues what it finds blocked, with all
//! its information. SIGSTOP cannot be blocked, and is sent again at the end.
//!
//! To give the thread back, it is interrupted once more, so that it stands where it stood at first: inside the kernel,
//! on the way to user space, before the decision whether its own system call is made again. Then `rax`, `orig_rax` and
//! the rest are put back, and the decision comes out as it would have.

use std::time::Instant;

use nanoprobe_patch::TargetAddress;
use nix::errno::Errno;

use crate::error::{RemoteError, StopError};
use crate::homing::{self, HomingCode};
use crate::process::Process;
use crate::raw::{self, Event, Registers, Resume};
use crate::sandbox::{Sandbox, sandbox_of};
use crate::stop::{Patience, Progress, Stopped};
use crate::{ThreadId, restart, threads};

pub(crate) mod listed;

/// TF of the flags.
const TRAP_FLAG: u64 = 0x100;
/// How often a call that the kernel wants made again is made again.
const ATTEMPTS: u32 = 16;

/// A thread that makes calls for us. Dropping it gives the thread back as it was.
#[derive(Debug)]
pub struct Remote<'stopped> {
    stopped: &'stopped mut Stopped,
    tid: ThreadId,
    saved: Registers,
    saved_mask: u64,
    /// What it runs on with: the saved registers, or those of the kernel's abort of a restartable sequence.
    resumed: Registers,
    code: HomingCode,
    /// Registers that lead home.
    home: Registers,
    /// Pages that were mapped for want of other memory of ours.
    page: Option<TargetAddress>,
    mask: u64,
    /// It has left the stop in which we got it.
    moved: bool,
    stop_signal: bool,
    ended: bool,
    /// We were held up for so long that it went home by itself: nothing is to be restored.
    is_home: bool,
}

impl Stopped {
    /// Borrows a thread to make calls. [`Stopped::best_thread`] is a good choice.
    ///
    /// # Errors
    /// [`RemoteError`]; the thread is as before.
    pub fn remote(&mut self, tid: ThreadId) -> Result<Remote<'_>, RemoteError> {
        let saved = self.registers(tid)?;
        let saved_mask = self.signal_mask(tid)?;
        let pid = self.process().pid();
        let sandbox = sandbox_of(tid);
        if sandbox != Sandbox::None {
            let refuse = |sandbox| RemoteError::Sandboxed { pid, tid, sandbox };
            if sandbox != Sandbox::Permits {
                return Err(refuse(sandbox));
            }
            raw::suspend_seccomp(tid).map_err(|errno| refuse(Sandbox::Unknown { errno }))?;
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
        // In this order: from the second step on the thread is able to go home, and only then its mask is ours.
        remote.set_registers(home)?;
        remote.set_mask()?;
        Ok(remote)
    }
}

impl Remote<'_> {
    /// The process.
    pub fn process(&self) -> &Process {
        self.stopped.process()
    }

    /// The thread.
    pub fn tid(&self) -> ThreadId {
        self.tid
    }

    /// Makes a system call, and returns what it returned; the kernel's -errno becomes [`RemoteError::Call`].
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

    /// What a system call has returned, or the error that it stands for.
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
        // The entry, then the exit.
        for _ in 0..2 {
            self.run_to_system_call(&mut progress, name)?;
        }
        Ok(self.registers()?.rax as i64)
    }

    /// Calls a function of the target, such as the resolver of an IFUNC, with integer arguments, and returns its `rax`.
    ///
    /// It runs on a stack of the caller's choice, whose top is used for the frame that it returns into, and whose
    /// content is lost. Its system calls are let through. All registers, SIMD included, are restored afterwards.
    ///
    /// # Errors
    /// [`RemoteError::Fault`] when it raises a signal; [`RemoteError::Timeout`] when it executes for two seconds, after
    /// which the thread is given back in the middle of the function: harmless for a function without side effects.
    pub fn call(
        &mut self,
        function: TargetAddress,
        arguments: [u64; 6],
        stack: std::ops::Range<TargetAddress>,
    ) -> Result<u64, RemoteError> {
        let (pid, tid) = (self.process().pid(), self.tid);
        let name = || format!("the function at {function}");
        // No system call has changed it.
        let extended = raw::extended_state(tid).map_err(self.stopped.failed(tid, "PTRACE_GETREGSET"))?;
        let bytes = homing::frame_bytes(&extended);
        let frame_at = stack
            .end
            .checked_sub(bytes)
            .map(|at| TargetAddress(at.align_down(16).0.saturating_sub(8)));
        let frame_at = frame_at
            .filter(|&at| at > stack.start)
            .ok_or(RemoteError::NoRoomForFrame {
                pid,
                tid,
                bytes,
                stack_pointer: stack.end,
            })?;
        let rewound = restart::rewound(&self.resumed);
        let frame = homing::frame(frame_at, self.code, &rewound, self.saved_mask, &extended);
        self.process().memory().write(frame_at, &frame)?;
        let [rdi, rsi, rdx, rcx, r8, r9] = arguments;
        let (rip, rsp) = (function.0, frame_at.0);
        self.set_registers(Registers {
            rip,
            rsp,
            rdi,
            rsi,
            rdx,
            rcx,
            r8,
            r9,
            eflags: 0x202,
            ..self.home
        })?;

        let outcome = self.until_returned(&mut self.progress(), &name);
        if !self.ended {
            self.set_registers(self.home)?;
            self.set_mask()?;
            raw::set_extended_state(tid, &extended).map_err(self.stopped.failed(tid, "PTRACE_SETREGSET"))?;
        }
        outcome
    }

    /// Lets a called function run until it enters rt_sigreturn, and through it: that restores the thread's own state
    /// for the moment, so there is no instant without a way home.
    fn until_returned(&mut self, progress: &mut Progress, name: &impl Fn() -> String) -> Result<u64, RemoteError> {
        let mut at_entry = true;
        loop {
            self.run_to_system_call(progress, name)?;
            let registers = self.registers()?;
            if at_entry && registers.rip == self.code.in_leaving() {
                self.run_to_system_call(progress, name)?;
                return Ok(registers.rbx);
            }
            at_entry = !at_entry;
        }
    }

    /// Gives the thread back as it was.
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
        // Whatever comes of it, a second attempt by `drop` would not fare better.
        let outcome = self.restore_thread();
        let already_ended = std::mem::replace(&mut self.ended, true);
        if outcome.is_err() && !already_ended {
            // It hangs in the kernel. When it comes out it goes home by itself, so the way is left there.
            self.stopped.lost(self.tid);
            return outcome;
        }
        // Last: until now it was the way home.
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

    /// From the exit of a system call (or a signal's delivery) to PTRACE_EVENT_STOP, without an instruction in between.
    fn back_to_our_stop(&mut self) -> Result<(), RemoteError> {
        let mut progress = self.progress();
        let name = || "the way back".to_owned();
        let mut signal = 0;
        loop {
            raw::interrupt(self.tid).map_err(self.stopped.failed(self.tid, "PTRACE_INTERRUPT"))?;
            self.resume(Resume::Continue, signal)?;
            signal = match self.wait(&mut progress, &name)? {
                Event::Interrupted => return Ok(()),
                // Raised by what the thread did for us, and reported already: not for the program.
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
                // Job control has news; they are for later.
                _ => 0,
            };
        }
    }

    /// Deals with a signal that came in although nearly all are blocked; which signal to resume with.
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
        match raw::resume(self.tid, how, signal) {
            Err(Errno::ESRCH) => Err(self.has_ended()),
            other => Ok(other.map_err(self.stopped.failed(self.tid, "PTRACE_SYSCALL"))?),
        }
    }

    /// Waits for the next event. A call that is stuck is interrupted, so that the thread stands still in any case.
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
            // An error: it has just ended, which the next look shows.
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

    /// Where a short text may be put that a system call reads.
    pub(crate) fn text_room(&self) -> TargetAddress {
        self.code.text()
    }

    /// Memory of ours that system calls may write to.
    pub(crate) fn scratch(&mut self) -> Result<TargetAddress, RemoteError> {
        if let Some(known) = self.process().scratch().or(self.page) {
            return Ok(known);
        }
        let page = self.map_page()?;
        self.page = Some(page);
        Ok(page)
    }

    /// Registers that the thread had, and will have again.
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
