//! What a run from a given instruction looks like, if there is one.

use crate::function::{FunctionMap, Kind};
use crate::{JumpConstraint, Tactic};

/// Bytes of `jmp rel32`.
pub(super) const JUMP: u32 = 5;

/// The longest patch: what `struct np_site` of the agent's contract holds.
const LONGEST_PATCH: u32 = 16;

/// A run: the instructions that the jump touches, and those up to the site where that lies behind them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Index of the first instruction.
    pub first: usize,
    /// Index behind the last one.
    pub behind: usize,
    /// Offset behind the run, padding included.
    pub end: u32,
    pub constraint: JumpConstraint,
    /// Offsets of padding nops that start inside of the patch.
    pub padding: Vec<u32>,
    /// Reaches into the padding.
    pub padded: bool,
    /// Contains an instruction that is better left in place: the kernel remembers where it was.
    pub avoided: bool,
}

impl Shape {
    pub fn tactic(&self) -> Tactic {
        if self.behind - self.first == 1 && !self.padded {
            Tactic::Jump
        } else {
            Tactic::Run
        }
    }
}

/// The shortest run that starts with instruction `first` and contains instruction `site`, or `None`:
///
/// - a known branch leads into it: it would hit a trap all the time;
/// - an instruction that must be last is not;
/// - the function ends before five bytes, and there is no padding, or execution would go on into it.
pub(super) fn shape_at(map: &FunctionMap, first: usize, site: usize) -> Option<Shape> {
    let code = map.code();
    let start = code.get(first)?.offset;
    let mut shape = Shape {
        first,
        behind: first,
        end: start,
        constraint: JumpConstraint::FREE,
        padding: Vec::new(),
        padded: false,
        avoided: false,
    };
    loop {
        let instruction = *code
            .get(shape.behind)
            .filter(|instruction| instruction.offset < map.code_size())?;
        if instruction.kind == Kind::Breakpoint {
            return None;
        }
        if instruction.offset != start {
            if map.is_target_at(instruction.offset) {
                return None;
            }
            shape.constraint = shape.constraint.with_boundary_at((instruction.offset - start) as usize);
        }
        let through = shape.behind;
        if through == site && instruction.offset - start >= LONGEST_PATCH {
            return None;
        }
        shape.behind += 1;
        shape.end = instruction.end();
        shape.avoided |= instruction.kind == Kind::System;
        if shape.end >= start + JUMP && through >= site {
            return Some(shape);
        }
        if instruction.kind.is_transfer() && through >= site {
            return take_padding(map, start, shape);
        }
        if instruction.kind.is_last() {
            return None;
        }
    }
}

/// Lengthens a run that ends in an unconditional transfer by the padding behind it: first bytes that nobody executes
/// (int3, zeros), then nops. Nops are boundaries; int3 behind nops would be, too, and cannot be imitated.
fn take_padding(map: &FunctionMap, start: u32, mut shape: Shape) -> Option<Shape> {
    let mut next = shape.behind;
    shape.padded = true;
    while shape.end < start + JUMP {
        if map.is_target_at(shape.end) {
            return None;
        }
        let instruction = map
            .code()
            .get(next)
            .filter(|instruction| instruction.offset == shape.end);
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
            _ => return None,
        }
        shape.end = instruction.map_or(shape.end, |instruction| instruction.end());
        next += 1;
    }
    Some(shape)
}
