//! The text follows what is registered: planned function by function, detours written first, then the text itself, by the
//! breakpoint protocol, while all threads run.

use nanoprobe_patch::{BREAKPOINT, Runtime, TextRange, ThreadKey, transition};

use super::*;

/// What [`Engine::plan_text`] says.
#[derive(Default)]
struct TextChanges {
    old: Vec<Patch>,
    new: Vec<Patch>,
    /// All of each function, by its start.
    planned: Vec<(u64, Vec<Patch>)>,
}

impl Engine {
    /// Brings the text of the spots' functions to what is active in them.
    pub(super) fn repatch(&mut self, spots: &[Spot]) -> Result<(), Error> {
        let mut functions: Vec<u64> = spots.iter().map(|spot| spot.function).collect();
        functions.sort_unstable();
        functions.dedup();
        let mut changes = self.plan_text(&functions)?;
        if !self.map_near()? {
            // Somebody has mapped something there meanwhile.
            self.refresh_holes()?;
            changes = self.plan_text(&functions)?;
            if !self.map_near()? {
                return Err(Error::Limit("near memory is taken by others as fast as it is found"));
            }
        }
        let TextChanges { old, new, planned } = changes;
        self.write_detours(&new)?;
        if !new.is_empty() {
            self.take_signals()?;
        }
        self.check_shims(&new)?;
        self.write_text(&ranges(&old), &ranges(&new))?;
        for (start, patches) in planned {
            if let Some(function) = self.functions.get_mut(&start) {
                function.patches = patches;
                self.shown.function(function);
            }
        }
        Ok(())
    }

    /// What is to stand in the text of some functions, and what of it is not there, or is there and to go.
    fn plan_text(&mut self, functions: &[u64]) -> Result<TextChanges, Error> {
        let runtime = self.runtime();
        let mut changes = TextChanges::default();
        for start in functions {
            let Some(function) = self.functions.get_mut(start) else {
                continue;
            };
            let runs = function.runs()?;
            let patches = function.patches_for(runs, &mut self.near, &runtime)?;
            let differs = |patch: &&Patch, others: &[Patch]| {
                !others
                    .iter()
                    .any(|other| other.detour == patch.detour && other.run == patch.run)
            };
            let gone = function.patches.iter().filter(|patch| differs(patch, &patches));
            changes.old.extend(gone.cloned());
            let come = patches.iter().filter(|patch| differs(patch, &function.patches));
            changes.new.extend(come.cloned());
            changes.planned.push((*start, patches));
        }
        Ok(changes)
    }

    /// From now on the signals that probes raise are the agent's.
    pub(super) fn take_signals(&mut self) -> Result<(), Error> {
        if !self.has_actions {
            self.agent.install_actions()?;
            self.has_actions = true;
            self.place_shims(0)?;
        }
        Ok(())
    }

    /// Rewrites the text while all threads run.
    pub(super) fn write_text(&self, old: &[TextRange], new: &[TextRange]) -> Result<(), Error> {
        self.check_text(old, new)?;
        for step in transition(old, new) {
            // Of what adjoins every byte is still the old one or the new one, and within a step nothing comes first.
            let mut step = step.into_iter().peekable();
            while let Some((address, byte)) = step.next() {
                let mut bytes = vec![byte];
                while let Some((_, byte)) = step.next_if(|next| next.0.0 == address.0 + bytes.len() as u64) {
                    bytes.push(byte);
                }
                own::write(self.own.memory(), address.0, &bytes)?;
            }
            own::synchronise_cores()?;
        }
        Ok(())
    }

    /// What is to be replaced must be what is there: a debugger's breakpoint is not ours to lose.
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
            // Functions are called from the detour, never from a signal handler.
            trap: Some(nanoprobe_patch::TrapForm::Boost),
        }
    }

    /// Maps what near memory has grown by. False: something is there already, and what was placed there has no place.
    pub(super) fn map_near(&mut self) -> Result<bool, Error> {
        let mut is_mapped = true;
        for region in self.near.regions() {
            for part in nanoprobe_session::without(region, &self.mapped) {
                let bytes = (part.end.0 - part.start.0) as usize;
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE | libc::MAP_NORESERVE;
                let wanted = part.start.0 as *mut libc::c_void;
                // SAFETY: a new mapping at an address that must be free, or the call fails.
                let found = unsafe { libc::mmap(wanted, bytes, libc::PROT_READ | libc::PROT_EXEC, flags, -1, 0) };
                if found == wanted {
                    self.mapped.push(part);
                    continue;
                }
                let error = std::io::Error::last_os_error();
                if found != libc::MAP_FAILED {
                    // A kernel before 4.17, to which the address is a hint. SAFETY: what it has just mapped for us.
                    unsafe { libc::munmap(found, bytes) };
                }
                self.near.forget(&part);
                let functions = self.functions.values_mut();
                functions.for_each(|function| function.known.retain(|patch| !part.contains(&patch.detour)));
                if found == libc::MAP_FAILED && error.raw_os_error() != Some(libc::EEXIST) {
                    return Err(Error::System {
                        call: "mmap of near memory",
                        error,
                    });
                }
                is_mapped = false;
            }
        }
        Ok(is_mapped)
    }

    /// Writes detours and publishes their tables; nothing leads there yet.
    pub(super) fn write_detours(&mut self, patches: &[Patch]) -> Result<(), Error> {
        for patch in patches {
            let built = &patch.built;
            own::write(self.own.memory(), patch.detour.0, &built.detour)?;
            // An instruction that the text will execute again in place still traps while the text changes: it goes on in
            // the detour that it had last.
            let mut redirects: BTreeMap<u64, u64> = built
                .moves
                .iter()
                .map(|entry| (entry.original.0, entry.relocated.0))
                .collect();
            redirects.extend(built.redirects.iter().map(|redirect| (redirect.from.0, redirect.to.0)));
            let mut departures = built.departures.iter();
            if let Some(first) = departures.find(|departure| departure.original == built.address) {
                redirects.insert(built.address.0, first.relocated.0);
            }
            for (from, to) in redirects {
                self.agent.redirects.insert(from, to);
            }
            for (relocated, original) in nanoprobe_session::origins_of(patch.detour, built) {
                // The end of one detour may be the start of another one.
                if original != 0 || self.agent.origins.get(relocated).is_none() {
                    self.agent.origins.insert(relocated, original);
                }
            }
        }
        self.agent.publish(self.own.memory())
    }
}

/// The text of some patches.
pub(super) fn ranges(patches: &[Patch]) -> Vec<TextRange> {
    patches.iter().flat_map(|patch| patch.built.ranges()).collect()
}

const _: () = assert!(BREAKPOINT == 0xcc);
