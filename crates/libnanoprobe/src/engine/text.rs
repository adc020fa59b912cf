//! The text follows what is registered: planned function by function, detours written first, then the text itself, by the
//! breakpoint protocol, while all threads run.

use nanoprobe_patch::{BREAKPOINT, Runtime, TextRange, ThreadKey, transition};

use super::*;

impl Engine {
    /// Brings the text of the spots' functions to what is active in them.
    pub(super) fn repatch(&mut self, spots: &[Spot]) -> Result<(), Error> {
        let mut functions: Vec<u64> = spots.iter().map(|spot| spot.function).collect();
        functions.sort_unstable();
        functions.dedup();
        let runtime = self.runtime();
        let (mut old, mut new) = (Vec::new(), Vec::new());
        let mut planned: Vec<(u64, Vec<Patch>)> = Vec::new();
        for start in functions {
            let Some(function) = self.functions.get_mut(&start) else {
                continue;
            };
            let runs = function.runs()?;
            let patches = function.patches_for(runs, &mut self.near, &runtime)?;
            let differs = |patch: &&Patch, others: &[Patch]| {
                !others
                    .iter()
                    .any(|other| other.detour == patch.detour && other.run == patch.run)
            };
            old.extend(
                function
                    .patches
                    .iter()
                    .filter(|patch| differs(patch, &patches))
                    .cloned(),
            );
            new.extend(
                patches
                    .iter()
                    .filter(|patch| differs(patch, &function.patches))
                    .cloned(),
            );
            planned.push((start, patches));
        }
        self.map_near()?;
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
            for (address, byte) in step {
                own::write(self.own.memory(), address.0, &[byte])?;
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

    /// Maps what near memory has grown by.
    pub(super) fn map_near(&mut self) -> Result<(), Error> {
        for region in self.near.regions() {
            for part in nanoprobe_session::without(region, &self.mapped) {
                let bytes = (part.end.0 - part.start.0) as usize;
                let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE | libc::MAP_NORESERVE;
                let wanted = part.start.0 as *mut libc::c_void;
                // SAFETY: a new mapping at an address that must be free, or the call fails.
                let found = unsafe { libc::mmap(wanted, bytes, libc::PROT_READ | libc::PROT_EXEC, flags, -1, 0) };
                if found == libc::MAP_FAILED {
                    return Err(Error::last_os("mmap of near memory"));
                }
                self.mapped.push(part);
            }
        }
        Ok(())
    }

    /// Writes detours and publishes their tables; nothing leads there yet.
    pub(super) fn write_detours(&mut self, patches: &[Patch]) -> Result<(), Error> {
        for patch in patches {
            let built = &patch.built;
            own::write(self.own.memory(), patch.detour.0, &built.detour)?;
            // An instruction that the text will execute again in place still traps while the text changes: it goes on in
            // the detour that it had last.
            for entry in &built.moves {
                self.redirects.insert(entry.original.0, entry.relocated.0);
            }
            for redirect in &built.redirects {
                self.redirects.insert(redirect.from.0, redirect.to.0);
            }
            if let Some(first) = built
                .departures
                .iter()
                .find(|departure| departure.original == built.address)
            {
                self.redirects.insert(built.address.0, first.relocated.0);
            }
            for (relocated, original) in nanoprobe_session::origins_of(patch.detour, built) {
                // The end of one detour may be the start of another one.
                let entry = self.origins.entry(relocated).or_insert(0);
                if original != 0 {
                    *entry = original;
                }
            }
        }
        let pairs =
            |table: &BTreeMap<u64, u64>| -> Vec<(u64, u64)> { table.iter().map(|(from, to)| (*from, *to)).collect() };
        let (redirects, origins) = (pairs(&self.redirects), pairs(&self.origins));
        self.agent.publish(self.own.memory(), &redirects, &origins)
    }
}

/// The text of some patches.
pub(super) fn ranges(patches: &[Patch]) -> Vec<TextRange> {
    patches.iter().flat_map(|patch| patch.built.ranges()).collect()
}

const _: () = assert!(BREAKPOINT == 0xcc);
