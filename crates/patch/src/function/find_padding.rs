//! Bytes that are not executed: they align the next function or loop.
//!
//! ```text
//!   ret                      goes nowhere from here
//!   66 2e 0f 1f 84 00 ..     nop, nop               padding, unless a known branch leads to one of them
//!   90
//!   f2: push rbp             code again
//! ```
//!
//! Padding is int3, zeros at a section's end, and nops. It lies after an instruction that does not go on, or after a
//! function whose last call does not return. A thread can reach int3 through the nops before it, so such int3 is not
//! used. A nop is an instruction, too: a thread may arrive there by an unknown branch.

use std::ops::Range;

use super::kind::Kind;
use super::map::FunctionMap;
use super::padding::Padding;
use crate::TargetAddress;

/// Padding that is too short for a jump after its first byte is of no use.
const SHORTEST: u32 = 6;

impl FunctionMap {
    /// The padding in the function and directly after it, ascending. Call it after all branch targets have been
    /// added: the target of a known branch is code, not padding.
    pub fn padding(&self) -> Vec<Padding> {
        find(self)
    }
}

fn find(map: &FunctionMap) -> Vec<Padding> {
    let mut walk = Walk {
        map,
        goes_on: true,
        open: None,
        found: Vec::new(),
    };
    let mut next = 0;
    for instruction in map.code() {
        walk.between(next..instruction.offset);
        next = instruction.end();
        // If control flow was followed, the padding is known already.
        let is_code = map.is_followed() && instruction.offset < map.code_size() && !instruction.padding;
        walk.goes_on &= !instruction.padding;
        if map.is_restartable(&(instruction.offset..next)) {
            walk.close();
            walk.goes_on = true;
            continue;
        }
        match instruction.kind {
            Kind::Nop if !is_code => walk.nop(instruction.offset..next, map.is_entered_inside(*instruction)),
            Kind::Breakpoint if !is_code => walk.dead(instruction.offset..next),
            kind => {
                walk.close();
                // A call that ends a function does not return.
                let returns = kind != Kind::Call || next != map.code_size();
                walk.goes_on = returns && !kind.is_transfer();
            }
        }
    }
    walk.between(next..map.usable());
    walk.close();
    walk.found
}

struct Walk<'a> {
    map: &'a FunctionMap,
    /// Whether control flow may reach the next bytes from the previous bytes.
    goes_on: bool,
    /// The padding that has begun and not ended yet.
    open: Option<Open>,
    found: Vec<Padding>,
}

struct Open {
    start: u32,
    end: u32,
    nops: Vec<(TargetAddress, usize)>,
}

impl Walk<'_> {
    fn nop(&mut self, nop: Range<u32>, entered: bool) {
        if self.goes_on || entered || self.map.is_target_at(nop.start) {
            self.close();
            self.goes_on = true;
            return;
        }
        let address = self.map.address(nop.start);
        self.extend(nop.clone()).nops.push((address, nop.len()));
    }

    /// Bytes that are no instructions: int3 and zeros after the function, anything inside it.
    fn between(&mut self, bytes: Range<u32>) {
        if bytes.is_empty() || bytes.start >= self.map.code_size() {
            self.dead(bytes);
        } else {
            self.close();
            self.goes_on = true;
        }
    }

    /// Bytes that are no instructions, or int3.
    fn dead(&mut self, bytes: Range<u32>) {
        if bytes.is_empty() {
            return;
        }
        let is_kept = self.map.is_restartable(&bytes);
        let behind_nops = self.open.as_ref().is_some_and(|open| !open.nops.is_empty());
        if self.goes_on || behind_nops || is_kept || bytes.clone().any(|offset| self.map.is_target_at(offset)) {
            self.close();
            self.goes_on = true;
            return;
        }
        self.extend(bytes);
    }

    fn extend(&mut self, bytes: Range<u32>) -> &mut Open {
        let open = self.open.get_or_insert_with(|| Open {
            start: bytes.start,
            end: bytes.start,
            nops: Vec::new(),
        });
        open.end = bytes.end;
        open
    }

    fn close(&mut self) {
        let Some(Open { start, end, nops }) = self.open.take() else {
            return;
        };
        if end - start >= SHORTEST {
            self.found.push(Padding {
                start: self.map.address(start),
                bytes: self.map.bytes_at(start..end).into(),
                nops: nops.into(),
            });
        }
    }
}
