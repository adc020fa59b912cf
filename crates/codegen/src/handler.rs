//! The result: a handler's bytes, not yet at an address.

use crate::AgentFunction;

/// Constants begin at a multiple of this after the code.
const CONSTANTS_ALIGN: usize = 16;

/// What a relocation's eight bytes will hold the address of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RelocationTarget {
    /// A function of the agent image.
    Agent(AgentFunction),
    /// Byte offset in [`Handler::constants`].
    Constant(u32),
}

/// Eight bytes in the code that hold an absolute address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Relocation {
    /// Byte offset in [`Handler::code`].
    pub offset: u32,
    /// Whose address.
    pub target: RelocationTarget,
    /// Added to it.
    pub addend: i64,
}

/// A compiled clause: position-independent but for its absolute relocations, so it can be placed anywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handler {
    /// Machine code; its first byte is the entry point. After the last instruction there may be literals that it
    /// loads. The eight bytes of each relocation hold 0.
    pub code: Vec<u8>,
    /// Where addresses go into the code.
    pub relocations: Vec<Relocation>,
    /// Read-only data: NUL-terminated strings.
    pub constants: Vec<u8>,
    /// Whether the detour must push a full `np_frame`, not a light one: the clause reads `uregs[]`, or walks the stack.
    pub full_frame: bool,
    /// Bytes of static aggregation slots of one enabling of this clause ([`crate::static_slots`]).
    pub slot_bytes: u32,
    /// Stack that the handler uses itself, its return address included; calls of the agent's functions come on top.
    pub stack_bytes: u32,
}

impl Handler {
    /// Bytes that [`Handler::place`] yields, wherever the handler is placed.
    pub fn placed_bytes(&self) -> usize {
        if self.constants.is_empty() {
            self.code.len()
        } else {
            self.constants_offset() + self.constants.len()
        }
    }

    /// The final bytes for this address (a multiple of 16, for speed only): the code with its relocations resolved,
    /// then the constants. `agent` says where each function of the agent is.
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
            // int3: nothing may ever run into the gap.
            bytes.resize(self.constants_offset(), 0xcc);
            bytes.extend_from_slice(&self.constants);
        }
        bytes
    }

    fn constants_offset(&self) -> usize {
        self.code.len().next_multiple_of(CONSTANTS_ALIGN)
    }
}
