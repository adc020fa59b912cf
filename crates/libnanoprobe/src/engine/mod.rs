//! The engine: what is registered, and the text that follows from it.
//!
//! ```text
//!   register -> entry -> site's list (published: hits see it)
//!                     -> function's active sites -> runs -> patches -> transition of the text, while all threads run
//! ```
//!
//! One lock orders registrations; hits never take it. The text is changed by the breakpoint protocol
//! ([`nanoprobe_patch::transition`]): between two of its steps every processor of this process is synchronised by
//! membarrier(2). Functions that the engine itself calls (malloc, pwrite, syscall, memcpy) may be those whose text changes:
//! at every step every instruction is right or traps, and traps are ours.
//!
//! Detours stay mapped for ever, since nobody can say of a thread that does not run handlers whether it is in one; a run
//! that comes again finds the detour that it had. So memory grows with the number of different runs, not with time.

mod function;
mod returns;
mod shims;
mod shown;
mod site;
mod watch;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use nanoprobe_patch::{BREAKPOINT, NearSpace, Runtime, Tactic, TargetAddress, TextRange, ThreadKey, transition};
use nanoprobe_session::code::{extent_around, parts};
use nanoprobe_session::returns::has_shadow_stack;
use nanoprobe_target::Map;

pub use function::{Function, Patch, Retired};
pub use returns::{Returns, Ways};
pub use site::{Epochs, Kind, Member, OldList, SiteState, Wanted};
pub use watch::{WatchState, Watchpoints, WithdrawnWatch};

use crate::error::Error;
use crate::hit::{self, PROBES_MAX};
use crate::own::{self, Agent, Own};

/// Where a member is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// Start of the function.
    pub function: u64,
    /// The instruction.
    pub address: u64,
    /// Of its counters; 0: it has none of its own.
    pub index: u32,
    /// Which member.
    pub id: u64,
}

/// All that is registered in this process.
pub struct Engine {
    own: Own,
    agent: Agent,
    near: NearSpace,
    mapped: Vec<std::ops::Range<TargetAddress>>,
    functions: BTreeMap<u64, Function>,
    /// Every redirect and origin that a thread may still need.
    redirects: BTreeMap<u64, u64>,
    origins: BTreeMap<u64, u64>,
    has_actions: bool,
    free: Vec<u32>,
    next: u32,
    ids: u64,
    /// Lists that were replaced, and that threads may still be reading, with the members of them that went.
    replaced: Vec<(Epochs, Vec<OldList>, Vec<Member>)>,
    /// By their ids, members whose module is gone.
    unloaded: HashMap<u64, Member>,
    /// By their start, what was built for functions whose module is gone: it may come again.
    retired: HashMap<u64, Retired>,
    returns: Returns,
    /// In front of the program's own signal calls.
    shims: Vec<Patch>,
    watches: Watchpoints,
    shown: shown::Shown,
    /// By the address of the caller's structure.
    spots: HashMap<usize, Spot>,
}

static ENGINE: OnceLock<Result<Mutex<Engine>, String>> = OnceLock::new();

/// The engine, locked; made on first use.
///
/// # Errors
/// From a handler; or the system refuses what the engine needs.
pub fn engine() -> Result<MutexGuard<'static, Engine>, Error> {
    if hit::in_handler() {
        return Err(Error::InHandler);
    }
    let made = ENGINE.get_or_init(|| Engine::new().map(Mutex::new).map_err(|error| error.to_string()));
    match made {
        // A panic is a bug of ours; the state is still the best there is.
        Ok(engine) => Ok(engine.lock().unwrap_or_else(PoisonError::into_inner)),
        Err(reason) => Err(Error::System {
            call: "nanoprobe",
            error: std::io::Error::other(reason.clone()),
        }),
    }
}

/// The engine, if there is one already.
pub fn made() -> Option<&'static Mutex<Engine>> {
    ENGINE.get()?.as_ref().ok()
}

