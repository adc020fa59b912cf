//! A function of JavaScript: its name, its script, and its lines.

use std::collections::HashMap;
use std::sync::Arc;

use nanoprobe_arena::layout::{POSITION_INLINED, POSITION_NONE, V8_BASELINE};

use super::heap::{Heap, small};
use super::{Layout, baseline_offsets, source_positions};
use crate::code::INLINED_UNKNOWN;
use crate::memory::{Memory, bytes, word};
use crate::short;

/// Longer names are cut.
const NAME_MAX: u32 = 512;
/// Longer sources and tables are not read, and then no line is known.
const SOURCE_MAX: u32 = 16 << 20;
const TABLE_MAX: u32 = 1 << 20;
/// Scopes with more names are not read.
const SCOPE_MAX: u32 = 1 << 16;
/// How many ends of lines are kept at most. Further scripts have no lines.
const LINES_MAX: usize = 16 << 20;
/// A function may change while it is read: one that begins to run gets its bytecode, and then baseline code. Then it is
/// read again.
const READS_MAX: usize = 4;
/// V8 keeps more names of a scope in a table of their own.
const SCOPE_INLINED: u32 = 75;
const SCOPE_MODULE: u32 = 3;

/// A script.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Script {
    name: String,
    /// The line of its file on which it begins, from 0 on.
    first: u32,
    /// Where its lines end; `None`: not known.
    ends: Option<Vec<u32>>,
}

impl Script {
    fn line(&self, position: u32) -> Option<u32> {
        let before = self.ends.as_ref()?.partition_point(|end| *end < position);
        u32::try_from(before).ok()?.checked_add(self.first)?.checked_add(1)
    }
}

/// A function, as it is shown.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    name: String,
    script: Arc<Script>,
    /// Its places in the source.
    range: Option<(u32, u32)>,
    positions: Vec<(u32, u32)>,
    pieces: Vec<(u32, u32)>,
}

impl Function {
    /// The function without a line: `pay.js order`.
    pub fn shown(&self) -> String {
        format!("{} {}", self.file(), self.name)
    }

    /// The function at a position: `pay.js:12 order`. Where the line is not known, `pay.js:10-25 order` has the lines
    /// between which it is.
    pub fn at(&self, position: Option<u32>) -> String {
        let lines = match position.and_then(|position| self.line(position)) {
            Some(line) => Some((line, line)),
            None => self
                .range
                .and_then(|(start, end)| Some((self.script.line(start)?, self.script.line(end)?))),
        };
        let mut text = match lines {
            Some((first, last)) if first == last => format!("{}:{first} {}", self.file(), self.name),
            Some((first, last)) => format!("{}:{first}-{last} {}", self.file(), self.name),
            None => self.shown(),
        };
        if position == Some(POSITION_INLINED) {
            text.push_str(INLINED_UNKNOWN);
        }
        text
    }

    /// How many bytes are kept of it, besides its script.
    pub fn kept_bytes(&self) -> usize {
        (self.positions.len() + self.pieces.len()) * size_of::<(u32, u32)>()
    }

    /// Forgets the tables of lines.
    pub fn drop_tables(&mut self) {
        (self.positions, self.pieces) = (Vec::new(), Vec::new());
    }

    fn file(&self) -> &str {
        match self.script.name.as_str() {
            "" => "<anonymous>",
            own if own.starts_with("node:") => own,
            path => short(path),
        }
    }

    fn line(&self, position: u32) -> Option<u32> {
        let offset = match position {
            POSITION_NONE | POSITION_INLINED => return None,
            code if code & V8_BASELINE != 0 => {
                let end = code & !V8_BASELINE;
                let piece = self.pieces.partition_point(|piece| piece.0 < end);
                self.pieces.get(piece)?.1
            }
            offset => offset,
        };
        let after = self.positions.partition_point(|entry| entry.0 <= offset);
        self.script.line(self.positions.get(after.checked_sub(1)?)?.1)
    }
}

