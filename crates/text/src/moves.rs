//! Where threads are moved that stand inside of a run while it is patched.

use std::collections::{HashMap, HashSet};

use nanoprobe_patch::RESTART;

use crate::Patch;

const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// Where threads are moved that stand inside of a run which is being patched.
#[derive(Debug, Default)]
pub struct Moves {
    /// From original address to relocated one. Heads are not in it, since they lead to the detour by themselves.
    plain: HashMap<u64, u64>,
    /// The same for a thread that is about to repeat a system call. Both addresses follow a `syscall`, or the
    /// relocated one follows an equivalent.
    restarted: HashMap<u64, u64>,
}

impl Moves {
    /// The moves for patches that are being written.
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

    /// Whether a `syscall` instruction is displaced.
    pub fn displaces_calls(&self) -> bool {
        !self.restarted.is_empty()
    }

    /// Whether no thread would be moved.
    pub fn is_empty(&self) -> bool {
        self.plain.is_empty() && self.restarted.is_empty()
    }

    /// Where a thread that stands at `address` goes on. `repeats_call`: it is about to repeat a system call.
    pub fn place_of(&self, address: u64, repeats_call: bool) -> Option<u64> {
        let moves = if repeats_call { &self.restarted } else { &self.plain };
        moves.get(&address).copied()
    }
}
