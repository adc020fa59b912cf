//! Stand-ins for the agent: `np_enter` and a handler, in machine code.

use iced_x86::code_asm::*;

use super::machine::SEEN;

pub struct Stub {
    pub address: u64,
    pub bytes: Vec<u8>,
}

/// `np_enter`: returns the word at [`SEEN`] - 8 of the context (0: none), counts its calls at [`SEEN`] - 16, spoils the
/// flags. The handler: notes its arguments, its frame and how often it ran, spoils the flags; keeps every register.
pub fn assemble(address: u64, context: u64) -> (Stub, Stub) {
    let seen = SEEN as i32;
    let mut enter = CodeAssembler::new(64).unwrap();
    enter.mov(rax, context).unwrap();
    enter.inc(qword_ptr(rax + (seen - 16))).unwrap();
    enter.mov(rax, qword_ptr(rax + (seen - 8))).unwrap();
    enter.cmp(rax, -1).unwrap();
    enter.ret().unwrap();
    let enter = Stub {
        address,
        bytes: enter.assemble(address).unwrap(),
    };

    let address = address + 1024;
    let mut handler = CodeAssembler::new(64).unwrap();
    handler.push(rax).unwrap();
    handler.push(rbx).unwrap();
    handler.inc(qword_ptr(r15 + seen)).unwrap();
    // context->busy, target_rsp, enabling as they are now
    for (index, offset) in [0, 16, 24].into_iter().enumerate() {
        handler.mov(rax, qword_ptr(r15 + offset)).unwrap();
        handler
            .mov(qword_ptr(r15 + (seen + 8 + 8 * index as i32)), rax)
            .unwrap();
    }
    handler.mov(qword_ptr(r15 + (seen + 32)), rdi).unwrap();
    // The whole frame, from frame - 104 to frame + 16.
    handler.mov(rbx, qword_ptr(r15 + 8)).unwrap();
    for word in 0..16 {
        handler.mov(rax, qword_ptr(rbx + (8 * word - 104))).unwrap();
        handler.mov(qword_ptr(r15 + (seen + 40 + 8 * word)), rax).unwrap();
    }
    handler.pop(rbx).unwrap();
    handler.xor(eax, eax).unwrap();
    handler.dec(rax).unwrap();
    handler.pop(rax).unwrap();
    handler.ret().unwrap();
    (
        enter,
        Stub {
            address,
            bytes: handler.assemble(address).unwrap(),
        },
    )
}
