//! System calls of code that the program makes: looked for when probes are placed, whenever the program has made memory
//! executable (it waits, `agent/made.c`), and now and then, for memory that is writable and executable.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use nanoprobe_patch::TargetAddress;
use nanoprobe_target::{Map, MemoryError, Pauses, Process};

use super::Presence;
use super::entering::release_one;
use super::placing::planned_made;
use crate::error::SessionError;
use crate::made_calls::{self, Look};
use crate::session::tracing::Tracing;
use crate::{made_code, others};

/// The least time between two looks that nobody has asked for, and the part of the time that they may take.
const WAIT: Duration = Duration::from_millis(50);
const WAIT_FACTOR: u32 = 50;
/// The most calls that have detours.
const CALLS_MAX: usize = 4096;

/// How often the map is read again where it changes.
const MAPS_MAX: usize = 8;

const GUEST: &str = "another nanoprobe traces this process";
const SMALL_STACKS: &str = "the program has stacks that are too small for a signal";
const DOUBTFUL: &str = "an instruction there may be any call, and one that blocks signals would not be seen";
const TOO_MANY: &str = "there are too many of them";

/// See the module's description.
pub(super) struct MadeCalls {
    next: Instant,
    /// What was told.
    told: HashSet<&'static str>,
    /// No call is patched any more.
    given_up: bool,
}

impl Default for MadeCalls {
    fn default() -> MadeCalls {
        MadeCalls {
            next: Instant::now(),
            told: HashSet::new(),
            given_up: false,
        }
    }
}

impl Presence {
    /// Patches the calls of code that the program has made. `asked`: probes were placed, or the program waits.
    ///
    /// # Errors
    /// The target cannot be stopped or written.
    pub(in crate::session) fn look_at_made_code(
        &mut self,
        tracing: &mut Tracing,
        asked: bool,
    ) -> Result<(), SessionError> {
        let is_due = asked || Instant::now() >= self.made.next;
        let wanted = self.attachment.parameters.made_calls && !self.listing && !self.made.given_up && is_due;
        // Until something is patched no signal is ours, and the masks are not watched.
        if !wanted || !self.attachment.actions.are_installed() || !tracing.known.traces_calls() {
            return Ok(());
        }
        let start = Instant::now();
        let result = self.look_now(tracing);
        self.made.next = Instant::now() + WAIT.max(start.elapsed() * WAIT_FACTOR);
        match result {
            // The next look at the target notices it.
            Err(_) if tracing.known.target_is_gone() || tracing.known.has_executed() => Ok(()),
            other => other,
        }
    }

    fn look_now(&mut self, tracing: &mut Tracing) -> Result<(), SessionError> {
        let process = self.attachment.process.clone();
        let map = settled_map(&process)?;
        // After the map: the arena has a region before the process has it.
        let mut own = self
            .attachment
            .arena
            .as_ref()
            .and_then(made_code::own_code)
            .unwrap_or_default();
        own.extend(others::code_of_tracers(&process));
        let Look { calls, doubtful } = made_calls::look(process.memory(), &map, &own);
        let refusal = match (doubtful, calls.first()) {
            (Some(address), _) if !calls.is_empty() => Some((address, DOUBTFUL)),
            (_, Some(call)) if self.attachment.actions.host.is_some() => Some((call.address, GUEST)),
            (_, Some(call)) if self.attachment.parameters.small_stacks => Some((call.address, SMALL_STACKS)),
            _ => None,
        };
        if let Some((address, reason)) = refusal {
            self.made.given_up = true;
            self.tell(tracing, address, reason);
            let all: Vec<TargetAddress> = self.attachment.made().map(|patch| patch.built.address).collect();
            self.attachment.set_made(false, &all, &mut Pauses::default())?;
            return Ok(());
        }
        let known: HashSet<TargetAddress> = self.attachment.made().map(|patch| patch.built.address).collect();
        let mut new = Vec::new();
        let mut bare = Vec::new();
        for call in calls {
            match call.refusal {
                Some(reason) => self.tell(tracing, call.address, reason),
                None if !known.contains(&call.address) && known.len() + new.len() >= CALLS_MAX => {
                    self.tell(tracing, call.address, TOO_MANY);
                }
                None => {
                    new.extend(Some(call.address).filter(|address| !known.contains(address)));
                    bare.extend(Some(call.address).filter(|_| !call.is_patched));
                }
            }
        }
        if new.is_empty() && bare.is_empty() {
            return Ok(());
        }
        let _claim = process.claim()?;
        let mut pauses = Pauses::default();
        self.place_made(tracing, &new, &mut pauses)?;
        self.attachment.set_made(true, &bare, &mut pauses)?;
        Ok(())
    }

    /// Plans and writes the detours of calls that have none.
    fn place_made(
        &mut self,
        tracing: &mut Tracing,
        new: &[TargetAddress],
        pauses: &mut Pauses,
    ) -> Result<(), SessionError> {
        if new.is_empty() {
            return Ok(());
        }
        self.attachment.look_for_holes()?;
        let placement = planned_made(&tracing.known, &self.placed, &self.attachment, new)?;
        let changes = self.commit(placement);
        tracing.known.refused.extend(changes.refused);
        if !changes.regions.is_empty() {
            let mut stopped = self.attachment.process.clone().stop_one()?;
            self.attachment.map_regions(&mut stopped, &changes.regions)?;
            release_one(stopped, pauses);
        }
        self.attachment.write(&changes.patches)?;
        self.attachment.keep_made(changes.patches)
    }

    fn tell(&mut self, tracing: &mut Tracing, address: TargetAddress, reason: &'static str) {
        if self.made.told.insert(reason) {
            tracing.warn(format!(
                "system calls of code that the program has made are not seen, at {address}: {reason}"
            ));
        }
    }
}

/// A map in which no mapping is missing. The kernel shows a map piece by piece. A mapping that merges with its
/// neighbour in between, because another thread frees or makes memory, may be in no piece. So the map is read until two
/// looks show the same code.
fn settled_map(process: &Process) -> Result<Map, MemoryError> {
    let code = |map: &Map| -> Vec<(TargetAddress, TargetAddress)> {
        let made = map.mappings().iter().filter(|mapping| made_code::is_made(mapping));
        made.map(|mapping| (mapping.start, mapping.end)).collect()
    };
    let mut map = process.map()?;
    for _ in 0..MAPS_MAX {
        let again = process.map()?;
        let is_settled = code(&again) == code(&map);
        map = again;
        if is_settled {
            break;
        }
    }
    Ok(map)
}
