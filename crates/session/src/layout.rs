//! Where everything lies in the arena, and how large it is: the figures of invariant I10 in one place.
//!
//! ```text
//!   0            control block                         struct np_control
//!   2048         speculations                          a word for each
//!   4096         region table, site table              frozen: what `nanoprobe restore` reads
//!                semaphores                            likewise
//!                global variables                      Storage
//!                dynamic variables                     associative arrays
//!                growth                                enablings, strings, unwinding tables, readable ranges
//!                contexts                              one a thread
//! ```
//!
//! The arena is sparse: only pages that are touched take memory. The sizes here are upper bounds, not costs.

use nanoprobe_arena::layout::{Control, Region, Semaphore, Site};
use nanoprobe_arena::{ContextPlan, PlanError};
use nanoprobe_export::is_speculative;
use nanoprobe_lang::glob;
use nanoprobe_lang::layout::Storage;
use nanoprobe_lang::options::Options;
use nanoprobe_lang::program::Program;

/// Size of a page: the size of every mapping is a multiple of this.
pub const PAGE_BYTES: u64 = 4096;
/// The offset of the speculations' words: after the control block, in the same page.
pub const SPECULATIONS_OFFSET: u64 = 2048;
const _: () = assert!(size_of::<Control>() as u64 <= SPECULATIONS_OFFSET);
const _: () = assert!(SPECULATIONS_OFFSET + 8 * nanoprobe_arena::layout::SPECULATIONS_MAX <= PAGE_BYTES);
/// How many threads can have a context at the same time. Hits of further threads are missed, and counted.
pub const CONTEXTS_MAX: u32 = nanoprobe_arena::layout::CONTEXTS_MAX;
/// If there is room for fewer contexts than this, the session does not begin.
pub const CONTEXTS_MIN: u32 = 16;
/// Bytes of static aggregation slots in each context.
pub const SLOT_BYTES: u64 = 1 << 20;
/// Bytes of static slots for a program that may probe every instruction: two million counts under `@[probename]`.
pub const SLOT_BYTES_OF_INSTRUCTIONS: u64 = 16 << 20;
/// Scratch memory of a clause: what copyin and copyinstr may use.
pub const SCRATCH_BYTES: u64 = 64 << 10;
/// The longest key of an aggregation or an associative array.
pub const KEY_BYTES: u64 = 16 << 10;
/// Patched places: enough for every instruction of the largest libraries, at about two instructions a place.
pub const SITES_MAX: u32 = 2 << 20;
/// How many semaphores one session can raise.
pub const SEMAPHORES_MAX: u32 = 16 << 10;
/// Mappings made in the target.
pub const REGIONS_MAX: u32 = 16 << 10;
/// Enablings, strings, tables.
pub const GROWTH_BYTES: u64 = 256 << 20;
/// Code: the agent, the thunks of return addresses (1 MiB, touched when the first is replaced), the handlers, the
/// redirect tables.
pub const CODE_BYTES: u64 = 64 << 20;
/// Bytes of code for a program that may probe every instruction. The tables take some hundred bytes a patch, and are
/// written anew whenever a library brings more.
pub const CODE_BYTES_OF_INSTRUCTIONS: u64 = 1 << 30;

/// The arena's layout for one program.
#[derive(Clone, Debug)]
pub struct ArenaLayout {
    /// Offset of the site table.
    pub sites_offset: u64,
    /// Offset of the region table.
    pub regions_offset: u64,
    /// Offset of the table of semaphores.
    pub semaphores_offset: u64,
    /// Offset of the global variables.
    pub globals_offset: u64,
    /// How many speculations there are.
    pub speculations: u64,
    /// Bytes of the records of one speculation.
    pub speculation_bytes: u64,
    /// Offset of the dynamic variables; 0: the program has none.
    pub dynamic_offset: u64,
    /// The bytes of the dynamic variables.
    pub dynamic_bytes: u64,
    /// Offset of the memory that is given out piece by piece, as the session needs it.
    pub growth_offset: u64,
    /// Offset of the first context in the arena.
    pub contexts_offset: u64,
    /// How many contexts there is room for.
    pub contexts: u32,
    /// The layout of each context.
    pub context: ContextPlan,
    /// The arena's size.
    pub bytes: u64,
    /// The size of the code block, which lies after the arena.
    pub code_bytes: u64,
}

