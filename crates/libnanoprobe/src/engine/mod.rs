//! The engine: the registered probes, and the text that follows from them.
//!
//! ```text
//!   register -> entry -> site's list (published: hits see it)
//!                     -> function's active sites -> runs -> patches -> transition of the text, while all threads run
//! ```
//!
//! One lock orders registrations; hits never take it. The text is changed by the breakpoint protocol
//! ([`nanoprobe_patch::transition`]): between two of its steps every processor of this process is synchronised by
//! membarrier(2). The engine itself calls functions (malloc, pwrite, syscall, memcpy) whose text may be changing.
//! That is safe because at every step every instruction is right or traps, and the agent handles the traps.
//!
//! Detours stay mapped for ever: a thread that runs no handler may be in a detour, and nothing shows that. The same
//! run, built again, finds its old detour. So memory grows with the number of different runs, not with time.

mod ended;
mod function;
mod hooks;
mod known;
mod modules;
mod patch;
mod planning;
mod proof;
mod register;
mod returns;
mod shims;
mod shown;
mod site;
mod springboards;
mod text;
mod watch;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use nanoprobe_patch::{NearSpace, Tactic, TargetAddress};

pub use ended::Counts;
pub use function::{Function, Retired};
pub use patch::KeptPatch;
pub use register::{Demand, Withdrawn};
pub use returns::{Returns, Ways};
pub use site::{Epochs, Kind, Member, OldList, SiteState, Wanted};
pub use watch::{WatchState, Watchpoints, WithdrawnWatch};

use crate::error::Error;
use crate::hit::{self};
use crate::self_process::{self, Agent, Own};

/// How long to wait for a thread that blocks the signals of a breakpoint.
const MASKS_WAIT: Duration = Duration::from_millis(500);
/// How long to wait for a thread that does not sleep. It may be a new thread that has not run yet.
const NEW_THREADS_WAIT: Duration = Duration::from_secs(5);

/// The place at which a member is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// The start of the function.
    pub function: u64,
    /// The address of the instruction.
    pub address: u64,
    /// The index of the member's counters; 0: the member has no counters of its own.
    pub index: u32,
    /// The id of the member.
    pub id: u64,
}

/// Everything that is registered in this process.
pub struct Engine {
    own: Own,
    agent: Agent,
    near: NearSpace,
    mapped: Vec<std::ops::Range<TargetAddress>>,
    functions: BTreeMap<u64, Function>,
    signals: Signals,
    /// Functions whose text could not be brought up to date yet.
    late: Vec<u64>,
    springboards: springboards::Springboards,
    torn: Option<text::Torn>,
    numbers: Numbers,
    /// Lists that were replaced, and that threads may still be reading, with the members that were removed from
    /// them.
    replaced: Vec<(Epochs, Vec<OldList>, Vec<Member>)>,
    /// Members whose module was unloaded, by their ids.
    unloaded: HashMap<u64, Member>,
    /// The detours of functions whose module was unloaded, by the functions' start. The module may be loaded again.
    retired: HashMap<u64, Retired>,
    returns: Returns,
    proofs: proof::Proofs,
    watches: Watchpoints,
    shown: shown::Shown,
    /// The spots by the address of the caller's structure.
    spots: HashMap<usize, Spot>,
    ended: ended::Ended,
}

/// The state of the measures for signals that probes raise.
#[derive(Default)]
struct Signals {
    /// Whether the agent's actions for these signals are installed.
    have_actions: bool,
    /// The program's own signal calls go through the agent.
    have_shims: bool,
    /// The patches in front of these calls.
    shims: Vec<KeptPatch>,
    /// Threads that still blocked the signals at the end of a wait.
    known_to_block: Vec<i32>,
}

/// The numbers that tell members apart.
struct Numbers {
    /// Indices of counters that may be used again.
    free: Vec<u32>,
    /// The first index that was never used.
    next: u32,
    /// The last id.
    ids: u64,
}

impl Default for Numbers {
    fn default() -> Numbers {
        Numbers {
            free: Vec::new(),
            // 0 is the index of all members that need no counters.
            next: 1,
            ids: 0,
        }
    }
}

/// Held while the engine is being made, so that a fork waits for the end of this. Otherwise the child would find a
/// half-made engine.
pub(crate) static MAKING: Mutex<()> = Mutex::new(());
static ENGINE: OnceLock<Mutex<Engine>> = OnceLock::new();