/// The identity of a function, and the addresses of its parts.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Identity {
    heap: u64,
    script: u64,
    script_number: u32,
    own: u32,
    name: u64,
    data: u64,
}

impl Identity {
    fn read(heap: Heap<'_>, address: u64) -> Option<Identity> {
        let agent = &heap.layout.agent;
        let page = address & !agent.page_mask;
        let script = heap.word(address, agent.shared_script)?;
        if !heap.is(address, agent.shared_type) || !heap.is(script, agent.script_type) {
            return None;
        }
        Some(Identity {
            heap: word(heap.memory, page.checked_add(agent.page_heap.into())?)?,
            script,
            script_number: small(heap.word(script, agent.script_number)?)?,
            own: heap.half(address, agent.shared_number)?,
            name: heap.word(address, heap.layout.shared_name)?,
            data: heap.word(address, agent.shared_data)?,
        })
    }

    /// The agent's `key_of` in `agent/v8.c`: of the function, and of it as baseline code.
    fn keys(&self) -> [u64; 2] {
        const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
        let numbers = u64::from(self.script_number) << 32 | u64::from(self.own);
        [0, 1].map(|tier| {
            let mixed = self.heap.wrapping_mul(FACTOR).wrapping_add(numbers);
            let mixed = mixed.rotate_left(23).wrapping_mul(FACTOR).wrapping_add(tier);
            (mixed ^ mixed >> 29).wrapping_mul(FACTOR) | 1
        })
    }
}

/// The key of a function (`struct np_v8_object`), and its baseline code.
pub(super) fn key_of(heap: Heap<'_>, address: u64, is_baseline: bool) -> Option<u64> {
    let [function, baseline] = Identity::read(heap, address)?.keys();
    Some(if is_baseline { baseline } else { function })
}

/// The data of a scope about its function.
#[derive(Default)]
struct Scope {
    name: Option<u64>,
    inferred: Option<u64>,
    range: Option<(u32, u32)>,
}

impl Scope {
    fn read(heap: Heap<'_>, scope: u64) -> Option<Scope> {
        let item = |index: u32| heap.slot(scope, index.checked_add(1)?);
        let flags = small(item(0)?)?;
        let names = small(item(heap.layout.scope_names)?)?;
        if names > SCOPE_MAX {
            return None;
        }
        let is = |bit: u32| flags >> bit & 1;
        let mut at = heap.layout.scope_first_name;
        at += u32::from(flags & 15 == SCOPE_MODULE);
        at += if names < SCOPE_INLINED { names } else { 1 };
        at += names + is(10);
        let mut found = Scope::default();
        if flags >> 12 & 3 != 0 {
            found.name = Some(item(at)?);
            at += 2;
        }
        if is(14) == 1 {
            found.inferred = Some(item(at)?);
            at += 1;
        }
        let place = |index| small(item(index)?);
        found.range = place(at).zip(place(at + 1)).filter(|(start, end)| start <= end);
        Some(found)
    }
}

/// Reads functions, and keeps the data of their scripts.
pub struct Reader {
    layout: Layout,
    scripts: HashMap<(u64, u32), Arc<Script>>,
    lines: usize,
}

impl Reader {
    /// A reader for programs with this layout.
    pub fn new(layout: Layout) -> Reader {
        let (scripts, lines) = (HashMap::new(), 0);
        Reader { layout, scripts, lines }
    }

    /// See [`Layout`].
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Reads the function with a key. `None`: it is no longer at that address, or cannot be read.
    pub fn read(&mut self, memory: &dyn Memory, key: u64, address: u64) -> Option<Function> {
        (0..READS_MAX).find_map(|_| self.read_once(memory, key, address))
    }

