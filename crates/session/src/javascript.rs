//! Frames of JavaScript: the functions that stacks show, while they exist.
//!
//! V8 moves its objects. The agent stores the numbers that identify a function, and its last address. A function is
//! read at each new address until it was found once. While V8 collects garbage, a function may be unreadable that stays
//! where it is, so some more looks try the same address.

use std::collections::{BTreeSet, HashMap};
use std::mem::offset_of;

use nanoprobe_arena::layout::{RUNTIME_JAVASCRIPT, V8, V8_FIRST_OBJECT, V8_OBJECTS, V8Object, V8Objects};
use nanoprobe_arena::{Mapping, Memory as _, Structure as _};
use nanoprobe_runtimes::v8::{Constants, Function, Layout, Reader, SIZES};
use nanoprobe_runtimes::{Memory, without_name};
use nanoprobe_symbols::Module;
use nanoprobe_text::modules::Modules;

use crate::attachment::Attachment;
use crate::error::SessionError;

/// Bytes of all tables of lines that are kept at most. Further functions are shown with the lines of their script only.
const TABLES_BYTES_MAX: usize = 64 << 20;
/// One look reads no more functions: a hostile process could fill all entries at once.
const LOOK_MAX: usize = 256;
/// How many looks try one address.
const TRIES_MAX: u32 = 8;
/// How many entries the agent tries: `note` in `agent/v8.c`.
const PROBES: u64 = 16;
/// Functions of V8's own; they are exported, or the program has symbols.
const OWN_FUNCTIONS: &str = "_ZN2v88internal";

/// The tracer's knowledge of an entry.
enum Entry {
    /// It was not found so far; this is the last address that was tried, and how often.
    Sought {
        address: u64,
        tries: u32,
    },
    Found(Box<Function>),
}

/// See the module's description.
#[derive(Default)]
pub struct JavaScript {
    /// How many modules were looked at.
    looked_at: usize,
    reader: Option<Reader>,
    /// Offsets in the arena: of the layout for the agent, and of the table of functions.
    published: Option<(u64, u64)>,
    /// How many changes the table had when it was last read.
    changes: u64,
    entries: HashMap<u32, Entry>,
    /// The entries that samples have shown, by their keys.
    numbers: HashMap<u64, u32>,
    tables_bytes: usize,
    has_told_refusals: bool,
}

impl JavaScript {
    /// Looks for V8 in the modules that have come since the last look.
    pub fn find(&mut self, modules: &Modules, memory: &dyn Memory) {
        let modules = modules.list();
        let new = modules.get(self.looked_at..).unwrap_or_default();
        self.looked_at = modules.len();
        if self.reader.is_none() {
            let layout = new
                .iter()
                .filter(|module| is_v8(module))
                .find_map(|module| layout_of(module, memory));
            self.reader = layout.map(Reader::new);
        }
    }

    /// Writes what the agent must know; yields its offset in the arena, 0: there is no V8 that is known here.
    ///
    /// # Errors
    /// The arena is full.
    pub fn publish(&mut self, attachment: &mut Attachment) -> Result<u64, SessionError> {
        let Some(reader) = &self.reader else {
            return Ok(0);
        };
        if let Some((offset, _)) = self.published {
            return Ok(offset);
        }
        let arena = attachment.addresses.arena.0;
        let growth = &mut attachment.room.growth;
        let bytes = V8Objects::BYTES as u64 + V8Object::BYTES as u64 * V8_OBJECTS;
        let objects = growth.reserve(bytes, 64)?.0 - arena;
        let head = V8 {
            objects_offset: objects,
            ..reader.layout().agent
        };
        let offset = growth.put(head.to_bytes(), 8)?.0 - arena;
        self.published = Some((offset, objects));
        Ok(offset)
    }

    /// The layout of the V8 whose frames are known.
    pub fn layout(&self) -> Option<&Layout> {
        self.reader.as_ref().map(Reader::layout)
    }

    /// The number of a function in frames, which is read now if it is new; `None`: there is no room. If the agent's
    /// table has a number for the function, it is the same: frames of probes and of samples are equal.
    pub fn note(&mut self, arena: Option<&Mapping>, memory: &dyn Memory, key: u64, address: u64) -> Option<u32> {
        let index = match (self.numbers.get(&key), arena.zip(self.published)) {
            (Some(index), _) => *index,
            (None, Some((arena, (_, objects)))) => claim(arena, objects, key)?,
            (None, None) if self.numbers.len() < V8_OBJECTS as usize => V8_OBJECTS as u32 + self.numbers.len() as u32,
            (None, None) => return None,
        };
        self.numbers.insert(key, index);
        if !matches!(self.entries.get(&index), Some(Entry::Found(_))) {
            let entry = self.entry(memory, key, address)?;
            self.entries.insert(index, entry);
        }
        Some(V8_FIRST_OBJECT + index)
    }

