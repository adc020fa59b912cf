//! The engine: what is registered, and the text that follows from it.
//!
//! ```text
//!   register -> entry -> site's list (published: hits see it)
//!                     -> function's active sites -> runs -> patches -> transition of the text, while all threads run
//! ```
//!
//! One lock orders registrations; hits never take it. The text is changed by the breakpoint protocol
//! ([`nanoprobe_patch::transition`]): between two of its steps every processor of this process is synchronised by
//! membarrier(2). Functions that the engine itself calls (malloc, pwrite, syscall, memcpy) may be those whose text
//! changes: at every step every instruction is right or traps, and traps are ours.
//!
//! Detours stay mapped for ever, since nobody can say of a thread that does not run handlers whether it is in one; a
//! run that comes again finds the detour that it had. So memory grows with the number of different runs, not with
//! time.

mod ended;
mod function;
mod hooks;
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
pub use patch::Patch;
pub use register::{Demand, Withdrawn};
pub use returns::{Returns, Ways};
pub use site::{Epochs, Kind, Member, OldList, SiteState, Wanted};
pub use watch::{WatchState, Watchpoints, WithdrawnWatch};

use crate::error::Error;
use crate::hit::{self};
use crate::own::{self, Agent, Own};

/// How long a thread is waited for that blocks what a breakpoint raises.
const MASKS_WAIT: Duration = Duration::from_millis(500);

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
    has_actions: bool,
    has_shims: bool,
    /// Functions whose text could not be made what it should be.
    late: Vec<u64>,
    springboards: springboards::Springboards,
    torn: Option<text::Torn>,
    /// Threads that were waited for in vain.
    known_to_block: Vec<i32>,
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
    proofs: proof::Proofs,
    /// In front of the program's own signal calls.
    shims: Vec<Patch>,
    watches: Watchpoints,
    shown: shown::Shown,
    /// By the address of the caller's structure.
    spots: HashMap<usize, Spot>,
    ended: ended::Ended,
}

/// Held while the engine is being made: a fork waits for it, or the child would find an engine that nobody goes on to
/// make.
pub(crate) static MAKING: Mutex<()> = Mutex::new(());
static ENGINE: OnceLock<Mutex<Engine>> = OnceLock::new();

/// The engine, locked; made on first use.
///
/// # Errors
/// From a handler; or the system refuses what the engine needs.
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
    // A panic is a bug of ours; the state is still the best there is.
    Ok(engine.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The same, to register something: what the dynamic linker has loaded is asked before.
///
/// # Errors
/// As above.
pub fn engine_to_register() -> Result<MutexGuard<'static, Engine>, Error> {
    if hit::in_handler() {
        return Err(Error::InHandler);
    }
    own::check_limits(own::Need::Registers)?;
    let loaded = own::Loaded::now();
    let mut engine = engine()?;
    engine.own.begin(loaded);
    Ok(engine)
}

/// The same, to change something that is registered.
///
/// # Errors
/// As above; or there is too little memory.
pub fn engine_to_change() -> Result<MutexGuard<'static, Engine>, Error> {
    own::check_limits(own::Need::Changes)?;
    engine()
}

/// The engine, if there is one already.
pub fn made() -> Option<&'static Mutex<Engine>> {
    ENGINE.get()
}

impl Engine {
    fn new() -> Result<Engine, Error> {
        own::check_limits(own::Need::First)?;
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
            has_actions: false,
            has_shims: false,
            late: Vec::new(),
            springboards: springboards::Springboards::default(),
            torn: None,
            known_to_block: Vec::new(),
            free: Vec::new(),
            // 0 is everybody's who needs no counters.
            next: 1,
            ids: 0,
            replaced: Vec::new(),
            unloaded: HashMap::new(),
            retired: HashMap::new(),
            returns: Returns::default(),
            proofs: proof::Proofs::default(),
            shims: Vec::new(),
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

    /// Code that executes the instruction at a spot, and what follows it in the text, without firing what stands
    /// there. It stays what it is for ever. `None`: nothing is patched there.
    pub fn original(&self, spot: &Spot) -> Option<TargetAddress> {
        let function = self.functions.get(&spot.function)?;
        let moves = function.patches.iter().flat_map(|patch| &patch.built.moves);
        let found = moves.into_iter().find(|entry| entry.original.0 == spot.address);
        found.map(|entry| entry.relocated)
    }

    /// Remembers which structure of the caller's stands where.
    pub fn remember(&mut self, owner: usize, spot: Spot) {
        self.ended.forget(owner);
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
        // Of the parent's other threads none is here.
        self.known_to_block.clear();
        self.own.forked()?;
        own::register()?;
        self.watches_forked()
    }
}
