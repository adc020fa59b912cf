//! A guest's place in its host: the function by which its agent takes part in the host's signal handlers.
//!
//! The list lies in the host's image, in private memory that a forked child inherits with the text. It is only changed
//! while all threads are stopped, and no thread is in the code of the guest that leaves.

use nanoprobe_arena::layout::GUESTS;
use nanoprobe_patch::TargetAddress;
use nanoprobe_target::Memory;

use crate::error::SessionError;
use crate::others::{Asked, Host};

/// Adds a guest, the latest last.
///
/// # Errors
/// There is no room, or the list cannot be written.
pub(crate) fn register(memory: &Memory, pid: i32, host: &Host, function: TargetAddress) -> Result<(), SessionError> {
    let mut guests = read(memory, host)?;
    if guests.contains(&function.0) {
        return Ok(());
    }
    if guests.len() >= GUESTS {
        return Err(SessionError::TooManyTracers { pid });
    }
    guests.push(function.0);
    write(memory, host, &guests)
}

/// The order in which the agents are asked when a thread traps: the guests, the latest first, and then the host, for
/// which the address of its image stands. A guest that is not on the list yet is asked first.
pub(crate) fn asked(memory: &Memory, host: &Host, function: TargetAddress) -> Asked {
    // A wrong list only hides hits.
    let guests = read(memory, host).unwrap_or_default();
    let own = guests.iter().position(|guest| *guest == function.0);
    let is_later = |index: usize| own.is_some_and(|own| index > own);
    let all = guests.iter().copied().enumerate().rev();
    let (before, after): (Vec<_>, Vec<_>) = all
        .filter(|(_, guest)| *guest != function.0)
        .partition(|(index, _)| is_later(*index));
    let functions = |some: Vec<(usize, u64)>| some.into_iter().map(|(_, guest)| guest);
    Asked {
        before: functions(before).collect(),
        after: functions(after).chain([host.image]).collect(),
    }
}

/// All guests of a host, the latest first.
pub(crate) fn guests_of(memory: &Memory, host: &Host) -> Vec<u64> {
    let guests = read(memory, host).unwrap_or_default();
    guests.into_iter().rev().collect()
}

/// Takes guests off the list.
///
/// # Errors
/// The list cannot be written.
pub(crate) fn unregister(memory: &Memory, host: &Host, is_leaving: impl Fn(u64) -> bool) -> Result<(), SessionError> {
    let guests = read(memory, host)?;
    let staying: Vec<u64> = guests.iter().copied().filter(|guest| !is_leaving(*guest)).collect();
    match staying.len() == guests.len() {
        true => Ok(()),
        false => write(memory, host, &staying),
    }
}

fn read(memory: &Memory, host: &Host) -> Result<Vec<u64>, SessionError> {
    let mut bytes = [0; GUESTS * size_of::<u64>()];
    memory.read(host.guests(), &mut bytes)?;
    let (words, _) = bytes.as_chunks();
    Ok(words
        .iter()
        .map(|word| u64::from_le_bytes(*word))
        .filter(|word| *word != 0)
        .collect())
}

fn write(memory: &Memory, host: &Host, guests: &[u64]) -> Result<(), SessionError> {
    let free = std::iter::repeat_n(&0, GUESTS.saturating_sub(guests.len()));
    let bytes: Vec<u8> = guests.iter().chain(free).flat_map(|word| word.to_le_bytes()).collect();
    Ok(memory.write_text(&[(host.guests(), &bytes)])?)
}
