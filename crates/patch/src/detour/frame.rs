//! Entering and leaving the handlers: registers, flags, the thread's context.
//!
//! The stack, from high to low (`struct np_frame` of the agent's contract):
//!
//! ```text
//!   rsp at the site ->
//!                        128 bytes   the red zone, left alone      not at a function's entry
//!                        rax
//!                        r15
//!   context->frame  ->   flags       ah: SF ZF AF PF CF, al: OF; the rest of the word means nothing
//!                        rbx rcx rdx rsi rdi rbp r8 .. r14         only with a full frame
//!   rsp at handlers ->                                             its alignment is the program's, not the ABI's
//! ```
//!
//! A small stack (Go's) holds only rax, r15 and the flags, below 16 bytes that Go may use. Handlers run on a stack
//! that belongs to the context; a full frame is made there:
//!
//! ```text
//!   context->handler_stack ->   rsp of the detour
//!                               rax, r15, flags, rbx ...           only with a full frame
//!   rsp at handlers ->
//! ```
//!
//! Flags are kept by lahf and seto, restored by `add al, 0x7f` (OF = 1 exactly for al = 1) and sahf (which leaves OF
//! alone): an order of magnitude cheaper than pushf and popf, and TF, DF and AC are never touched.

use std::ops::Range;

use super::rare::Rare;
use super::runtime::{Runtime, ThreadKey};
use crate::assemble::{Assembler, Label};
use crate::{Position, Refusal, TargetAddress};

/// The bytes of the three words that every frame has.
pub(super) const LIGHT_FRAME: u64 = 24;

/// Offsets in `struct np_context` that detours use.
pub(super) mod context {
    pub const FRAME: u8 = 8;
    pub const TARGET_RSP: u8 = 16;
    pub const ENABLING: u8 = 24;
    pub const MISSED: u8 = 32;
    pub const HANDLER_STACK: u32 = 288;
}

/// Multiplier of the table's hash (`NP_TABLE_FACTOR`); the slot is the product's top 12 bits (`NP_TABLE_BITS`).
const TABLE_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

pub(super) fn red_zone(position: Position) -> u64 {
    match position {
        Position::Entry => 0,
        Position::Small => 16,
        Position::Inside | Position::SmallInside => 128,
    }
}

/// Emits the entry up to the push of r15. From then on r15 is free; all other registers but rsp, and the flags, are the
/// program's.
pub(super) fn emit_enter(code: &mut Assembler, position: Position) {
    match red_zone(position) {
        0 => {}
        bytes => code.bytes(&[0x48, 0x8d, 0x64, 0x24, (bytes as u8).wrapping_neg()]), // lea rsp, [rsp - bytes]
    }
    code.bytes(&[0x50]); // push rax
    code.bytes(&[0x41, 0x57]); // push r15
}

/// Saves the flags. From then on rax and the flags are free.
pub(super) fn emit_save_flags(code: &mut Assembler) {
    code.bytes(&[0x9f]); // lahf
    code.bytes(&[0x0f, 0x90, 0xc0]); // seto al
    code.bytes(&[0x50]); // push rax
}

/// Sets r15 to the thread's context: `slots[(key * factor) >> 52]`, if its key is the thread's and its context is not
/// 0. A thread without a context continues at `leave`.
pub(super) fn emit_find_context(code: &mut Assembler, rare: &mut Vec<Rare>, runtime: &Runtime, leave: Label) {
    let (miss, found) = (code.label(), code.label());
    match runtime.thread_key {
        ThreadKey::TlsSelf => code.bytes(&[0x64, 0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0]), // mov rax, fs:[0]
        ThreadKey::FsBase => code.bytes(&[0xf3, 0x48, 0x0f, 0xae, 0xc0]),              // rdfsbase rax
        ThreadKey::Asked => code.bytes(&[0x31, 0xc0]), // xor eax, eax: the key of no thread
    }
    code.bytes_u64(&[0x49, 0xbf], TABLE_FACTOR); // mov r15, factor
    code.bytes(&[0x4c, 0x0f, 0xaf, 0xf8]); // imul r15, rax
    code.bytes(&[0x49, 0xc1, 0xef, 52]); // shr r15, 52
    code.bytes(&[0x49, 0xc1, 0xe7, 4]); // shl r15, 4
    let table = code.literal(runtime.table.0);
    code.local(&[0x4c, 0x03, 0x3d], table); // add r15, [rip + table]
    code.bytes(&[0x49, 0x3b, 0x07]); // cmp rax, [r15]
    code.jump_if(5, miss); // jne miss
    code.bytes(&[0x4d, 0x8b, 0x7f, 8]); // mov r15, [r15 + 8]
    code.bytes(&[0x4d, 0x85, 0xff]); // test r15, r15
    code.jump_if(4, miss); // je miss
    code.bind(found);
    rare.push(Rare::Miss {
        here: miss,
        found,
        leave,
    });
}

