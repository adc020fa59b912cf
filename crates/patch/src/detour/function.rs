//! Function handlers: a hit calls a dispatcher, an ordinary function of the program, with all general registers in
//! memory. The dispatcher may change each of them.
//!
//! The stack, from high to low (`struct np_regs` of the library's header, 18 words):
//!
//! ```text
//!   rsp at the site ->
//!                        128 bytes   the red zone, left alone      not at a function's entry
//!                        rsp         at the site
//!                        rflags
//!                        rip         the site
//!                        rdi rsi rdx rcx rax r8 r9 r10 r11 rbx rbp r12 r13 r14 r15
//!   regs            ->
//!                        up to 8 bytes, so that the dispatcher's stack is aligned as the ABI wants it
//! ```
//!
//! ```text
//!   u32 dispatch(cookie, regs, behind)      rdi, rsi, rdx; regs in rbx, too; the direction flag is clear. It keeps rbx
//!                                           and rsp, and may use all other registers
//!     0: go on at `behind`, with the 15 registers and the arithmetic flags of regs
//!     1: jump to `resume` with rsp = regs; it loads everything, rip, rsp and all flags, too
//! ```
//!
//! Some handlers know, before they look at the registers, that they will change nothing. To make such hits cheaper, a
//! detour at a function's entry calls `quick` before it saves all registers.
//!
//! ```text
//!   rsp at the site ->
//!                        the relocated run       where that is called ([`Quick::Called`])
//!                        what calls it           the same
//!                        rax
//!                        flags       ah: SF ZF AF PF CF, al: OF
//!                        rcx rdx rsi rdi r8
//!                        the return address      of quick's own call
//! ```
//!
//! A run that is called is entered by `call [rsp - 16]`, 8 bytes above the stack pointer at the site. That call
//! pushes the return address once more, so the processor predicts the return.
//!
//! Flags are saved by pushf, which is cheap, so that the dispatcher sees all of them. They are restored by sahf, since
//! popf costs twenty times as much. A dispatcher answers 1 when the direction flag is set, or when it changed a flag
//! that sahf does not restore.

use std::ops::Range;

use super::frame;
use super::rare::Rare;
use crate::assemble::{Assembler, Label};
use crate::relocate::{Original, load_branch_target};
use crate::{Fire, Position, Quick, Refusal, TargetAddress};

/// Bytes of `struct np_regs`.
const REGISTERS: u32 = 144;
/// Offsets of fields of `struct np_regs`.
const RIP: u32 = 120;
const FLAGS: u32 = 128;
const STACK_POINTER: u32 = 136;

/// One block of function handlers.
pub(super) struct FunctionBlock<'a> {
    pub site: TargetAddress,
    pub position: Position,
    pub fires: &'a [Fire],
}

