//! Contexts and slots of ended threads are used again.
//!
//! A thread takes a slot of the thread table and a context at its first hit, and never gives them back: its detours
//! find the context by a plain look-up of the thread pointer, and the last look-up cannot be recognised from
//! outside. When few are free, the tracer stops all threads. Then the thread pointers of all threads are known, and
//! slots and contexts of other thread pointers are free. The argument is in docs/design/threads.md.

use std::collections::{BTreeSet, HashSet};
use std::mem::offset_of;
use std::time::{Duration, Instant};

use nanoprobe_arena::layout::{
    CONTEXTS_MAX, Context, Control, KEY_SHARED, SLOT_ENDED, Step, TABLE_BLOCKED, TABLE_SHARED_POINTERS, TABLE_SLOTS,
    TABLE_STEPS, ThreadSlot,
};
use nanoprobe_arena::{ControlBlock, Mapping, Memory as _, Structure as _};
use nanoprobe_patch::{TargetAddress, ThreadKey};
use nanoprobe_target::proc_file;
use nanoprobe_target::{Process, Stopped};

use crate::error::SessionError;
use crate::layout::ArenaLayout;
use crate::thread_key;

/// Slots up to which the table works well: beyond that, chains become long.
const SLOTS_USABLE: u64 = TABLE_SLOTS as u64 / 4 * 3;
/// While few slots or contexts are free, the threads are looked at this often, even if no thread seems to have ended:
/// thread pointers may have changed.
const PERIOD: Duration = Duration::from_millis(500);
/// Attempts to change a word of bits that the target's threads change too.
const ATTEMPTS_MAX: usize = 1000;

/// When to look for slots and contexts that ended threads have left behind.
#[derive(Debug)]
pub(crate) struct Reuse {
    /// How many claims of slots have been undone.
    slots_freed: u64,
    /// After a stop that freed too little, the next stop waits until this time.
    pauses_until: Instant,
    /// When to look although no thread seems to have ended.
    next: Instant,
}

impl Reuse {
    pub(crate) fn new() -> Reuse {
        let now = Instant::now();
        Reuse {
            slots_freed: 0,
            pauses_until: now,
            next: now,
        }
    }
}

/// A process that is traced, and where its contexts and slots are.
pub(crate) struct Traced<'a> {
    pub process: &'a Process,
    /// Our view of the arena.
    pub arena: &'a Mapping,
    /// Where the arena lies in the process.
    pub arena_address: TargetAddress,
    pub layout: &'a ArenaLayout,
    /// The thread table.
    pub table: TargetAddress,
    /// How threads are told apart.
    pub thread_key: ThreadKey,
    /// How many contexts followed children have.
    pub of_children: u64,
}

/// The number of all slots, or of all contexts, and the number of free ones.
#[derive(Clone, Copy, Debug)]
struct Level {
    all: u64,
    free: u64,
}

impl Level {
    /// How many of the slots or contexts belong to ended threads, if `alive` threads live. Some live threads may have
    /// none.
    fn left_behind(self, alive: u64) -> u64 {
        self.all.saturating_sub(self.free).saturating_sub(alive)
    }

    /// Whether a stop would at least double the number of free slots or contexts, and free more than a few.
    fn is_worth_a_stop(self, alive: u64) -> bool {
        self.free < self.all / 2 && self.left_behind(alive) >= self.free.max(self.all / 16)
    }
}

/// The data about its thread in a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner {
    address: u64,
    /// 0: the context has no owner, or is just being taken.
    thread_key: u64,
    busy: u64,
}

/// Reads what contexts hold for the process to which they belong. They are freed after that, and may pass to another
/// one.
pub(crate) type Take<'a> = dyn FnMut(&[usize]) -> Result<(), SessionError> + 'a;

/// The slots and contexts that will be freed, by index.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plan {
    slots: Vec<usize>,
    contexts: Vec<usize>,
    /// Slots that stay in use.
    slots_in_use: u64,
}

