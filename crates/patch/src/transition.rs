//! The order in which text is rewritten while threads execute it: the breakpoint protocol.
//!
//! Several bytes cannot be changed at once under a processor that may be fetching them, and a thread may be about to
//! execute any instruction that starts among them. One byte can: a processor that fetches it sees the old value or the
//! new one. So everything rests on *one* byte at a time deciding what happens at a start, and that byte being a
//! trapping one while those after it change.
//!
//! ```text
//!              push rbp   mov rbp,rsp  push rbx
//!   before     55         48 89 e5     53            live instructions at +0, +1, +4
//!   1 trap     cc         cc 89 e5     cc            every start that is to change traps
//!     ---- synchronise: no processor holds an instruction that it fetched before ----
//!   2 inside   cc         37 d1 c6     06            what no live instruction begins with: final
//!     ---- synchronise ----
//!   3 live     e9         37 d1 c6     06            the first byte of what is live in the end
//! ```
//!
//! The reverse is the same with the roles exchanged: the jump's first byte becomes `int3`; the bytes after the starts
//! become the original ones, while the starts go on trapping; then every start gets its byte. There is no step for
//! "patch" and one for "take back": [`transition`] goes from any text to any other (a patch may be replaced by
//! another), and looks only at which instructions are live in each of them.
//!
//! A *live* start is one at which the text holds an instruction of the original or a jump of ours. A start that is not
//! live traps (invariant I1), and everything about it is decided by that one byte; so it may change together with the
//! bytes inside of instructions, in step 2. What must not be is that a jump is live while a byte that it *covers*
//! changes. Where one live jump covers the start of another (it puns on the other's opcode), the covering one goes
//! first in step 1, and comes last in step 3, with a synchronisation of its own between them.
//!
//! No synchronisation is needed after the last step. A processor that still sees `int3` there traps, and is redirected,
//! which is right as long as the redirects stay. They do until the detours go, and that happens only after every thread
//! has been looked at ([`Steps`] says what the caller owes). The next transition begins with step 1, which a processor
//! that still sees the old byte does not mind either. A transition that would begin or end with step 2 has an empty
//! step there instead, for the sake of its synchronisation.

use std::collections::BTreeMap;

use iced_x86::{Decoder, DecoderError, DecoderOptions};

use crate::{TargetAddress, is_trapping_byte};

/// `int3`.
pub const BREAKPOINT: u8 = 0xcc;

/// A piece of text that is rewritten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextRange {
    /// Where it lies: the start of an instruction of the original text, or padding.
    pub address: TargetAddress,
    /// What the file has there.
    pub original: Vec<u8>,
    /// What the patch has there, as long as `original`.
    pub patched: Vec<u8>,
    /// Whether the patch is entered at `address`: by a jump or a trap that takes the place of the instruction there.
    /// False for bytes that only a jump elsewhere leads to.
    pub is_head: bool,
}

/// What to write, in this order, with a synchronisation of all processors between one step and the next. An empty step
/// is there for the sake of the synchronisation after it. Before the first step every start that is to trap must have
/// its redirect, the head included. The redirects must stay until no thread can be on its way from a trap.
pub type Steps = Vec<BTreeMap<TargetAddress, u8>>;

/// How the text goes from the patches `old` to the patches `new`. Either of them, or both, may be empty. The ranges
/// within each are disjoint, but for those whose bytes agree.
pub fn transition(old: &[TextRange], new: &[TextRange]) -> Steps {
    let mut all = Changes::default();
    for (old, new) in clusters(old, new) {
        all.add(&old, &new);
    }
    let mut steps = Steps::new();
    for traps in all.traps.into_iter().rev() {
        push(&mut steps, traps);
    }
    let has_inside = !all.inside.is_empty();
    if steps.is_empty() && has_inside {
        steps.push(BTreeMap::new());
    }
    push(&mut steps, all.inside);
    for live in all.live {
        push(&mut steps, live);
    }
    if !all.has_ups && has_inside {
        steps.push(BTreeMap::new());
    }
    steps
}

/// No instruction is longer, nor any jump of ours: ranges that lie further apart know nothing of each other.
const INSTRUCTION_BYTES_MAX: u64 = 15;

