//! Children of the target that are traced, too: forked, with the target's patches in their text, and with its arena.
//!
//! A child records without the tracer's help (agent/follow.c). The tracer frees the contexts of children that have
//! ended, and takes the patches out of the living ones at the end. No data from a child is trusted: a context is freed
//! only if /proc shows no process with the number, or shows one with another thread table. docs/design/trees.md has the
//! argument.

mod turning_off;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::ErrorKind;
use std::mem::offset_of;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nanoprobe_arena::layout::{Context, Control, NESTED, TABLE_BEGAN};
use nanoprobe_arena::{ControlBlock, Memory as _};
use nanoprobe_patch::TargetAddress;
use nanoprobe_target::proc_file;
use nanoprobe_target::{Ending, Exit, Process};

use crate::arena_memory::ArenaMemory;
use crate::attachment::Attachment;
use crate::detach::restore_child;
use crate::drain::context_offset;
use crate::error::SessionError;
use crate::holders::{ArenaFile, Searches, processes};
use crate::threads::{Take, free_contexts};

/// Looks at the children take at most this fraction (1/20) of the time.
const LOOK_SHARE: u32 = 20;
/// The least time between the end of a look and the start of the next.
const PERIOD: Duration = Duration::from_millis(2);
/// Rounds of the last search. Each round restores the children that were forked since the round before; children that
/// are not restored yet may fork.
const ROUNDS_MAX: usize = 100;

/// This number of searches in a row must find no child. A single search may miss a child: another child forks it during
/// the search, and ends before its own map is read.
const EMPTY_SEARCHES: u32 = 4;
/// A search during which no process was made at all counts for so many. One is not enough: a process may have its
/// number before the search, and its folder in /proc after it.
const QUIET_SEARCH: u32 = 2;
/// The time between two searches that found no child.
const PAUSE: Duration = Duration::from_millis(1);

/// The most children whose ends are watched for.
const WATCHED_MAX: usize = 256;

/// A followed child: its process number, as the child itself sees it, and `began` of its thread table.
type Identity = (u32, u64);

/// What remains to be done until the patches that are off in the target have left its children.
#[derive(Debug, Default)]
struct TurningOff {
    next: Option<Instant>,
    /// How often these children could not be changed.
    refused: BTreeMap<i32, u32>,
}

/// See the module's description.
pub(crate) struct Followed {
    memory: Option<Arc<ArenaMemory>>,
    /// Device and inode of the arena.
    arena: Option<ArenaFile>,
    /// Of the run.
    searches: Arc<Searches>,
    /// The end of the last search, or before the first one the target's.
    searched: Option<Instant>,
    /// Numbers of processes mean something else in the target's pid namespace.
    is_elsewhere: bool,
    /// When the target was made, in the kernel's ticks: its children are no older.
    since: u64,
    known: BTreeSet<Identity>,
    /// Of those of `known` that are in our pid namespace.
    watched: BTreeMap<Identity, Ending>,
    /// Those that have ended, until it is known how.
    ending: Vec<(u32, Ending)>,
    contexts: u64,
    told_of_libraries: bool,
    next: Instant,
    /// How many searches in a row have found no process, since the target ended.
    empty_searches: u32,
    turning_off: TurningOff,
}

impl Followed {
    /// The children of a target; `None`: they are not followed.
    pub fn of(attachment: &Attachment, searches: &Arc<Searches>) -> Option<Followed> {
        searches.add_target(attachment.process.facts().start_time);
        (attachment.parameters.follows || attachment.parameters.follows_programs).then(|| Followed {
            memory: attachment.arena.clone(),
            arena: attachment.arena.as_ref().and_then(|arena| arena.identity()),
            searches: searches.clone(),
            searched: None,
            is_elsewhere: attachment.process.facts().in_other_pid_namespace,
            since: attachment.process.facts().start_time,
            known: BTreeSet::new(),
            watched: BTreeMap::new(),
            ending: Vec::new(),
            contexts: 0,
            told_of_libraries: false,
            next: Instant::now(),
            empty_searches: 0,
            turning_off: TurningOff::default(),
        })
    }

