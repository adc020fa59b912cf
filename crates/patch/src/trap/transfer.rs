//! Descriptions of single branches, calls and returns: without fires, and without a detour.

use iced_x86::{Decoder, DecoderOptions, Instruction};

use super::descriptor::{self, FLAG_STACK_OF_CALLS, Operation, Places};
use super::emulation::Emulation;
use crate::TargetAddress;
use crate::assemble::Assembler;
use crate::function::{FunctionMap, Kind};

impl FunctionMap {
    /// The descriptor of the branch, call or return at an address, for the agent's `np_emulate`. `None` if no such
    /// instruction is there, or only the processor can execute it.
    pub fn transfer_at(&self, address: TargetAddress) -> Option<[u8; 64]> {
        let found = self.code().iter().find(|found| self.address(found.offset) == address)?;
        let bytes = self.bytes_of(*found);
        describe(&Decoder::with_ip(64, bytes, address.0, DecoderOptions::NONE).decode())
    }
}

/// The `struct np_emulation` of an instruction. `None` if it is no branch, call or return, or only the processor can
/// execute it.
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
