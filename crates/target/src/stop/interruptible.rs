//! Waits until threads are not in an uninterruptible sleep. A thread that is asked to stop there would stop later,
//! unnoticed.

use std::time::{Duration, Instant};

use super::{LIMIT, LOOKS_MIN};
use crate::error::StopError;
use crate::process::Process;
use crate::{ThreadId, threads};

impl Process {
    pub(super) fn wait_for_interruptible(&self, tids: &[ThreadId]) -> Result<(), StopError> {
        let pid = self.pid();
        let deadline = Instant::now() + LIMIT;
        let mut waiting: Vec<ThreadId> = tids.to_vec();
        let mut looks = 0;
        loop {
            waiting.retain(|&tid| threads::state(pid, tid) == Some('D'));
            let Some(&tid) = waiting.first() else { return Ok(()) };
            looks += 1;
            if looks > LOOKS_MIN && Instant::now() >= deadline {
                return Err(StopError::Uninterruptible {
                    pid,
                    tid,
                    state: 'D',
                    place: threads::waits_at(pid, tid),
                });
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