/// Jumps to `inside` if r15, the target of an indirect jump, lies in one of the ranges. Changes rax and the flags.
pub(super) fn emit_jump_if_inside(
    code: &mut Assembler,
    ranges: &[Range<TargetAddress>],
    inside: Label,
) -> Result<(), Refusal> {
    for range in ranges {
        let size = range.end.offset_from(range.start);
        let size = size
            .and_then(|size| i32::try_from(size).ok())
            .ok_or(Refusal::TooLarge {
                what: "function with an indirect jump",
            })?;
        code.bytes_u64(&[0x48, 0xb8], range.start.0.wrapping_neg()); // mov rax, -start
        code.bytes(&[0x4c, 0x01, 0xf8]); // add rax, r15
        code.bytes_u32(&[0x48, 0x3d], size as u32); // cmp rax, size
        code.jump_if(2, inside); // jb inside
    }
    Ok(())
}

/// Restores the program's state.
pub(super) fn emit_leave(code: &mut Assembler, position: Position) {
    code.bytes(&[0x58]); // pop rax
    code.bytes(&[0x04, 0x7f]); // add al, 0x7f
    code.bytes(&[0x9e]); // sahf
    code.bytes(&[0x41, 0x5f]); // pop r15
    code.bytes(&[0x58]); // pop rax
    match red_zone(position) {
        0 => {}
        bytes => match i8::try_from(bytes) {
            Ok(bytes) => code.bytes(&[0x48, 0x8d, 0x64, 0x24, bytes as u8]), // lea rsp, [rsp + bytes]
            Err(_) => code.bytes_u32(&[0x48, 0x8d, 0xa4, 0x24], bytes as u32),
        },
    }
}

/// Emits a path that lies after the hot path.
pub(crate) fn emit_rare(code: &mut Assembler, runtime: &Runtime, path: Rare) {
    match path {
        Rare::Miss { here, found, leave } => {
            code.bind(here);
            code.bytes_u64(&[0x48, 0xb8], runtime.enter.0); // mov rax, np_enter
            code.bytes(&[0xff, 0xd0]); // call rax
            code.bytes(&[0x49, 0x89, 0xc7]); // mov r15, rax
            code.bytes(&[0x48, 0x85, 0xc0]); // test rax, rax
            code.jump_if(5, found); // jne found
            code.jump(leave);
        }
        Rare::Missed { here, behind } => {
            code.bind(here);
            code.bytes(&[0x49, 0xff, 0x47, context::MISSED]); // inc qword [r15 + missed]
            code.bytes_u64(&[0x48, 0xb8], runtime.enter.0); // mov rax, np_enter: a longjmp may have left that hit
            code.bytes(&[0xff, 0xd0]); // call rax
            code.jump(behind);
        }
        Rare::Backwards { here, behind } => {
            code.bind(here);
            code.bytes(&[0xfc]); // cld
            code.jump(behind);
        }
        Rare::Resume { here, resume } => {
            code.bind(here);
            code.bytes(&[0x48, 0x89, 0xdc]); // mov rsp, rbx
            code.bytes_u64(&[0x48, 0xb8], resume.0); // mov rax, resume
            code.bytes(&[0xff, 0xe0]); // jmp rax
        }
    }
}