impl ArenaLayout {
    /// Lays the arena out for a program under its options.
    ///
    /// # Errors
    /// Sizes that no address space has room for.
    pub fn new(program: &Program, storage: &Storage, options: &Options) -> Result<ArenaLayout, PlanError> {
        let mut next = PAGE_BYTES.max(size_of::<Control>() as u64);
        let mut take = |bytes: u64| {
            let offset = next;
            next += round_up(bytes, PAGE_BYTES);
            offset
        };
        let regions_offset = take(u64::from(REGIONS_MAX) * size_of::<Region>() as u64);
        let sites_offset = take(u64::from(SITES_MAX) * size_of::<Site>() as u64);
        let semaphores_offset = take(u64::from(SEMAPHORES_MAX) * size_of::<Semaphore>() as u64);
        let globals_offset = take(u64::from(storage.globals_bytes));
        let dynamic_bytes = if has_arrays(program) {
            round_up(options.recording.dynamic_bytes.max(PAGE_BYTES), PAGE_BYTES)
        } else {
            0
        };
        let dynamic_offset = if dynamic_bytes > 0 { take(dynamic_bytes) } else { 0 };
        let growth_offset = take(GROWTH_BYTES);
        let context = context_plan(program, storage, options)?;
        let contexts_offset = take(context.stride * u64::from(CONTEXTS_MAX));
        let bytes = take(0);
        Ok(ArenaLayout {
            sites_offset,
            regions_offset,
            semaphores_offset,
            globals_offset,
            speculations: options
                .recording
                .speculations
                .min(nanoprobe_arena::layout::SPECULATIONS_MAX),
            speculation_bytes: options.recording.speculation_bytes,
            dynamic_offset,
            dynamic_bytes,
            growth_offset,
            contexts_offset,
            contexts: CONTEXTS_MAX,
            context,
            bytes,
            code_bytes: if may_want_instructions(program) {
                CODE_BYTES_OF_INSTRUCTIONS
            } else {
                CODE_BYTES
            },
        })
    }

    /// This layout with fewer contexts, so that arena and code block take no more than `room` bytes of address space.
    /// (The contexts come last.) `None`: too few contexts would fit.
    pub fn within(mut self, room: u64) -> Option<ArenaLayout> {
        while self.bytes + self.code_bytes > room {
            self.contexts /= 4;
            self.bytes = self.contexts_offset + self.context.stride * u64::from(self.contexts);
            if self.contexts < CONTEXTS_MIN {
                return None;
            }
        }
        Some(self)
    }
}

/// Rounds up to a multiple of `unit`, a power of two.
pub fn round_up(bytes: u64, unit: u64) -> u64 {
    bytes.saturating_add(unit - 1) & !(unit - 1)
}

/// Whether a description may mean every instruction of something: its name field is empty, or is a glob.
fn may_want_instructions(program: &Program) -> bool {
    let mut descriptions = program.clauses.iter().flat_map(|clause| &clause.probes);
    descriptions.any(|description| !glob::is_literal(&description.name))
}

fn has_arrays(program: &Program) -> bool {
    let mut variables = program
        .globals
        .iter()
        .chain(&program.thread_locals)
        .chain(&program.clause_locals);
    let has_tasks = program.self_is_task && !program.thread_locals.is_empty();
    has_tasks || variables.any(|variable| variable.keys.is_some())
}

fn context_plan(program: &Program, storage: &Storage, options: &Options) -> Result<ContextPlan, PlanError> {
    let aggregates = if program.aggregations.is_empty() {
        0
    } else {
        round_up(options.recording.aggregation_bytes, PAGE_BYTES)
    };
    let records = program.clauses.iter().any(|clause| clause.records());
    let faults = !program.clauses.is_empty();
    let ring = if records || faults {
        options.recording.buffer_bytes.next_power_of_two().max(PAGE_BYTES)
    } else {
        0
    };
    let slots = if may_want_instructions(program) {
        SLOT_BYTES_OF_INSTRUCTIONS
    } else {
        SLOT_BYTES
    };
    let plan = ContextPlan::new(
        slots,
        u64::from(storage.thread_locals_bytes),
        u64::from(storage.clause_locals_bytes),
        SCRATCH_BYTES,
        KEY_BYTES,
        aggregates,
        ring,
    )?;
    // A record's time says whether it was written before the speculation was committed.
    let speculates = program.clauses.iter().any(is_speculative);
    Ok(ContextPlan {
        untimed: !options.recording.temporal && !speculates,
        ..plan
    })
}
