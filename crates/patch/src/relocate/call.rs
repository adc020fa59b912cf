//! Near calls: the callee must find the *original* return address, for unwinding, for exceptions, and for callees that
//! look at it.
//!
//! ```text
//!   call rel32               push [rip + literal]          the original return address; one store, so that no signal
//!                            jmp  rel32'                   sees half of it (push imm32 where it fits)
//!   call rax                 push ...;  jmp rax
//!   call [rip + d]           push ...;  jmp [rip + d']
//!   call [rsp + d]           push ...;  jmp [rsp + d + 8]
//! ```
//!
//! The price: the processor predicts the callee's return by the last call, so this return is mispredicted.

use iced_x86::{Code, OpKind, Register};

use super::{Original, operand};
use crate::Refusal;
use crate::assemble::Assembler;

pub(super) fn direct(code: &mut Assembler, original: Original<'_>) -> Result<(), Refusal> {
    let target = original.branch_target()?;
    push_return_address(code, original);
    code.external(&[0xe9], target);
    Ok(())
}

pub(super) fn indirect(code: &mut Assembler, original: Original<'_>) -> Result<(), Refusal> {
    let instruction = original.instruction;
    if instruction.code() != Code::Call_rm64 {
        return Err(original.unmovable("a call with an operand-size prefix"));
    }
    if instruction.op0_kind() == OpKind::Register && instruction.op0_register() == Register::RSP {
        return Err(original.unmovable("it calls the stack pointer"));
    }
    let below = instruction.memory_displacement64() as i64;
    if instruction.op0_kind() == OpKind::Memory && instruction.memory_base() == Register::RSP && below < 0 {
        return Err(original.unmovable("it calls through memory that the call itself overwrites"));
    }
    let mut jump = *instruction;
    jump.set_code(Code::Jmp_rm64);
    push_return_address(code, original);
    operand::encode_with_stack_shift(code, original, jump, 8)
}

fn push_return_address(code: &mut Assembler, original: Original<'_>) {
    let address = original.instruction.next_ip();
    match u32::try_from(address) {
        Ok(low) if low <= i32::MAX as u32 => code.bytes_u32(&[0x68], low),
        _ => {
            let literal = code.literal(address);
            code.local(&[0xff, 0x35], literal);
        }
    }
}
