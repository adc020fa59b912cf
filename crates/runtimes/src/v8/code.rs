//! Optimised code: which functions each of its calls stands for. `agent/v8_code.c` explains the form of the tables.

use nanoprobe_arena::layout::{V8_CODE_ALIGNMENT, V8_CODE_BYTES_MAX};

use super::heap::{Heap, small};
use super::list::List;
use crate::memory::word;

const SAFEPOINTS_MAX: u64 = 1 << 16;
/// The lists of one code object are not longer.
const LISTS_BYTES_MAX: u32 = 1 << 20;
/// The size of a jump that leaves the code.
const JUMP_BYTES: u32 = 4;
/// Addresses of user memory are lower.
const ADDRESSES_END: u64 = 1 << 47;

/// A place in a code object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InCode {
    pub code: u64,
    pub kind: u32,
    /// Where the instructions begin, and how many bytes they have.
    pub start: u64,
    pub size: u32,
    pub offset: u32,
}

/// A function with a position in its bytecode.
pub(super) type Inlined = (u64, u32);

impl Heap<'_> {
    /// The code object whose instructions contain an address. Before the instructions are two words: a map, and the
    /// code object.
    pub fn code_at(&self, pc: u64) -> Option<u64> {
        let mut start = pc & !(V8_CODE_ALIGNMENT - 1);
        for _ in 0..V8_CODE_BYTES_MAX / V8_CODE_ALIGNMENT {
            let code = word(self.memory, start.checked_sub(8)?)?;
            // Most words are instructions.
            let is_possible = code & 3 == 1 && code < ADDRESSES_END;
            if is_possible && self.word(code, self.layout.agent.code_start) == Some(start) {
                return Some(code);
            }
            start = start.checked_sub(V8_CODE_ALIGNMENT)?;
        }
        None
    }

    /// The functions that a call stands for, innermost first: of the code of a function, by the return address.
    pub fn inlined(&self, place: &InCode, shared: u64) -> Option<Vec<Inlined>> {
        let agent = &self.layout.agent;
        let exits = self.word(place.code, agent.code_exits)?;
        let exit = match self.exit_of_safepoint(place) {
            Some(exit) => exit,
            None => self.exit_of_jump(exits, place.offset)?,
        };
        let element = |index| self.element(agent.array_type, exits, index);
        let start = small(element(exit.checked_mul(3)?.checked_add(agent.exit_first)?)?)?;
        let literals = element(agent.exit_literals)?;
        let bytes = self.byte_array(element(agent.exit_lists)?, LISTS_BYTES_MAX)?;
        let mut functions = Vec::new();
        for (position, literal) in List::read(&bytes, start)? {
            let function = self.element(agent.literals_type, literals, literal)?;
            if !self.is(function, agent.shared_type) {
                return None;
            }
            functions.push((function, position));
        }
        // The outermost one is the function whose code it is.
        if functions.first()?.0 != shared {
            return None;
        }
        functions.reverse();
        Some(functions)
    }

    /// Whether functions were inlined into a code object.
    pub fn has_inlined(&self, code: u64) -> bool {
        let agent = &self.layout.agent;
        let exits = self.word(code, agent.code_exits);
        let count = exits.and_then(|exits| self.element(agent.array_type, exits, self.layout.exit_inlined));
        count.and_then(small) != Some(0)
    }

    /// The number of the exit of a call that returns there.
    fn exit_of_safepoint(&self, place: &InCode) -> Option<u32> {
        let table = place.start.checked_add(place.size.into())?;
        let head = word(self.memory, table)?;
        let field = |shift: u32| head >> shift & 7;
        let (place_bytes, exit_bytes) = (field(36), field(39));
        let each = 2 * place_bytes + exit_bytes + field(33);
        if head >> 32 & 1 == 0 || !(1..=4).contains(&place_bytes) || !(1..=4).contains(&exit_bytes) {
            return None;
        }
        let (mut low, mut high) = (0, (head & 0xffff_ffff).min(SAFEPOINTS_MAX));
        while low < high {
            let middle = low + (high - low) / 2;
            let entry = word(self.memory, table.checked_add(8 + middle * each)?)?;
            let bits = |count: u64| (1_u64 << (8 * count)) - 1;
            match (entry & bits(place_bytes)).cmp(&place.offset.into()) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => {
                    let exit = (entry >> (8 * place_bytes) & bits(exit_bytes)).checked_sub(1)?;
                    return u32::try_from(exit).ok();
                }
            }
        }
        None
    }

    /// The number of the exit of a call that returns to a jump which leaves the code.
    fn exit_of_jump(&self, exits: u64, offset: u32) -> Option<u32> {
        let agent = &self.layout.agent;
        let number = |index| small(self.element(agent.array_type, exits, index)?);
        let distance = offset.checked_sub(number(agent.exit_start)?)?;
        let exit = distance / JUMP_BYTES;
        let (eager, lazy) = (number(agent.exit_eager)?, number(agent.exit_lazy)?);
        let is_jump = distance % JUMP_BYTES == 0 && (eager..eager.checked_add(lazy)?).contains(&exit);
        is_jump.then_some(exit)
    }
}