    /// How many contexts living children have.
    pub fn contexts(&self) -> u64 {
        self.contexts
    }

    /// Whether the target and all of its children have ended.
    pub fn have_ended(&self) -> bool {
        self.empty_searches >= EMPTY_SEARCHES
    }

    /// Frees the contexts of children that have ended. Yields the numbers of the children that are new.
    ///
    /// # Errors
    /// The arena is damaged.
    pub fn look(
        &mut self,
        attachment: &Attachment,
        is_target_gone: bool,
        take: &mut Take<'_>,
    ) -> Result<Vec<u32>, SessionError> {
        // The session of a command that executes another program goes on as long as the run does.
        if self.have_ended() && is_target_gone {
            return Ok(Vec::new());
        }
        let begun = Instant::now();
        let nobody_has_it = is_target_gone && self.nobody_has_it();
        if begun < self.next && !nobody_has_it {
            return Ok(Vec::new());
        }
        let owned = owned(attachment)?;
        let gone = self.gone(&owned, attachment.addresses.table);
        let of_gone = owned.iter().filter(|(identity, _)| gone.contains(identity));
        let freed: Vec<usize> = of_gone.flat_map(|(_, contexts)| contexts.iter().copied()).collect();
        take(&freed)?;
        free_contexts(attachment.memory()?, &attachment.layout, &freed)?;
        let mut came = Vec::new();
        self.contexts = 0;
        for (identity, contexts) in &owned {
            if self.known.insert(*identity) {
                came.push(identity.0);
                self.watch(*identity, attachment.addresses.table);
            }
            if !gone.contains(identity) {
                self.contexts += contexts.len() as u64;
            }
        }
        self.known
            .retain(|identity| owned.contains_key(identity) && !gone.contains(identity));
        for identity in &gone {
            let ending = self.watched.remove(identity);
            // Others execute another program, and have a session of their own.
            let ending = ending.filter(|ending| ending.has_ended() && self.ending.len() < WATCHED_MAX);
            self.ending.extend(ending.map(|ending| (identity.0, ending)));
        }
        self.watched.retain(|identity, _| self.known.contains(identity));
        let searched = match nobody_has_it {
            true => {
                self.empty_searches = EMPTY_SEARCHES;
                Duration::ZERO
            }
            false => self.search(attachment.addresses.arena, is_target_gone),
        };
        // Most targets have no children, and the run need not wait for them: few searches tell. A child that lives is
        // looked for more seldom.
        let pause = match self.empty_searches {
            0 => (begun.elapsed().max(searched) * LOOK_SHARE).max(PERIOD),
            _ => PAUSE,
        };
        self.next = Instant::now() + pause;
        Ok(came)
    }

    /// Opens a child, to learn how it ends.
    fn watch(&mut self, identity: Identity, table: TargetAddress) {
        if self.is_elsewhere || identity.1 & NESTED != 0 || self.watched.len() >= WATCHED_MAX {
            return;
        }
        // It may have ended before, and its number may be another process's.
        let ending = Ending::open(identity.0.cast_signed()).filter(|_| lives(identity.0, identity, table));
        self.watched.extend(ending.map(|ending| (identity, ending)));
    }

    /// The children that have ended in a way that is known now. A parent that collects its child late tells it late.
    pub fn ends(&mut self) -> Vec<(u32, Exit)> {
        let ended = |(pid, ending): &mut (u32, Ending)| ending.exit().map(|exit| (*pid, exit));
        let known: Vec<(u32, Exit)> = self.ending.iter_mut().filter_map(ended).collect();
        self.ending
            .retain(|(pid, _)| !known.iter().any(|(ended, _)| ended == pid));
        known
    }

