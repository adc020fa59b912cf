//! The result of building a run: the bytes, and the new place of each original instruction.

use crate::{TargetAddress, TextRange, TrapForm};

/// Where a trap sends a thread: `struct np_redirect` of the agent's contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Redirect {
    /// The address of the trapping byte.
    pub from: TargetAddress,
    /// The address in the detour that stands for the instruction that started at `from`, including the fires before it.
    /// If the bit [`crate::REDIRECT_EMULATION`] is set, this is the address of a `struct np_emulation`, which the agent
    /// carries out.
    pub to: TargetAddress,
}

/// Two addresses from which a thread with the same registers does the same. A stopped thread may be moved between them
/// by changing its instruction pointer alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Move {
    /// In the original text.
    pub original: TargetAddress,
    /// In the detour.
    pub relocated: TargetAddress,
}

/// For a part of the detour, given by its first address, the original address at which a fault in that part is
/// reported. See [`Built::origins`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Origin {
    /// In the detour.
    pub relocated: TargetAddress,
    /// The original instruction; `None` for the detour's own code.
    pub original: Option<TargetAddress>,
    /// How many words the copy has pushed by now that the original instruction would not have pushed if it had faulted.
    pub pushed: u8,
}

/// The bytes to write for one run, and tables that map original addresses to new addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Built {
    /// The address at which the patch is written.
    pub address: TargetAddress,
    /// The text that the patch replaces.
    pub original: Vec<u8>,
    /// The patch, as long as `original`.
    pub patched: Vec<u8>,
    /// Of an `evict`: the padding that becomes the springboard. It is written before the patch or with it, and taken
    /// back after the patch, when no thread stands on its jump. The part before the first nop is no head, since only a
    /// jump leads there. From the first nop on, every start traps.
    pub springboard: Vec<TextRange>,
    /// Of an `evict` without a springboard: the start of the patch directly after it. The jump of this patch ends
    /// with that patch's bytes, so it must not be in the text without that patch.
    pub successor: Option<TargetAddress>,
    /// For an `evict` whose springboard lies in a displaced instruction: the start of that instruction's patch, the
    /// host. The `evict` must be in the text only together with its host.
    pub host: Option<TargetAddress>,
    /// The reverse of `host`: the address of another patch's springboard, at the end of the patched bytes. The patch
    /// must stay as it is while a thread may stand on the springboard's jump, or come back to it.
    pub carries: Option<TargetAddress>,
    /// The code at the detour's address, then its literals.
    pub detour: Vec<u8>,
    /// The number of 8-byte literals at the detour's end, which are not code.
    pub literals: usize,
    /// The form of a `trap`.
    pub form: Option<TrapForm>,
    /// One for every boundary, for every site after a jump, and for every byte of a `trap`. Ascending.
    pub redirects: Vec<Redirect>,
    /// One move for every displaced instruction, ascending. A thread that stands at the instruction is moved into the
    /// detour at attach, and out of it at detach. Its place in the detour is after the calls of the instruction's
    /// handlers.
    pub moves: Vec<Move>,
    /// Further places from which a thread can be moved out of the detour, but not into it: before the fires, and at the
    /// jumps that leave the detour. Ascending by `relocated`.
    pub departures: Vec<Move>,
    /// Places within relocated instructions at which words have been pushed already. No thread may be moved to such a
    /// place.
    pub partial: Vec<Origin>,
}

impl Built {
    /// For a fault in the detour at the address `detour`: which original address the code stands for. Ascending; each
    /// entry holds up to the next. A relocated instruction stands for its original up to its end. A place before fires,
    /// or at which the detour is left, stands for an original only until its first instruction has run.
    pub fn origins(&self, detour: TargetAddress) -> Vec<Origin> {
        let mut origins: Vec<Origin> = Vec::with_capacity(2 * self.departures.len() + self.moves.len() + 2);
        let origin = |relocated, original| Origin {
            relocated,
            original,
            pushed: 0,
        };
        let after = |departure: &Move| origin(TargetAddress(departure.relocated.0.saturating_add(1)), None);
        origins.extend(self.departures.iter().map(after));
        let code_bytes = self.detour.len().saturating_sub(8 * self.literals) as u64;
        origins.push(origin(TargetAddress(detour.0.saturating_add(code_bytes)), None));
        let moves = self.moves.iter().chain(&self.departures);
        origins.extend(moves.map(|entry| origin(entry.relocated, Some(entry.original))));
        origins.extend(&self.partial);
        // If several have the same address, the last one counts.
        origins.reverse();
        origins.sort_by_key(|origin| origin.relocated);
        origins.dedup_by_key(|origin| origin.relocated);
        origins
    }
}

impl Built {
    /// The ranges of text that the patch changes; the first one is its head. The springboard is left out because it
    /// stays longer.
    pub fn ranges(&self) -> Vec<TextRange> {
        vec![TextRange {
            address: self.address,
            original: self.original.clone(),
            patched: self.patched.clone(),
            is_head: true,
        }]
    }
}
