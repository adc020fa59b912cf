//! The processes that carry probes, and their tracers.
//!
//! All that is read from a process may be forged: each read has a bound, and no process can make us do anything.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use nanoprobe_session::{Carried, SessionError, has_abandoned_arena, survey};
use nanoprobe_target::proc_file;
use nanoprobe_target::{AttachError, Map, Process};

/// Each line of an arena in a memory map contains this text.
const ARENA: &[u8] = b"/memfd:nanoprobe-";
/// How many lines of a map are kept.
const LINES_MAX: usize = 256;
/// How many threads of a process are searched for a living one.
const TASKS_MAX: usize = 16;
/// How often to look at a process that is stopped by a tracer at the moment, and the time between two looks.
const LOOKS: u32 = 100;
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// A process that carries probes.
pub struct Traced {
    pub pid: i32,
    pub name: String,
    pub carried: Carried,
    /// The tracer's number in our pid namespace, if the tracer lives and we may examine it.
    pub tracer: Option<i32>,
}

/// The processes that were found.
#[derive(Default)]
pub struct Found {
    /// In the order of their numbers; a process that several tracers trace is there for each of them.
    pub traced: Vec<Traced>,
    /// The processes that seem to need `restore`, and cannot be looked at.
    pub failed: Vec<SessionError>,
    /// The processes that a debugger holds, so that it is not known whether they are traced.
    pub unseen: Vec<SessionError>,
}

/// Looks at all processes.
///
/// # Errors
/// /proc cannot be read.
pub fn all() -> std::io::Result<Found> {
    let numbers = fs::read_dir("/proc")?.flatten();
    let mut pids: Vec<i32> = numbers
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    // Most processes have no arena, and need not be opened.
    let candidates: Vec<(i32, Map)> = pids.into_iter().filter_map(|pid| Some((pid, arenas(pid)?))).collect();
    let mut found = Found::default();
    for (pid, map) in &candidates {
        match look(*pid) {
            Ok((name, all)) => found.traced.extend(all.into_iter().map(|carried| Traced {
                tracer: tracer(*pid, &carried, &candidates),
                pid: *pid,
                name: name.clone(),
                carried,
            })),
            Err(SessionError::Attach(AttachError::NotFound { .. } | AttachError::Zombie { .. })) => {}
            // The process may have ended since its map was read.
            Err(_) if !has_arena(*pid) => {}
            Err(error @ SessionError::LocksUnknown { .. }) => found.failed.push(error),
            Err(error) => match has_abandoned_arena(*pid, map) {
                Ok(false) if matches!(error, SessionError::Attach(AttachError::AlreadyTraced { .. })) => {
                    found.unseen.push(error);
                }
                // The process is a tracer, or the target of a live tracer, and we may not examine it.
                Ok(false) => {}
                Ok(true) => found.failed.push(error),
                Err(unknown) => found.failed.push(unknown),
            },
        }
    }
    Ok(found)
}

/// The lines of a process's memory map that may belong to an arena; `None` if there are none.
fn arenas(pid: i32) -> Option<Map> {
    // The map of a main thread that has ended is empty, although the process may live on.
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    let tasks = tasks.take(TASKS_MAX).map(|task| task.path().join("maps"));
    let lines = tasks.filter_map(|maps| arena_lines(&maps)).next()?;
    (!lines.is_empty()).then(|| Map::parse(&lines.join(&b'\n')))
}

/// The lines of a memory map that may belong to an arena; `None` if the map is empty or may not be read.
fn arena_lines(maps: &Path) -> Option<Vec<Vec<u8>>> {
    let mut lines = BufReader::new(File::open(maps).ok()?)
        .split(b'\n')
        .map_while(Result::ok)
        .peekable();
    lines.peek()?;
    let is_arena = |line: &Vec<u8>| line.windows(ARENA.len()).any(|part| part == ARENA);
    Some(lines.filter(is_arena).take(LINES_MAX).collect())
}

/// Opens a process. The process is closed again before the next one is opened, because there may be more processes than
/// we may have open files.
///
/// # Errors
/// We may not trace it, or a debugger holds it.
pub fn open(pid: i32) -> Result<Process, AttachError> {
    for _ in 1..LOOKS {
        match Process::open(pid) {
            // Tracers stop their targets for a moment only.
            Err(AttachError::AlreadyTraced { .. }) => sleep(BETWEEN_LOOKS),
            opened => return opened,
        }
    }
    Process::open(pid)
}

/// The name of a process, and its arenas.
fn look(pid: i32) -> Result<(String, Vec<Carried>), SessionError> {
    let process = open(pid)?;
    let name = process.facts().name.clone();
    Ok((name, survey(&process)?))
}

/// Whether an arena of a process is one that we map, too: it, or a process from which it was forked, is traced by us.
pub fn is_ours(pid: i32) -> bool {
    let files = |pid: i32| -> Vec<_> {
        let map = arenas(pid);
        let mappings = map.iter().flat_map(Map::mappings);
        mappings.map(|mapping| (mapping.device, mapping.inode)).collect()
    };
    let own = files(std::process::id().cast_signed());
    files(pid).iter().any(|file| own.contains(file))
}

/// Whether a process still has an arena.
pub fn has_arena(pid: i32) -> bool {
    arenas(pid).is_some()
}

/// The live tracer: it maps the same file, and in its own pid namespace it has the number that the arena states.
fn tracer(pid: i32, carried: &Carried, candidates: &[(i32, Map)]) -> Option<i32> {
    let has_file = |map: &Map| {
        let mut mappings = map.mappings().iter();
        mappings.any(|mapping| (mapping.device, mapping.inode) == carried.file)
    };
    let is_tracer = |other: i32, map: &Map| {
        carried.is_live && other != pid && has_file(map) && inner_number(other) == Some(carried.tracer)
    };
    let tracer = candidates.iter().find(|(other, map)| is_tracer(*other, map));
    tracer.map(|(tracer, _)| *tracer)
}

/// The number of a process in its own pid namespace.
fn inner_number(pid: i32) -> Option<u32> {
    let status = proc_file::read(format!("/proc/{pid}/status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_whitespace().last()?.parse().ok()
}
