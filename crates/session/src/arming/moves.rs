//! What is done while threads stand: the writes, and where threads are moved that stand inside of a run.

use std::collections::{HashMap, HashSet};

use nanoprobe_patch::{RESTART, TextRange};
use nanoprobe_target::{Registers, Stopped};
use nanoprobe_text::Patch;

use super::bytes::Bytes;
use super::text::{Exchange, Piece, bytes_of, exchanges, pieces, ranges, springboards};
use crate::error::SessionError;

const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// What is written while all threads stand.
pub(super) struct Writes {
    /// Before the rest.
    pub springboards: Vec<Exchange>,
    pub text: Vec<Exchange>,
    pub moves: Moves,
}

impl Writes {
    /// `new` in place of `old`.
    pub fn new(old: &[TextRange], new: Vec<Patch>) -> Writes {
        let springboards = springboards(&new);
        Writes {
            springboards: exchanges(
                &pieces(&bytes_of(&springboards, |range| &range.patched).collect()),
                &bytes_of(&springboards, |range| &range.original).collect(),
            ),
            ..Writes::without_springboards(old, &new)
        }
    }

    pub fn without_springboards(old: &[TextRange], new: &[Patch]) -> Writes {
        let ranges: Vec<TextRange> = new.iter().flat_map(ranges).collect();
        let text = bytes_of(old, |range| &range.original).chain(bytes_of(&ranges, |range| &range.patched));
        let text: Bytes = text.collect();
        let now = bytes_of(&ranges, |range| &range.original).chain(bytes_of(old, |range| &range.patched));
        let now: Bytes = now.collect();
        let text: Vec<Piece> = pieces(&text);
        Writes {
            springboards: Vec::new(),
            text: exchanges(&text, &now),
            moves: Moves::new(new),
        }
    }
}

/// Where threads are moved that stand inside of a run which is being patched.
pub(super) struct Moves {
    /// Original address to relocated one; without the heads, which lead to the detour by themselves.
    plain: HashMap<u64, u64>,
    /// The same for a thread that is about to make a system call again: both stand behind a `syscall`, or the latter behind
    /// what leads to the same.
    restarted: HashMap<u64, u64>,
}

impl Moves {
    pub fn new(patches: &[Patch]) -> Moves {
        let heads: HashSet<u64> = patches.iter().map(|patch| patch.built.address.0).collect();
        let mut moves = Moves {
            plain: HashMap::new(),
            restarted: HashMap::new(),
        };
        for patch in patches {
            let built = &patch.built;
            for entry in built.moves.iter().chain(&built.departures) {
                let offset = entry.relocated.0.wrapping_sub(patch.detour.0) as usize;
                let before = built.detour.get(offset.wrapping_sub(SYSCALL.len())..offset);
                if before == Some(&SYSCALL) || patch.shim && before == Some(&RESTART) {
                    moves.restarted.insert(entry.original.0, entry.relocated.0);
                }
            }
            let plain = built.moves.iter().filter(|entry| !heads.contains(&entry.original.0));
            moves
                .plain
                .extend(plain.map(|entry| (entry.original.0, entry.relocated.0)));
        }
        moves
    }

    pub fn displaces_calls(&self) -> bool {
        !self.restarted.is_empty()
    }

    fn place_of(&self, registers: &Registers) -> Option<u64> {
        let moves = if Stopped::in_restart(registers) {
            &self.restarted
        } else {
            &self.plain
        };
        moves.get(&registers.rip).copied()
    }

    /// Moves those threads that stand.
    pub fn apply(&self, stopped: &mut Stopped) -> Result<(), SessionError> {
        if self.plain.is_empty() && self.restarted.is_empty() {
            return Ok(());
        }
        let threads: Vec<i32> = stopped.threads().collect();
        for tid in threads {
            let mut registers = stopped.registers(tid)?;
            if let Some(place) = self.place_of(&registers) {
                registers.rip = place;
                stopped.set_registers(tid, &registers)?;
            }
        }
        Ok(())
    }
}
