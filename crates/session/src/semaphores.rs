//! Semaphores of static probes: raised while we trace, and lowered at the end, also by `nanoprobe restore`.
//!
//! A semaphore is a u16 in the program's data that counts tracers. The program checks whether it is 0, and then
//! need not prepare arguments that no tracer reads. So it is raised after the sites are patched, and lowered before
//! they are taken back.
//!
//! ```text
//!    publish (RAISING, resting = seen = n)   write n + 1   RAISED   ...   LOWERING, seen = m   write m - 1   LOWERED
//! ```
//!
//! Other tracers (systemtap, the kernel for bpftrace and perf) count in the same word, so the old value is not
//! restored: 1 is added, and later 1 is subtracted. No tracer does so atomically; two that write in the same
//! microsecond may lose one count.
//!
//! A tracer may be killed at any point of this sequence. Where a change was announced, the value says whether it
//! was made:
//!
//! | state | the word | then |
//! |---|---|---|
//! | RAISING | more than was seen | 1 is taken off |
//! | RAISED | more than 0 | 1 is taken off |
//! | LOWERING | what was seen | 1 is taken off |
//!
//! A forked child has a copy of the word, and shares the table with its parent. There the entry's state says
//! nothing, and 1 is subtracted where the word is more than it was before we raised it. The table is the parent's,
//! and stays as it is.
//!
//! A library that was unloaded takes its semaphores with it, and something else may lie there. The word is written only
//! where it still lies in the same file as the site that the entry names: after a kill it is not known which libraries
//! were loaded and unloaded. Then a note of that file must also still say that the word is a semaphore.
//!
//! After `exec` the new program has its own words, and nothing of ours is left.

use std::collections::{BTreeMap, BTreeSet};

use nanoprobe_arena::layout::{
    SEMAPHORE_GONE, SEMAPHORE_LOWERED, SEMAPHORE_LOWERING, SEMAPHORE_RAISED, SEMAPHORE_RAISING, Semaphore,
};
use nanoprobe_arena::{ControlBlock, Mapping, Memory as _};
use nanoprobe_patch::TargetAddress;
use nanoprobe_target::{Map, Memory, Process};
use nanoprobe_text::modules::Modules;

use crate::error::SessionError;

/// A semaphore, and the first site of its probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Wanted {
    /// The counter.
    pub address: TargetAddress,
    /// An instruction of the same module.
    pub site: TargetAddress,
}

/// Raises the semaphores that are not raised yet, in a process that has this arena.
///
/// # Errors
/// The table is full; the target cannot be read or written.
pub fn raise(process: &Process, memory: &Mapping, wanted: &[Wanted]) -> Result<(), SessionError> {
    if wanted.is_empty() {
        return Ok(());
    }
    let control = ControlBlock::open(memory)?;
    let known = control.semaphores()?;
    let mut count = u32::try_from(known.len()).unwrap_or(u32::MAX);
    let mut raised: Vec<u64> = known
        .iter()
        .filter(|known| known.state != SEMAPHORE_GONE)
        .map(|known| known.address)
        .collect();
    for Wanted { address, site } in wanted {
        if raised.contains(&address.0) {
            continue;
        }
        let value = read(process.memory(), address.0)?;
        // A counter at its maximum stays: another tracer has left it like that.
        let Some(more) = value.checked_add(1) else { continue };
        let mut semaphore = Semaphore {
            address: address.0,
            site: site.0,
            resting: value,
            seen: value,
            state: SEMAPHORE_RAISING,
        };
        if !control.publish_semaphore(&semaphore)? {
            return Err(SessionError::TooManySemaphores);
        }
        write(process.memory(), address.0, more)?;
        semaphore.state = SEMAPHORE_RAISED;
        memory.write_structure(control.semaphore_at(count)?, &semaphore)?;
        raised.push(address.0);
        count += 1;
    }
    Ok(())
}

/// Forgets the semaphores in a range that is no longer mapped.
///
/// # Errors
/// The arena is damaged.
pub fn forget(memory: &Mapping, range: &std::ops::Range<u64>) -> Result<(), SessionError> {
    let control = ControlBlock::open(memory)?;
    for (index, mut semaphore) in (0..).zip(control.semaphores()?) {
        if range.contains(&semaphore.address) {
            semaphore.state = SEMAPHORE_GONE;
            memory.write_structure(control.semaphore_at(index)?, &semaphore)?;
        }
    }
    Ok(())
}

/// Lowers the semaphores that are raised. `store` writes back an entry that has changed; for a forked child it writes
/// nothing.
///
/// # Errors
/// Those of `store`.
pub fn lower(
    memory: &Memory,
    map: &Map,
    semaphores: &[Semaphore],
    is_child: bool,
    store: &mut dyn FnMut(u32, &Semaphore) -> Result<(), SessionError>,
) -> Result<(), SessionError> {
    for (index, semaphore) in (0..).zip(semaphores) {
        if !lies_with_its_site(map, semaphore) {
            continue;
        }
        // A word that cannot be read is gone.
        let Ok(value) = read(memory, semaphore.address) else {
            continue;
        };
        let Some(less) = value.checked_sub(1).filter(|_| is_ours(semaphore, value, is_child)) else {
            continue;
        };
        let announced = Semaphore {
            seen: value,
            state: SEMAPHORE_LOWERING,
            ..*semaphore
        };
        let done = Semaphore {
            state: SEMAPHORE_LOWERED,
            ..announced
        };
        if !is_child {
            store(index, &announced)?;
        }
        if write(memory, semaphore.address, less).is_ok() && !is_child {
            store(index, &done)?;
        }
    }
    Ok(())
}