impl Engine {
    fn new() -> Result<Engine, Error> {
        hit::initialise();
        own::register()?;
        crate::fork::watch();
        let own = Own::open()?;
        let agent = Agent::map(own.memory())?;
        let map = own.map()?;
        let holes = map.holes(&own.hole_rules());
        let holes = holes.iter().map(|hole| hole.start.0..hole.end.0).collect();
        Ok(Engine {
            own,
            agent,
            near: NearSpace::new(holes, 4096),
            mapped: Vec::new(),
            functions: BTreeMap::new(),
            redirects: BTreeMap::new(),
            origins: BTreeMap::new(),
            has_actions: false,
            free: Vec::new(),
            // 0 is everybody's who needs no counters.
            next: 1,
            ids: 0,
            replaced: Vec::new(),
            unloaded: HashMap::new(),
            retired: HashMap::new(),
            returns: Returns::default(),
            shims: Vec::new(),
            watches: Watchpoints::default(),
            shown: shown::Shown::new(),
            spots: HashMap::new(),
        })
    }

    /// Where an address or a symbol is, with the offset added.
    ///
    /// # Errors
    /// No such symbol, or no code there.
    pub fn resolve(&mut self, addr: u64, symbol: Option<&str>, offset: u64) -> Result<TargetAddress, Error> {
        self.refresh()?;
        let base = match symbol {
            Some(symbol) => self.own.resolve(symbol)?.0,
            None => addr,
        };
        Ok(TargetAddress(base.wrapping_add(offset)))
    }

    /// What the program has mapped and unmapped meanwhile is known again.
    fn refresh(&mut self) -> Result<(), Error> {
        let map = self.update_modules()?;
        let holes = map.holes(&self.own.hole_rules());
        self.near
            .set_holes(holes.iter().map(|hole| hole.start.0..hole.end.0).collect());
        Ok(())
    }

    /// Brings the modules up to date with the map, and yields that.
    fn update_modules(&mut self) -> Result<Map, Error> {
        let map = self.own.map()?;
        let changes = self.own.update(&map);
        for module in changes.gone {
            self.unload(module)?;
        }
        if self.has_actions && changes.first_new < self.own.modules().list().len() {
            self.place_shims(changes.first_new)?;
        }
        Ok(map)
    }

    /// A module is gone, and its text with all patches. Nobody may be executing it.
    fn unload(&mut self, module: usize) -> Result<(), Error> {
        let range = self.own.modules().range(module).unwrap_or_default();
        let starts = self.functions.iter().filter(|(_, function)| function.module == module);
        let starts: Vec<u64> = starts.map(|(start, _)| *start).collect();
        let (mut lists, mut own) = (Vec::new(), Vec::new());
        for function in starts.iter().filter_map(|start| self.functions.remove(start)) {
            let mut retired = Retired {
                known: function.known,
                sites: function.retired,
            };
            for (address, mut state) in function.sites {
                for member in std::mem::take(&mut state.members) {
                    if member.is_counted() {
                        self.shown.clear(member.entry.index);
                    }
                    match member.kind {
                        Kind::Own => own.push(member),
                        _ => drop(self.unloaded.insert(member.id, member)),
                    }
                }
                lists.push(state.publish());
                retired.sites.insert(address, state.site);
            }
            self.retired.insert(function.extent.start, retired);
        }
        // Another module may come to lie there, whose breakpoints are not ours.
        self.redirects.retain(|from, _| !range.contains(from));
        self.returns.forget(&range);
        self.shims.retain(|shim| !range.contains(&shim.built.address.0));
        own::synchronise_memory()?;
        self.bury(lists, own);
        Ok(())
    }

