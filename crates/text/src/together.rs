//! Patches that share bytes: which patch needs which other patch in the text. Pure.
//!
//! The jump of an `evict` without springboard ends with the first bytes of the patch after it, its successor (see
//! [`nanoprobe_patch::Built::successor`]). So the jump is whole only while that patch is in the text:
//!
//! ```text
//!   e9 | e9 d0 d1 d2 d3     both: fine
//!   c3 | e9 d0 d1 d2 d3     the successor alone: fine
//!   e9 | 31 c0 0f b6 17     the first alone: a jump to nowhere
//! ```
//!
//! A chain of such patches ends with a patch that needs no other. An `evict` whose springboard lies in a displaced
//! instruction needs the patch of that instruction, its host, in the same way. Code that writes patches or takes them
//! back asks here first.

use std::collections::{HashMap, HashSet};

use nanoprobe_patch::TargetAddress;

use crate::Patch;

/// The patches that each patch needs: from its address to that of its successor or host.
#[derive(Debug, Default)]
pub struct Links(HashMap<TargetAddress, TargetAddress>);

impl Links {
    /// The links of some patches.
    pub fn of<'a>(patches: impl IntoIterator<Item = &'a Patch>) -> Links {
        let link = |patch: &Patch| Some((patch.built.address, patch.built.successor.or(patch.built.host)?));
        Links(patches.into_iter().filter_map(link).collect())
    }

    /// The patches that would be torn if the text had only the patches that `is_there` accepts: patches whose successor
    /// is missing, and patches that need a torn patch.
    pub fn torn(&self, is_there: impl Fn(TargetAddress) -> bool) -> HashSet<TargetAddress> {
        let mut torn = HashSet::new();
        loop {
            let is_torn = |next: &TargetAddress| !is_there(*next) || torn.contains(next);
            let more = self
                .0
                .iter()
                .filter(|(from, next)| !torn.contains(*from) && is_torn(next));
            let more: Vec<TargetAddress> = more.map(|(from, _)| *from).collect();
            if more.is_empty() {
                return torn;
            }
            torn.extend(more);
        }
    }

    /// The patches that must stay as long as the patches that `stays` accepts: the successors of those patches, and
    /// so on along the chain.
    pub fn held(&self, stays: impl Fn(TargetAddress) -> bool) -> HashSet<TargetAddress> {
        let mut held: HashSet<TargetAddress> = HashSet::new();
        loop {
            let more = self.0.iter().filter(|(from, _)| stays(**from) || held.contains(*from));
            let before = held.len();
            let more: Vec<TargetAddress> = more.map(|(_, next)| *next).collect();
            held.extend(more);
            if held.len() == before {
                return held;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 needs 2, 2 needs 4; 8 needs 9; 20 needs none.
    fn links() -> Links {
        let pairs = [(1, 2), (2, 4), (8, 9)];
        Links(
            pairs
                .map(|(from, next)| (TargetAddress(from), TargetAddress(next)))
                .into(),
        )
    }

    fn sorted(addresses: HashSet<TargetAddress>) -> Vec<u64> {
        let mut addresses: Vec<u64> = addresses.into_iter().map(|address| address.0).collect();
        addresses.sort_unstable();
        addresses
    }

    #[test]
    fn patches_without_their_successor_are_torn() {
        let torn = |missing: &[u64]| sorted(links().torn(|address| !missing.contains(&address.0)));
        assert_eq!(torn(&[]), []);
        assert_eq!(torn(&[20, 1, 8]), []);
        assert_eq!(torn(&[4]), [1, 2]);
        assert_eq!(torn(&[2]), [1]);
        assert_eq!(torn(&[4, 9]), [1, 2, 8]);
    }

    #[test]
    fn a_needed_patch_is_held() {
        let held = |staying: &[u64]| sorted(links().held(|address| staying.contains(&address.0)));
        assert_eq!(held(&[]), []);
        assert_eq!(held(&[4, 9, 20]), []);
        assert_eq!(held(&[1]), [2, 4]);
        assert_eq!(held(&[2]), [4]);
        assert_eq!(held(&[8, 2]), [4, 9]);
    }
}