    /// Whether a child has loaded or unloaded libraries. Yields true only once.
    ///
    /// # Errors
    /// The arena is damaged.
    pub fn has_new_libraries(&mut self, attachment: &Attachment) -> Result<bool, SessionError> {
        let changes = attachment
            .memory()?
            .load_u32(offset_of!(Control, child_libraries) as u64)?;
        let is_new = changes > 0 && !self.told_of_libraries;
        self.told_of_libraries |= is_new;
        Ok(is_new)
    }

    /// The children in `owned` that have ended, or execute another program.
    fn gone(&self, owned: &BTreeMap<Identity, Vec<usize>>, table: TargetAddress) -> BTreeSet<Identity> {
        let mut elsewhere = BTreeSet::new();
        let mut gone = BTreeSet::new();
        for identity in owned.keys() {
            if self.is_elsewhere || identity.1 & NESTED != 0 {
                elsewhere.insert(*identity);
            } else if !lives(identity.0, *identity, table) {
                gone.insert(*identity);
            }
        }
        // Where /proc cannot be listed, nothing is known of the processes in `elsewhere`.
        if !elsewhere.is_empty() && processes().next().is_some() {
            for (pid, inner) in numbers_elsewhere() {
                elsewhere.retain(|identity| identity.0 != inner || !lives(pid, *identity, table));
            }
            gone.append(&mut elsewhere);
        }
        gone
    }

    /// Whether it is proven that no process has the arena.
    fn nobody_has_it(&self) -> bool {
        self.memory.as_ref().is_some_and(|memory| !memory.may_be_mapped())
    }

    /// Processes that have the arena mapped at this address now.
    fn holders(&self, address: TargetAddress) -> Vec<i32> {
        self.arena
            .map_or_else(Vec::new, |arena| self.searches.now().with(arena, address, self.since))
    }

    /// Searches for processes after the target's end, until they are gone. Yields how long the search took.
    fn search(&mut self, address: TargetAddress, is_target_gone: bool) -> Duration {
        if !is_target_gone {
            self.empty_searches = 0;
            return Duration::ZERO;
        }
        // Of a search that another session has made since, this one has the result.
        let gone = *self.searched.get_or_insert_with(Instant::now);
        let search = self.searches.since(gone);
        self.searched = Some(search.ended);
        let found = self
            .arena
            .map_or_else(Vec::new, |arena| search.with(arena, address, self.since));
        // A child without a context may still get one.
        match found.is_empty() {
            true if search.is_quiet => self.empty_searches += QUIET_SEARCH,
            true => self.empty_searches += 1,
            false => self.empty_searches = 0,
        }
        search.took()
    }

    /// Notes that the target has ended: searches that begin now count.
    pub fn note_end(&mut self) {
        self.searched.get_or_insert_with(Instant::now);
    }

    /// Takes the patches out of all children. `target` is the traced process, and whether it is alive. The patches of
    /// the target itself have been taken out before. Yields a message for each child in which something of ours is
    /// left.
    pub fn restore(&mut self, target: (&Process, bool), arena: TargetAddress) -> Vec<String> {
        let mut done = BTreeSet::new();
        let mut messages = Vec::new();
        let mut empty_searches = 0;
        for _ in 0..ROUNDS_MAX {
            if self.nobody_has_it() {
                break;
            }
            let holders = self.holders(arena).into_iter();
            let is_new = |pid: &i32| !done.contains(pid) && !is_targets_own(target, *pid);
            let found: Vec<i32> = holders.filter(is_new).collect();
            if found.is_empty() {
                empty_searches += 1;
                if empty_searches == EMPTY_SEARCHES {
                    break;
                }
                std::thread::sleep(PAUSE);
                continue;
            }
            empty_searches = 0;
            for pid in found {
                done.insert(pid);
                let restored = Process::open(pid)
                    .map_err(SessionError::from)
                    .and_then(|process| restore_child(&process, arena));
                match restored {
                    Ok(detached) if detached.left_bytes == 0 => {}
                    Ok(_) => messages.push(format!(
                        "process {pid}, which was forked from the target: a thread is still in nanoprobe's code; \
                         `nanoprobe restore {pid}` removes it later"
                    )),
                    // The process has ended, or executes another program, and has nothing of ours any more.
                    Err(_) if !self.holders(arena).contains(&pid) => {}
                    Err(error) => messages.push(format!(
                        "process {pid}, which was forked from the target, still has its probes, which record nothing: \
                         {error}; try `nanoprobe restore {pid}`"
                    )),
                }
            }
        }
        messages
    }
}

