//! While threads stand, the tracer is not to wait for a processor.
//!
//! On a busy machine a tracer that sleeps until a thread has stopped, or has made a system call, gets its next turn
//! milliseconds later, and all that stands waits with it. So, where it is allowed, the thread that holds others is
//! real-time, at the lowest priority, for as long as it holds them. It sleeps whenever it has to wait, so it keeps
//! nobody out.

use crate::raw;

/// The calling thread gets a processor as soon as it can use one. Until it is dropped, by the same thread.
#[derive(Debug)]
pub(crate) struct Urgency {
    before: Option<raw::Scheduling>,
}

impl Urgency {
    /// Where that is not allowed nothing changes.
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
            // To fall back is always allowed, but not always that what is made from now on stays as it is.
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