    fn read_once(&mut self, memory: &dyn Memory, key: u64, address: u64) -> Option<Function> {
        let layout = self.layout.clone();
        let heap = Heap {
            memory,
            layout: &layout,
        };
        let seen = Identity::read(heap, address)?;
        if !seen.keys().contains(&key) {
            return None;
        }
        let known = self.scripts.get(&(seen.heap, seen.script_number)).cloned();
        let script = match known.clone() {
            Some(script) => script,
            None => Arc::new(self.read_script(heap, seen.script)?),
        };
        let (name, scope) = name_of(heap, seen.name)?;
        let (positions, pieces) = tables(heap, seen.data).unwrap_or_default();
        // Objects may have been moved or freed while they were read.
        if Identity::read(heap, address) != Some(seen) {
            return None;
        }
        if known.is_none() {
            self.lines += script.ends.as_ref().map_or(0, Vec::len);
            self.scripts.insert((seen.heap, seen.script_number), script.clone());
        }
        Some(Function {
            name,
            script,
            range: scope.range,
            positions,
            pieces,
        })
    }

    fn read_script(&self, heap: Heap<'_>, script: u64) -> Option<Script> {
        let layout = heap.layout;
        let name = heap.word(script, layout.script_name)?;
        let ends = heap
            .word(script, layout.script_source)
            .and_then(|source| line_ends(heap, source));
        Some(Script {
            name: heap.text(name, NAME_MAX).unwrap_or_default(),
            first: small(heap.word(script, layout.script_line)?)?,
            ends: ends.filter(|ends| self.lines + ends.len() <= LINES_MAX),
        })
    }
}

/// A function's name: its own, or a name that V8 has inferred from the function's assignment.
fn name_of(heap: Heap<'_>, name: u64) -> Option<(String, Scope)> {
    let is_scope = heap.is(name, heap.layout.scope_type);
    let scope = if is_scope {
        Scope::read(heap, name)?
    } else {
        Scope::default()
    };
    let own = if is_scope { scope.name } else { Some(name) };
    let text = |string: Option<u64>| heap.text(string?, NAME_MAX).filter(|text| !text.is_empty());
    let name = text(own).or_else(|| text(scope.inferred));
    Some((name.unwrap_or_else(|| "(anonymous)".to_owned()), scope))
}

/// The tables of positions, and of pieces of baseline code.
type Tables = (Vec<(u32, u32)>, Vec<(u32, u32)>);

fn tables(heap: Heap<'_>, data: u64) -> Option<Tables> {
    let layout = heap.layout;
    let is_code = heap.is(data, layout.agent.code_type);
    let array = if is_code {
        heap.word(data, layout.code_bytecode)?
    } else {
        data
    };
    if !heap.is(array, layout.agent.bytecode_type) {
        return None;
    }
    let positions = heap.byte_array(heap.word(array, layout.bytecode_positions)?, TABLE_MAX);
    let mut pieces = Vec::new();
    if is_code {
        let length = small(heap.slot(array, 1)?).filter(|length| *length <= TABLE_MAX)?;
        let start = array.checked_add_signed(layout.agent.bytecode_start.into())?;
        let bytecode = bytes(heap.memory, start, length as usize)?;
        let offsets = heap.byte_array(heap.word(data, layout.code_offsets)?, TABLE_MAX);
        pieces = baseline_offsets(&offsets.unwrap_or_default(), &bytecode, &layout.sizes);
    }
    Some((source_positions(&positions.unwrap_or_default()), pieces))
}

/// Where the lines of a source end, as V8 counts them.
fn line_ends(heap: Heap<'_>, source: u64) -> Option<Vec<u32>> {
    const FEED: u16 = 0x0a;
    const RETURN: u16 = 0x0d;
    let length = heap.half(source, 11).filter(|length| *length <= SOURCE_MAX)?;
    let mut units = Vec::new();
    heap.units(source, length, &mut units)?;
    if units.len() != length as usize {
        return None;
    }
    let mut ends = Vec::new();
    for (at, unit) in (0..).zip(&units) {
        let ends_line = match *unit {
            FEED | 0x2028 | 0x2029 => true,
            RETURN => units.get(at as usize + 1) != Some(&FEED),
            _ => false,
        };
        if ends_line {
            ends.push(at);
        }
    }
    ends.push(length);
    Some(ends)
}
