//! Calls of functions in a borrowed thread, on a stack of the caller's.

use nanoprobe_patch::TargetAddress;

use super::Remote;
use crate::error::RemoteError;
use crate::raw::{self, Registers};
use crate::stop::Progress;
use crate::{homing, restart};

impl Remote<'_> {
    /// Calls a function of the target with integer arguments, such as the resolver of an IFUNC, and returns its `rax`.
    ///
    /// It runs on a stack that the caller provides. The top of the stack holds the frame into which the function
    /// returns, and the stack's content is lost. The function's system calls are let through, except waits for other
    /// threads while all threads are stopped. All registers, SIMD included, are restored afterwards.
    ///
    /// # Errors
    /// [`RemoteError::Fault`] when the function raises a signal. [`RemoteError::Waits`]. [`RemoteError::Timeout`] when
    /// it executes for two seconds. In the last two cases the thread is given back from the middle of the function.
    /// That is harmless for a function without side effects.
    pub fn call(
        &mut self,
        function: TargetAddress,
        arguments: [u64; 6],
        stack: std::ops::Range<TargetAddress>,
    ) -> Result<u64, RemoteError> {
        let (pid, tid) = (self.process().pid(), self.tid);
        let name = || format!("the function at {function}");
        // No system call has changed the extended state.
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

    /// Lets a called function run until it has returned and has executed rt_sigreturn. rt_sigreturn restores the
    /// thread's own state, so the thread has a way home at every instant.
    fn until_returned(&mut self, progress: &mut Progress, name: &impl Fn() -> String) -> Result<u64, RemoteError> {
        let mut at_entry = true;
        loop {
            self.run_to_system_call(progress, name)?;
            let registers = self.registers()?;
            if at_entry && registers.rip == self.code.in_leaving() {
                self.run_to_system_call(progress, name)?;
                return Ok(registers.rbx);
            }
            if at_entry && is_wait(&registers) && self.stopped.is_whole_process() {
                // The kernel makes no call of this number.
                let orig_rax = u64::MAX;
                self.set_registers(Registers { orig_rax, ..registers })?;
                self.run_to_system_call(progress, name)?;
                return Err(RemoteError::Waits {
                    pid: self.process().pid(),
                    call: name(),
                });
            }
            at_entry = !at_entry;
        }
    }
}

/// Whether a thread is about to wait in futex(2) for another thread.
fn is_wait(registers: &Registers) -> bool {
    const WAITS: [u64; 5] = [0, 6, 9, 11, 13];
    const COMMAND: u64 = 0x7f;
    registers.orig_rax == libc::SYS_futex as u64 && WAITS.contains(&(registers.rsi & COMMAND))
}
