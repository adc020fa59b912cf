//! The tracer's heartbeat while the tracer is busy.
//!
//! A thread of the target that has loaded a library waits for the library's probes, but only while the tracer's
//! heartbeat is recent. To place probes on every instruction of a large program takes seconds, in which the tracer does
//! nothing else. So another thread of the tracer writes the heartbeat during that time. It ends with the tracer: a
//! tracer that is killed, or stopped, has no heartbeat.
//!
//! There is one such thread, which begins with the first work and then stays. Most work takes milliseconds, and a
//! script brings a thousand pieces of it: on a busy machine, waiting for a thread to begin and to end took longer than
//! the work.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;
use std::time::Duration;

use nanoprobe_arena::ControlBlock;

use crate::arena_memory::ArenaMemory;
use crate::clock::tsc;

/// A fraction of the time after which the target takes the tracer for dead.
const PERIOD: Duration = Duration::from_millis(100);

/// The arenas in which the thread writes now.
struct Beating {
    /// `None` before the first work.
    thread: Option<Thread>,
    works: Vec<(u64, Vec<Arc<ArenaMemory>>)>,
    next: u64,
    /// Whether the thread sleeps until it is woken.
    is_parked: bool,
}

static BEATING: Mutex<Beating> = Mutex::new(Beating {
    thread: None,
    works: Vec::new(),
    next: 0,
    is_parked: false,
});

fn beating() -> MutexGuard<'static, Beating> {
    BEATING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn beat(arenas: &[Arc<ArenaMemory>]) {
    for arena in arenas {
        // A damaged control block is found, and reported, by the code that works with it.
        let _ = ControlBlock::open(arena.memory()).and_then(|block| block.beat(tsc()));
    }
}

/// The thread's work. After the last work it waits for a whole period more before it sleeps for good: to wake it for
/// each of a thousand short works would take more time than some of them.
fn keep_beating() {
    let mut seen = 0;
    loop {
        let mut beating = beating();
        beating.works.iter().for_each(|(_, arenas)| beat(arenas));
        let is_idle = beating.works.is_empty() && beating.next == seen;
        seen = beating.next;
        beating.is_parked = is_idle;
        drop(beating);
        match is_idle {
            true => std::thread::park(),
            false => std::thread::park_timeout(PERIOD),
        }
    }
}

/// Writes the heartbeat until this value is dropped.
#[must_use]
pub struct Heartbeat {
    work: u64,
}

impl Heartbeat {
    /// Starts the heartbeat in these arenas. If no thread can be started there is none, and the targets wait for a
    /// shorter time.
    pub(crate) fn start(arenas: Vec<Arc<ArenaMemory>>) -> Heartbeat {
        beat(&arenas);
        let mut beating = beating();
        let work = beating.next;
        beating.next += 1;
        beating.works.push((work, arenas));
        let is_parked = std::mem::replace(&mut beating.is_parked, false);
        match &beating.thread {
            Some(thread) if is_parked => thread.unpark(),
            Some(_) => {}
            None => {
                let thread = std::thread::Builder::new().name("heartbeat".to_owned());
                beating.thread = thread.spawn(keep_beating).ok().map(|thread| thread.thread().clone());
            }
        }
        Heartbeat { work }
    }
}

impl Drop for Heartbeat {
    /// Once this returns the thread writes no more in these arenas.
    fn drop(&mut self) {
        beating().works.retain(|(work, _)| *work != self.work);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use std::mem::offset_of;
    use std::time::Instant;

    use nanoprobe_arena::Memory as _;
    use nanoprobe_arena::layout::{Control, MAGIC, VERSION};

    use super::*;

    const HEARTBEAT: u64 = offset_of!(Control, tracer_heartbeat) as u64;

    fn arena() -> Arc<ArenaMemory> {
        let arena = ArenaMemory::private(1 << 20).unwrap();
        let control = Control {
            magic: MAGIC,
            version: VERSION,
            control_bytes: size_of::<Control>() as u32,
            ..Control::default()
        };
        arena.memory().write_structure(0, &control).unwrap();
        Arc::new(arena)
    }

    fn last(arena: &ArenaMemory) -> u64 {
        arena.memory().load_u64(HEARTBEAT).unwrap()
    }

    #[test]
    fn each_arena_has_a_heartbeat_until_its_own_work_ends() {
        let (one, other) = (arena(), arena());
        let first = Heartbeat::start(vec![one.clone()]);
        assert!(last(&one) != 0, "the first beat comes at once");
        let second = Heartbeat::start(vec![one.clone(), other.clone()]);
        drop(first);
        let goes_on = |arena: &ArenaMemory| {
            let (before, start) = (last(arena), Instant::now());
            while last(arena) == before {
                assert!(start.elapsed() < Duration::from_secs(60), "no heartbeat");
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        goes_on(&one);
        goes_on(&other);
        drop(second);
        let ended = (last(&one), last(&other));
        std::thread::sleep(3 * PERIOD);
        assert_eq!((last(&one), last(&other)), ended);
        // The arenas are nobody else's any more.
        assert_eq!((Arc::strong_count(&one), Arc::strong_count(&other)), (1, 1));
    }
}