/// Plans what to free. A busy context or slot stays: a thread in a handler may have changed its thread pointer, and
/// comes back to it.
fn plan(slots: &[ThreadSlot], owners: &[Owner], live: &BTreeSet<u64>) -> Plan {
    let busy: HashSet<u64> = owners
        .iter()
        .filter(|owner| owner.busy != 0)
        .map(|owner| owner.address)
        .collect();
    let mut plan = Plan::default();
    let mut held = HashSet::new();
    for (index, slot) in slots.iter().enumerate().filter(|(_, slot)| slot.key > SLOT_ENDED) {
        if live.contains(&slot.key) || busy.contains(&slot.context) {
            held.insert(slot.context);
            plan.slots_in_use += 1;
        } else {
            plan.slots.push(index);
        }
    }
    let is_free = |owner: &Owner| {
        owner.thread_key != 0 && owner.busy == 0 && !live.contains(&owner.thread_key) && !held.contains(&owner.address)
    };
    let free = owners.iter().enumerate().filter(|(_, owner)| is_free(owner));
    plan.contexts = free.map(|(index, _)| index).collect();
    plan
}

/// Frees the slots and contexts that ended threads have left behind, when few are free for new threads.
///
/// # Errors
/// The arena is damaged. A process that cannot be stopped now is no error; the next call tries again.
pub(crate) fn reuse(reuse: &mut Reuse, traced: &Traced<'_>, take: &mut Take<'_>) -> Result<(), SessionError> {
    let before = levels(reuse, traced)?;
    if before.iter().all(|level| level.free >= level.all / 2) {
        return Ok(());
    }
    let now = Instant::now();
    let Some(alive) = threads_of(traced.process.pid()) else {
        return Ok(());
    };
    // Contexts that children use are not free.
    let alive = alive + traced.of_children;
    let is_worth = before.iter().any(|level| level.is_worth_a_stop(alive)) && now >= reuse.pauses_until;
    let is_time = before.iter().any(|level| level.free < level.all / 8) && now >= reuse.next;
    if !is_worth && !is_time {
        return Ok(());
    }
    let mut freed = Vec::new();
    let pause = traced.process.stop().map_or(Duration::ZERO, |stopped| {
        // An error is ignored, and the next call tries again. If the process is ending, other code reports it.
        freed = free_of_the_dead(reuse, traced, &stopped).unwrap_or_default();
        stopped.release()
    });
    // They have no owner any more, and get none before they are offered.
    take(&freed)?;
    offer(traced.arena, &freed)?;
    let after = levels(reuse, traced)?;
    let is_freed = before.iter().zip(after).any(|(before, after)| {
        before.is_worth_a_stop(alive) && after.free.saturating_sub(before.free) >= before.left_behind(alive) / 2
    });
    // Stops that free nothing take less than a hundredth of the time.
    let later = Instant::now() + PERIOD.max(pause * 100);
    reuse.next = later;
    if !is_freed {
        reuse.pauses_until = later;
    }
    Ok(())
}

/// Contexts and slots for new threads.
fn levels(reuse: &Reuse, traced: &Traced<'_>) -> Result<[Level; 2], SessionError> {
    let memory = traced.arena;
    let capacity = memory.load_u32(offset_of!(Control, context_capacity) as u64)?;
    let used = ControlBlock::open(memory)?.contexts_in_use()?;
    let mut free = u64::from(capacity.saturating_sub(used));
    for word in 0..u64::from(CONTEXTS_MAX / 64) {
        free += u64::from(memory.load_u64(ended_word(word))?.count_ones());
    }
    let claimed = memory.load_u64(offset_of!(Control, slots_claimed) as u64)?;
    let in_use = claimed.saturating_sub(reuse.slots_freed);
    let contexts = Level {
        all: u64::from(capacity),
        free,
    };
    let slots = Level {
        all: SLOTS_USABLE,
        free: SLOTS_USABLE.saturating_sub(in_use),
    };
    Ok([contexts, slots])
}

