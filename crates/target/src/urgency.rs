//! Keeps the tracer from waiting for a processor while threads are stopped.
//!
//! On a busy machine, a tracer that sleeps until a thread has stopped or has made a system call gets its next turn
//! milliseconds later, and all stopped threads wait with it. So while the tracer's thread holds threads, it is
//! real-time at the lowest priority, if that is allowed. It sleeps whenever it has to wait, so it keeps no other
//! thread from running.

use crate::raw;

/// While this lives, the calling thread gets a processor as soon as it needs one. The thread that made this value
/// must also be the thread that drops it.
#[derive(Debug)]
pub(crate) struct Urgency {
    before: Option<raw::Scheduling>,
}

impl Urgency {
    /// Raises the calling thread's priority. If this is not allowed, nothing changes.
    pub fn begin() -> Urgency {
        let before = raw::scheduling().ok().filter(|before| before.is_ordinary());
        Urgency {
            before: before.filter(|_| raw::set_scheduling(raw::Scheduling::URGENT).is_ok()),
        }
    }
}

impl Drop for Urgency {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // Lowering the priority is always allowed. Clearing the flag by which new threads do not inherit the
            // priority may be forbidden, so the second attempt keeps the flag.
            let _ = raw::set_scheduling(before).or_else(|_| raw::set_scheduling(before.not_inherited()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urgency_ends_with_the_value() {
        let before = raw::scheduling().unwrap();
        let outer = Urgency::begin();
        let inner = Urgency::begin();
        drop(inner);
        drop(outer);
        assert_eq!(raw::scheduling().unwrap(), before);
    }
}
