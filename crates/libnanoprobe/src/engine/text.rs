//! Brings the text up to date with the registered probes. The new text is planned function by function. Detours are
//! written first, then the text, by the breakpoint protocol, while all threads run.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use nanoprobe_arena::layout::SYNCHRONOUS;
use nanoprobe_patch::order::gather;
use nanoprobe_patch::{Runtime, TargetAddress, TextRange, ThreadKey};
use nanoprobe_text::change::Change;
use nanoprobe_text::{map_missing, without};
use patch::KeptPatch;

use super::{Engine, MASKS_WAIT, NEW_THREADS_WAIT, Spot, patch};
use crate::error::Error;
use crate::self_process::{self, Blocking};

/// How many springboards are tried, if another program has changed the padding of each.
const SPRINGBOARDS_MAX: usize = 16;

/// The result of [`Engine::plan_text`].
#[derive(Default)]
struct TextChanges {
    old: Vec<TextRange>,
    new: Vec<TextRange>,
    /// The patches of `new`, with their detours.
    patches: Vec<KeptPatch>,
    /// All patches of each function, by its start.
    planned: Vec<(u64, Vec<KeptPatch>)>,
}

/// Text that a failed change has left between the old and the new state ([`nanoprobe_text::change`]).
#[derive(Default)]
pub struct Torn {
    /// The bytes that are there.
    ranges: Vec<TextRange>,
    /// The functions to which the text belongs.
    functions: Vec<u64>,
    /// Whether text of the shims was written only in part, too.
    shims: bool,
}

impl Engine {
    /// Brings the text of the spots' functions up to date with their active members.
    pub(super) fn repatch(&mut self, spots: &[Spot]) -> Result<(), Error> {
        let mut functions: Vec<u64> = spots.iter().map(|spot| spot.function).collect();
        functions.extend(&self.late);
        functions.extend(self.torn.iter().flat_map(|torn| &torn.functions));
        functions.sort_unstable();
        functions.dedup();
        let done = self.repatch_functions(&functions);
        match done {
            Ok(()) => self.late.clear(),
            Err(_) => self.late = functions,
        }
        done
    }

    fn repatch_functions(&mut self, functions: &[u64]) -> Result<(), Error> {
        let mut changes = self.plan_what_fits(functions)?;
        if !changes.patches.is_empty() && !self.signals.have_shims {
            self.take_signals()?;
            // An instruction that is displaced only to make room may have got a shim before it meanwhile.
            if changes.patches.iter().any(|patch| patch.run.is_silent()) {
                changes = self.plan_what_fits(functions)?;
            }
        }
        self.write_detours(&changes.patches)?;
        self.springboards.write(&changes.patches, self.own.memory())?;
        self.check_shims(&changes.patches)?;
        self.write_text(&changes.old, &changes.new, functions)?;
        for (start, patches) in changes.planned {
            if let Some(function) = self.functions.get_mut(&start) {
                function.patches = patches;
                self.shown.function(function);
            }
        }
        Ok(())
    }

    /// Plans again until all memory and padding that the plan needs is free.
    fn plan_what_fits(&mut self, functions: &[u64]) -> Result<TextChanges, Error> {
        let mut changes = self.plan_text(functions)?;
        if !self.map_near()? {
            // The program has mapped something in this place meanwhile.
            self.refresh_holes()?;
            changes = self.plan_text(functions)?;
            if !self.map_near()? {
                return Err(Error::Limit("near memory is taken by others as fast as it is found"));
            }
        }
        let mut tries = 0;
        while !self.springboards.check(&changes.patches, self.own.memory()) {
            tries += 1;
            if tries > SPRINGBOARDS_MAX {
                return Err(Error::Limit("padding is changed by others as fast as it is found"));
            }
            changes = self.plan_text(functions)?;
            if !self.map_near()? {
                return Err(Error::Limit("near memory is taken by others as fast as it is found"));
            }
        }
        Ok(changes)
    }

