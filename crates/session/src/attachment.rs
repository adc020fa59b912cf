//! The things that a session owns in its target: here they are made and changed; [`crate::detach`] takes them back.
//!
//! The order of attaching (before step 4 the program can notice nothing except its memory map):
//!
//! 1. Addresses are chosen in holes of the map, and everything is planned and built for them.
//! 2. One thread stands still: the arena, the thread table, the code block and near memory are mapped by system
//!    calls made in it, each at its exact address. It runs on.
//! 3. The arena is written through the shared mapping, the code through /proc/PID/mem.
//! 4. The site table is published and the state becomes ARMED: from here on `restore` can undo all. Then signal
//!    actions and the text: see [`crate::arming`].

mod among;
mod collecting;
mod forgetting;
mod mapping;
mod places;
mod published;

use std::borrow::Cow;
use std::collections::HashSet;
use std::mem::offset_of;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use nanoprobe_agent::{Function as AgentFunction, ImageHeader, image_with, redirect_table};
use nanoprobe_arena::layout::{
    Control, HANDLER_STACK_BYTES, HANDLER_STACKS, MAGIC, RETURN_INSTANCES, RETURN_POOL_BYTES, RETURN_THUNK_BYTES,
    Region, STATE_BUILDING, Site, TABLE_BYTES, TABLE_LENT, Tables, UnwindModule, VERSION,
};
use nanoprobe_arena::{ContextPlan, ControlBlock, Memory as _, Structure as _};
use nanoprobe_lang::options::StopPolicy;
use nanoprobe_patch::{NearSpace, Runtime, TargetAddress, ThreadKey, TrapForm};
use nanoprobe_target::{Map, Process};
use nanoprobe_text::space::Space;
use nanoprobe_text::{Patch, origins, redirects};

use self::places::{far_place, one_after_another, without};
use self::published::Published;
use crate::arena_memory::ArenaMemory;
use crate::clock::{Clock, tsc};
use crate::error::SessionError;
use crate::heartbeat::Heartbeat;
use crate::layout::{
    ArenaLayout, GROWTH_BYTES, PAGE_BYTES, REGIONS_MAX, SEMAPHORES_MAX, SITES_MAX, SPECULATIONS_OFFSET, round_up,
};
use crate::returns::Returns;
use crate::semaphores;
use crate::signals;
use crate::thread_key;
use crate::threads::Reuse;

const MADV_DONTDUMP: i32 = 16;
const MADV_WIPEONFORK: i32 = 18;
/// After this long without a heartbeat the target takes the tracer for dead.
const HEARTBEAT_LIMIT: Duration = Duration::from_secs(5);
/// The thread pointer that is lent to a thread that has none yet. At this offset of the thread table lies a word that
/// holds its own address.
const LENT_THREAD_POINTER: u64 = TABLE_LENT as u64;

/// The addresses of our memory in the target.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// The arena.
    pub arena: TargetAddress,
    /// The thread table.
    pub table: TargetAddress,
    /// The code block: agent, thunks, handlers, redirects.
    pub code: TargetAddress,
    /// The handler stacks; `None`: the program has no small stacks.
    pub stacks: Option<TargetAddress>,
}

/// Properties that stay the same for the whole session.
#[derive(Clone, Copy, Debug)]
pub struct Parameters {
    /// How threads are told apart.
    pub thread_key: ThreadKey,
    /// Whether the program has small stacks (Go's).
    pub small_stacks: bool,
    /// The form of traps that the user has asked for.
    pub trap: Option<TrapForm>,
    /// Offset of a thread's id from its thread pointer; 0: unknown.
    pub tid_offset: u32,
    /// The policy for a full ring: one of `RING_*`.
    pub ring_policy: u32,
    /// Bytes of a string.
    pub strsize: u32,
    /// Frames of a stack.
    pub ustackframes: u32,
    /// Whether handlers read the target's memory or stack, which may fault.
    pub reads_memory: bool,
    /// Whether handlers walk stacks.
    pub walks_stacks: bool,
    /// Whether all threads are stopped while sites are written.
    pub stop: StopPolicy,
    /// How many calls of one thread may have replaced return addresses at the same time.
    pub active_calls: u32,
    /// Whether forked children are traced, too.
    pub follows: bool,
    /// Whether the program asks from which processes a followed child was forked.
    pub follows_ancestors: bool,
    /// Whether the programs that the process and its children execute are traced, too.
    pub follows_programs: bool,
    /// Whether system calls of code that the program makes may be patched.
    pub made_calls: bool,
    /// The number of the target's parent.
    pub parent: u32,
}

