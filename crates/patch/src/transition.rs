//! The order in which text is rewritten while threads execute it: the breakpoint protocol.
//!
//! Several bytes cannot be changed at once while a processor may be fetching them, and a thread may be about to
//! execute any instruction that starts among them. One byte can be changed: a processor that fetches it sees the old
//! value or the new one. So the protocol rests on this: *one* byte decides what happens at a start, and that byte
//! traps while the bytes after it change.
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
//! become the original ones, while the starts go on trapping; then every start gets its byte. There are no separate
//! functions to patch and to take back: [`transition`] goes from any text to any other (a patch may be replaced by
//! another), and looks only at which instructions are live in each.
//!
//! A *live* start is one at which the text holds an instruction of the original or a jump of ours. A start that is
//! not live traps (invariant I1). If it traps before and after, with different bytes, it may change in step 2,
//! together with the bytes inside of instructions. But no jump may be live while a byte that it *covers* changes.
//! Where one live jump covers the start of another (it puns on the other's opcode), the covering jump is removed
//! first in step 1, and written last in step 3, with an additional synchronisation between the two.
//!
//! No synchronisation is needed after the last step. A processor that still sees `int3` there traps, and is
//! redirected, which is right as long as the redirects stay. The redirects stay until the detours are removed, and
//! that happens only after every thread has been examined ([`Steps`] states the caller's duties). The next transition
//! begins with step 1, which is safe, too, on a processor that still sees the old byte. A transition that would begin
//! or end with step 2 has an empty step there instead, for the sake of its synchronisation.

use iced_x86::{Decoder, DecoderError, DecoderOptions};

use crate::order::sort_by_number;
use crate::{TargetAddress, is_trapping_byte};

/// `int3`.
pub const BREAKPOINT: u8 = 0xcc;

/// A piece of text that is rewritten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextRange {
    /// Its address: the start of an instruction of the original text, or padding.
    pub address: TargetAddress,
    /// The bytes of the file at this address.
    pub original: Vec<u8>,
    /// The bytes of the patch at this address, as many as `original`.
    pub patched: Vec<u8>,
    /// Whether the program itself leads to `address`, where a jump or a trap has replaced an instruction. False for the
    /// bytes of a springboard to which only another jump of the patch leads.
    pub is_head: bool,
}

/// The bytes to write, in this order, with a synchronisation of all processors between one step and the next. An empty
/// step is there for the sake of the synchronisation after it. Before the first step, every start that is to trap must
/// have its redirect, the head, too. The redirects must stay until no thread can be on its way from a trap.
pub type Steps = Vec<Step>;

/// The bytes that one step writes, each with its address, ascending. A list, because there may be half a million bytes.
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

    /// The byte that the step writes at an address.
    pub fn get(&self, address: &TargetAddress) -> Option<&u8> {
        let index = self.0.binary_search_by_key(address, |(known, _)| *known).ok()?;
        self.0.get(index).map(|(_, byte)| byte)
    }

    /// Whether the step writes a byte at an address.
    pub fn contains_key(&self, address: &TargetAddress) -> bool {
        self.get(address).is_some()
    }

    /// The number of bytes that the step writes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the step writes nothing. Such a step exists only because of the synchronisation after it.
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

/// The steps from the patches `old` to the patches `new`. Either list, or both, may be empty. The ranges within each
/// list are disjoint, or agree about the bytes that they share.
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

/// The length of the longest instruction. Ranges that lie further apart do not affect each other.
const INSTRUCTION_BYTES_MAX: u64 = 15;

/// Divides the sorted ranges into clusters of neighbours, each of which is handled alone. One map of half
/// a million bytes is much slower to search than many maps of five bytes.
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

/// Values by address, ascending: usually a few.
#[derive(Default)]
struct Few<V>(Vec<(u64, V)>);

impl<V: Copy> Few<V> {
    fn get(&self, address: u64) -> Option<V> {
        let index = self.0.binary_search_by_key(&address, |(known, _)| *known).ok()?;
        self.0.get(index).map(|(_, value)| *value)
    }

    /// The last entry below an address.
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
    /// If several values have the same address, the last one counts.
    fn from_iter<I: IntoIterator<Item = (u64, V)>>(values: I) -> Few<V> {
        // Room for the bytes of a usual patch: the iterators do not know how many they yield.
        let mut all: Vec<(u64, V)> = Vec::with_capacity(16);
        all.extend(values);
        if !all.is_sorted_by(|one, next| one.0 < next.0) {
            all.reverse();
            sort_by_number(&mut all, |(address, _)| *address);
            all.dedup_by_key(|(address, _)| *address);
        }
        Few(all)
    }
}

/// The changes of each step, ascending.
#[derive(Default)]
struct Changes {
    /// Starts that trap, by level. The highest level is written first.
    traps: Vec<Vec<(u64, u8)>>,
    inside: Vec<(u64, u8)>,
    /// Starts that become live, by level. The lowest level is written first.
    live: Vec<Vec<(u64, u8)>>,
    /// Whether some start becomes live, or becomes a different instruction.
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
        // A shorter range may end within an instruction, so the longest range, which comes last, counts.
        starts.sort_unstable();
        let starts: Few<u64> = starts.into_iter().collect();
        let before = Text::new(&original, &starts, old);
        let after = Text::new(&original, &starts, new);
        let changes = |byte: u64| before.byte(byte) != after.byte(byte);
        // A start at which both texts have the same live instruction needs no change.
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
    // The index is valid: the list was made long enough.
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
            // The instruction is cut off by the end of the range.
            let _ = decoder.set_position(original.len());
            return Some((start, left as u64));
        }
        Some((start, decoder.ip().saturating_sub(start).max(1)))
    })
}

/// A state of the text.
struct Text<'a> {
    original: &'a Few<u8>,
    /// The instructions of the original text, by start, with their lengths.
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

    /// The length of the live instruction at a start; `None` if the byte there traps.
    fn live(&self, start: u64) -> Option<u64> {
        if let Some(length) = self.jumps.get(start) {
            return Some(length);
        }
        let byte = self.byte(start)?;
        let is_original = self.original.get(start) == Some(byte);
        let covered = || self.jumps.before(start).is_some_and(|(at, length)| at + length > start);
        // Padding of `int3` under a jump: the byte is the original one, and also the jump's.
        if !is_original || is_trapping_byte(byte) && covered() {
            return None;
        }
        self.starts.get(start)
    }
}

/// The length of our jump that begins with this byte.
fn jump_bytes(first: u8) -> Option<u64> {
    match first {
        0xe9 => Some(5),
        0xeb => Some(2),
        _ => None,
    }
}

/// The level of each start: 0 if it covers no other start, else one more than the highest level that it covers.
fn levels(live: &Few<u64>) -> Few<u32> {
    let mut levels: Vec<(u64, u32)> = Vec::with_capacity(live.0.len());
    for (start, length) in live.iter().rev() {
        // The list is in descending order, so the starts that this start covers are the last ones.
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
    // The writes are in order, because the clusters are, and the bytes within each.
    debug_assert!(step.is_sorted_by(|one, next| one.0 < next.0));
    steps.push(Step(step));
}

#[cfg(test)]
mod tests;
