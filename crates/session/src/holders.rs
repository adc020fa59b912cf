//! The processes that have an arena of ours mapped. A search reads the maps of all processes, so the sessions of a run
//! share what one search has found.
//!
//! Most processes are older than the first target, and have no arena. When a process was made never changes, so it is
//! asked once. A process is known by its number and the inode of its folder in /proc: a later process with the same
//! number has another inode.
//!
//! A map is read once, too, if it shows no arena. Only a fork hands on an arena, so a process without one gets none,
//! unless the run attaches to it. Then it is a target, and nobody searches for it: its children are processes that were
//! made later.

use std::collections::HashMap;
use std::os::unix::fs::DirEntryExt as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nanoprobe_patch::TargetAddress;
use nanoprobe_target::Map;
use nanoprobe_target::proc_file;

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
    /// Whether no process and no thread was made meanwhile, so that no process can have been missed for that reason.
    pub is_quiet: bool,
    holders: Arc<[Holder]>,
}

impl Search {
    /// Looks at the processes that were made no earlier than `since`.
    fn run(since: u64, ages: &mut Ages) -> Search {
        let began = Instant::now();
        let made = last_made();
        let own = std::process::id();
        let is_young = |started: Option<u64>| started.is_none_or(|started| started >= since);
        let mut holders = Vec::new();
        for process in ages.look() {
            let pid = process.folder.0;
            if pid == own || process.has_no_arena || !is_young(process.made) {
                continue;
            }
            let map = proc_file::read(format!("/proc/{pid}/maps")).unwrap_or_default();
            let found = holders_of(&map, pid, process.made);
            // Where no map is shown, the process is about to end, or it is another user's.
            if found.is_empty() && !map.is_empty() {
                ages.note_that_it_has_no_arena(process.folder);
            }
            holders.extend(found);
        }
        Search {
            began,
            ended: Instant::now(),
            is_quiet: made.is_some() && made == last_made(),
            holders: holders.into(),
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

/// The number of a process, and the inode of its folder in /proc.
type Folder = (u32, u64);

/// What never changes in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    folder: Folder,
    /// When it was made, in the kernel's ticks, if that is known.
    made: Option<u64>,
    has_no_arena: bool,
}

/// What is known of each process.
#[derive(Debug, Default)]
struct Ages(HashMap<Folder, Seen>);

impl Ages {
    /// All processes. Those that have ended are forgotten.
    fn look(&mut self) -> Vec<Seen> {
        let before = std::mem::take(&mut self.0);
        let mut all = Vec::with_capacity(before.len());
        for folder in folders() {
            let seen = before.get(&folder).copied().unwrap_or_else(|| Seen {
                folder,
                made: made(folder.0),
                has_no_arena: false,
            });
            // The kernel writes 1 if it has no inode at hand.
            if let (Some(_), 2..) = (seen.made, folder.1) {
                self.0.insert(folder, seen);
            }
            all.push(seen);
        }
        all
    }

    fn note_that_it_has_no_arena(&mut self, folder: Folder) {
        if let Some(seen) = self.0.get_mut(&folder) {
            seen.has_no_arena = true;
        }
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

/// The arenas that a process has mapped, by its map.
fn holders_of(text: &[u8], pid: u32, started: Option<u64>) -> Vec<Holder> {
    const NAME: &[u8] = b"memfd:nanoprobe-";
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

/// The number that the kernel gave last to a process or thread that we see (proc_loadavg(5)). Numbers are given in
/// ascending order, and begin again after tens of thousands.
fn last_made() -> Option<u32> {
    let text = proc_file::read_text("/proc/loadavg").ok()?;
    text.split_ascii_whitespace().last()?.parse().ok()
}

/// When a process was made, in the kernel's ticks.
fn made(pid: u32) -> Option<u64> {
    const STARTED: usize = 19;
    let stat = proc_file::read_text(format!("/proc/{pid}/stat")).ok()?;
    let (_, after_name) = stat.rsplit_once(") ")?;
    after_name.split(' ').nth(STARTED)?.parse().ok()
}

/// The processes that we see.
pub(crate) fn processes() -> impl Iterator<Item = u32> {
    folders().map(|(pid, _)| pid)
}

/// The same, each with the inode of its folder.
fn folders() -> impl Iterator<Item = Folder> {
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

    fn seen_of(all: &[Seen], pid: u32) -> Seen {
        *all.iter().find(|seen| seen.folder.0 == pid).unwrap()
    }

    /// A wrong age would hide a process, or show an older one.
    #[test]
    fn each_process_has_the_age_that_the_kernel_says() {
        let mut ages = Ages::default();
        let own = std::process::id();
        let first = seen_of(&ages.look(), own);
        assert_eq!(first.made, made(own));
        // The second look asks nobody whom the first has asked.
        let known = ages.0.clone();
        for seen in ages.0.values_mut() {
            seen.made = seen.made.map(|made| made + 1);
        }
        ages.note_that_it_has_no_arena(first.folder);
        let second = seen_of(&ages.look(), own);
        assert_eq!(second.made, first.made.map(|made| made + 1));
        assert!(second.has_no_arena);
        // A process that has another folder is another process, whatever its number is.
        let stale = known.into_keys().map(|(pid, inode)| {
            let folder = (pid, inode + 1);
            let seen = Seen {
                folder,
                made: Some(7),
                has_no_arena: true,
            };
            (folder, seen)
        });
        ages.0 = stale.collect();
        assert_eq!(seen_of(&ages.look(), own), first);
    }

    /// The program's map is read in each search only if it has an arena.
    #[test]
    fn a_process_without_an_arena_is_looked_at_once() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let mut ages = Ages::default();
        let since = made(child.id()).unwrap();
        // The child may stand before its program, and may still share the map of the test.
        let deadline = Instant::now() + Duration::from_secs(20);
        while !seen_of(&ages.look(), child.id()).has_no_arena {
            assert!(Instant::now() < deadline);
            Search::run(since, &mut ages);
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// The number changes with each process, also with one that ends at once.
    #[test]
    fn a_process_that_is_made_is_noticed() {
        let before = last_made().unwrap();
        std::process::Command::new("true").status().unwrap();
        assert_ne!(last_made().unwrap(), before);
    }

    #[test]
    fn a_process_that_has_ended_is_forgotten() {
        let mut ages = Ages::default();
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let id = child.id();
        let has = |ages: &Ages| ages.0.keys().any(|(pid, _)| *pid == id);
        ages.look();
        assert!(has(&ages));
        child.kill().unwrap();
        child.wait().unwrap();
        ages.look();
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
            is_quiet: false,
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