/// How many threads a process has.
fn threads_of(pid: i32) -> Option<u64> {
    const FIELD: usize = 17;
    let stat = proc_file::read_text(format!("/proc/{pid}/stat")).ok()?;
    let (_, behind_name) = stat.rsplit_once(") ")?;
    behind_name.split(' ').nth(FIELD)?.parse().ok()
}

fn ended_word(word: u64) -> u64 {
    offset_of!(Control, contexts_ended) as u64 + 8 * word
}

/// Frees what ended threads have left. All threads are stopped.
fn free_of_the_dead(reuse: &mut Reuse, traced: &Traced<'_>, stopped: &Stopped) -> Result<Vec<usize>, SessionError> {
    let table = traced.table;
    let memory = traced.process.memory();
    let are_shared = memory.read_u64(TargetAddress(table.0 + TABLE_SHARED_POINTERS as u64))? != 0;
    // Another process with this memory has contexts, too, and is not stopped.
    if are_shared && !traced.process.sharers().is_empty() {
        return Ok(Vec::new());
    }
    let slots = slots_of(stopped, table)?;
    let owners = owners_of(traced)?;
    let plan = plan(&slots, &owners, &thread_keys(stopped, traced.thread_key, are_shared)?);
    free_slots(stopped, table, &slots, &plan)?;
    take_from_owners(traced.arena, traced.layout, &plan.contexts)?;
    let claimed = traced.arena.load_u64(offset_of!(Control, slots_claimed) as u64)?;
    reuse.slots_freed = claimed.saturating_sub(plan.slots_in_use);
    Ok(plan.contexts)
}

/// The keys of all threads, by either way of telling threads apart (`enum np_thread_key`). `are_shared`: some threads
/// may be told apart by number because others have had their thread pointers.
fn thread_keys(stopped: &Stopped, key: ThreadKey, are_shared: bool) -> Result<BTreeSet<u64>, SessionError> {
    let mut keys = BTreeSet::new();
    for tid in stopped.threads() {
        let pointer = stopped.registers(tid)?.fs_base;
        keys.insert(thread_key::of_pointer(stopped.process(), tid, pointer));
        if are_shared {
            keys.insert(pointer | KEY_SHARED);
        }
        if key == ThreadKey::Asked || are_shared {
            keys.insert(thread_key::of_number(stopped.process(), tid));
        }
        // A value that points nowhere is no thread pointer.
        keys.extend(stopped.process().memory().read_u64(TargetAddress(pointer)).ok());
    }
    Ok(keys)
}

fn slots_of(stopped: &Stopped, table: TargetAddress) -> Result<Vec<ThreadSlot>, SessionError> {
    let mut bytes = vec![0; TABLE_SLOTS * ThreadSlot::BYTES];
    stopped.process().memory().read(table, &mut bytes)?;
    Ok(bytes
        .chunks_exact(ThreadSlot::BYTES)
        .filter_map(ThreadSlot::from_bytes)
        .collect())
}

fn owners_of(traced: &Traced<'_>) -> Result<Vec<Owner>, SessionError> {
    let memory = traced.arena;
    let count = ControlBlock::open(memory)?.contexts_in_use()?;
    let owner = |index: u64| {
        let offset = crate::drain::context_offset(traced.layout, index);
        // Contexts of followed children belong to the children: here they have no owner. Children run meanwhile, and
        // write the key of a context last, so it is read first.
        let key = memory.load_u64(offset + offset_of!(Context, thread_key) as u64)?;
        let is_childs = memory.load_u64(offset + offset_of!(Context, process_began) as u64)? != 0;
        Ok(Owner {
            address: traced.arena_address.0 + offset,
            thread_key: if is_childs { 0 } else { key },
            busy: memory.load_u64(offset + offset_of!(Context, busy) as u64)?,
        })
    };
    (0..u64::from(count.min(CONTEXTS_MAX))).map(owner).collect()
}

