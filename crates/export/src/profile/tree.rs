//! Stacks as a tree: a node for each function that is called from the same callers.
//!
//! A node has two values, for the two profiles of a comparison. A single profile counts as the second of the two.

use std::collections::HashMap;

use super::names::{NameId, Names};

/// The maximal number of nodes. Further stacks end at the deepest existing node, so that sums stay right.
const NODES_MAX: usize = 1 << 18;
/// The maximal depth. Deeper frames count for the last frame that fits.
pub(crate) const DEPTH_MAX: usize = 256;

/// Which of the two profiles: the first or the second.
pub(crate) type Side = usize;
pub(crate) const BEFORE: Side = 0;
pub(crate) const AFTER: Side = 1;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    pub name: NameId,
    pub parent: u32,
    /// The values of the stacks that end at this node.
    pub own: [u64; 2],
}

/// The tree. Node 0 is the root, and every other node follows its parent.
#[derive(Debug)]
pub(crate) struct Tree {
    pub names: Names,
    nodes: Vec<Node>,
    children: HashMap<(u32, NameId), u32>,
    /// The values of all stacks of a profile.
    totals: [u64; 2],
    is_cut: bool,
}

impl Tree {
    pub fn new() -> Tree {
        let root = Node {
            name: NameId::MAX,
            parent: 0,
            own: [0; 2],
        };
        Tree {
            names: Names::default(),
            nodes: vec![root],
            children: HashMap::new(),
            totals: [0; 2],
            is_cut: false,
        }
    }

    /// Adds a stack, the outermost frame first. Values beyond 64 bits are left out, and so is a value of 0.
    pub fn add(&mut self, side: Side, frames: impl Iterator<Item = NameId>, value: u64) {
        let Some(total) = self.totals[side].checked_add(value).filter(|_| value > 0) else {
            self.is_cut |= value > 0;
            return;
        };
        self.totals[side] = total;
        let mut at = 0;
        for (depth, name) in frames.enumerate() {
            let next = self.children.get(&(at, name)).copied();
            let room = depth < DEPTH_MAX && self.nodes.len() < NODES_MAX;
            at = match next {
                Some(next) if depth < DEPTH_MAX => next,
                None if room => {
                    let next = self.nodes.len() as u32;
                    self.nodes.push(Node {
                        name,
                        parent: at,
                        own: [0; 2],
                    });
                    self.children.insert((at, name), next);
                    next
                }
                _ => {
                    self.is_cut = true;
                    break;
                }
            };
        }
        if let Some(node) = self.nodes.get_mut(at as usize) {
            // No node has more than the total.
            node.own[side] += value;
        }
    }

    /// All nodes, the root first, and each after its parent.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The sum of a profile.
    pub fn total(&self, side: Side) -> u64 {
        self.totals[side]
    }

    /// Whether something found no room, so that frames are missing.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// For each node, the values of the stacks that go through it.
    pub fn sums(&self) -> Vec<[u64; 2]> {
        let mut sums: Vec<[u64; 2]> = self.nodes.iter().map(|node| node.own).collect();
        for (index, node) in self.nodes.iter().enumerate().skip(1).rev() {
            let own = sums[index];
            let parent = &mut sums[node.parent as usize];
            parent[BEFORE] += own[BEFORE];
            parent[AFTER] += own[AFTER];
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_right_also_where_frames_find_no_room() {
        let mut tree = Tree::new();
        for stack in 0..3 * NODES_MAX as u32 {
            tree.add(AFTER, [stack % 7, stack, stack + 1].into_iter(), 2);
        }
        assert!(tree.is_cut());
        assert_eq!(tree.nodes().len(), NODES_MAX);
        assert_eq!(tree.sums()[0], [0, 6 * NODES_MAX as u64]);
        assert_eq!(tree.total(AFTER), 6 * NODES_MAX as u64);
    }

    #[test]
    fn deep_stacks_and_large_values_are_cut() {
        let mut tree = Tree::new();
        tree.add(BEFORE, 0..10_000, u64::MAX);
        tree.add(BEFORE, 0..1, 1);
        assert_eq!(tree.nodes().len(), DEPTH_MAX + 1);
        assert_eq!(tree.total(BEFORE), u64::MAX);
        assert!(tree.is_cut());
        assert_eq!(tree.sums()[0], [u64::MAX, 0]);
    }
}
