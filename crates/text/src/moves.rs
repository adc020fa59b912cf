//! How threads that stand inside of a run are moved while it is patched.

use nanoprobe_patch::RESTART;

use crate::Patch;
use crate::origins::sort;

const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// How threads that stand inside of a run are moved while it is patched.
#[derive(Debug, Default)]
pub struct Moves {
    /// From original addresses to relocated ones. Heads are not included, since a patch's head already leads to the
    /// detour.
    plain: Addresses,
    /// The moves of a thread that is about to repeat a system call. The original address follows a `syscall`; the
    /// relocated address follows a `syscall`, too, or an equivalent.
    restarted: Addresses,
}

/// Pairs of addresses, sorted once all are added.
#[derive(Debug, Default)]
struct Addresses(Vec<(u64, u64)>);

impl Addresses {
    /// If several moves have the same address, the last one counts.
    fn of(mut all: Vec<(u64, u64)>) -> Addresses {
        sort(&mut all, &|_, later| later);
        Addresses(all)
    }

    fn get(&self, address: u64) -> Option<u64> {
        let index = self.0.binary_search_by_key(&address, |(known, _)| *known).ok()?;
        self.0.get(index).map(|(_, other)| *other)
    }
}

impl Moves {
    /// The moves for patches that are being written.
    pub fn new(patches: &[Patch]) -> Moves {
        let mut heads: Vec<u64> = patches.iter().map(|patch| patch.built.address.0).collect();
        heads.sort_unstable();
        let is_head = |address: u64| heads.binary_search(&address).is_ok();
        let (mut plain, mut restarted) = (Vec::new(), Vec::new());
        for patch in patches {
            let built = &patch.built;
            for entry in built.moves.iter().chain(&built.departures) {
                let offset = entry.relocated.0.wrapping_sub(patch.detour.0) as usize;
                let before = built.detour.get(offset.wrapping_sub(SYSCALL.len())..offset);
                if before == Some(&SYSCALL) || patch.shim && before == Some(&RESTART) {
                    restarted.push((entry.original.0, entry.relocated.0));
                }
            }
            let moves = built.moves.iter().filter(|entry| !is_head(entry.original.0));
            plain.extend(moves.map(|entry| (entry.original.0, entry.relocated.0)));
        }
        Moves {
            plain: Addresses::of(plain),
            restarted: Addresses::of(restarted),
        }
    }

    /// Whether a `syscall` instruction is displaced.
    pub fn displaces_calls(&self) -> bool {
        !self.restarted.0.is_empty()
    }

    /// Whether no thread would be moved.
    pub fn is_empty(&self) -> bool {
        self.plain.0.is_empty() && self.restarted.0.is_empty()
    }

    /// The address at which a thread that stands at `address` continues. `repeats_call`: the thread is about to repeat
    /// a system call.
    pub fn place_of(&self, address: u64, repeats_call: bool) -> Option<u64> {
        let moves = if repeats_call { &self.restarted } else { &self.plain };
        moves.get(address)
    }
}