/// A slot's key is written last: if the tracer is killed in between, the slot stays that of an ended thread.
fn free_slots(stopped: &Stopped, table: TargetAddress, slots: &[ThreadSlot], plan: &Plan) -> Result<(), SessionError> {
    let memory = stopped.process().memory();
    let mut blocked = vec![0; TABLE_SLOTS * size_of::<u16>()];
    let mut steps = vec![0; TABLE_SLOTS * Step::BYTES];
    memory.read(TargetAddress(table.0 + TABLE_BLOCKED as u64), &mut blocked)?;
    memory.read(TargetAddress(table.0 + TABLE_STEPS as u64), &mut steps)?;
    let clear = |kept: &[u8], start: usize, index: usize, bytes: usize| {
        let is_zero = |part: &[u8]| part.iter().all(|byte| *byte == 0);
        match kept.get(index * bytes..(index + 1) * bytes) {
            Some(part) if !is_zero(part) => {
                let place = table.0 + (start + index * bytes) as u64;
                memory.write(TargetAddress(place), &vec![0; bytes])
            }
            _ => Ok(()),
        }
    };
    for index in &plan.slots {
        clear(&blocked, TABLE_BLOCKED, *index, size_of::<u16>())?;
        clear(&steps, TABLE_STEPS, *index, Step::BYTES)?;
    }
    for (index, key) in freed_keys(slots, plan) {
        let slot = ThreadSlot { key, context: 0 };
        let place = TargetAddress(table.0 + (index * ThreadSlot::BYTES) as u64);
        memory.write(place, &slot.to_bytes())?;
    }
    Ok(())
}

/// The new keys of freed slots: [`SLOT_ENDED`], so that look-ups go on past them. At the end of a chain the key is
/// 0, and the chain ends there from now on.
fn freed_keys(slots: &[ThreadSlot], plan: &Plan) -> Vec<(usize, u64)> {
    let mut keys: Vec<u64> = slots.iter().map(|slot| slot.key).collect();
    for index in &plan.slots {
        if let Some(key) = keys.get_mut(*index) {
            *key = SLOT_ENDED;
        }
    }
    let mut next = keys.first().copied().unwrap_or(0);
    // Twice, since a chain may continue at the table's start.
    for _ in 0..2 {
        for key in keys.iter_mut().rev() {
            if *key == SLOT_ENDED && next == 0 {
                *key = 0;
            }
            next = *key;
        }
    }
    let changed = keys.into_iter().zip(slots).enumerate();
    changed
        .filter(|(_, (key, slot))| *key != slot.key)
        .map(|(index, (key, _))| (index, key))
        .collect()
}

/// Takes contexts from their owners first, and then frees them.
pub(crate) fn free_contexts(memory: &Mapping, layout: &ArenaLayout, contexts: &[usize]) -> Result<(), SessionError> {
    take_from_owners(memory, layout, contexts)?;
    offer(memory, contexts)
}

fn take_from_owners(memory: &Mapping, layout: &ArenaLayout, contexts: &[usize]) -> Result<(), SessionError> {
    for index in contexts {
        let offset = crate::drain::context_offset(layout, *index as u64);
        memory.store_u64(offset + offset_of!(Context, thread_key) as u64, 0)?;
        memory.store_u32(offset + offset_of!(Context, tid) as u64, 0)?;
    }
    Ok(())
}

/// New threads may have these contexts from now on.
fn offer(memory: &Mapping, contexts: &[usize]) -> Result<(), SessionError> {
    for index in contexts {
        add_bits(memory, ended_word(*index as u64 / 64), 1 << (index % 64))?;
    }
    Ok(())
}