/// The engine, locked; made on first use.
///
/// # Errors
/// The caller is a handler, or the system refuses what the engine needs.
pub fn engine() -> Result<MutexGuard<'static, Engine>, Error> {
    if hit::in_handler() {
        return Err(Error::InHandler);
    }
    let engine = match ENGINE.get() {
        Some(engine) => engine,
        None => {
            let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
            match ENGINE.get() {
                Some(engine) => engine,
                None => {
                    let engine = Mutex::new(Engine::new()?);
                    ENGINE.get_or_init(|| engine)
                }
            }
        }
    };
    // A panic of another thread is a bug of ours; even so, the state that it has left is the best there is.
    Ok(engine.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Locks the engine to register something. Before it locks, it asks the dynamic linker what is loaded.
///
/// # Errors
/// Those of [`engine`], or there is too little memory.
pub fn engine_to_register() -> Result<MutexGuard<'static, Engine>, Error> {
    if hit::in_handler() {
        return Err(Error::InHandler);
    }
    self_process::check_limits(self_process::Need::Registers)?;
    let loaded = self_process::Loaded::now();
    let mut engine = engine()?;
    engine.own.begin(loaded);
    Ok(engine)
}

/// Locks the engine to change registered probes.
///
/// # Errors
/// Those of [`engine`], or there is too little memory.
pub fn engine_to_change() -> Result<MutexGuard<'static, Engine>, Error> {
    self_process::check_limits(self_process::Need::Changes)?;
    engine()
}

/// The engine, if it exists already.
pub fn made() -> Option<&'static Mutex<Engine>> {
    ENGINE.get()
}

impl Engine {
    fn new() -> Result<Engine, Error> {
        self_process::check_limits(self_process::Need::First)?;
        hit::initialise();
        self_process::register()?;
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
            signals: Signals::default(),
            late: Vec::new(),
            springboards: springboards::Springboards::default(),
            torn: None,
            numbers: Numbers::default(),
            replaced: Vec::new(),
            unloaded: HashMap::new(),
            retired: HashMap::new(),
            returns: Returns::default(),
            proofs: proof::Proofs::default(),
            watches: Watchpoints::default(),
            shown: shown::Shown::new(),
            spots: HashMap::new(),
            ended: ended::Ended::default(),
        })
    }

    /// The member at a spot.
    pub fn member(&self, spot: &Spot) -> Option<&Member> {
        let state = self.functions.get(&spot.function)?.sites.get(&spot.address)?;
        state.members.iter().find(|member| member.id == spot.id)
    }

    /// The kind with which the member at a spot was registered.
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

    /// Code that executes the instruction at a spot, and the text after it, without firing any probe there. It is
    /// never freed. `None`: the spot is not patched.
    pub fn original(&self, spot: &Spot) -> Option<TargetAddress> {
        let function = self.functions.get(&spot.function)?;
        let moves = function.patches.iter().flat_map(|patch| &patch.built.moves);
        let found = moves.into_iter().find(|entry| entry.original.0 == spot.address);
        found.map(|entry| entry.relocated)
    }

    /// Remembers the spot of a caller's structure.
    pub fn remember(&mut self, owner: usize, spot: Spot) {
        self.ended.forget(owner);
        self.spots.insert(owner, spot);
    }

    /// The spot of a caller's structure.
    pub fn spot(&self, owner: usize) -> Option<Spot> {
        self.spots.get(&owner).copied()
    }

    /// Forgets the spot of a caller's structure.
    pub fn forget(&mut self, owner: usize) -> Option<Spot> {
        self.spots.remove(&owner)
    }

    /// Every function with its sites, ascending.
    pub fn functions(&self) -> impl Iterator<Item = &Function> {
        self.functions.values()
    }

    /// The engine's knowledge of this process: modules, memory, map.
    pub fn own(&self) -> &Own {
        &self.own
    }

    /// Called in a new child of fork. The child has its own memory, and must register for barriers again.
    ///
    /// # Errors
    /// The system refuses the barriers. Then nothing may be registered.
    pub fn forked(&mut self) -> Result<(), Error> {
        self.agent.forked();
        // The child has none of its parent's other threads.
        self.signals.known_to_block.clear();
        self.own.forked()?;
        self_process::register()?;
        self.watches_forked()
    }
}