/// Memory in the target that detours, handlers and tables are given.
pub struct Room {
    /// The code block.
    pub code: Space,
    /// The rest of the arena.
    pub growth: Space,
    /// Near the modules.
    pub near: NearSpace,
    /// A stack in the arena for calls of IFUNCs' resolvers.
    pub resolvers_stack: Option<TargetAddress>,
}

/// The tables by which the agent finds detours: see [`Attachment::write`].
#[derive(Debug)]
pub(crate) struct AgentTables {
    published: Published,
    tabled: collecting::Tabled,
    /// Whether the agent's image is written into the target.
    has_image: bool,
    /// Whether the tables name a patch that is gone.
    are_old: bool,
    /// How many sites the table in the arena has.
    pub(crate) sites: u64,
}

/// Patches that are out of the target's text, and what children have of them.
#[derive(Default)]
pub(crate) struct Off {
    /// The addresses of the patches that are out of the text for the time being.
    pub disarmed: HashSet<TargetAddress>,
    /// Sites that are turned off, and that forked children may still have.
    pub in_children: Vec<Site>,
    /// The patches of a program that executes another one: its forked children still have them.
    pub left_behind: Vec<Patch>,
}

/// The things that a session owns in its target.
pub struct Attachment {
    /// The target.
    pub process: Process,
    /// The addresses of our memory in the target.
    pub addresses: Addresses,
    /// The arena's layout.
    pub layout: ArenaLayout,
    /// Parameters.
    pub parameters: Parameters,
    /// Our view of the arena; `None` before it is made.
    pub arena: Option<Arc<ArenaMemory>>,
    /// Memory of the target that is handed out piece by piece.
    pub room: Room,
    /// The tables that tell the agent about sites and redirects.
    pub(crate) tables: AgentTables,
    /// The range from the arena to the end of what lies next to it, without near memory.
    reserved: Range<u64>,
    /// The patches that the session has made.
    pub patches: Vec<Patch>,
    /// The patches that are out of the text.
    pub(crate) off: Off,
    /// Patches that newer ones have replaced. Their detours stay, and a thread that has met one of their traps is still
    /// sent to its detour.
    pub retired: Vec<Patch>,
    /// Patches whose text is no longer mapped. Their detours stay, but other mappings may have taken the addresses of
    /// the text.
    pub gone: Vec<Patch>,
    /// The mappings that we made in the target.
    pub regions: Vec<Region>,
    /// Modules whose unwinding rows are in the arena, with the index of each.
    pub unwind_modules: Vec<(usize, UnwindModule)>,
    /// Signals whose actions were replaced.
    pub(crate) actions: signals::Actions,
    /// The modules below this index have their shims; `None` while no shims are needed.
    pub(crate) shimmed: Option<usize>,
    /// The pool for replaced return addresses.
    pub(crate) returns: Returns,
    /// Others' breakpoints.
    pub(crate) beside: crate::beside::Beside,
    /// Contexts and slots that ended threads have left behind.
    pub(crate) threads: Reuse,
    /// Where modules lie that the program never unloads.
    pub(crate) permanent: Vec<Range<u64>>,
}

