//! Arguments of static probes.

use cranelift_codegen::ir::{InstBuilder, Value};
use nanoprobe_lang::program::IntegerType;

use super::Emitter;
use crate::AgentFunction;
use crate::contract::{context, frame};
use crate::error::Error;
use crate::operand::{Held, Location, Operand, Register};

impl Emitter<'_, '_> {
    /// `argN` of a static probe, extended to 64 bits.
    pub(super) fn static_argument(&mut self, index: u8) -> Result<Value, Error> {
        let Some(operand) = self.source.arena.static_argument(self.source.kind, index)? else {
            return Ok(self.constant(0));
        };
        let value = match operand.location {
            Location::Constant(value) => self.constant(value),
            Location::Register { register, shift } => {
                let value = self.held(register);
                self.builder.ins().ushr_imm_u(value, i64::from(shift))
            }
            Location::Memory {
                base,
                index,
                displacement,
            } => {
                let mut address = self.constant(displacement);
                if let Some(base) = base {
                    let base = self.held(base);
                    address = self.builder.ins().iadd(address, base);
                }
                if let Some((register, scale)) = index {
                    let register = self.held(register);
                    let scaled = self.builder.ins().imul_imm_s(register, i64::from(scale));
                    address = self.builder.ins().iadd(address, scaled);
                }
                let bytes = self.constant(i64::from(operand.bytes));
                self.call_fallible(AgentFunction::Load, &[address, bytes])
            }
        };
        let Operand { bytes, signed, .. } = operand;
        Ok(self.normalise(value, IntegerType { bytes, signed }))
    }

    fn held(&mut self, register: Register) -> Value {
        match Held::of(register) {
            Held::Parameter(index) => match self.parameters.get(index) {
                Some(value) => *value,
                None => self.constant(0),
            },
            Held::Context => self.context_load(context::TARGET_RSP),
            Held::Frame | Held::FullFrame => {
                let address = self.context_load(context::FRAME);
                self.load(address, frame_offset(register))
            }
        }
    }
}

/// The offset of a register in the detour's frame.
fn frame_offset(register: Register) -> i32 {
    match register.0 {
        0 => frame::RAX,
        1 => frame::RCX,
        2 => frame::RDX,
        3 => frame::RBX,
        5 => frame::RBP,
        6 => frame::RSI,
        7 => frame::RDI,
        8 => frame::R8,
        9 => frame::R9,
        10 => frame::R10,
        11 => frame::R11,
        12 => frame::R12,
        13 => frame::R13,
        14 => frame::R14,
        _ => frame::R15,
    }
}
