//! What a branch, a call or a return does, described alone: nothing fires, and there is no detour.

use iced_x86::{Decoder, DecoderOptions, Instruction};

use super::descriptor::{self, FLAG_STACK_OF_CALLS, Operation, Places};
use super::emulation::Emulation;
use crate::TargetAddress;
use crate::assemble::Assembler;
use crate::function::{FunctionMap, Kind};

impl FunctionMap {
    /// What the branch, call or return at an address does, as the agent's `np_emulate` carries it out. `None`: there is
    /// none, or only the processor can.
    pub fn transfer_at(&self, address: TargetAddress) -> Option<[u8; 64]> {
        let found = self.code().iter().find(|found| self.address(found.offset) == address)?;
        let bytes = self.bytes_of(*found);
        describe(&Decoder::with_ip(64, bytes, address.0, DecoderOptions::NONE).decode())
    }
}

/// Its `struct np_emulation`. `None`: it is none of these, or only the processor can carry it out.
fn describe(instruction: &Instruction) -> Option<[u8; descriptor::BYTES as usize]> {
    let kind = Kind::of(instruction);
    if !kind.is_transfer() && !matches!(kind, Kind::Call | Kind::Conditional) {
        return None;
    }
    let emulation = Emulation::of_instruction(instruction)?;
    let stack_of_calls = matches!(emulation.operation, Operation::Call | Operation::Return);
    let mut code = Assembler::default();
    descriptor::emit(
        &mut code,
        &emulation,
        TargetAddress(instruction.ip()),
        instruction.len(),
        if stack_of_calls { FLAG_STACK_OF_CALLS } else { 0 },
        Places::default(),
        &[],
    );
    let bytes = code.finish().ok()?.link(TargetAddress(0)).ok()?;
    bytes.try_into().ok()
}