impl Attachment {
    /// Chooses addresses, and writes nothing.
    ///
    /// # Errors
    /// No room in the address space.
    pub fn prepare(
        process: Process,
        map: &Map,
        layout: ArenaLayout,
        parameters: Parameters,
    ) -> Result<Attachment, SessionError> {
        let holes = map.holes(&process.hole_rules());
        let table_bytes = round_up(TABLE_BYTES as u64, PAGE_BYTES);
        let pool_bytes = round_up(RETURN_POOL_BYTES, PAGE_BYTES);
        let stack_bytes = if parameters.small_stacks {
            stacks_bytes(&layout) + PAGE_BYTES
        } else {
            0
        };
        // If the address space is limited, the program keeps half of the space that is left.
        let layout = match process.spare_address_space() {
            Some(spare) => {
                let smallest = layout.contexts_offset + layout.code_bytes;
                layout
                    .within((spare / 2).saturating_sub(table_bytes + pool_bytes + stack_bytes))
                    .ok_or(SessionError::LimitedAddressSpace {
                        pid: process.pid(),
                        spare,
                        smallest,
                    })?
            }
            None => layout,
        };
        let wanted = layout.bytes + table_bytes + layout.code_bytes + pool_bytes + stack_bytes + 4 * PAGE_BYTES;
        let start = far_place(&holes, wanted).ok_or(SessionError::NoRoom { bytes: wanted })?;
        let sizes = [table_bytes, layout.code_bytes, layout.bytes, pool_bytes];
        let [table, code, arena, pool, stacks] = one_after_another(start, sizes);
        let ours = table.0..stacks.0 + stack_bytes;
        let near = holes
            .iter()
            .flat_map(|hole| without(hole.start.0..hole.end.0, &ours))
            .collect();
        // The thunks come last, so that image, handlers and tables are neighbours.
        let thunks = layout.code_bytes - u64::from(RETURN_INSTANCES) * RETURN_THUNK_BYTES;
        let mut code_space = Space::new(code, thunks);
        // The agent's image comes first in the code block. It is written when its header is known.
        code_space.reserve(nanoprobe_agent::IMAGE.len() as u64, 64)?;
        let published = Published::reserve(&mut code_space)?;
        let returns = Returns {
            pool,
            thunks: TargetAddress(code.0 + thunks),
            maxactive: parameters.active_calls,
            mapped: false,
            written: false,
        };
        Ok(Attachment {
            threads: Reuse::new(),
            process,
            addresses: Addresses {
                arena,
                table,
                code,
                stacks: parameters.small_stacks.then_some(stacks),
            },
            parameters,
            arena: None,
            room: Room {
                code: code_space,
                growth: Space::new(TargetAddress(arena.0 + layout.growth_offset), GROWTH_BYTES),
                near: NearSpace::new(near, PAGE_BYTES),
                resolvers_stack: None,
            },
            layout,
            tables: AgentTables {
                published,
                tabled: collecting::Tabled::default(),
                has_image: false,
                are_old: false,
                sites: 0,
            },
            reserved: ours,
            patches: Vec::new(),
            off: Off::default(),
            retired: Vec::new(),
            gone: Vec::new(),
            beside: crate::beside::Beside::default(),
            permanent: Vec::new(),
            regions: Vec::new(),
            unwind_modules: Vec::new(),
            actions: signals::Actions::default(),
            shimmed: None,
            returns,
        })
    }

    /// The addresses that detours need.
    pub fn runtime(&self) -> Runtime {
        Runtime {
            enter: self.agent(AgentFunction::Enter),
            table: self.addresses.table,
            thread_key: self.parameters.thread_key,
            trap: self.parameters.trap,
        }
    }

    /// Where a function of the agent lies.
    pub fn agent(&self, function: AgentFunction) -> TargetAddress {
        TargetAddress(self.addresses.code.0 + u64::from(function.offset()))
    }

    /// The arena's bytes.
    ///
    /// # Errors
    /// The arena is not mapped yet.
    pub fn memory(&self) -> Result<&nanoprobe_arena::Mapping, SessionError> {
        self.arena
            .as_ref()
            .map(|arena| arena.memory())
            .ok_or(SessionError::NotAttached)
    }

