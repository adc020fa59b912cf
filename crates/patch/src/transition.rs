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

use iced_x86::{Decoder, DecoderError, DecoderOptions};

use crate::order::sort_by_number;
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
pub type Steps = Vec<Step>;

/// What one step writes: each byte with its address, ascending. A list: there may be half a million of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step(Vec<(TargetAddress, u8)>);

impl Step {
    /// Each byte with its address, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (&TargetAddress, &u8)> {
        self.0.iter().map(|(address, byte)| (address, byte))
    }

    /// The addresses, ascending.
    pub fn keys(&self) -> impl Iterator<Item = &TargetAddress> {
        self.0.iter().map(|(address, _)| address)
    }

    /// What is written at an address.
    pub fn get(&self, address: &TargetAddress) -> Option<&u8> {
        let index = self.0.binary_search_by_key(address, |(known, _)| *known).ok()?;
        self.0.get(index).map(|(_, byte)| byte)
    }

    /// Whether something is written at an address.
    pub fn contains_key(&self, address: &TargetAddress) -> bool {
        self.get(address).is_some()
    }

    /// How many bytes are written.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing is written: it is there for the sake of the synchronisation after it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl IntoIterator for Step {
    type Item = (TargetAddress, u8);
    type IntoIter = std::vec::IntoIter<(TargetAddress, u8)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a Step {
    type Item = (&'a TargetAddress, &'a u8);
    type IntoIter = std::vec::IntoIter<Self::Item>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter().collect::<Vec<_>>().into_iter()
    }
}

/// How the text goes from the patches `old` to the patches `new`. Either of them, or both, may be empty. The ranges
/// within each are disjoint, but for those whose bytes agree.
pub fn transition(old: &[TextRange], new: &[TextRange]) -> Steps {
    let mut sorted: Vec<(bool, &TextRange)> = old.iter().map(|range| (false, range)).collect();
    sorted.extend(new.iter().map(|range| (true, range)));
    sort_by_number(&mut sorted, |(_, range)| range.address.0);
    let mut all = Changes::default();
    let (mut olds, mut news) = (Vec::new(), Vec::new());
    for cluster in clusters(&sorted) {
        let of = |is_new: bool| {
            cluster
                .iter()
                .filter(move |range| range.0 == is_new)
                .map(|range| range.1)
        };
        olds.clear();
        news.clear();
        olds.extend(of(false));
        news.extend(of(true));
        all.add(&olds, &news);
    }
    let mut steps = Steps::new();
    for traps in all.traps.into_iter().rev() {
        push(&mut steps, traps);
    }
    let has_inside = !all.inside.is_empty();
    if steps.is_empty() && has_inside {
        steps.push(Step::default());
    }
    push(&mut steps, all.inside);
    for live in all.live {
        push(&mut steps, live);
    }
    if !all.has_ups && has_inside {
        steps.push(Step::default());
    }
    steps
}

/// No instruction is longer, nor any jump of ours: ranges that lie further apart know nothing of each other.
const INSTRUCTION_BYTES_MAX: u64 = 15;

/// The ranges, which are sorted, by neighbourhood: each cluster is a text of its own. Half a million bytes in one map
/// are much slower to look at than five in each of many.
fn clusters<'a, 'r>(mut sorted: &'a [(bool, &'r TextRange)]) -> impl Iterator<Item = &'a [(bool, &'r TextRange)]> {
    std::iter::from_fn(move || {
        let mut end = 0;
        let behind = sorted.iter().enumerate().position(|(index, (_, range))| {
            let start = range.address.0;
            let is_apart = index > 0 && start > u64::saturating_add(end, INSTRUCTION_BYTES_MAX);
            let bytes = range.original.len().max(range.patched.len()) as u64;
            end = end.max(start.saturating_add(bytes));
            is_apart
        });
        let (cluster, rest) = sorted.split_at(behind.unwrap_or(sorted.len()));
        sorted = rest;
        (!cluster.is_empty()).then_some(cluster)
    })
}

/// Values by address, ascending: a few, as a rule.
#[derive(Default)]
struct Few<V>(Vec<(u64, V)>);

impl<V: Copy> Few<V> {
    fn get(&self, address: u64) -> Option<V> {
        let index = self.0.binary_search_by_key(&address, |(known, _)| *known).ok()?;
        self.0.get(index).map(|(_, value)| *value)
    }

    /// The last one below an address.
    fn before(&self, address: u64) -> Option<(u64, V)> {
        let behind = self.0.partition_point(|(known, _)| *known < address);
        self.0.get(behind.checked_sub(1)?).copied()
    }

    fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, V)> {
        self.0.iter().copied()
    }

    fn keys(&self) -> impl Iterator<Item = u64> {
        self.iter().map(|(address, _)| address)
    }
}

impl<V> FromIterator<(u64, V)> for Few<V> {
    /// Of several at one address the last counts.
    fn from_iter<I: IntoIterator<Item = (u64, V)>>(values: I) -> Few<V> {
        let mut all: Vec<(u64, V)> = values.into_iter().collect();
        if !all.is_sorted_by(|one, next| one.0 < next.0) {
            all.reverse();
            sort_by_number(&mut all, |(address, _)| *address);
            all.dedup_by_key(|(address, _)| *address);
        }
        Few(all)
    }
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
        let original: Few<u8> = bytes(old, |range| &range.original)
            .chain(bytes(new, |range| &range.original))
            .collect();
        let heads = old.iter().chain(new).filter(|range| range.is_head);
        let mut starts: Vec<(u64, u64)> = heads
            .flat_map(|range| decoded(range.address.0, &range.original))
            .collect();
        // The shorter of two ranges may cut an instruction off: the longest counts, which is the last.
        starts.sort_unstable();
        let starts: Few<u64> = starts.into_iter().collect();
        let before = Text::new(&original, &starts, old);
        let after = Text::new(&original, &starts, new);
        let changes = |byte: u64| before.byte(byte) != after.byte(byte);
        // A start that is live in both, and the same instruction, needs nothing.
        let changed_in = |text: &Text| -> Few<u64> {
            let live = starts.keys().filter_map(|start| Some((start, text.live(start)?)));
            live.filter(|(start, length)| (*start..start.saturating_add(*length)).any(changes))
                .collect()
        };
        let (downs, ups) = (changed_in(&before), changed_in(&after));
        for (start, level) in levels(&downs).iter() {
            if before.byte(start) != Some(BREAKPOINT) {
                at_level(&mut self.traps, level).push((start, BREAKPOINT));
            }
        }
        let trapped = |start: u64| match downs.get(start) {
            Some(_) => Some(BREAKPOINT),
            None => before.byte(start),
        };
        let inside = original.keys().filter(|byte| ups.get(*byte).is_none());
        let inside = inside.filter(|byte| trapped(*byte) != after.byte(*byte));
        self.inside
            .extend(inside.filter_map(|byte| Some((byte, after.byte(byte)?))));
        for (start, level) in levels(&ups).iter() {
            if trapped(start) != after.byte(start)
                && let Some(byte) = after.byte(start)
            {
                at_level(&mut self.live, level).push((start, byte));
            }
        }
        self.has_ups |= !ups.0.is_empty();
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
    original: &'a Few<u8>,
    /// Instructions of the original, by start, with their lengths.
    starts: &'a Few<u64>,
    patched: Few<u8>,
    /// Our jumps, by start, with their lengths.
    jumps: Few<u64>,
}

impl<'a> Text<'a> {
    fn new(original: &'a Few<u8>, starts: &'a Few<u64>, ranges: &[&TextRange]) -> Text<'a> {
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
        self.patched.get(address).or_else(|| self.original.get(address))
    }

    /// How long the live instruction at a start is; `None` when there is none: then the byte there traps.
    fn live(&self, start: u64) -> Option<u64> {
        if let Some(length) = self.jumps.get(start) {
            return Some(length);
        }
        let byte = self.byte(start)?;
        let is_original = self.original.get(start) == Some(byte);
        let covered = || self.jumps.before(start).is_some_and(|(at, length)| at + length > start);
        // Padding of `int3` under a jump: the byte is the original one, and is the jump's.
        if !is_original || is_trapping_byte(byte) && covered() {
            return None;
        }
        self.starts.get(start)
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
fn levels(live: &Few<u64>) -> Few<u32> {
    let mut levels: Vec<(u64, u32)> = Vec::with_capacity(live.0.len());
    for (start, length) in live.iter().rev() {
        // Descending so far: those that it covers are the last.
        let covered = levels
            .iter()
            .rev()
            .take_while(|(other, _)| *other < start.saturating_add(length));
        let level = covered.map(|(_, level)| level + 1).max().unwrap_or(0);
        levels.push((start, level));
    }
    levels.reverse();
    Few(levels)
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
    if writes.is_empty() {
        return;
    }
    let step: Vec<(TargetAddress, u8)> = writes
        .into_iter()
        .map(|(address, byte)| (TargetAddress(address), byte))
        .collect();
    // It is in order: clusters are, and what is in them.
    debug_assert!(step.is_sorted_by(|one, next| one.0 < next.0));
    steps.push(Step(step));
}

#[cfg(test)]
mod tests;