fn add_bits(memory: &Mapping, word: u64, bits: u64) -> Result<(), SessionError> {
    for _ in 0..ATTEMPTS_MAX {
        let before = memory.load_u64(word)?;
        if memory.compare_exchange_u64(word, before, before | bits)? {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(key: u64, context: u64) -> ThreadSlot {
        ThreadSlot { key, context }
    }

    fn owner(address: u64, thread_key: u64, busy: u64) -> Owner {
        Owner {
            address,
            thread_key,
            busy,
        }
    }

    #[test]
    fn contexts_that_no_living_thread_can_find_are_free() {
        let slots = [
            slot(0, 0),
            slot(0x10, 0x1000),
            slot(0x20, 0x2000),
            slot(0x30, 0),
            slot(SLOT_ENDED, 0),
        ];
        let owners = [owner(0x1000, 0x10, 0), owner(0x2000, 0x20, 0), owner(0x3000, 0x40, 0)];
        let freed = plan(&slots, &owners, &BTreeSet::from([0x20]));
        assert_eq!(
            (freed.slots, freed.contexts, freed.slots_in_use),
            (vec![1, 3], vec![0, 2], 1)
        );
    }

    #[test]
    fn a_context_that_is_just_being_claimed_is_not_free() {
        let owners = [owner(0x1000, 0, 0), owner(0x2000, 0x20, 0)];
        let freed = plan(&[slot(0x20, 0)], &owners, &BTreeSet::from([0x20]));
        assert_eq!(
            freed,
            Plan {
                slots_in_use: 1,
                ..Plan::default()
            }
        );
    }

    #[test]
    fn a_busy_context_stays_with_its_slot() {
        let slots = [slot(0x10, 0x1000)];
        let freed = plan(&slots, &[owner(0x1000, 0x10, 0x7000)], &BTreeSet::new());
        assert_eq!(
            freed,
            Plan {
                slots_in_use: 1,
                ..Plan::default()
            }
        );
    }

    /// A slot of a living thread keeps its context, whatever the arena says.
    #[test]
    fn a_context_that_a_living_thread_finds_is_not_free_whatever_it_says() {
        let freed = plan(
            &[slot(0x10, 0x1000)],
            &[owner(0x1000, 0x666, 0)],
            &BTreeSet::from([0x10]),
        );
        assert_eq!(
            freed,
            Plan {
                slots_in_use: 1,
                ..Plan::default()
            }
        );
    }

    #[test]
    fn chains_go_on_past_what_is_freed_and_end_where_nothing_follows() {
        let slots = [
            slot(0x10, 0),
            slot(0x20, 0),
            slot(0x30, 0),
            slot(0, 0),
            slot(0x40, 0),
            slot(0x50, 0),
        ];
        let freed = |slots_freed: &[usize]| {
            let plan = Plan {
                slots: slots_freed.to_vec(),
                ..Plan::default()
            };
            freed_keys(&slots, &plan)
        };
        assert_eq!(freed(&[0]), [(0, SLOT_ENDED)]);
        assert_eq!(freed(&[1, 2]), [(1, 0), (2, 0)]);
        assert_eq!(freed(&[5]), [(5, SLOT_ENDED)], "the chain goes on at the table's start");
        assert_eq!(freed(&[0, 1, 2, 5]), [(0, 0), (1, 0), (2, 0), (5, 0)]);
    }

    #[test]
    fn a_stop_is_for_many_threads_that_are_gone() {
        let level = |free: u64| Level { all: 1024, free };
        assert!(!level(512).is_worth_a_stop(1), "half is free");
        assert!(level(511).is_worth_a_stop(1));
        assert!(!level(400).is_worth_a_stop(600), "most live");
        assert!(level(200).is_worth_a_stop(600));
        assert!(level(0).is_worth_a_stop(900));
        assert!(!level(0).is_worth_a_stop(1000), "a trifle");
    }

    #[test]
    fn this_process_has_threads() {
        assert!(threads_of(std::process::id() as i32).is_some_and(|threads| threads >= 2));
    }
}