    /// The rest of step 3: writes the agent, handlers, detours and tables of new patches. The patches become the
    /// attachment's; their sites are not touched yet.
    ///
    /// # Errors
    /// The target's memory cannot be written, or there is no room.
    pub fn write(&mut self, patches: &[Patch]) -> Result<(), SessionError> {
        let first = !std::mem::replace(&mut self.tables.has_image, true);
        // Most libraries bring no patches. Writing the tables of half a million patches anew for each library would
        // fill the code block.
        if !(first || std::mem::take(&mut self.tables.are_old) || !patches.is_empty()) {
            return self.write_growth();
        }
        // The list still has the patches that `patches` replaces. If two patches have one address, the later one
        // counts.
        let all = || self.retired.iter().chain(&self.patches).chain(patches);
        let redirects = redirect_table(redirects(all()).into_iter());
        let origins = redirect_table(origins(self.gone.iter().chain(all())).into_iter());
        let lengths = [redirects.len() as u64, origins.len() as u64];
        let tables = Tables {
            redirects: self.room.code.put(redirects, 16)?.0,
            origins: self.room.code.put(origins, 16)?.0,
        };
        let row = self.tables.published.take()?;
        self.tables.tabled.publish([
            (TargetAddress(tables.redirects), lengths[0]),
            (TargetAddress(tables.origins), lengths[1]),
        ]);
        self.room
            .code
            .place(self.tables.published.tables(row), tables.to_bytes());
        let mut pieces: Vec<(TargetAddress, Cow<'_, [u8]>)> = Vec::with_capacity(patches.len() + 8);
        let written = self.room.code.take_written().into_iter();
        pieces.extend(written.map(|(address, bytes)| (address, bytes.into())));
        if self.returns.mapped && !self.returns.written {
            let thunks = self.returns.thunks;
            let bytes = nanoprobe_agent::thunks(self.addresses.code.0, thunks.0, RETURN_INSTANCES);
            pieces.push((thunks, bytes.into()));
            self.returns.written = true;
        }
        if first {
            let header = ImageHeader {
                control: self.addresses.arena.0,
                table: self.addresses.table.0,
                // The addresses of the first row and of its byte.
                tables: self.tables.published.tables(row).0,
                rows: self.tables.published.byte(row).0,
                thread_key_mode: thread_key::mode(self.parameters.thread_key, thread_key::has_fsgsbase()),
                code_start: self.addresses.code.0,
                code_end: self.addresses.code.0 + self.layout.code_bytes,
                allow_syscalls: !self.is_sandboxed(),
                returns: self.returns.pool.0,
                thunks: self.returns.thunks.0,
                stacks: self.addresses.stacks.map_or(0, |stacks| stacks.0),
                host_table: self.actions.host.map_or(0, |host| host.table),
                made_calls: self.parameters.made_calls,
                follows: self.parameters.follows_in_agent(),
            };
            pieces.push((self.addresses.code, image_with(header).into()));
        }
        pieces.extend(
            patches
                .iter()
                .map(|patch| (patch.detour, patch.built.detour.as_slice().into())),
        );
        self.write_code(&pieces)?;
        if !first {
            // The tables and their addresses are there already. Writing one byte makes the tables current, and a thread
            // sees either the old or the new value of this byte.
            self.write_code(&[(self.tables.published.byte(row), vec![1].into())])?;
        }
        self.write_growth()
    }

    /// Enablings, strings and tables of the arena that were made since the last time.
    fn write_growth(&mut self) -> Result<(), SessionError> {
        let arena = self.addresses.arena;
        let pieces = self.room.growth.take_written();
        let memory = self.memory()?;
        for (address, bytes) in pieces {
            memory.write(address.0 - arena.0, &bytes)?;
        }
        Ok(())
    }

    /// Raises the semaphores by which static probes see that a tracer listens.
    ///
    /// # Errors
    /// The table is full; the target cannot be read or written.
    pub fn raise_semaphores(&self, wanted: &[semaphores::Wanted]) -> Result<(), SessionError> {
        semaphores::raise(&self.process, self.memory()?, wanted)
    }

    /// Writes the tracer's heartbeat.
    ///
    /// # Errors
    /// The arena is damaged.
    pub fn beat(&self) -> Result<(), SessionError> {
        Ok(ControlBlock::open(self.memory()?)?.beat(tsc())?)
    }

    /// Starts the heartbeat, which goes on until the returned value is dropped.
    pub(crate) fn heartbeat(&self) -> Option<Heartbeat> {
        Some(Heartbeat::start(vec![self.arena.clone()?]))
    }

    /// The lent thread pointer, see [`LENT_THREAD_POINTER`].
    pub(crate) fn lent_thread_pointer(&self) -> u64 {
        self.addresses.table.0 + LENT_THREAD_POINTER
    }

    /// Whether a seccomp filter may refuse system calls, or kill the process for them.
    pub(crate) fn is_sandboxed(&self) -> bool {
        self.process.facts().seccomp != nanoprobe_target::Seccomp::Disabled
    }

    fn write_code(&self, pieces: &[(TargetAddress, Cow<'_, [u8]>)]) -> Result<(), SessionError> {
        let pieces: Vec<(TargetAddress, &[u8])> = pieces.iter().map(|(address, bytes)| (*address, &**bytes)).collect();
        Ok(self.process.memory().write_text(&pieces)?)
    }

    fn write_control(&self, clock: &Clock) -> Result<(), SessionError> {
        let control = Control {
            magic: MAGIC,
            version: VERSION,
            control_bytes: size_of::<Control>() as u32,
            arena_address: self.addresses.arena.0,
            arena_bytes: self.layout.bytes,
            tracer_pid: std::process::id(),
            state: STATE_BUILDING,
            site_capacity: SITES_MAX,
            sites_offset: self.layout.sites_offset,
            region_capacity: REGIONS_MAX,
            regions_offset: self.layout.regions_offset,
            semaphore_capacity: SEMAPHORES_MAX,
            semaphores_offset: self.layout.semaphores_offset,
            tracer_heartbeat: tsc(),
            heartbeat_limit: clock.ticks(HEARTBEAT_LIMIT),
            clock_tsc: clock.tsc,
            clock_ns: clock.ns,
            clock_mult: clock.mult,
            wall_ns: clock.wall_ns,
            contexts_offset: self.layout.contexts_offset,
            context_stride: self.layout.context.stride,
            tid_offset: self.parameters.tid_offset,
            target_pid: self.process.facts().inner_pid as u32,
            dynamic_offset: self.layout.dynamic_offset,
            speculations_offset: SPECULATIONS_OFFSET,
            speculation_count: self.layout.speculations,
            speculation_bytes: self.layout.speculation_bytes,
            strsize: self.parameters.strsize,
            ustackframes: self.parameters.ustackframes,
            follows: self.parameters.follows.into(),
            follows_programs: self.parameters.follows_programs.into(),
            shown_pid: self.process.pid() as u32,
            shown_parent: self.parameters.parent,
            ..Control::default()
        };
        Ok(self.memory()?.write_structure(0, &control)?)
    }

    /// The example from which threads make their contexts when they first need one.
    fn write_example(&mut self) -> Result<(), SessionError> {
        let place = self.room.growth.reserve(ContextPlan::EXAMPLE_BYTES, 64)?;
        let offset = place.0 - self.addresses.arena.0;
        let memory = self.memory()?;
        self.layout
            .context
            .write_example(memory, offset, self.parameters.ring_policy)?;
        memory.store_u64(offset_of!(Control, example_offset) as u64, offset)?;
        Ok(memory.store_u32(offset_of!(Control, context_capacity) as u64, self.layout.contexts)?)
    }
}

/// Bytes of the handler stacks. Most of them cost addresses only, since nothing is written there.
fn stacks_bytes(layout: &ArenaLayout) -> u64 {
    HANDLER_STACKS + u64::from(layout.contexts) * HANDLER_STACK_BYTES
}