/// The ranges by neighbourhood: each cluster of `old` and `new` is a text of its own. Half a million bytes in one map
/// are much slower to look at than five in each of many.
fn clusters<'a>(old: &'a [TextRange], new: &'a [TextRange]) -> Vec<(Vec<&'a TextRange>, Vec<&'a TextRange>)> {
    let mut sorted: Vec<(bool, &TextRange)> = old.iter().map(|range| (false, range)).collect();
    sorted.extend(new.iter().map(|range| (true, range)));
    sorted.sort_by_key(|(_, range)| range.address);
    let mut clusters: Vec<(Vec<&TextRange>, Vec<&TextRange>)> = Vec::new();
    let mut end = 0;
    for (is_new, range) in sorted {
        let start = range.address.0;
        if clusters.is_empty() || start > u64::saturating_add(end, INSTRUCTION_BYTES_MAX) {
            clusters.push(Default::default());
        }
        let bytes = range.original.len().max(range.patched.len()) as u64;
        end = end.max(start.saturating_add(bytes));
        if let Some((olds, news)) = clusters.last_mut() {
            if is_new { news.push(range) } else { olds.push(range) }
        }
    }
    clusters
}

/// What changes, by step; each ascending.
#[derive(Default)]
struct Changes {
    /// Starts that trap, by level: the highest is written first.
    traps: Vec<Vec<(u64, u8)>>,
    inside: Vec<(u64, u8)>,
    /// Starts that become live, by level: the lowest is written first.
    live: Vec<Vec<(u64, u8)>>,
    /// Some start is live in the end, and was not, or not the same.
    has_ups: bool,
}

impl Changes {
    /// Adds one cluster, which lies above all others.
    fn add(&mut self, old: &[&TextRange], new: &[&TextRange]) {
        let original: BTreeMap<u64, u8> = bytes(old, |range| &range.original)
            .chain(bytes(new, |range| &range.original))
            .collect();
        let mut starts: BTreeMap<u64, u64> = BTreeMap::new();
        for range in old.iter().chain(new).filter(|range| range.is_head) {
            for (start, length) in decoded(range.address.0, &range.original) {
                // The shorter of two ranges may cut an instruction off.
                let known = starts.entry(start).or_insert(length);
                *known = length.max(*known);
            }
        }
        let before = Text::new(&original, &starts, old);
        let after = Text::new(&original, &starts, new);
        let changes = |byte: u64| before.byte(byte) != after.byte(byte);
        // A start that is live in both, and the same instruction, needs nothing.
        let changed_in = |text: &Text| -> BTreeMap<u64, u64> {
            let live = starts.keys().filter_map(|start| Some((*start, text.live(*start)?)));
            live.filter(|(start, length)| (*start..start.saturating_add(*length)).any(changes))
                .collect()
        };
        let (downs, ups) = (changed_in(&before), changed_in(&after));
        for (start, level) in levels(&downs) {
            if before.byte(start) != Some(BREAKPOINT) {
                at_level(&mut self.traps, level).push((start, BREAKPOINT));
            }
        }
        let trapped = |start: u64| {
            if downs.contains_key(&start) {
                Some(BREAKPOINT)
            } else {
                before.byte(start)
            }
        };
        let inside = original.keys().filter(|byte| !ups.contains_key(byte));
        let inside = inside.filter(|byte| trapped(**byte) != after.byte(**byte));
        self.inside
            .extend(inside.filter_map(|byte| Some((*byte, after.byte(*byte)?))));
        for (start, level) in levels(&ups) {
            if trapped(start) != after.byte(start)
                && let Some(byte) = after.byte(start)
            {
                at_level(&mut self.live, level).push((start, byte));
            }
        }
        self.has_ups |= !ups.is_empty();
    }
}

fn at_level(steps: &mut Vec<Vec<(u64, u8)>>, level: u32) -> &mut Vec<(u64, u8)> {
    let level = level as usize;
    if steps.len() <= level {
        steps.resize_with(level + 1, Vec::new);
    }
    // There is one: the list was made long enough.
    &mut steps[level]
}

