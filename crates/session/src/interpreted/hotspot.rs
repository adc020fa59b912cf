//! A process's HotSpot: where its code lies, as soon as it has made it.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use nanoprobe_arena::layout::HotSpot;
use nanoprobe_arena::{Mapping, Memory as _, Structure as _};
use nanoprobe_runtimes::Memory;
use nanoprobe_runtimes::hotspot::{Layout, SYMBOLS, Structures};
use nanoprobe_text::modules::Modules;

use crate::error::SessionError;

/// The time between two attempts to read the tables, at first and at last.
const FIRST_WAIT: Duration = Duration::from_millis(2);
const LAST_WAIT: Duration = Duration::from_secs(1);

/// The tracer's knowledge of a JVM's library.
pub(super) struct Library {
    /// The addresses of its tables.
    symbols: HashMap<String, u64>,
    /// Where the description for the agent lies in the arena; `None`: only samples need it.
    pub(super) offset: Option<u64>,
    state: State,
}

enum State {
    /// The library is just being loaded.
    Loading { next: Instant, wait: Duration },
    /// Its structures are known, and it has not made its code yet.
    Starting(Layout),
    /// The agent knows everything.
    Ready(Layout),
    /// Its tables lack structures that the agent needs.
    Unknown,
}

impl Library {
    /// The addresses of the tables of the JVM that a process has mapped.
    pub(super) fn symbols(modules: &Modules) -> Option<HashMap<String, u64>> {
        let mut loaded = modules.list().iter().enumerate();
        let is_jvm = |name: &str| name.starts_with("libjvm.so");
        let (_, module) = loaded.find(|(index, module)| modules.is_loaded(*index) && is_jvm(module.name()))?;
        let names: BTreeSet<String> = SYMBOLS.iter().map(|name| (*name).to_owned()).collect();
        let mut symbols = HashMap::new();
        for (name, addresses) in module.addresses_of(&names) {
            symbols.insert(name, module.bias().to_target(*addresses.first()?).0);
        }
        (symbols.len() == SYMBOLS.len()).then_some(symbols)
    }

    /// A library whose description will lie at an offset in the arena, if the agent needs it.
    pub(super) fn new(symbols: HashMap<String, u64>, offset: Option<u64>) -> Library {
        Library {
            symbols,
            offset,
            state: State::Loading {
                next: Instant::now(),
                wait: FIRST_WAIT,
            },
        }
    }

    pub(super) fn has_symbols(&self, symbols: &HashMap<String, u64>) -> bool {
        self.symbols == *symbols
    }

    /// The layout of its structures.
    pub(super) fn layout(&self) -> Option<&Layout> {
        match &self.state {
            State::Ready(layout) | State::Starting(layout) => Some(layout),
            State::Loading { .. } | State::Unknown => None,
        }
    }

    /// The layout, once it is known where its code lies.
    pub(super) fn located(&self) -> Option<&Layout> {
        match &self.state {
            State::Ready(layout) => Some(layout),
            _ => None,
        }
    }

    /// Whether its frames cannot be read at all.
    pub(super) fn is_unknown(&self) -> bool {
        matches!(self.state, State::Unknown)
    }

    /// Reads the layout if it is not known yet, and hands it to the agent; `now`: also before the next attempt is due.
    ///
    /// # Errors
    /// The arena is damaged.
    pub(super) fn look(&mut self, arena: Option<&Mapping>, memory: &dyn Memory, now: bool) -> Result<(), SessionError> {
        if let State::Loading { next, wait } = self.state
            && (now || next <= Instant::now())
        {
            self.state = match (self.read(memory), wait < LAST_WAIT) {
                (Some(Some(layout)), _) => State::Starting(layout),
                // The dynamic linker may be writing the tables at this moment.
                (Some(None), false) => State::Unknown,
                _ => State::Loading {
                    next: Instant::now() + wait,
                    wait: (wait * 2).min(LAST_WAIT),
                },
            };
        }
        if let State::Starting(layout) = self.state
            && layout.locate(memory).is_some()
            // Now the tables are whole, whatever they were before.
            && let Some(Some(layout)) = self.read(memory)
            && let Some(located) = layout.locate(memory)
        {
            if let (Some(arena), Some(offset)) = (arena, self.offset) {
                arena.write(offset, &located.agent.to_bytes())?;
                arena.store_u64(offset + std::mem::offset_of!(HotSpot, ready) as u64, 1)?;
            }
            self.state = State::Ready(located);
        }
        Ok(())
    }

    /// The layout that the tables describe. `None`: they cannot be read; `Some(None)`: they lack structures that are
    /// needed.
    fn read(&self, memory: &dyn Memory) -> Option<Option<Layout>> {
        let structures = Structures::read(memory, &self.symbols)?;
        Some(Layout::of(memory, &structures))
    }
}