/// Whether a process has the memory of the target itself, which is traced (`true`).
fn is_targets_own((target, is_traced): (&Process, bool), pid: i32) -> bool {
    is_traced && (pid == target.pid() || target.is_shared_with(pid))
}

/// The contexts of children, grouped by process.
fn owned(attachment: &Attachment) -> Result<BTreeMap<Identity, Vec<usize>>, SessionError> {
    let memory = attachment.memory()?;
    let mut owned: BTreeMap<Identity, Vec<usize>> = BTreeMap::new();
    for index in 0..ControlBlock::open(memory)?.contexts_in_use()? {
        let offset = context_offset(&attachment.layout, index.into());
        // A context without a key is free, or is just being claimed. The agent writes the key last, so the key is read
        // first: the fields that are read after it belong to the key's thread.
        if memory.load_u64(offset + offset_of!(Context, thread_key) as u64)? == 0 {
            continue;
        }
        let began = memory.load_u64(offset + offset_of!(Context, process_began) as u64)?;
        if began == 0 {
            continue;
        }
        let pid = memory.load_u32(offset + offset_of!(Context, pid) as u64)?;
        owned.entry((pid, began)).or_default().push(index as usize);
    }
    Ok(owned)
}

/// Whether a process is this child, and executes the program with which it was forked. In doubt the answer is yes.
fn lives(pid: u32, (_, began): Identity, table: TargetAddress) -> bool {
    match File::open(format!("/proc/{pid}/mem")) {
        Ok(memory) => {
            let mut bytes = [0; size_of::<u64>()];
            let place = table.0 + TABLE_BEGAN as u64;
            // The table's number is that of the process which took it. Others may share its memory: clone(CLONE_VM).
            let is_read = memory.read_exact_at(&mut bytes, place).is_ok();
            (is_read && u64::from_le_bytes(bytes) == began) || has_only_other_threads(pid)
        }
        // A child whose memory we may not read, because it runs with other rights.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            state(pid).is_some_and(|(state, _)| state != "Z") || has_only_other_threads(pid)
        }
        Err(_) => {
            let asked = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid.cast_signed()), None);
            asked != Err(nix::errno::Errno::ESRCH)
        }
    }
}

/// Whether the first thread has ended before others. Such a process has memory, but shows none under its number.
fn has_only_other_threads(pid: u32) -> bool {
    state(pid).is_some_and(|(state, threads)| state == "Z" && threads > 1)
}

/// The state of a process, and the number of its threads.
fn state(pid: u32) -> Option<(String, u64)> {
    const THREADS: usize = 17;
    let stat = proc_file::read_text(format!("/proc/{pid}/stat")).ok()?;
    let (_, after_name) = stat.rsplit_once(") ")?;
    let mut fields = after_name.split(' ');
    let state = fields.next()?.to_owned();
    Some((state, fields.nth(THREADS - 1)?.parse().ok()?))
}

/// The processes in pid namespaces below ours: our number, and their own.
fn numbers_elsewhere() -> impl Iterator<Item = (u32, u32)> {
    processes().filter_map(|pid| {
        let status = proc_file::read_text(format!("/proc/{pid}/status")).ok()?;
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
        let mut numbers = numbers.split_whitespace().skip(1);
        Some((pid, numbers.by_ref().last()?.parse().ok()?))
    })
}
