//! The shape of a run from a given instruction, if there is one.

use crate::function::{FunctionMap, Kind};
use crate::{JumpConstraint, Tactic};

/// Bytes of `jmp rel32`.
pub(super) const JUMP: u32 = 5;

/// Bytes of `jmp rel8`.
pub(super) const SHORT_JUMP: u32 = 2;

/// The longest patch: what `struct np_site` of the agent's contract holds.
const LONGEST_PATCH: u32 = 16;

/// The instructions of a run: the instructions that the jump overwrites, and further instructions up to the site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Index of the first instruction.
    pub first: usize,
    /// Index after the last instruction.
    pub behind: usize,
    /// Offset after the run, padding included.
    pub end: u32,
    pub constraint: JumpConstraint,
    /// Offsets of the padding nops that start inside the patch.
    pub padding: Vec<u32>,
    /// Whether the run reaches into the padding.
    pub padded: bool,
    /// Whether the run contains an instruction that is better left in place. The kernel remembers the address of a
    /// system call, and the processor predicts the return of a call.
    pub avoided: bool,
    /// The number of the jump's bytes that are shared with the following instructions.
    pub punned: u32,
    /// The length of the jump at the site.
    pub jump: u32,
    /// The index after the last instruction that the detour executes. The instructions from `behind` on stay in place,
    /// too.
    pub back: usize,
    /// The offset to which the detour jumps back: `end`, or after the instructions that stay in place.
    pub back_end: u32,
    /// Whether the detour jumps back to bytes that the jump shares with the following instructions.
    pub shared: bool,
    /// Whether the jump's last bytes belong to the successor's jump.
    pub on_successor: bool,
    /// Whether some of the jump's bytes belong to data, or to code that no known path reaches.
    pub keeps_unreached: bool,
}

impl Shape {
    pub(super) fn new(first: usize, start: u32, jump: u32) -> Shape {
        Shape {
            first,
            behind: first,
            end: start,
            constraint: JumpConstraint::FREE,
            padding: Vec::new(),
            padded: false,
            avoided: false,
            punned: 0,
            jump,
            back: first,
            back_end: start,
            shared: false,
            on_successor: false,
            keeps_unreached: false,
        }
    }

    /// This shape, except that the detour executes no instruction that stays in place.
    pub(super) fn all_displaced(self) -> Shape {
        Shape {
            back: self.behind,
            back_end: self.end,
            ..self
        }
    }

    pub fn tactic(&self) -> Tactic {
        if self.jump == SHORT_JUMP || self.on_successor {
            Tactic::Evict
        } else if self.punned != 0 {
            Tactic::Pun
        } else if self.behind - self.first == 1 && !self.padded {
            Tactic::Jump
        } else {
            Tactic::Run
        }
    }

    /// The number of bytes from the shape's start to its end.
    pub fn length_from(&self, map: &FunctionMap) -> u32 {
        let first = map.code().get(self.first);
        first.map_or(0, |first| self.end - first.offset)
    }

    /// The offset of the end of the text that the patch needs for itself.
    pub fn claimed_end(&self) -> u32 {
        (self.end + self.punned).max(self.back_end)
    }
}

/// How to treat known branch targets in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BranchTargets<'a> {
    /// A run with known branch targets in it is ruled out.
    Refuse,
    /// Branch targets after the jump are accepted: the instructions there stay as they are, up to the first site. The
    /// site's first byte traps for a thread that comes from outside of the run. This is for sites that would
    /// otherwise trap for every thread.
    BehindJump,
    /// Branch targets at these offsets are accepted: they are sites, which would trap anyway.
    Trapping(&'a [u32]),
}

impl BranchTargets<'_> {
    fn takes_in(self, offset: u32, behind_jump: bool) -> bool {
        match self {
            BranchTargets::Refuse => false,
            BranchTargets::BehindJump => behind_jump,
            BranchTargets::Trapping(offsets) => offsets.contains(&offset),
        }
    }
}

/// The shortest run that starts with instruction `first`, has room for a jump of `jump` bytes and contains instruction
/// `site`. It is `None` in these cases:
///
/// - a known branch leads into it from outside: a thread that takes it would trap each time;
/// - an instruction that must be the last one of a run is not the last;
/// - the function ends before these bytes, and there is no padding, or execution would go on into the padding.
pub(super) fn shape_at(
    map: &FunctionMap,
    first: usize,
    site: usize,
    jump: u32,
    targets: BranchTargets<'_>,
) -> Option<Shape> {
    let code = map.code();
    let start = code.get(first)?.offset;
    let mut shape = Shape::new(first, start, jump);
    loop {
        let instruction = *code
            .get(shape.behind)
            .filter(|instruction| instruction.offset < map.code_size())?;
        let unmovable = map.is_fixed(instruction);
        if unmovable || map.is_entered_inside(instruction) {
            return None;
        }
        if instruction.offset != start {
            let behind_jump = instruction.offset >= start + jump;
            let targeted = map.is_target_from_outside(instruction.offset, start);
            if targeted && !targets.takes_in(instruction.offset, behind_jump) {
                return None;
            }
            if !behind_jump {
                shape.constraint = shape.constraint.with_boundary_at((instruction.offset - start) as usize);
            }
        }
        let through = shape.behind;
        if through == site && instruction.offset - start >= LONGEST_PATCH {
            return None;
        }
        shape.behind += 1;
        shape.end = instruction.end();
        shape.avoided |= is_avoided(instruction.kind);
        if shape.end >= start + jump && through >= site {
            return Some(shape.all_displaced());
        }
        if instruction.kind.is_transfer() && through >= site {
            return take_padding(map, start, shape).map(Shape::all_displaced);
        }
        if instruction.kind.is_last() {
            return None;
        }
    }
}

