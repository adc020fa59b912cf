//! Room in the agent's mapping for what is written there later: stubs, which stay, and the tables of redirects and origins, of
//! which each registration publishes new ones.
//!
//! A thread that traps looks an address up in the table that it finds, and cannot be asked whether it has finished. So the
//! memory of a table that was replaced is used again only when every thread has been seen where it cannot be in the midst of
//! that:
//!
//! ```text
//!   in a system call     a look-up makes none
//!   gone
//!   20 ms further on     of its own time on a processor; a look-up takes less than a microsecond
//! ```
//!
//! That is asked for many tables at a time, and nobody waits for it unless there is no other room.

use std::ops::Range;
use std::time::{Duration, Instant};

/// Tables are kept until this many bytes of them are of no use any more.
const ENOUGH: u64 = 1 << 20;
/// More than any look-up takes, in ns.
const FURTHER: u64 = 20_000_000;
/// How long is waited for room.
const WAIT: Duration = Duration::from_secs(2);
const ALIGNMENT: u64 = 16;

/// The room.
pub struct Room {
    /// Ascending, never adjoining.
    free: Vec<Range<u64>>,
    /// Of no use to who looks now.
    retired: Vec<Range<u64>>,
    /// Retired before the threads were looked at.
    ageing: Option<(Threads, Vec<Range<u64>>)>,
}

impl Room {
    /// All of it is free.
    pub fn new(range: Range<u64>) -> Room {
        Room {
            free: vec![range],
            retired: Vec::new(),
            ageing: None,
        }
    }

    /// Takes so many bytes, at a multiple of 16; `None`: there is no such room.
    pub fn take(&mut self, bytes: usize) -> Option<u64> {
        let bytes = (bytes as u64).next_multiple_of(ALIGNMENT);
        self.collect(ENOUGH);
        let begun = Instant::now();
        loop {
            if let Some(range) = self.free.iter_mut().find(|range| range.end - range.start >= bytes) {
                let address = range.start;
                range.start += bytes;
                return Some(address);
            }
            if (self.retired.is_empty() && self.ageing.is_none()) || begun.elapsed() > WAIT {
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
            self.collect(1);
        }
    }

    /// Nobody finds any more what was taken there, but may still be reading it.
    pub fn retire(&mut self, address: u64, bytes: usize) {
        let bytes = (bytes as u64).next_multiple_of(ALIGNMENT);
        self.retired.push(address..address + bytes);
    }

    /// Frees what nobody can be reading. The threads are looked at when so many bytes are retired.
    fn collect(&mut self, enough: u64) {
        if let Some((mut threads, ranges)) = self.ageing.take() {
            if threads.have_gone_on() {
                self.release(ranges);
            } else {
                self.ageing = Some((threads, ranges));
            }
        }
        let bytes: u64 = self.retired.iter().map(|range| range.end - range.start).sum();
        if self.ageing.is_none()
            && bytes >= enough
            && let Some(threads) = Threads::now()
        {
            self.ageing = Some((threads, std::mem::take(&mut self.retired)));
        }
    }

    fn release(&mut self, ranges: Vec<Range<u64>>) {
        self.free.extend(ranges);
        self.free.retain(|range| range.start < range.end);
        self.free.sort_by_key(|range| range.start);
        let mut joined: Vec<Range<u64>> = Vec::with_capacity(self.free.len());
        for range in self.free.drain(..) {
            match joined.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => joined.push(range),
            }
        }
        self.free = joined;
    }
}

/// Threads that may be in the midst of a look-up, with the time that they had run.
struct Threads(Vec<(i32, Option<u64>)>);

impl Threads {
    /// `None`: they cannot be seen.
    fn now() -> Option<Threads> {
        // SAFETY: the call takes nothing.
        let own = unsafe { libc::gettid() };
        let entries = std::fs::read_dir("/proc/self/task").ok()?;
        let numbers = entries.map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let numbers: Option<Vec<i32>> = numbers.collect();
        let others = numbers?.into_iter().filter(|thread| *thread != own);
        let may = others.filter(|thread| !is_in_system_call(*thread));
        Some(Threads(may.map(|thread| (thread, time_of(thread))).collect()))
    }

    fn have_gone_on(&mut self) -> bool {
        self.0.retain(|(thread, before)| {
            let further = |now: u64| before.is_some_and(|before| now.saturating_sub(before) >= FURTHER);
            !is_gone(*thread) && !is_in_system_call(*thread) && !time_of(*thread).is_some_and(further)
        });
        self.0.is_empty()
    }
}

fn is_gone(thread: i32) -> bool {
    // SAFETY: signal 0 sends nothing.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, 0) };
    sent != 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
}

/// Blocked in one: its number comes first then. Else "running", or -1.
fn is_in_system_call(thread: i32) -> bool {
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/syscall"));
    text.is_ok_and(|text| text.starts_with(|first: char| first.is_ascii_digit()))
}

/// On a processor, in ns.
fn time_of(thread: i32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).ok()?;
    text.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn what_is_retired_is_joined_and_taken_again() {
        let mut room = Room::new(0x1000..0x1000 + 0x100);
        let first = room.take(0x40).unwrap();
        let second = room.take(0x39).unwrap();
        let third = room.take(0x80).unwrap();
        assert_eq!((first, second, third), (0x1000, 0x1040, 0x1080));
        assert_eq!(room.take(1), None, "all is in use");
        room.retire(second, 0x39);
        room.retire(first, 0x40);
        assert_eq!(room.take(0x80), Some(0x1000));
        assert_eq!(room.take(16), None);
        room.retire(third, 0x80);
        assert_eq!(room.take(16), Some(0x1080));
    }

    /// A thread that runs on and on, without a system call, does not keep it for ever; and one that waits does not at all.
    #[test]
    fn threads_that_run_go_on() {
        static STOP: AtomicBool = AtomicBool::new(false);
        let runs = std::thread::spawn(|| {
            while !STOP.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let mut room = Room::new(0..64);
        assert_eq!(room.take(64), Some(0));
        room.retire(0, 64);
        let mut taken = None;
        // On a busy machine it may not get its time while one call waits.
        for _ in 0..20 {
            taken = taken.or_else(|| room.take(64));
        }
        STOP.store(true, Ordering::Relaxed);
        runs.join().unwrap();
        assert_eq!(taken, Some(0));
    }
}