    /// Plans the text of some functions, and yields the differences from the present text.
    fn plan_text(&mut self, functions: &[u64]) -> Result<TextChanges, Error> {
        let runtime = self.runtime();
        let mut changes = TextChanges::default();
        let free = self.near.free();
        for function in functions {
            let parts = self.functions.get_mut(function).map(|function| &mut function.parts);
            let parts = parts.into_iter().flatten();
            parts.for_each(|part| part.show_near_memory(free.clone()));
        }
        let mut all = self.runs(functions)?;
        for start in functions {
            let Some(function) = self.functions.get_mut(start) else {
                continue;
            };
            let runs = all.remove(start).unwrap_or_default();
            let patches = function.known.patches_for(runs, &mut self.near, &runtime)?;
            let differs = |patch: &&KeptPatch, others: &[KeptPatch]| {
                !others
                    .iter()
                    .any(|other| other.detour == patch.detour && other.run == patch.run)
            };
            let is_torn = self.torn.as_ref().is_some_and(|torn| torn.functions.contains(start));
            if is_torn {
                changes.patches.extend(patches.iter().cloned());
            } else {
                let gone = function.patches.iter().filter(|patch| differs(patch, &patches));
                changes.old.extend(gone.flat_map(|patch| patch.built.ranges()));
                let come = patches.iter().filter(|patch| differs(patch, &function.patches));
                changes.patches.extend(come.cloned());
            }
            changes.planned.push((*start, patches));
        }
        changes.new = ranges(&changes.patches);
        if let Some(torn) = &self.torn {
            changes.old.extend(torn.ranges.iter().cloned());
            if torn.shims {
                changes.new.extend(ranges(&self.signals.shims));
            }
        }
        Ok(changes)
    }

    /// Makes the agent handle the signals that probes raise, and makes sure that no thread blocks them.
    ///
    /// # Errors
    /// A thread blocks them; the system refuses memory or a call that is needed.
    pub(super) fn take_signals(&mut self) -> Result<(), Error> {
        if self.signals.have_shims {
            return Ok(());
        }
        Self::wait_for_masks(&mut self.signals.known_to_block, false)?;
        self.take_actions()?;
        // For the program, the calling thread still blocks the same signals as before. From here on it may meet the
        // shims while they change.
        let own = self_process::set_own_mask(libc::SIG_UNBLOCK, SYNCHRONOUS);
        let placed = self.place_shims(0);
        if placed.is_err() {
            self_process::set_own_mask(libc::SIG_BLOCK, own);
        } else {
            self.signals.have_shims = true;
            self.agent.believe_blocked(own);
            self.agent.unblock_in_actions()?;
        }
        placed
    }

    /// Makes the agent handle the signals that probes raise.
    pub(super) fn take_actions(&mut self) -> Result<(), Error> {
        if !self.signals.have_actions {
            self.agent.install_actions()?;
            self.signals.have_actions = true;
        }
        Ok(())
    }

    /// Waits until no thread but this one blocks the signals of a breakpoint: any thread may execute any text at
    /// any moment.
    ///
    /// A new thread blocks all signals until it first runs, which takes seconds on a busy machine. So this waits for
    /// such threads. A thread that sleeps has run already, so this waits less for it. A thread that still blocked the
    /// signals at the end of one wait is not waited for again.
    fn wait_for_masks(known_to_block: &mut Vec<i32>, has_shims: bool) -> Result<(), Error> {
        let begun = Instant::now();
        loop {
            let blocking = match self_process::blocking_threads() {
                // The masks cannot be read under seccomp. But no thread can block the signals without passing the
                // shims.
                Err(_) if has_shims => return Ok(()),
                blocking => blocking?,
            };
            known_to_block.retain(|tid| blocking.iter().any(|thread| thread.tid == *tid));
            let waited = begun.elapsed();
            let is_given_up = |thread: &&Blocking| {
                let wait = if thread.sleeps { MASKS_WAIT } else { NEW_THREADS_WAIT };
                waited > wait || known_to_block.contains(&thread.tid)
            };
            let Some(thread) = blocking.iter().find(is_given_up) else {
                if blocking.is_empty() {
                    return Ok(());
                }
                std::thread::sleep(Duration::from_micros(200));
                continue;
            };
            let error = Error::Blocked(thread.clone());
            known_to_block.extend(blocking.iter().map(|thread| thread.tid));
            return Err(error);
        }
    }

    /// Rewrites the text while all threads run. `functions`: the functions to which the text belongs; empty for shims.
    pub(super) fn write_text(&mut self, old: &[TextRange], new: &[TextRange], functions: &[u64]) -> Result<(), Error> {
        if old.is_empty() && new.is_empty() {
            return Ok(());
        }
        self.check_text(old, new)?;
        let change = Change::new(old, new);
        let mut text = self_process::Text::open(self.own.memory());
        let own = self_process::set_own_mask(libc::SIG_UNBLOCK, SYNCHRONOUS);
        let is_clear = Self::wait_for_masks(&mut self.signals.known_to_block, self.signals.have_shims);
        let done = is_clear.map(|()| {
            let done = change.carry_out(&mut text, &mut ());
            done.map_err(|failure| (change.undo(&failure, &mut text), failure.error))
        });
        self_process::set_own_mask(libc::SIG_BLOCK, own);
        drop(text);
        let Err((is_undone, error)) = done? else {
            // The torn text belongs to functions, so a change of the shims leaves it alone.
            self.torn.take_if(|_| !functions.is_empty());
            return Ok(());
        };
        if !is_undone {
            self.note_torn(old, new, functions);
        }
        Err(error)
    }

