//! What is built of a run: the bytes, and where each original instruction lives on.

use crate::{TargetAddress, TextRange, TrapForm};

/// Where a trap sends a thread (`struct np_redirect`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Redirect {
    /// Address of the trapping byte.
    pub from: TargetAddress,
    /// Where the instruction that used to start there lives on (the fires before it included). With
    /// [`crate::REDIRECT_EMULATION`] in it: the address of a `struct np_emulation`, and the agent does the rest.
    pub to: TargetAddress,
}

/// Two places at which a thread does the same from here on, all else being equal: a stopped thread may be moved between
/// them by its instruction pointer alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Move {
    /// In the original text.
    pub original: TargetAddress,
    /// In the detour.
    pub relocated: TargetAddress,
}

/// What a fault in a detour is to be reported as, from an address on: see [`Built::origins`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Origin {
    /// In the detour.
    pub relocated: TargetAddress,
    /// The original instruction; `None`: this is code of the detour's own.
    pub original: Option<TargetAddress>,
    /// Words that have been pushed here. The original instruction would not have pushed them if it had faulted.
    pub pushed: u8,
}

/// The bytes to write for one run, and which original address corresponds to which new one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Built {
    /// Where the patch is written.
    pub address: TargetAddress,
    /// The text it replaces.
    pub original: Vec<u8>,
    /// The patch, as long as `original`.
    pub patched: Vec<u8>,
    /// Of an `evict`: the padding that becomes the springboard. It is written before the patch, or with it. It is taken
    /// back after the patch, when no thread stands on its jump. What lies before the first nop is no head, since only a
    /// jump leads there. From the first nop on every start traps.
    pub springboard: Vec<TextRange>,
    /// Of an `evict` without springboard: the start of the patch directly after it, with whose bytes its jump ends.
    /// This patch needs exactly that one in the text.
    pub successor: Option<TargetAddress>,
    /// Of an `evict` whose springboard lies in a displaced instruction: the start of that one's patch. This patch needs
    /// that one in the text.
    pub host: Option<TargetAddress>,
    /// The other side: where the springboard of another patch lies, at the end of the patched bytes. While a thread may
    /// stand on its jump, or come back to it, the patch must stay as it is.
    pub carries: Option<TargetAddress>,
    /// The code at the detour's address, then its literals.
    pub detour: Vec<u8>,
    /// How many 8-byte literals end it: bytes that are not code.
    pub literals: usize,
    /// The form of a `trap`.
    pub form: Option<TrapForm>,
    /// One for every boundary, for every site after a jump, and for every byte of a `trap`; ascending.
    pub redirects: Vec<Redirect>,
    /// One for every displaced instruction, after what fires before it; ascending. They serve in both directions: into
    /// the detour when a thread stands in the run at attach, and out of it at detach.
    pub moves: Vec<Move>,
    /// Further places from which a thread can be moved out of the detour: before the fires, and at the jumps that
    /// leave. Not for moving in. Ascending by `relocated`.
    pub departures: Vec<Move>,
    /// Places within relocated instructions at which words are pushed already. Not for moving.
    pub partial: Vec<Origin>,
}

impl Built {
    /// Which original address the code at `detour` stands for when an instruction there faults: ascending, each entry
    /// up to the next. A relocated instruction stands for its original up to its end. A place before fires, or where
    /// the detour is left, does so only until its first instruction has run.
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
        // Of several at one place the last counts.
        origins.reverse();
        origins.sort_by_key(|origin| origin.relocated);
        origins.dedup_by_key(|origin| origin.relocated);
        origins
    }
}

impl Built {
    /// The text that it changes, its head first; without the springboard, which stays longer.
    pub fn ranges(&self) -> Vec<TextRange> {
        vec![TextRange {
            address: self.address,
            original: self.original.clone(),
            patched: self.patched.clone(),
            is_head: true,
        }]
    }
}