/// The starts of the instructions in a piece of original text that begins with one.
pub fn instruction_starts(address: TargetAddress, original: &[u8]) -> Vec<TargetAddress> {
    decoded(address.0, original)
        .map(|(start, _)| TargetAddress(start))
        .collect()
}

fn decoded(address: u64, original: &[u8]) -> impl Iterator<Item = (u64, u64)> {
    let mut decoder = Decoder::with_ip(64, original, address, DecoderOptions::NONE);
    let mut instruction = iced_x86::Instruction::default();
    std::iter::from_fn(move || {
        if !decoder.can_decode() {
            return None;
        }
        let (start, left) = (decoder.ip(), original.len().saturating_sub(decoder.position()));
        decoder.decode_out(&mut instruction);
        if decoder.last_error() == DecoderError::NoMoreBytes {
            // Cut off by the end of what is changed.
            let _ = decoder.set_position(original.len());
            return Some((start, left as u64));
        }
        Some((start, decoder.ip().saturating_sub(start).max(1)))
    })
}

/// A state of the text.
struct Text<'a> {
    original: &'a BTreeMap<u64, u8>,
    /// Instructions of the original, by start, with their lengths.
    starts: &'a BTreeMap<u64, u64>,
    patched: BTreeMap<u64, u8>,
    /// Our jumps, by start, with their lengths.
    jumps: BTreeMap<u64, u64>,
}

impl<'a> Text<'a> {
    fn new(original: &'a BTreeMap<u64, u8>, starts: &'a BTreeMap<u64, u64>, ranges: &[&TextRange]) -> Text<'a> {
        let heads = ranges.iter().filter(|range| range.is_head);
        let jump = |range: &&TextRange| Some((range.address.0, jump_bytes(*range.patched.first()?)?));
        Text {
            original,
            starts,
            patched: bytes(ranges, |range| &range.patched).collect(),
            jumps: heads.filter_map(jump).collect(),
        }
    }

    fn byte(&self, address: u64) -> Option<u8> {
        self.patched
            .get(&address)
            .or_else(|| self.original.get(&address))
            .copied()
    }

    /// How long the live instruction at a start is; `None` when there is none: then the byte there traps.
    fn live(&self, start: u64) -> Option<u64> {
        if let Some(length) = self.jumps.get(&start) {
            return Some(*length);
        }
        let byte = self.byte(start)?;
        let is_original = self.original.get(&start) == Some(&byte);
        let covered = || {
            self.jumps
                .range(..start)
                .next_back()
                .is_some_and(|(at, length)| at + length > start)
        };
        // Padding of `int3` under a jump: the byte is the original one, and is the jump's.
        if !is_original || is_trapping_byte(byte) && covered() {
            return None;
        }
        self.starts.get(&start).copied()
    }
}

/// How long the jump is that begins with this byte.
fn jump_bytes(first: u8) -> Option<u64> {
    match first {
        0xe9 => Some(5),
        0xeb => Some(2),
        _ => None,
    }
}

/// 0 for a start that covers none of the others, else one more than the highest that it covers.
fn levels(live: &BTreeMap<u64, u64>) -> BTreeMap<u64, u32> {
    let mut levels: BTreeMap<u64, u32> = BTreeMap::new();
    for (start, length) in live.iter().rev() {
        let covered = levels.range(start + 1..(start + length).max(start + 1));
        let level = covered.map(|(_, level)| level + 1).max().unwrap_or(0);
        levels.insert(*start, level);
    }
    levels
}

fn bytes<'a>(
    ranges: &'a [&'a TextRange],
    which: impl Fn(&'a TextRange) -> &'a Vec<u8> + 'a,
) -> impl Iterator<Item = (u64, u8)> + 'a {
    ranges
        .iter()
        .flat_map(move |range| (range.address.0..).zip(which(range).iter().copied()))
}

fn push(steps: &mut Steps, writes: Vec<(u64, u8)>) {
    let writes = writes.into_iter();
    let step: BTreeMap<TargetAddress, u8> = writes.map(|(address, byte)| (TargetAddress(address), byte)).collect();
    if !step.is_empty() {
        steps.push(step);
    }
}

#[cfg(test)]
mod tests;