    fn note_torn(&mut self, old: &[TextRange], new: &[TextRange], functions: &[u64]) {
        let mut torn = self.torn.take().unwrap_or_default();
        torn.ranges.extend(old.iter().chain(new).cloned());
        // Text that cannot be read now cannot be written, either.
        let memory = self.own.memory();
        torn.ranges
            .retain_mut(|range| memory.read(range.address, &mut range.patched).is_ok());
        torn.functions.extend(functions);
        torn.shims |= functions.is_empty();
        self.torn = Some(torn);
    }

    /// Checks before a write that the text has the expected bytes: a debugger's breakpoint must not be overwritten.
    fn check_text(&self, old: &[TextRange], new: &[TextRange]) -> Result<(), Error> {
        let now: HashMap<u64, u8> = old
            .iter()
            .flat_map(|range| (range.address.0..).zip(range.patched.iter().copied()))
            .collect();
        for range in new {
            let mut bytes = vec![0; range.original.len()];
            let read = self.own.memory().read(range.address, &mut bytes);
            read.map_err(|error| Error::System {
                call: "reading the text",
                error: std::io::Error::other(error),
            })?;
            for ((address, byte), original) in (range.address.0..).zip(&bytes).zip(&range.original) {
                if now.get(&address).unwrap_or(original) != byte {
                    return Err(nanoprobe_patch::Refusal::Breakpoint {
                        site: TargetAddress(address),
                    }
                    .into());
                }
            }
        }
        Ok(())
    }

    fn runtime(&self) -> Runtime {
        Runtime {
            enter: self.agent.address(nanoprobe_agent::Function::Enter),
            table: self.agent.table(),
            thread_key: ThreadKey::TlsSelf,
            // Handler functions are called from the detour, never from a signal handler.
            trap: Some(nanoprobe_patch::TrapForm::Boost),
        }
    }

    /// Maps the new parts of near memory. False: something is already mapped at such an address, so detours in this
    /// part need another place.
    pub(super) fn map_near(&mut self) -> Result<bool, Error> {
        let regions = self.near.regions();
        let is_whole = map_missing(&mut self_process::OwnMemory, &regions, &mut self.mapped);
        for part in regions.into_iter().flat_map(|region| without(region, &self.mapped)) {
            self.near.forget(&part);
            let functions = self.functions.values_mut();
            functions.for_each(|function| function.known.forget(&part));
        }
        is_whole
    }

    /// Writes detours and publishes their tables. The text does not lead to the detours yet.
    pub(super) fn write_detours(&mut self, patches: &[KeptPatch]) -> Result<(), Error> {
        for patch in patches {
            let built = &patch.built;
            self_process::write(self.own.memory(), patch.detour.0, &built.detour)?;
            // An instruction that will be executed in place again still traps while the text changes. Threads that
            // trap there continue in the last detour that the instruction had.
            let moves = built.moves.iter();
            let mut redirects: BTreeMap<u64, u64> = gather(moves.map(|entry| (entry.original.0, entry.relocated.0)));
            redirects.extend(built.redirects.iter().map(|redirect| (redirect.from.0, redirect.to.0)));
            let mut departures = built.departures.iter();
            if let Some(first) = departures.find(|departure| departure.original == built.address) {
                redirects.insert(built.address.0, first.relocated.0);
            }
            for (from, to) in redirects {
                self.agent.redirects.insert(from, to);
            }
            for (relocated, original) in nanoprobe_text::origins_of(patch.detour, built) {
                // The end of one detour may be the start of another.
                if original != 0 || self.agent.origins.get(relocated).is_none() {
                    self.agent.origins.insert(relocated, original);
                }
            }
        }
        self.agent.publish(self.own.memory())
    }
}

/// The text of some patches.
pub(super) fn ranges(patches: &[KeptPatch]) -> Vec<TextRange> {
    patches.iter().flat_map(|patch| patch.built.ranges()).collect()
}

impl Torn {
    /// Forgets a module that is gone.
    pub fn forget(&mut self, range: &std::ops::Range<u64>) {
        self.ranges.retain(|torn| !range.contains(&torn.address.0));
        self.functions.retain(|start| !range.contains(start));
    }
}
