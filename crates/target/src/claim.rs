//! A claim on a process: several tracers may trace it, and one of them at a time changes it.
//!
//! The lock is flock(2) on /proc/PID/mem, which only code that may trace the process can open. The kernel drops it with
//! the tracer. Whoever holds it may stop threads, borrow one, and write text and memory. The process itself can take
//! the lock, too: that keeps tracers out, and harms nobody else.
//!
//! Tracers with different mounts of /proc do not see each other's locks. ptrace(2) still lets only one of them hold a
//! thread, and each write of text compares first.

use std::time::{Duration, Instant};

use nix::errno::Errno;
use rustix::fs::{FlockOperation, flock};

use crate::error::StopError;
use crate::process::Process;

/// How long to wait for another tracer. It may plan a hundred thousand sites on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// The time between two attempts.
const PAUSE: Duration = Duration::from_millis(1);

/// While it lives, no other tracer changes the process. Claims on one [`Process`] may be nested.
#[derive(Debug)]
pub struct Claim(Process);

impl Process {
    /// Waits until no other tracer is at work in the process.
    ///
    /// # Errors
    /// [`StopError::Busy`] after a minute.
    pub fn claim(&self) -> Result<Claim, StopError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(claim) = self.claim_now() {
                return Ok(claim);
            }
            if Instant::now() >= deadline {
                return Err(StopError::Busy { pid: self.pid() });
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// A claim, unless another tracer has one.
    pub fn claim_now(&self) -> Option<Claim> {
        // A thread that panicked has left a number that is right.
        let mut held = self.claims().lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if *held == 0 {
            match flock(self.memory().file(), FlockOperation::NonBlockingLockExclusive) {
                Err(errno) if Errno::from_raw(errno.raw_os_error()) == Errno::EWOULDBLOCK => return None,
                // Where /proc knows no locks, ptrace alone keeps tracers apart.
                Ok(()) | Err(_) => {}
            }
        }
        *held += 1;
        Some(Claim(self.clone()))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let claims = self.0.claims();
        let mut held = claims.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        *held = held.saturating_sub(1);
        if *held == 0 {
            // An error means that there was no lock.
            let _ = flock(self.0.memory().file(), FlockOperation::Unlock);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_tracer_at_a_time_has_a_claim() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let (one, other) = (Process::open(pid).unwrap(), Process::open(pid).unwrap());
        let claim = one.claim().unwrap();
        let nested = one.clone().claim_now().unwrap();
        assert!(other.claim_now().is_none());
        drop(claim);
        assert!(other.claim_now().is_none(), "the nested claim is still held");
        drop(nested);
        let claim = other.claim_now().unwrap();
        assert!(one.claim_now().is_none());
        drop(claim);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
