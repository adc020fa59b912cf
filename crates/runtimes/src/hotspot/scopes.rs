//! What HotSpot knows of places in compiled code: its descriptions (`PcDesc`), and the functions of each (`ScopeDesc`).
//!
//! They exist for calls, ends of loops, and accesses that may fail. HotSpot itself needs them to leave the code there.

use nanoprobe_arena::layout::POSITION_NEAR;

use super::code::{CodeCache, Piece};
use super::method::method_at;
use crate::memory::{array, word};
use crate::{Cursor, Object};

const DESCRIPTIONS_MAX: u64 = 1 << 20;
/// More functions are not inlined into each other.
const INLINED_MAX: usize = 256;

impl CodeCache<'_> {
    /// The place of a compiled frame in its code. The pc of a frame that is being deoptimized lies in the frame; its
    /// return address belongs to a handler.
    pub(super) fn code_place(&self, piece: &Piece, cursor: &Cursor) -> Option<i32> {
        let agent = self.agent();
        let mut pc = cursor.pc;
        let handlers = [agent.deoptimized, agent.deoptimized_handle];
        if handlers.iter().any(|place| self.place(piece.blob, *place) == Some(pc)) {
            let offset = u64::try_from(self.number(piece.blob, agent.original_pc)?).ok()?;
            if offset > 0 {
                pc = (self.stack)(cursor.rsp.checked_add(offset)?)?;
            }
        }
        let code = self.place(piece.blob, agent.code)?;
        i32::try_from(pc.checked_sub(code)?).ok()
    }

    /// Where the function that calls at a return address is described. The descriptions of a method's code are in the
    /// order of their places.
    pub(super) fn scope(&self, piece: &Piece, cursor: &Cursor) -> Option<i32> {
        if cursor.exact {
            return None;
        }
        let place = self.code_place(piece, cursor)?;
        let (found, scope) = self.description_from(piece, place)?;
        (found == place && scope > 0).then_some(scope)
    }

    /// The first description of a place or one after it: its own place, and its scope.
    pub(super) fn description_from(&self, piece: &Piece, place: i32) -> Option<(i32, i32)> {
        let agent = self.agent();
        if agent.has_scopes == 0 || agent.description_bytes == 0 {
            return None;
        }
        let start = self.place(piece.blob, agent.descriptions)?;
        let bytes = self.place(piece.blob, agent.descriptions_end)?.checked_sub(start)?;
        let each = u64::from(agent.description_bytes);
        let (mut low, mut high) = (0, (bytes / each).min(DESCRIPTIONS_MAX));
        let end = high;
        let description = |index: u64| start.checked_add(index * each);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.number(description(middle)?, agent.description_pc)? < place {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        let found = description(low).filter(|_| low < end)?;
        Some((
            self.number(found, agent.description_pc)?,
            self.number(found, agent.description_scope)?,
        ))
    }

    /// The functions of a scope: the innermost one, then those around it.
    pub(super) fn inlined(&self, piece: &Piece, scope: i32, flag: u32) -> Option<Vec<(Object, u32)>> {
        let agent = self.agent();
        let scopes = self.place(piece.blob, agent.scopes)?;
        let metadata = self.place(piece.blob, agent.metadata)?;
        let (mut scope, mut functions) = (u64::try_from(scope).ok()?, Vec::new());
        while scope != 0 && functions.len() < INLINED_MAX {
            let mut address = scopes.checked_add(scope)?;
            let outer = u64::from(self.compressed(&mut address)?);
            let index = u64::from(self.compressed(&mut address)?).checked_sub(1)?;
            let bytecode = self.compressed(&mut address)?;
            if outer >= scope {
                return None;
            }
            let method = word(self.memory, metadata.checked_add(index * 8)?)?;
            // The numbers of bytecodes begin with -1: the function is being entered.
            let position = bytecode.saturating_sub(1);
            // A method has fewer bytecodes than the flag.
            if position >= POSITION_NEAR {
                return None;
            }
            functions.push((method_at(self.memory, self.layout, method)?, position | flag));
            scope = outer;
        }
        Some(functions)
    }

    /// A compressed number of at most five bytes, HotSpot's UNSIGNED5; moves the address after it.
    fn compressed(&self, address: &mut u64) -> Option<u32> {
        let bytes = array::<8>(self.memory, *address)?;
        let (excess, mut sum) = (self.agent().unsigned5_excess, 0_u32);
        for (index, byte) in (0..5).zip(bytes) {
            let digit = u32::from(byte).checked_sub(excess)?;
            sum = sum.wrapping_add(digit.wrapping_shl(index * 6));
            if byte < 192 || index == 4 {
                *address = address.checked_add(u64::from(index) + 1)?;
                return Some(sum);
            }
        }
        None
    }
}
