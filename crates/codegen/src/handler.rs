//! The result: the bytes of a handler before it has an address.

use crate::AgentFunction;

/// The alignment of the constants, which follow the code.
const CONSTANTS_ALIGN: usize = 16;

/// The function or constant whose address a relocation's eight bytes will hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RelocationTarget {
    /// A function of the agent image.
    Agent(AgentFunction),
    /// A constant, by its byte offset in [`Handler::constants`].
    Constant(u32),
}

/// Eight bytes in the code that will hold an absolute address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Relocation {
    /// The offset of these eight bytes in [`Handler::code`].
    pub offset: u32,
    /// The function or constant whose address these bytes hold.
    pub target: RelocationTarget,
    /// A number that is added to the address.
    pub addend: i64,
}

/// A compiled clause. Except for its absolute relocations it is position-independent, so it can be placed anywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handler {
    /// Machine code, with the entry point at its first byte. After the last instruction there may be literals
    /// that the code loads. The eight bytes of each relocation hold 0.
    pub code: Vec<u8>,
    /// The places in the code that need addresses.
    pub relocations: Vec<Relocation>,
    /// Read-only data: NUL-terminated strings.
    pub constants: Vec<u8>,
    /// Whether the detour must push a full `np_frame` and not a light one, because the clause reads `uregs[]` or walks
    /// the stack.
    pub full_frame: bool,
    /// Bytes of the static aggregation slots of one enabling of this clause ([`crate::static_slots`]).
    pub slot_bytes: u32,
    /// Bytes of stack that the handler itself uses, with its return address. The agent's functions need more.
    pub stack_bytes: u32,
}

impl Handler {
    /// The number of bytes that [`Handler::place`] yields, wherever the handler is placed.
    pub fn placed_bytes(&self) -> usize {
        if self.constants.is_empty() {
            self.code.len()
        } else {
            self.constants_offset() + self.constants.len()
        }
    }

    /// The final bytes of the handler at this address, which is a multiple of 16 for the sake of speed: the code with
    /// its relocations resolved, then the constants. `agent` yields the address of each function of the agent.
    pub fn place(&self, address: u64, agent: impl Fn(AgentFunction) -> u64) -> Vec<u8> {
        let mut bytes = self.code.clone();
        for relocation in &self.relocations {
            let target = match relocation.target {
                RelocationTarget::Agent(function) => agent(function),
                RelocationTarget::Constant(offset) => address
                    .wrapping_add(self.constants_offset() as u64)
                    .wrapping_add(u64::from(offset)),
            };
            let value = target.wrapping_add_signed(relocation.addend).to_le_bytes();
            let start = relocation.offset as usize;
            if let Some(field) = bytes.get_mut(start..start + value.len()) {
                field.copy_from_slice(&value);
            }
        }
        if !self.constants.is_empty() {
            // The gap is filled with int3, because no thread may ever execute it.
            bytes.resize(self.constants_offset(), 0xcc);
            bytes.extend_from_slice(&self.constants);
        }
        bytes
    }

    fn constants_offset(&self) -> usize {
        self.code.len().next_multiple_of(CONSTANTS_ALIGN)
    }
}
