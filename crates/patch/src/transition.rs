//! The order in which text is rewritten while threads execute it: the breakpoint protocol.
//!
//! Several bytes cannot be changed at once under a processor that may be fetching them, and a thread may be about to
//! execute any instruction that starts among them. One byte can: whoever fetches it sees the old value or the new one.
//! So everything rests on *one* byte at a time deciding what happens at a start, and that byte being a trapping one
//! while those behind it change.
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
//! The reverse is the same with the roles exchanged: the jump's first byte becomes `int3`; the bytes behind the starts
//! become the original ones, while the starts go on trapping; then every start gets its byte. There is no step for
//! "patch" and one for "take back": [`transition`] goes from any text to any other (a patch may be replaced by another),
//! and looks only at which instructions are live in each of them.
//!
//! A *live* start is one at which the text holds an instruction of the original or a jump of ours. A start that is not
//! live traps (invariant I1), and everything about it is decided by that one byte; so it may change together with the
//! bytes inside of instructions, in step 2. What must not be is that a jump is live while a byte that it *covers*
//! changes. Where one live jump covers the start of another (it puns on the other's opcode), the covering one goes first
//! in step 1, and comes last in step 3, with a synchronisation of its own between them.
//!
//! No synchronisation is needed behind the last step. A processor that still sees `int3` there traps, and is redirected,
//! which is right as long as the redirects stay. They do until the detours go, and that happens only after every thread
//! has been looked at ([`Steps`] says what the caller owes). The next transition begins with step 1, which a processor
//! that still sees the old byte does not mind either. A transition that would begin or end with step 2 has an empty step
//! there instead, for the sake of its synchronisation.

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

/// What to write, in this order, with a synchronisation of all processors between one and the next; an empty one is there
/// for the sake of the synchronisation behind it. Before the first,
/// every start that is to trap must have its redirect, the head included, and it must stay until no thread can be on its
/// way from a trap.
pub type Steps = Vec<BTreeMap<TargetAddress, u8>>;

