//! The processes that have an arena of ours mapped. A search reads the maps of all processes, so the sessions of a run
//! share what one search has found.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nanoprobe_patch::TargetAddress;
use nanoprobe_target::Map;

/// Device and inode of an arena.
pub(crate) type ArenaFile = ((u32, u32), u64);

/// A process with an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Holder {
    pid: u32,
    file: ArenaFile,
    start: TargetAddress,
    /// When the process was made, in the kernel's ticks, if that is known.
    started: Option<u64>,
}

/// All processes that a search has found.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    began: Instant,
    pub ended: Instant,
    holders: Arc<[Holder]>,
}

impl Search {
    /// Looks at the processes that were made no earlier than `since`.
    fn run(since: u64) -> Search {
        let began = Instant::now();
        let own = std::process::id();
        let holders = processes()
            .filter(|pid| *pid != own)
            .flat_map(|pid| holders_of(pid, since))
            .collect();
        Search {
            began,
            ended: Instant::now(),
            holders,
        }
    }

    /// How long it took.
    pub fn took(&self) -> Duration {
        self.ended - self.began
    }

    /// The processes that have this arena at this address, and that were made no earlier than `since`.
    pub fn with(&self, file: ArenaFile, address: TargetAddress, since: u64) -> Vec<i32> {
        let is_meant = |holder: &&Holder| {
            holder.file == file && holder.start == address && holder.started.is_none_or(|started| started >= since)
        };
        let found = self.holders.iter().filter(is_meant);
        found.map(|holder| holder.pid.cast_signed()).collect()
    }
}

/// The latest search of a run.
#[derive(Debug)]
pub struct Searches {
    latest: Mutex<Option<Search>>,
    /// When the oldest target was made: older processes have none of the arenas.
    since: AtomicU64,
}

impl Default for Searches {
    fn default() -> Searches {
        Searches {
            latest: Mutex::default(),
            since: AtomicU64::new(u64::MAX),
        }
    }
}

impl Searches {
    /// Notes a target, by the time when it was made.
    pub(crate) fn add_target(&self, made: u64) {
        self.since.fetch_min(made, Ordering::Relaxed);
    }

    /// A search that began after a moment: the latest one, or a new one.
    pub(crate) fn since(&self, moment: Instant) -> Search {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        match &*latest {
            Some(search) if search.began >= moment => search.clone(),
            _ => latest.insert(Search::run(self.since.load(Ordering::Relaxed))).clone(),
        }
    }

    /// A new search.
    pub(crate) fn now(&self) -> Search {
        self.since(Instant::now())
    }
}

/// The arenas that a process has mapped.
fn holders_of(pid: u32, since: u64) -> Vec<Holder> {
    const NAME: &[u8] = b"memfd:nanoprobe-";
    let started = started(pid);
    // This is read faster than a map.
    if started.is_some_and(|started| started < since) {
        return Vec::new();
    }
    let text = std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    if !text.windows(NAME.len()).any(|part| part == NAME) {
        return Vec::new();
    }
    let lines = text.split(|byte| *byte == b'\n');
    let arenas: Vec<&[u8]> = lines
        .filter(|line| line.windows(NAME.len()).any(|part| part == NAME))
        .collect();
    let map = Map::parse(&arenas.join(&b'\n'));
    let of = |mapping: &nanoprobe_target::Mapping| Holder {
        pid,
        file: (mapping.device, mapping.inode),
        start: mapping.start,
        started,
    };
    map.mappings().iter().map(of).collect()
}

/// When a process was made, in the kernel's ticks.
fn started(pid: u32) -> Option<u64> {
    const STARTED: usize = 19;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, after_name) = stat.rsplit_once(") ")?;
    after_name.split(' ').nth(STARTED)?.parse().ok()
}

/// The processes that we see.
pub(crate) fn processes() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_is_shared_by_all_who_waited_for_it_and_by_nobody_later() {
        let searches = Searches::default();
        let (one, other) = (Instant::now(), Instant::now());
        let first = searches.since(one);
        assert_eq!(searches.since(other).began, first.began);
        assert_eq!(searches.since(one).began, first.began);
        let later = searches.since(first.ended);
        assert!(later.began >= first.ended);
        assert!(searches.now().began >= later.ended);
    }

    #[test]
    fn a_holder_has_the_arena_at_its_address_and_is_no_older_than_the_target() {
        let (file, other) = (((0, 1), 7), ((0, 1), 8));
        let holder = |pid, file, start, started| Holder {
            pid,
            file,
            start: TargetAddress(start),
            started,
        };
        let now = Instant::now();
        let search = Search {
            began: now,
            ended: now,
            holders: [
                holder(1, file, 0x1000, Some(50)),
                holder(2, file, 0x1000, Some(49)),
                holder(3, file, 0x2000, Some(50)),
                holder(4, other, 0x1000, Some(50)),
                holder(5, file, 0x1000, None),
            ]
            .into(),
        };
        assert_eq!(search.with(file, TargetAddress(0x1000), 50), [1, 5]);
    }
}