/// Emits a block that saves the registers, checks where the jump leads (with `leaving`), calls each dispatcher, and
/// restores the registers.
pub(super) fn emit_function_block(
    code: &mut Assembler,
    rare: &mut Vec<Rare>,
    block: &FunctionBlock<'_>,
    leaving: Option<(Original<'_>, &[Range<TargetAddress>])>,
) -> Result<(), Refusal> {
    let red_zone = frame::red_zone(block.position) as u32;
    let (restore, behind) = (code.label(), code.label());
    if let (
        [
            Fire::Function {
                cookie,
                quick: Some(quick),
                ..
            },
        ],
        Position::Entry,
        None,
    ) = (block.fires, block.position, &leaving)
    {
        emit_quick(code, *cookie, *quick, behind);
    }
    emit_save(code, red_zone);
    if let Some((original, inside)) = leaving {
        load_branch_target(code, original, u64::from(red_zone + REGISTERS))?;
        frame::emit_jump_if_inside(code, inside, restore)?;
    }
    if red_zone != 0 {
        code.bytes_u32(&[0x48, 0x8d, 0x84, 0x24], REGISTERS + red_zone); // lea rax, [rsp + distance]
        code.bytes_u32(&[0x48, 0x89, 0x84, 0x24], STACK_POINTER); // mov [rsp + STACK_POINTER], rax
    }
    code.bytes_u64(&[0x48, 0xb8], block.site.0); // mov rax, site
    code.bytes(&[0x48, 0x89, 0x44, 0x24, RIP as u8]); // mov [rsp + RIP], rax
    code.bytes(&[0x48, 0x89, 0xe3]); // mov rbx, rsp
    code.bytes(&[0x48, 0x83, 0xe4, 0xf0]); // and rsp, -16
    let (backwards, forwards) = (code.label(), code.label());
    code.bytes(&[0xf6, 0x83]); // test byte [rbx + FLAGS + 1], 4: the direction flag
    code.bytes(&(FLAGS + 1).to_le_bytes());
    code.bytes(&[0x04]);
    code.jump_if(5, backwards);
    rare.push(Rare::Backwards {
        here: backwards,
        behind: forwards,
    });
    code.bind(forwards);
    for fire in block.fires {
        let Fire::Function {
            dispatch,
            resume,
            cookie,
            quick: _,
        } = *fire
        else {
            continue;
        };
        let resuming = code.label();
        code.bytes_u64(&[0x48, 0xbf], cookie); // mov rdi, cookie
        code.bytes(&[0x48, 0x89, 0xde]); // mov rsi, rbx
        code.local(&[0x48, 0x8d, 0x15], behind); // lea rdx, [rip + behind]
        code.bytes_u64(&[0x48, 0xb8], dispatch.0); // mov rax, dispatch
        code.bytes(&[0xff, 0xd0]); // call rax
        code.bytes(&[0x85, 0xc0]); // test eax, eax
        code.jump_if(5, resuming); // jne
        rare.push(Rare::Resume { here: resuming, resume });
    }
    code.bytes(&[0x48, 0x89, 0xdc]); // mov rsp, rbx
    code.bind(restore);
    emit_restore(code, red_zone);
    code.bind(behind);
    Ok(())
}

/// Calls `quick`, and continues after the block if `quick` has done all that is to be done.
fn emit_quick(code: &mut Assembler, cookie: u64, quick: Quick, behind: Label) {
    let full = code.label();
    let (Quick::Inline(function) | Quick::Called(function)) = quick;
    let is_called = matches!(quick, Quick::Called(_));
    if is_called {
        code.bytes(&[0x50, 0x50]); // push rax, rax: room for two words
    }
    code.bytes(&[0x50]); // push rax
    code.bytes(&[0x9f]); // lahf
    code.bytes(&[0x0f, 0x90, 0xc0]); // seto al
    code.bytes(&[0x50]); // push rax
    code.bytes(&[0x51, 0x52, 0x56, 0x57, 0x41, 0x50]); // push rcx, rdx, rsi, rdi, r8
    if is_called {
        code.local(&[0x48, 0x8d, 0x05], behind); // lea rax, [rip + behind]
        code.bytes(&[0x48, 0x89, 0x44, 0x24, 0x40]); // mov [rsp + 64], rax: above the seven pushed words
    }
    code.bytes_u64(&[0x48, 0xbf], cookie); // mov rdi, cookie
    code.bytes_u64(&[0x48, 0xb8], function.0); // mov rax, quick
    code.bytes(&[0xff, 0xd0]); // call rax
    code.bytes(&[0x85, 0xc0]); // test eax, eax
    code.bytes(&[0x41, 0x58, 0x5f, 0x5e, 0x5a, 0x59]); // pop r8, rdi, rsi, rdx, rcx
    code.bytes(&[0x58]); // pop rax
    code.jump_if(5, full); // jne full
    code.bytes(&[0x04, 0x7f]); // add al, 0x7f
    code.bytes(&[0x9e]); // sahf
    code.bytes(&[0x58]); // pop rax
    if is_called {
        code.bytes(&[0x48, 0x8d, 0x64, 0x24, 0x18]); // lea rsp, [rsp + 24]
        code.bytes(&[0xff, 0x64, 0x24, 0xe8]); // jmp [rsp - 24]
    } else {
        code.jump(behind);
    }
    code.bind(full);
    code.bytes(&[0x04, 0x7f]); // add al, 0x7f
    code.bytes(&[0x9e]); // sahf
    code.bytes(&[0x58]); // pop rax
    if is_called {
        code.bytes(&[0x48, 0x8d, 0x64, 0x24, 0x10]); // lea rsp, [rsp + 16]
    }
}

fn emit_save(code: &mut Assembler, red_zone: u32) {
    if red_zone == 0 {
        code.bytes(&[0x54]); // push rsp: its value at the site
    } else {
        code.bytes_u32(&[0x48, 0x8d, 0xa4, 0x24], (red_zone + 8).wrapping_neg()); // lea rsp, [rsp - 8 - red zone]
    }
    code.bytes(&[0x9c]); // pushfq
    code.bytes(&[0x50]); // push rax: the place of rip
    code.bytes(&[0x57, 0x56, 0x52, 0x51, 0x50]); // push rdi, rsi, rdx, rcx, rax
    code.bytes(&[0x41, 0x50, 0x41, 0x51, 0x41, 0x52, 0x41, 0x53]); // push r8 .. r11
    code.bytes(&[0x53, 0x55]); // push rbx, rbp
    code.bytes(&[0x41, 0x54, 0x41, 0x55, 0x41, 0x56, 0x41, 0x57]); // push r12 .. r15
}

/// Restores from rsp = regs. rax is free, since it is loaded late.
fn emit_restore(code: &mut Assembler, red_zone: u32) {
    code.bytes_u32(&[0x0f, 0xb6, 0x84, 0x24], FLAGS + 1); // movzx eax, byte [rsp + FLAGS + 1]
    code.bytes(&[0x24, 8]); // and al, 8: OF
    code.bytes(&[0x04, 0x78]); // add al, 0x78: overflows for 8
    code.bytes_u32(&[0x8a, 0xa4, 0x24], FLAGS); // mov ah, [rsp + FLAGS]
    code.bytes(&[0x9e]); // sahf
    code.bytes(&[0x41, 0x5f, 0x41, 0x5e, 0x41, 0x5d, 0x41, 0x5c]); // pop r15 .. r12
    code.bytes(&[0x5d, 0x5b]); // pop rbp, rbx
    code.bytes(&[0x41, 0x5b, 0x41, 0x5a, 0x41, 0x59, 0x41, 0x58]); // pop r11 .. r8
    code.bytes(&[0x58, 0x59, 0x5a, 0x5e, 0x5f]); // pop rax, rcx, rdx, rsi, rdi
    code.bytes_u32(&[0x48, 0x8d, 0xa4, 0x24], 24 + red_zone); // lea rsp, [rsp + 24 + red zone]
}