/// How the text goes from holding the patches `old` to holding the patches `new`, both or either of which may be empty. The
/// ranges within each are disjoint, but for those whose bytes agree.
pub fn transition(old: &[TextRange], new: &[TextRange]) -> Steps {
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
    // A start that is live in both, and the same instruction, is nobody's business.
    let changed_in = |text: &Text| -> BTreeMap<u64, u64> {
        let live = starts.keys().filter_map(|start| Some((*start, text.live(*start)?)));
        live.filter(|(start, length)| (*start..start.saturating_add(*length)).any(changes))
            .collect()
    };
    let (downs, ups) = (changed_in(&before), changed_in(&after));
    let mut steps = Steps::new();
    let down_levels = levels(&downs);
    for level in (0..=down_levels.values().copied().max().unwrap_or(0)).rev() {
        let traps = down_levels.iter().filter(|(_, of)| **of == level);
        let traps = traps.filter(|(start, _)| before.byte(**start) != Some(BREAKPOINT));
        push(&mut steps, traps.map(|(start, _)| (*start, BREAKPOINT)));
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
    let inside: BTreeMap<u64, u8> = inside.filter_map(|byte| Some((*byte, after.byte(*byte)?))).collect();
    if steps.is_empty() && !inside.is_empty() {
        steps.push(BTreeMap::new());
    }
    push(&mut steps, inside.iter().map(|(byte, value)| (*byte, *value)));
    let up_levels = levels(&ups);
    for level in 0..=up_levels.values().copied().max().unwrap_or(0) {
        let live = up_levels.iter().filter(|(_, of)| **of == level);
        let live = live.filter(|(start, _)| trapped(**start) != after.byte(**start));
        push(
            &mut steps,
            live.filter_map(|(start, _)| Some((*start, after.byte(*start)?))),
        );
    }
    if ups.is_empty() && !inside.is_empty() {
        steps.push(BTreeMap::new());
    }
    steps
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
    fn new(original: &'a BTreeMap<u64, u8>, starts: &'a BTreeMap<u64, u64>, ranges: &[TextRange]) -> Text<'a> {
        let heads = ranges.iter().filter(|range| range.is_head);
        let jump = |range: &TextRange| Some((range.address.0, jump_bytes(*range.patched.first()?)?));
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
    ranges: &'a [TextRange],
    which: impl Fn(&'a TextRange) -> &'a Vec<u8> + 'a,
) -> impl Iterator<Item = (u64, u8)> + 'a {
    ranges
        .iter()
        .flat_map(move |range| (range.address.0..).zip(which(range).iter().copied()))
}

fn push(steps: &mut Steps, writes: impl Iterator<Item = (u64, u8)>) {
    let step: BTreeMap<TargetAddress, u8> = writes.map(|(address, byte)| (TargetAddress(address), byte)).collect();
    if !step.is_empty() {
        steps.push(step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BASE: u64 = 0x40_1000;

    /// push rbp; mov rbp,rsp; push r12; push rbx; sub rsp,8; xor eax,eax; nop; mov edi,1; ret; int3 x3
    const CODE: [u8; 23] = [
        0x55, 0x48, 0x89, 0xe5, 0x41, 0x54, 0x53, 0x48, 0x83, 0xec, 8, 0x31, 0xc0, 0x90, 0xbf, 1, 0, 0, 0, 0xc3, 0xcc,
        0xcc, 0xcc,
    ];

    fn range(offset: usize, patched: &[u8]) -> TextRange {
        TextRange {
            address: TargetAddress(BASE + offset as u64),
            original: CODE[offset..offset + patched.len()].to_vec(),
            patched: patched.to_vec(),
            is_head: true,
        }
    }

    fn starts() -> Vec<u64> {
        let starts = instruction_starts(TargetAddress(BASE), &CODE);
        starts.iter().map(|start| start.0 - BASE).collect()
    }

    fn text(ranges: &[TextRange]) -> Vec<u8> {
        let mut text = CODE.to_vec();
        for range in ranges {
            let from = (range.address.0 - BASE) as usize;
            text[from..from + range.patched.len()].copy_from_slice(&range.patched);
        }
        text
    }

    /// What a start may hold for a thread that fetches there: the first bytes of each.
    fn allowed(patches: &[&[TextRange]], offset: usize) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let starts = starts();
        let end = starts
            .iter()
            .find(|start| **start > offset as u64)
            .map_or(CODE.len(), |next| *next as usize);
        all.push(CODE[offset..end].to_vec());
        for range in patches.iter().copied().flatten().filter(|range| range.is_head) {
            let at = (range.address.0 - BASE) as usize;
            if at == offset
                && let Some(length) = jump_bytes(range.patched[0])
            {
                all.push(text(std::slice::from_ref(range))[at..at + length as usize].to_vec());
            }
        }
        all
    }

    /// Goes through a sequence of texts. Between two synchronisations a fetch may see any mixture of what the bytes were
    /// and became; whatever it sees at the start of an instruction must be a whole instruction of the original, a whole
    /// jump of ours, or a trap.
    fn check(sequence: &[&[TextRange]]) {
        let mut views: Vec<Vec<u8>> = text(sequence[0]).iter().map(|byte| vec![*byte]).collect();
        for pair in sequence.windows(2) {
            let steps = transition(pair[0], pair[1]);
            for (number, step) in steps.iter().enumerate() {
                // The last step of one transition and the first of the next have no synchronisation between them.
                if number > 0 {
                    views.iter_mut().for_each(|view| *view = vec![*view.last().unwrap()]);
                }
                for (address, byte) in step {
                    views[(address.0 - BASE) as usize].push(*byte);
                }
                let is_padding = |start: u64| {
                    pair.iter()
                        .copied()
                        .flatten()
                        .any(|range| !range.is_head && (start + BASE).wrapping_sub(range.address.0) < 5)
                };
                for start in starts().into_iter().filter(|start| !is_padding(*start)) {
                    check_start(&views, start as usize, &allowed(pair, start as usize), &steps);
                }
            }
            let now: Vec<u8> = views.iter().map(|view| *view.last().unwrap()).collect();
            assert_eq!(now, text(pair[1]), "{steps:x?}");
        }
    }

    fn check_start(views: &[Vec<u8>], start: usize, allowed: &[Vec<u8>], steps: &Steps) {
        for first in &views[start] {
            // Padding of int3 is an instruction that nobody executes.
            if is_trapping_byte(*first) {
                continue;
            }
            let fits = |candidate: &Vec<u8>| {
                candidate[0] == *first
                    && candidate
                        .iter()
                        .zip(&views[start..])
                        .skip(1)
                        .all(|(byte, view)| view.iter().all(|seen| seen == byte))
            };
            assert!(
                allowed.iter().any(fits),
                "at +{start}: {first:02x} {:x?} is none of {allowed:x?}; steps {steps:x?}",
                &views[start + 1..(start + 5).min(views.len())]
            );
        }
    }

    /// A run over three boundaries, an instruction behind the jump that has a trap of its own, padding.
    fn run() -> Vec<TextRange> {
        vec![range(0, &[0xe9, 0x37, 0xd1, 0xc6, 0x06, 0x54, 0xcc])]
    }

    #[test]
    fn a_run_comes_and_goes_in_three_steps() {
        let to = transition(&[], &run());
        let offsets = |step: &BTreeMap<TargetAddress, u8>| -> Vec<(u64, u8)> {
            step.iter().map(|(address, byte)| (address.0 - BASE, *byte)).collect()
        };
        let to: Vec<_> = to.iter().map(offsets).collect();
        assert_eq!(
            to,
            [
                vec![(0, 0xcc), (1, 0xcc), (4, 0xcc), (6, 0xcc)],
                vec![(1, 0x37), (2, 0xd1), (3, 0xc6), (4, 0x06)],
                vec![(0, 0xe9)]
            ]
        );
        let back = transition(&run(), &[]);
        let back: Vec<_> = back.iter().map(offsets).collect();
        assert_eq!(
            back,
            [
                vec![(0, 0xcc)],
                vec![(2, 0x89), (3, 0xe5)],
                vec![(0, 0x55), (1, 0x48), (4, 0x41), (6, 0x53)]
            ]
        );
        check(&[&[], &run(), &[], &run(), &[]]);
    }

    #[test]
    fn a_trap_is_one_step() {
        let trap = [range(7, &[0xcc])];
        assert_eq!(transition(&[], &trap).len(), 1);
        assert_eq!(transition(&trap, &[]).len(), 1);
        check(&[&[], &trap, &[], &trap]);
        // The whole instruction filled.
        let filled = [range(7, &[0xcc; 4])];
        assert_eq!(transition(&[], &filled).len(), 3);
        check(&[&[], &filled, &[], &trap, &filled]);
    }

    /// The jump at +11 puns on the opcode of the one at +14: it goes first, and comes last.
    #[test]
    fn a_jump_that_covers_another_comes_last() {
        let covered = range(14, &[0xe9, 0x12, 0x34, 0x56, 0x07]);
        let covering = range(11, &[0xe9, 0x3c, 0x3f, 0xe9, 0x12]);
        let both = [covering, covered.clone()];
        let steps = transition(&[], &both);
        assert_eq!(steps.len(), 4, "{steps:x?}");
        assert_eq!(steps[2].keys().next().unwrap().0, BASE + 14);
        assert_eq!(steps[3].keys().next().unwrap().0, BASE + 11);
        assert_eq!(transition(&both, &[])[0].len(), 1);
        check(&[&[], &both, &[], &[covered], &both, &[]]);
    }

    /// A pun leaves the instruction alone whose first byte it uses.
    #[test]
    fn what_a_pun_keeps_is_not_touched() {
        let pun = [range(11, &[0xe9, 0x27, 0x17, 0xbf, 0x01])];
        for step in transition(&[], &pun) {
            assert!(step.keys().all(|address| address.0 < BASE + 14), "{step:x?}");
        }
        check(&[&[], &pun, &[]]);
    }

    #[test]
    fn nothing_to_do_is_no_step() {
        assert!(transition(&[], &[]).is_empty());
        assert!(transition(&run(), &run()).is_empty());
    }

    /// A springboard in padding is there before anything leads to it, and goes when nothing does any more.
    #[test]
    fn padding_is_written_before_the_head() {
        let mut spring = range(20, &[0xe9, 0x01, 0x02]);
        spring.is_head = false;
        let patch = [range(11, &[0xeb, 0x07]), spring];
        let steps = transition(&[], &patch);
        let step_of = |offset: u64| {
            steps
                .iter()
                .position(|step| step.contains_key(&TargetAddress(BASE + offset)))
        };
        assert!(
            step_of(20)
                < steps
                    .iter()
                    .position(|step| step.get(&TargetAddress(BASE + 11)) == Some(&0xeb))
        );
        check(&[&[], &patch, &[]]);
    }

    /// A disjoint set of patches over the code: at each start nothing, a trap, a filled trap, or a jump whose bytes at
    /// boundaries trap.
    fn patches() -> impl Strategy<Value = Vec<TextRange>> {
        proptest::collection::vec((0..4_u8, any::<[u8; 5]>(), 0..19_usize), starts().len()).prop_map(|choices| {
            let starts = starts();
            let mut patches = Vec::new();
            let mut free = 0;
            for (start, (kind, random, trapping)) in starts.iter().zip(choices) {
                let start = *start as usize;
                let next = starts
                    .iter()
                    .find(|next| **next > start as u64)
                    .map_or(CODE.len(), |next| *next as usize);
                if start < free {
                    continue;
                }
                let mut bytes = match kind {
                    0 => continue,
                    1 => vec![BREAKPOINT],
                    2 => vec![BREAKPOINT; next - start],
                    _ if start + 5 > CODE.len() => continue,
                    _ => [&[0xe9][..], &random[1..]].concat(),
                };
                let end = (start + bytes.len()) as u64;
                for boundary in starts.iter().filter(|at| **at > start as u64 && **at < end) {
                    let trap = crate::TRAPPING_BYTES[(trapping + *boundary as usize) % crate::TRAPPING_BYTES.len()];
                    bytes[*boundary as usize - start] = trap;
                }
                free = start + bytes.len();
                patches.push(range(start, &bytes));
            }
            patches
        })
    }

    proptest! {
        /// I1 at every moment: any patches, to any others, to any others again.
        #[test]
        fn no_start_is_ever_torn(first in patches(), second in patches(), third in patches()) {
            check(&[&[], &first, &second, &third, &[]]);
        }
    }
}