    fn entry(&mut self, memory: &dyn Memory, key: u64, address: u64) -> Option<Entry> {
        Some(match self.reader.as_mut()?.read(memory, key, address) {
            Some(mut function) => {
                self.tables_bytes += function.kept_bytes();
                if self.tables_bytes > TABLES_BYTES_MAX {
                    function.drop_tables();
                }
                Entry::Found(Box::new(function))
            }
            None => Entry::Sought { address, tries: 1 },
        })
    }

    /// Whether the process has a V8 whose frames are known.
    pub fn is_known(&self) -> bool {
        self.reader.is_some()
    }

    /// Reads the functions that the agent has noted since the last look; yields a message for the user, if there is
    /// one.
    ///
    /// # Errors
    /// The arena is damaged.
    pub fn look(&mut self, arena: &Mapping, memory: &dyn Memory) -> Result<Option<&'static str>, SessionError> {
        let Some((_, objects)) = self.published else {
            return Ok(None);
        };
        let refused = arena.load_u64(objects + offset_of!(V8Objects, refused) as u64)?;
        let is_news = refused > 0 && !std::mem::replace(&mut self.has_told_refusals, true);
        let warning = "more functions are called than the tracer can name: some frames are shown as [javascript]";
        let warning = is_news.then_some(warning);
        let changes = arena.load_u64(objects + offset_of!(V8Objects, changes) as u64)?;
        if changes == self.changes {
            return Ok(warning);
        }
        let first = objects + V8Objects::BYTES as u64;
        let (mut read, mut is_whole) = (0, true);
        for index in 0..V8_OBJECTS as u32 {
            let at = first + V8Object::BYTES as u64 * u64::from(index);
            let address = arena.load_u64(at + offset_of!(V8Object, address) as u64)?;
            let tries = match self.entries.get(&index) {
                Some(Entry::Found(_)) => continue,
                Some(Entry::Sought { address: tried, tries }) if *tried == address => *tries,
                Some(Entry::Sought { .. }) => 0,
                None if address == 0 => continue,
                None => 0,
            };
            if tries >= TRIES_MAX {
                continue;
            }
            let key = arena.load_u64(at + offset_of!(V8Object, key) as u64)?;
            let Some(mut entry) = self.entry(memory, key, address) else {
                return Ok(warning);
            };
            if let Entry::Sought { tries: all, .. } = &mut entry {
                *all += tries;
                is_whole &= *all >= TRIES_MAX;
            }
            self.entries.insert(index, entry);
            read += 1;
            // The next look reads the rest.
            if read == LOOK_MAX {
                return Ok(warning);
            }
        }
        // The count from before the entries were read: the next look reads entries that have come meanwhile.
        if is_whole {
            self.changes = changes;
        }
        Ok(warning)
    }

    /// The text for a frame.
    pub fn name(&self, object: u32, position: Option<u32>) -> String {
        self.text(object, |function| function.at(position))
    }

    /// The text for a frame without the line.
    pub fn function(&self, object: u32) -> String {
        self.text(object, Function::shown)
    }

    fn text(&self, object: u32, text: impl FnOnce(&Function) -> String) -> String {
        let entry = object
            .checked_sub(V8_FIRST_OBJECT)
            .and_then(|index| self.entries.get(&index));
        match entry {
            Some(Entry::Found(function)) => text(function),
            _ => without_name(RUNTIME_JAVASCRIPT).to_owned(),
        }
    }
}

/// Claims an entry of the table that the agent uses, as the agent does; yields its index. `None`: there is no room.
fn claim(arena: &Mapping, objects: u64, key: u64) -> Option<u32> {
    for probe in 0..PROBES {
        let index = ((key >> 32) + probe) % V8_OBJECTS;
        let at = objects + V8Objects::BYTES as u64 + V8Object::BYTES as u64 * index;
        let _ = arena
            .compare_exchange_u64(at + offset_of!(V8Object, key) as u64, 0, key)
            .ok()?;
        if arena.load_u64(at).ok()? == key {
            return Some(index as u32);
        }
    }
    None
}

/// Whether a module contains V8.
pub fn is_v8(module: &Module) -> bool {
    let mut functions = module.functions().iter();
    functions.any(|function| function.name.starts_with(OWN_FUNCTIONS))
}

fn layout_of(module: &Module, memory: &dyn Memory) -> Option<Layout> {
    let names: BTreeSet<String> = Constants::names().map(str::to_owned).collect();
    let found = module.addresses_of(&names);
    let bias = module.bias();
    let constants = Constants::read(memory, |name| match found.get(name)?.as_slice() {
        [address] => Some(bias.to_target(*address).0),
        _ => None,
    });
    let mut layout = Layout::of(&constants)?;
    if let Some(sizes) = module.symbol(SIZES) {
        layout.read_sizes(memory, bias.to_target(sizes.address).0, sizes.size);
    }
    Some(layout)
}
