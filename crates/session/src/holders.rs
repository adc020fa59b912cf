//! The processes that have an arena of ours mapped. A search reads the maps of all processes, so the sessions of a run
//! share what one search has found.
//!
//! Most processes are older than the first target, and have no arena. When a process was made never changes, so it is
//! asked once. A process is known by its number and the inode of its folder in /proc: a later process with the same
//! number has another inode.

use std::collections::HashMap;
use std::os::unix::fs::DirEntryExt as _;
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
    fn run(since: u64, ages: &mut Ages) -> Search {
        let began = Instant::now();
        let own = std::process::id();
        let is_young = |started: Option<u64>| started.is_none_or(|started| started >= since);
        let holders = ages
            .look()
            .filter(|(pid, started)| *pid != own && is_young(*started))
            .flat_map(|(pid, started)| holders_of(pid, started))
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

/// When each process was made, in the kernel's ticks, by its number and the inode of its folder.
#[derive(Debug, Default)]
struct Ages(HashMap<(u32, u64), u64>);

impl Ages {
    /// All processes, each with its age if that is known. Those that have ended are forgotten.
    fn look(&mut self) -> impl Iterator<Item = (u32, Option<u64>)> {
        let before = std::mem::take(&mut self.0);
        let mut all = Vec::with_capacity(before.len());
        for (pid, inode) in folders() {
            let age = before.get(&(pid, inode)).copied().or_else(|| started(pid));
            // The kernel writes 1 if it has no inode at hand.
            if let (Some(age), 2..) = (age, inode) {
                self.0.insert((pid, inode), age);
            }
            all.push((pid, age));
        }
        all.into_iter()
    }
}

/// The latest search of a run.
#[derive(Debug)]
pub struct Searches {
    latest: Mutex<(Option<Search>, Ages)>,
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
        let (latest, ages) = &mut *latest;
        match latest {
            Some(search) if search.began >= moment => search.clone(),
            _ => {
                let since = self.since.load(Ordering::Relaxed);
                latest.insert(Search::run(since, ages)).clone()
            }
        }
    }

    /// A new search.
    pub(crate) fn now(&self) -> Search {
        self.since(Instant::now())
    }
}

/// The arenas that a process has mapped.
fn holders_of(pid: u32, started: Option<u64>) -> Vec<Holder> {
    const NAME: &[u8] = b"memfd:nanoprobe-";
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
    folders().map(|(pid, _)| pid)
}

/// The same, each with the inode of its folder.
fn folders() -> impl Iterator<Item = (u32, u64)> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten();
    entries.filter_map(|entry| {
        let entry = entry.ok()?;
        Some((entry.file_name().to_str()?.parse().ok()?, entry.ino()))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

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

    /// A wrong age would hide a process, or show an older one.
    #[test]
    fn each_process_has_the_age_that_the_kernel_says() {
        let mut ages = Ages::default();
        let first: Vec<_> = ages.look().collect();
        let own = std::process::id();
        assert!(first.contains(&(own, started(own))), "{first:?}");
        // The second look asks nobody whom the first has asked.
        let known = ages.0.clone();
        assert!(known.keys().any(|(pid, _)| *pid == own));
        for age in ages.0.values_mut() {
            *age += 1;
        }
        let second: Vec<_> = ages.look().collect();
        assert!(second.contains(&(own, started(own).map(|age| age + 1))));
        // A process that has another folder is another process, whatever its number is.
        let stale = known.iter().map(|((pid, inode), age)| ((*pid, inode + 1), age + 7));
        ages.0 = stale.collect();
        let third: Vec<_> = ages.look().collect();
        assert!(third.contains(&(own, started(own))));
    }

    #[test]
    fn a_process_that_has_ended_is_forgotten() {
        let mut ages = Ages::default();
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let id = child.id();
        let has = |ages: &Ages| ages.0.keys().any(|(pid, _)| *pid == id);
        ages.look().for_each(drop);
        assert!(has(&ages));
        child.kill().unwrap();
        child.wait().unwrap();
        ages.look().for_each(drop);
        assert!(!has(&ages));
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
