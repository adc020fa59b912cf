//! Room in the agent's mapping for data that is written later: stubs, which stay, and the tables of redirects and
//! origins, which each registration replaces.
//!
//! A thread that traps looks an address up in the table that it finds. So the memory of a replaced table is used
//! again only when no thread is in the middle of a look-up that may have found it. Threads in a look-up are
//! counted, in one of two counts ([`Readers`]):
//!
//! ```text
//!   look-up                                     reuse
//!     add 1 to the count that `phase` names       publish another table
//!     (a full barrier)                            (a full barrier)
//!     load the table's address                    see each count at 0 once, whichever comes first; `phase` names the
//!     look                                        one that was seen, so that the other comes to 0, too
//!     subtract 1
//! ```
//!
//! A thread that has loaded the old address had added 1 before the table was replaced, so its count is not seen at 0
//! before the thread has left. This is checked for many tables at a time. A thread waits for it only if there is no
//! other room. A thread that leaves in the middle of a look-up (by a signal handler's siglongjmp) is counted for
//! ever: then no table is used again.

use nanoprobe_patch::order::sort_by_number;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

/// Tables are kept until this many bytes of them are out of use.
const ENOUGH: u64 = 1 << 20;
/// How long to wait until enough room is free.
const WAIT: Duration = Duration::from_secs(2);
const ALIGNMENT: u64 = 16;

/// `struct np_readers`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Readers {
    phase: AtomicU32,
    reserved: u32,
    inside: [AtomicU64; 2],
}
const _: () = assert!(size_of::<Readers>() == size_of::<nanoprobe_arena::layout::Readers>());

impl Readers {
    /// Sets both counts to 0.
    pub fn forget(&self) {
        for count in &self.inside {
            count.store(0, Ordering::SeqCst);
        }
    }

    /// Whether each count has been at 0 at some time since `seen` was made.
    fn have_left(&self, seen: &mut [bool; 2]) -> bool {
        fence(Ordering::SeqCst);
        for (count, seen) in self.inside.iter().zip(seen.iter_mut()) {
            *seen |= count.load(Ordering::SeqCst) == 0;
        }
        let [first, _] = *seen;
        self.phase.store(u32::from(!first), Ordering::SeqCst);
        *seen == [true; 2]
    }
}

/// The room for stubs and tables.
pub struct Room {
    /// The free ranges, ascending. No two adjoin.
    free: Vec<Range<u64>>,
    /// Ranges of replaced tables, which new look-ups do not find.
    retired: Vec<Range<u64>>,
    /// Retired ranges that wait for their readers. Before them: whether each of the two counts of readers has been 0
    /// since the wait began.
    ageing: Option<([bool; 2], Vec<Range<u64>>)>,
    readers: &'static Readers,
}

impl Room {
    /// A room whose whole range is free.
    pub fn new(range: Range<u64>, readers: &'static Readers) -> Room {
        Room {
            free: vec![range],
            retired: Vec::new(),
            ageing: None,
            readers,
        }
    }

    /// Takes this many bytes, at a multiple of 16; `None`: no free range is large enough.
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

    /// Retires a range: new look-ups do not find it, but threads may still be reading it.
    pub fn retire(&mut self, address: u64, bytes: usize) {
        let bytes = (bytes as u64).next_multiple_of(ALIGNMENT);
        self.retired.push(address..address + bytes);
    }

    /// Frees the ranges that no thread can be reading. The readers are checked when this many bytes are retired.
    fn collect(&mut self, enough: u64) {
        let bytes: u64 = self.retired.iter().map(|range| range.end - range.start).sum();
        if self.ageing.is_none() && bytes >= enough {
            self.ageing = Some(([false; 2], std::mem::take(&mut self.retired)));
        }
        if let Some((mut seen, ranges)) = self.ageing.take() {
            if self.readers.have_left(&mut seen) {
                self.release(ranges);
            } else {
                self.ageing = Some((seen, ranges));
            }
        }
    }

    fn release(&mut self, ranges: Vec<Range<u64>>) {
        self.free.extend(ranges);
        self.free.retain(|range| range.start < range.end);
        sort_by_number(&mut self.free, |range| range.start);
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use super::*;

    fn room(range: Range<u64>) -> (Room, &'static Readers) {
        let readers: &Readers = Box::leak(Box::default());
        (Room::new(range, readers), readers)
    }

    fn is_whole(room: &Room) -> bool {
        room.free.len() == 1 && room.free.first() == Some(&(0..64))
    }

    #[test]
    fn what_is_retired_is_joined_and_taken_again() {
        let (mut room, _) = room(0x1000..0x1000 + 0x100);
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

    /// A reader that is inside when a range is retired keeps the range from being taken again, however many readers
    /// come and go later. A reader that comes later does not.
    #[test]
    fn nothing_is_taken_again_under_a_reader() {
        let (mut room, readers) = room(0..64);
        let enter = || {
            let phase = readers.phase.load(Ordering::SeqCst) as usize;
            readers.inside[phase].fetch_add(1, Ordering::SeqCst);
            phase
        };
        let leave = |phase: usize| readers.inside[phase].fetch_sub(1, Ordering::SeqCst);
        for _ in 0..3 {
            let taken = room.take(64).unwrap();
            let early = enter();
            room.retire(taken, 64);
            for _ in 0..5 {
                let late = enter();
                room.collect(1);
                assert!(!is_whole(&room));
                leave(late);
            }
            let late = enter();
            leave(early);
            room.collect(1);
            assert!(is_whole(&room));
            leave(late);
        }
        // A thread that has read the phase long ago is still counted.
        let taken = room.take(64).unwrap();
        let stale = 1 - readers.phase.load(Ordering::SeqCst) as usize;
        readers.inside[stale].fetch_add(1, Ordering::SeqCst);
        room.retire(taken, 64);
        room.collect(1);
        assert!(!is_whole(&room));
        leave(stale);
        room.collect(1);
        assert!(is_whole(&room));
    }

    #[test]
    fn a_child_forgets_its_parents_readers() {
        let (mut room, readers) = room(0..64);
        let taken = room.take(64).unwrap();
        readers.inside[0].fetch_add(1, Ordering::SeqCst);
        readers.inside[1].fetch_add(1, Ordering::SeqCst);
        room.retire(taken, 64);
        room.collect(1);
        assert!(!is_whole(&room));
        readers.forget();
        room.collect(1);
        assert!(is_whole(&room));
    }
}