    /// The function around an address, decoded; a probe may stand there.
    ///
    /// # Errors
    /// No code, the black list, or no instruction's start.
    pub fn function_at(&mut self, address: TargetAddress) -> Result<&mut Function, Error> {
        if self.is_forbidden(address.0) {
            return Err(Error::Forbidden(address));
        }
        let (module, found) = self.own.modules().find(address).ok_or(Error::NotCode(address))?;
        let image = found.bias().to_image(address);
        let (extent, _) = extent_around(found, image).ok_or(Error::NotCode(address))?;
        let start = extent.start;
        let function = match self.functions.entry(start) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(vacant) => {
                let mut parts = parts(found, &extent).ok_or(Error::NotCode(address))?;
                if has_shadow_stack(std::process::id() as i32) {
                    parts.iter_mut().for_each(|part| part.show_shadow_stack());
                }
                let retired = self.retired.remove(&start).unwrap_or_default();
                vacant.insert(Function {
                    parts,
                    extent,
                    module,
                    sites: BTreeMap::new(),
                    patches: Vec::new(),
                    known: retired.known,
                    retired: retired.sites,
                })
            }
        };
        function.next(address.0)?;
        Ok(function)
    }

    /// This library's own code, the agent, the detours: whatever a hit runs through.
    fn is_forbidden(&self, address: u64) -> bool {
        let ours = self.own.modules().find(TargetAddress(hit::dispatch_address()));
        let is_library = |(index, module): (usize, &nanoprobe_symbols::Module)| {
            // Linked into the program, only the hit path itself is ours.
            let range = self.own.modules().range(index);
            let is_shared = module.name().starts_with("libnanoprobe.so");
            is_shared && range.is_some_and(|range| range.contains(&address)) || hit::is_path(address)
        };
        self.agent.holds(address)
            || self
                .mapped
                .iter()
                .any(|region| region.contains(&TargetAddress(address)))
            || ours.is_some_and(is_library)
    }

    /// Registers members, all or none. Yields where each stands, in their order.
    ///
    /// # Errors
    /// The first reason; nothing is changed then.
    pub fn register(&mut self, members: Vec<(TargetAddress, Member, Demand)>) -> Result<Vec<Spot>, Error> {
        let mut spots: Vec<Spot> = Vec::with_capacity(members.len());
        let mut demands = Vec::new();
        let mut result = Ok(());
        for (address, mut member, demand) in members {
            self.ids += 1;
            member.id = self.ids;
            let counted = member.is_counted();
            let index = if counted { self.take_index() } else { Ok(0) };
            let added = index.and_then(|index| {
                member.entry.index = index;
                if let Some(calls) = member.calls.as_ref().filter(|_| counted) {
                    calls.set_index(index);
                }
                let id = member.id;
                match self.add(address, member) {
                    Ok(function) => Ok(Spot {
                        function,
                        address: address.0,
                        index,
                        id,
                    }),
                    Err(error) => {
                        self.free.extend((index != 0).then_some(index));
                        Err(error)
                    }
                }
            });
            match added {
                Ok(spot) => {
                    spots.push(spot);
                    demands.push(demand);
                }
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        let result = result
            .and_then(|()| self.watch_libraries(&spots))
            .and_then(|()| self.follow(&spots))
            .and_then(|()| self.check(&spots, &demands));
        if let Err(error) = result {
            let _ = self.withdraw(&spots, true);
            return Err(error);
        }
        Ok(spots)
    }

    /// Yields the start of the function.
    fn add(&mut self, address: TargetAddress, member: Member) -> Result<u64, Error> {
        let function = self.function_at(address)?;
        function.site(address.0)?.add(member);
        Ok(function.extent.start)
    }

    fn check(&self, spots: &[Spot], demands: &[Demand]) -> Result<(), Error> {
        for (spot, demand) in spots.iter().zip(demands) {
            if *demand == Demand::Jump && self.tactic(spot) == Some(Tactic::Trap) {
                return Err(Error::Tactic(TargetAddress(spot.address)));
            }
        }
        Ok(())
    }

    /// Unregisters members. With `wait`: until no thread is in their handlers.
    ///
    /// # Errors
    /// The text cannot be written; the handlers do not run any more all the same.
    pub fn withdraw(&mut self, spots: &[Spot], wait: bool) -> Result<Withdrawn, Error> {
        let mut withdrawn = Withdrawn {
            lists: Vec::new(),
            members: Vec::new(),
            indices: Vec::new(),
            epochs: None,
            unloaded: false,
        };
        for spot in spots {
            if let Some(member) = self.unloaded.remove(&spot.id) {
                withdrawn.members.push(member);
                withdrawn.indices.extend((spot.index != 0).then_some(spot.index));
                withdrawn.unloaded = true;
                continue;
            }
            let Some(state) = self.state_mut(spot) else { continue };
            let (gone, kept) = std::mem::take(&mut state.members)
                .into_iter()
                .partition(|member| member.id == spot.id);
            state.members = kept;
            withdrawn.lists.push(state.publish());
            withdrawn.members.extend::<Vec<Member>>(gone);
            withdrawn.indices.extend((spot.index != 0).then_some(spot.index));
        }
        for index in &withdrawn.indices {
            self.shown.clear(*index);
        }
        let changed = self.repatch(spots);
        own::synchronise_memory()?;
        withdrawn.epochs = Some(Epochs::now());
        if wait {
            withdrawn.wait();
            self.free.append(&mut withdrawn.indices);
        }
        changed?;
        Ok(withdrawn)
    }

    /// What [`Engine::withdraw`] left is over: its indices may be used again.
    pub fn reclaim(&mut self, mut withdrawn: Withdrawn) {
        self.free.append(&mut withdrawn.indices);
    }

    /// Switches a member on or off.
    ///
    /// # Errors
    /// The text cannot be written, or no jump fits any more.
    pub fn enable(&mut self, spot: &Spot, enabled: bool) -> Result<(), Error> {
        if self.unloaded.contains_key(&spot.id) {
            return Err(Error::Unloaded);
        }
        if let Some(member) = self.member(spot) {
            let value = u32::from(enabled);
            member.entry.enabled.store(value, std::sync::atomic::Ordering::Release);
        }
        self.repatch(&[*spot])
    }

    /// The member at a spot.
    pub fn member(&self, spot: &Spot) -> Option<&Member> {
        let state = self.functions.get(&spot.function)?.sites.get(&spot.address)?;
        state.members.iter().find(|member| member.id == spot.id)
    }

    /// As what the member at a spot was registered.
    pub fn kind(&self, spot: &Spot) -> Option<Kind> {
        self.member(spot).map(|member| member.kind)
    }

    fn state_mut(&mut self, spot: &Spot) -> Option<&mut SiteState> {
        self.functions.get_mut(&spot.function)?.sites.get_mut(&spot.address)
    }

    /// How a spot is patched; `None`: nothing is enabled there.
    pub fn tactic(&self, spot: &Spot) -> Option<Tactic> {
        self.functions.get(&spot.function)?.tactic_at(spot.address)
    }

    /// Code that executes the instruction at a spot, and what follows it in the text, without firing what stands there. It
    /// stays what it is for ever. `None`: nothing is patched there.
    pub fn original(&self, spot: &Spot) -> Option<TargetAddress> {
        let function = self.functions.get(&spot.function)?;
        let moves = function.patches.iter().flat_map(|patch| &patch.built.moves);
        let found = moves.into_iter().find(|entry| entry.original.0 == spot.address);
        found.map(|entry| entry.relocated)
    }

    /// Remembers which structure of the caller's stands where.
    pub fn remember(&mut self, owner: usize, spot: Spot) {
        self.spots.insert(owner, spot);
    }

    /// Where a structure of the caller's stands.
    pub fn spot(&self, owner: usize) -> Option<Spot> {
        self.spots.get(&owner).copied()
    }

    /// It stands nowhere any more.
    pub fn forget(&mut self, owner: usize) -> Option<Spot> {
        self.spots.remove(&owner)
    }

    /// Every function with its sites, ascending.
    pub fn functions(&self) -> impl Iterator<Item = &Function> {
        self.functions.values()
    }

    /// What is known of this process.
    pub fn own(&self) -> &Own {
        &self.own
    }

    /// A child of fork begins: it has its own memory, and must register for barriers of its own.
    ///
    /// # Errors
    /// The system refuses either: nothing may be registered then.
    pub fn forked(&mut self) -> Result<(), Error> {
        self.agent.forked();
        self.own.forked()?;
        own::register()?;
        self.watches_forked()
    }

    fn take_index(&mut self) -> Result<u32, Error> {
        if let Some(index) = self.free.pop() {
            hit::clear_counts(index);
            return Ok(index);
        }
        if self.next as usize >= PROBES_MAX {
            return Err(Error::Limit("too many probes at a time"));
        }
        self.next += 1;
        Ok(self.next - 1)
    }

    /// Publishes the sites' lists, then has the text follow.
    fn follow(&mut self, spots: &[Spot]) -> Result<(), Error> {
        let mut old = Vec::new();
        for spot in spots {
            old.extend(self.state_mut(spot).map(|state| state.publish()));
        }
        let done = self.repatch(spots);
        own::synchronise_memory()?;
        // Handlers may take long, and may wait for a lock that the calling thread holds: nothing is waited for here.
        self.bury(old, Vec::new());
        done
    }

    /// Keeps what threads may still be reading, and frees what none does any more.
    fn bury(&mut self, lists: Vec<OldList>, members: Vec<Member>) {
        self.replaced.retain_mut(|(epochs, ..)| !epochs.are_over());
        self.replaced.push((Epochs::now(), lists, members));
    }

    /// Brings the text of the spots' functions to what is active in them.
    fn repatch(&mut self, spots: &[Spot]) -> Result<(), Error> {
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
    fn take_signals(&mut self) -> Result<(), Error> {
        if !self.has_actions {
            self.agent.install_actions()?;
            self.has_actions = true;
            self.place_shims(0)?;
        }
        Ok(())
    }

    /// Rewrites the text while all threads run.
    fn write_text(&self, old: &[TextRange], new: &[TextRange]) -> Result<(), Error> {
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
    fn map_near(&mut self) -> Result<(), Error> {
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
    fn write_detours(&mut self, patches: &[Patch]) -> Result<(), Error> {
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

/// What must be true of a probe's patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// Any tactic will do.
    Any,
    /// A jump of some kind.
    Jump,
}

/// What was unregistered and may still be in use.
pub struct Withdrawn {
    lists: Vec<OldList>,
    members: Vec<Member>,
    indices: Vec<u32>,
    epochs: Option<Epochs>,
    /// The module of some is gone.
    unloaded: bool,
}

impl Withdrawn {
    /// Waits until no thread is in a handler of it, and frees it.
    pub fn wait(&mut self) {
        if let Some(mut epochs) = self.epochs.take() {
            epochs.wait();
        }
        self.lists.clear();
        self.members.clear();
    }

    /// What the caller is to know of modules that are gone.
    ///
    /// # Errors
    /// There is one.
    pub fn check(&self) -> Result<(), Error> {
        if self.unloaded { Err(Error::Unloaded) } else { Ok(()) }
    }

    /// Whether no thread is in a handler of it any more.
    pub fn is_over(&mut self) -> bool {
        self.epochs.as_mut().is_none_or(Epochs::are_over)
    }
}

/// The text of some patches.
fn ranges(patches: &[Patch]) -> Vec<TextRange> {
    patches.iter().flat_map(|patch| patch.built.ranges()).collect()
}

const _: () = assert!(BREAKPOINT == 0xcc);