/// Lowers the semaphores that a session has raised.
///
/// # Errors
/// The arena is damaged, the map cannot be read.
pub fn lower_all(process: &Process, memory: &Mapping) -> Result<(), SessionError> {
    let control = ControlBlock::open(memory)?;
    let semaphores = control.semaphores()?;
    if semaphores.is_empty() {
        return Ok(());
    }
    let map = process.map()?;
    lower(process.memory(), &map, &semaphores, false, &mut |index, semaphore| {
        Ok(memory.write_structure(control.semaphore_at(index)?, semaphore)?)
    })
}

/// Yields the same entries. Entries that no file describes as semaphores any more are marked as gone.
pub fn described(process: &Process, map: &Map, semaphores: &[Semaphore]) -> Vec<Semaphore> {
    let mut modules = Modules::default();
    let executable = process.facts().executable.clone();
    modules.update(process.living_thread(), map, process.memory(), &executable);
    let mut words: BTreeMap<usize, BTreeSet<u64>> = BTreeMap::new();
    let mut is_described = |semaphore: &Semaphore| {
        let Some((index, module)) = modules.find(TargetAddress(semaphore.site)) else {
            return false;
        };
        let words = words.entry(index).or_insert_with(|| {
            let probes = module.static_probes().into_iter();
            let words = probes.filter_map(|probe| probe.semaphore);
            words.map(|word| module.bias().to_target(word).0).collect()
        });
        words.contains(&semaphore.address)
    };
    let entries = semaphores.iter().map(|semaphore| match is_described(semaphore) {
        true => *semaphore,
        false => Semaphore {
            state: SEMAPHORE_GONE,
            ..*semaphore
        },
    });
    entries.collect()
}

/// Whether 1 of the value is our count.
fn is_ours(semaphore: &Semaphore, value: u16, is_child: bool) -> bool {
    match semaphore.state {
        SEMAPHORE_RAISING | SEMAPHORE_RAISED | SEMAPHORE_LOWERING | SEMAPHORE_LOWERED if is_child => {
            value > semaphore.resting
        }
        SEMAPHORE_RAISING => value > semaphore.seen,
        SEMAPHORE_RAISED => value > 0,
        SEMAPHORE_LOWERING => value == semaphore.seen,
        _ => false,
    }
}

fn lies_with_its_site(map: &Map, semaphore: &Semaphore) -> bool {
    let (Some(word), Some(site)) = (
        map.find(TargetAddress(semaphore.address)),
        map.find(TargetAddress(semaphore.site)),
    ) else {
        return false;
    };
    // A semaphore may lie in .bss, whose pages have no file. Then it is enough that the site is there.
    let same_file = word.path().is_none() || word.path() == site.path();
    word.permissions.write && !word.permissions.shared && site.permissions.execute && same_file
}

fn read(memory: &Memory, address: u64) -> Result<u16, SessionError> {
    let mut bytes = [0; 2];
    memory.read(TargetAddress(address), &mut bytes)?;
    Ok(u16::from_le_bytes(bytes))
}

fn write(memory: &Memory, address: u64, value: u16) -> Result<(), SessionError> {
    Ok(memory.write(TargetAddress(address), &value.to_le_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn semaphore(state: u32) -> Semaphore {
        Semaphore {
            address: 0x7000_2000,
            site: 0x7000_0100,
            resting: 1,
            seen: 1,
            state,
        }
    }

    #[test]
    fn the_value_says_whether_an_announced_change_was_made() {
        let ours = |state, value| is_ours(&semaphore(state), value, false);
        assert!(!ours(SEMAPHORE_RAISING, 1), "not raised yet");
        assert!(ours(SEMAPHORE_RAISING, 2));
        assert!(ours(SEMAPHORE_RAISED, 1));
        assert!(!ours(SEMAPHORE_RAISED, 0), "somebody has reset it");
        assert!(ours(SEMAPHORE_LOWERING, 1));
        assert!(!ours(SEMAPHORE_LOWERING, 0), "lowered already");
        for state in [SEMAPHORE_GONE, SEMAPHORE_LOWERED, 77] {
            assert!(!ours(state, 2), "{state}");
        }
    }

    #[test]
    fn a_child_has_a_copy_of_its_own() {
        for state in [SEMAPHORE_RAISED, SEMAPHORE_LOWERING, SEMAPHORE_LOWERED] {
            assert!(is_ours(&semaphore(state), 2, true), "forked while it was raised");
            assert!(
                !is_ours(&semaphore(state), 1, true),
                "forked before, or lowered already"
            );
        }
        assert!(!is_ours(&semaphore(SEMAPHORE_GONE), 2, true));
    }

    #[test]
    fn a_semaphore_is_touched_only_where_its_library_is() {
        let map = |text: &str| Map::parse(text.as_bytes());
        let library = "70000000-70001000 r-xp 00000000 08:01 77 /lib/a.so\n";
        let is_there = |rest: &str| lies_with_its_site(&map(&format!("{library}{rest}")), &semaphore(SEMAPHORE_RAISED));
        assert!(is_there("70002000-70003000 rw-p 00001000 08:01 77 /lib/a.so\n"));
        assert!(!is_there("70002000-70003000 rw-p 00001000 08:01 78 /lib/b.so\n"));
        assert!(!is_there("70002000-70003000 r--p 00001000 08:01 77 /lib/a.so\n"));
        assert!(!is_there("70002000-70003000 rw-s 00001000 08:01 77 /lib/a.so\n"));
        assert!(!is_there(""));
        let alone = "70002000-70003000 rw-p 00001000 08:01 77 /lib/a.so\n";
        assert!(!lies_with_its_site(&map(alone), &semaphore(SEMAPHORE_RAISED)));
    }
}
