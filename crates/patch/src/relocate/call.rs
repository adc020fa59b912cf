//! Near calls: the callee must find the *original* return address, for unwinding, for exceptions, and for callees that
//! read it.
//!
//! ```text
//!   call rel32               push [rip + literal]          the original return address; one store, so that no signal
//!                            jmp  rel32'                   sees half of it (push imm32 where it fits)
//!   call rax                 push ...;  jmp rax
//!
//!   call [memory]            push [memory]                 faults as the call does, with the stack as it was
//!                            pop  [rsp - 16]               now 16 below where rsp was, and is again
//!                            push ...
//!                            jmp  [rsp - 8]                the same word: inside of the red zone, so signals spare it
//!   call rsp                 push rsp; and so on
//! ```
//!
//! The price: the processor predicts a return by the last call. There was no call instruction, so the callee's return
//! is mispredicted. A jump to an address that is not canonical faults with one word pushed, which
//! [`Relocated::pushed`] records.

use iced_x86::{Code, OpKind, Register};

use super::{Original, Relocated, operand};
use crate::Refusal;
use crate::assemble::Assembler;

/// The extension of `jmp` in the opcode group FF.
const JUMP: u8 = 4;
const PUSH: u8 = 6;

pub(super) fn direct(code: &mut Assembler, original: Original<'_>) -> Result<Relocated, Refusal> {
    let target = original.branch_target()?;
    push_return_address(code, original);
    code.external(&[0xe9], target);
    Ok(Relocated::default())
}

pub(super) fn indirect(code: &mut Assembler, original: Original<'_>) -> Result<Relocated, Refusal> {
    let instruction = original.instruction;
    if instruction.code() != Code::Call_rm64 {
        return Err(original.unmovable("a call with an operand-size prefix"));
    }
    let by_register = instruction.op0_kind() == OpKind::Register && instruction.op0_register() != Register::RSP;
    if !by_register {
        operand::same_operand(code, original, PUSH)?;
        code.bytes(&[0x8f, 0x44, 0x24, 0xf0]); // pop qword [rsp - 16]
    }
    push_return_address(code, original);
    let pushed = Some((code.here(), 1));
    if by_register {
        operand::same_operand(code, original, JUMP)?;
    } else {
        code.bytes(&[0xff, 0x64, 0x24, 0xf8]); // jmp [rsp - 8]
    }
    Ok(Relocated {
        pushed,
        ..Relocated::default()
    })
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