/// How a pun's detour treats the instructions whose bytes the jump shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Followers {
    /// The detour executes copies of these instructions, and jumps back after them. The processor remembers a jump at
    /// the address of its last byte. If the instruction there were executed next, the processor would mispredict it as
    /// a jump (5 ns).
    Copied,
    /// The detour jumps back to these instructions, because they have sites of their own or are hard to copy (calls).
    Executed,
}

/// The longest pun that starts with instruction `first` and contains instruction `site`. It displaces fewer than five
/// bytes, and the jump ends with the bytes after them. `None` if no instruction ends there, or a known branch leads
/// into it from outside.
pub(super) fn pun_at(map: &FunctionMap, first: usize, site: usize, followers: Followers) -> Option<Shape> {
    let code = map.code();
    let start = code.get(first)?.offset;
    let mut shape = Shape::new(first, start, JUMP);
    let mut goes_on = true;
    while let Some(instruction) = code.get(shape.behind) {
        let needed = shape.behind <= site;
        let outside = instruction.offset >= map.code_size() || instruction.end() >= start + JUMP;
        let inner_target = instruction.offset != start && map.is_target_from_outside(instruction.offset, start);
        let unmovable = map.is_fixed(*instruction);
        let unwanted = unmovable || inner_target || map.is_entered_inside(*instruction);
        if outside || unwanted || is_avoided(instruction.kind) && !needed {
            if needed {
                return None;
            }
            break;
        }
        if instruction.offset != start {
            shape.constraint = shape.constraint.with_boundary_at((instruction.offset - start) as usize);
        }
        shape.avoided |= is_avoided(instruction.kind);
        shape.behind += 1;
        shape.end = instruction.end();
        goes_on = !instruction.kind.is_transfer();
        if instruction.kind.is_last() {
            break;
        }
    }
    if shape.behind <= site {
        return None;
    }
    shape = shape.all_displaced();
    shape.shared = goes_on;
    if followers == Followers::Copied {
        // Nothing after a call can be executed in the detour.
        if !goes_on || shape.avoided {
            return None;
        }
        shape = copy_followers(map, start, shape)?;
    }
    let kept = map.bytes_at(shape.end..start + JUMP);
    shape.punned = kept.len() as u32;
    if shape.end + shape.punned != start + JUMP {
        return None;
    }
    for (index, byte) in kept.iter().enumerate() {
        shape.constraint = shape
            .constraint
            .with_punned((shape.end - start) as usize + index, *byte);
    }
    Some(shape)
}

/// Has the detour execute all instructions that begin among the jump's bytes.
fn copy_followers(map: &FunctionMap, start: u32, mut shape: Shape) -> Option<Shape> {
    while shape.back_end < start + JUMP {
        let instruction = map
            .code()
            .get(shape.back)
            .filter(|instruction| instruction.offset == shape.back_end && instruction.end() <= map.code_size())?;
        if is_avoided(instruction.kind) || map.is_fixed(*instruction) {
            return None;
        }
        shape.back += 1;
        shape.back_end = instruction.end();
        if instruction.kind.is_last() {
            break;
        }
    }
    shape.shared = false;
    Some(shape)
}

/// Whether an instruction is better left in place.
pub(super) fn is_avoided(kind: Kind) -> bool {
    matches!(kind, Kind::System | Kind::Call)
}

/// Lengthens a run that ends in an unconditional transfer by the padding after it. The padding begins with bytes that
/// are never executed (int3, zeros), then come nops, which are boundaries. Unreached bytes keep their values. int3
/// after nops is not taken: it would be a boundary that cannot be imitated.
fn take_padding(map: &FunctionMap, start: u32, mut shape: Shape) -> Option<Shape> {
    let mut next = shape.behind;
    shape.padded = true;
    while shape.end < start + shape.jump {
        if map.is_target_at(shape.end) {
            return None;
        }
        let instruction = map
            .code()
            .get(next)
            .filter(|instruction| instruction.offset == shape.end);
        if map.is_restartable(&(shape.end..instruction.map_or(shape.end + 1, |nop| nop.end()))) {
            return None;
        }
        match instruction.map(|instruction| instruction.kind) {
            Some(Kind::Nop) => {
                shape.constraint = shape.constraint.with_boundary_at((shape.end - start) as usize);
                shape.padding.push(shape.end);
            }
            Some(Kind::Breakpoint) if shape.padding.is_empty() => {}
            None if shape.padding.is_empty() && (map.code_size()..map.usable()).contains(&shape.end) => {
                shape.end += 1;
                continue;
            }
            // Data, and code that no known path reaches, keeps its bytes, so a jump of five bytes must contain these
            // bytes. A short jump cannot do that: its only free byte holds the distance to the springboard.
            None if shape.jump == JUMP
                && shape.padding.is_empty()
                && map.is_followed()
                && shape.end < map.code_size() =>
            {
                let byte = *map.bytes_at(shape.end..shape.end + 1).first()?;
                shape.constraint = shape.constraint.with_punned((shape.end - start) as usize, byte);
                shape.keeps_unreached = true;
                shape.end += 1;
                continue;
            }
            _ => return None,
        }
        shape.end = instruction.map_or(shape.end, |instruction| instruction.end());
        next += 1;
    }
    Some(shape)
}
