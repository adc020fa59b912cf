//! The offset of a C library's errno from the thread pointer, read from the code of its `__errno_location`.
//!
//! Libraries compute the offset in one of these ways; no other way is recognised:
//!
//! ```text
//! glibc           mov rax, [rip+n]   an offset from the global offset table     add rax, fs:[0]    ret
//! static glibc    mov rax, -n                                                   add rax, fs:[0]    ret
//! musl            mov rax, fs:[0]                                               add rax, n         ret
//! ```
//!
//! ELF Handling For Thread-Local Storage, "initial exec" and "local exec".

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};

/// Functions that yield the address of a thread's variable have fewer instructions than this.
const INSTRUCTIONS_MAX: usize = 8;

/// The value of rax.
#[derive(Clone, Copy)]
enum Held {
    Number(i64),
    /// The thread pointer plus an offset.
    Thread(i64),
}

/// The offset from the thread pointer, for a function that yields the address of a thread's variable. `code` lies at
/// `address`; `word` reads a word of the process's memory. `None` for a function that computes anything else.
pub fn thread_local_offset(code: &[u8], address: u64, word: impl Fn(u64) -> Option<u64>) -> Option<i64> {
    let mut rax = None;
    let decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
    for instruction in decoder.into_iter().take(INSTRUCTIONS_MAX) {
        let is_rax = instruction.op0_kind() == OpKind::Register && instruction.op0_register() == Register::RAX;
        match instruction.mnemonic() {
            Mnemonic::Endbr64 | Mnemonic::Nop => {}
            Mnemonic::Mov if is_rax => rax = Some(source(&instruction, &word)?),
            Mnemonic::Add if is_rax => {
                rax = Some(match (rax?, source(&instruction, &word)?) {
                    (Held::Number(left), Held::Number(right)) => Held::Number(left.wrapping_add(right)),
                    (Held::Thread(left), Held::Number(right)) | (Held::Number(left), Held::Thread(right)) => {
                        Held::Thread(left.wrapping_add(right))
                    }
                    (Held::Thread(_), Held::Thread(_)) => return None,
                });
            }
            Mnemonic::Ret if instruction.code() == Code::Retnq => {
                return match rax? {
                    Held::Thread(offset) => Some(offset),
                    Held::Number(_) => None,
                };
            }
            _ => return None,
        }
    }
    None
}

/// The value of the instruction's second operand.
fn source(instruction: &Instruction, word: &impl Fn(u64) -> Option<u64>) -> Option<Held> {
    if instruction.op1_kind() == OpKind::Memory {
        let has_index = instruction.memory_index() != Register::None;
        return match (instruction.memory_segment(), instruction.memory_base()) {
            _ if has_index => None,
            (Register::FS, Register::None) if instruction.memory_displacement64() == 0 => Some(Held::Thread(0)),
            (Register::DS, Register::RIP) => Some(Held::Number(word(instruction.memory_displacement64())? as i64)),
            _ => None,
        };
    }
    let is_number = matches!(
        instruction.op1_kind(),
        OpKind::Immediate32to64 | OpKind::Immediate8to64 | OpKind::Immediate64
    );
    is_number.then(|| Held::Number(instruction.immediate(1) as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREAD_POINTER: [u8; 5] = [0x04, 0x25, 0, 0, 0];

    fn found(code: &[u8]) -> Option<i64> {
        // A word of the global offset table, 16 bytes after the first instruction of seven bytes.
        thread_local_offset(code, 0x1000, |address| (address == 0x1017).then_some(-0x80_i64 as u64))
    }

    fn with_thread_pointer(before: &[u8], instruction: [u8; 3], after: &[u8]) -> Vec<u8> {
        [before, &instruction, &THREAD_POINTER, &[0], after].concat()
    }

    const ADD: [u8; 3] = [0x64, 0x48, 0x03];
    const MOV: [u8; 3] = [0x64, 0x48, 0x8b];

    #[test]
    fn the_three_ways_are_read() {
        let shared = with_thread_pointer(&[0x48, 0x8b, 0x05, 0x10, 0, 0, 0], ADD, &[0xc3]);
        assert_eq!(found(&shared), Some(-0x80));
        let archive = with_thread_pointer(&[0x48, 0xc7, 0xc0, 0xc0, 0xff, 0xff, 0xff], ADD, &[0xc3]);
        assert_eq!(found(&archive), Some(-0x40));
        let musl = with_thread_pointer(&[], MOV, &[0x48, 0x83, 0xc0, 0x34, 0xc3]);
        assert_eq!(found(&musl), Some(0x34));
        let marked = [&[0xf3, 0x0f, 0x1e, 0xfa][..], &musl].concat();
        assert_eq!(found(&marked), Some(0x34), "behind endbr64");
    }

    #[test]
    fn other_code_yields_no_offset() {
        // No thread pointer; a word that cannot be read; a call; an end without a return; twice the thread pointer.
        assert_eq!(found(&[0x48, 0x8b, 0x05, 0x10, 0, 0, 0, 0xc3]), None);
        let unread = with_thread_pointer(&[0x48, 0x8b, 0x05, 0x18, 0, 0, 0], ADD, &[0xc3]);
        assert_eq!(found(&unread), None);
        assert_eq!(found(&[0xe8, 0, 0, 0, 0, 0xc3]), None);
        assert_eq!(found(&with_thread_pointer(&[], MOV, &[])), None);
        let twice = with_thread_pointer(&with_thread_pointer(&[], MOV, &[]), ADD, &[0xc3]);
        assert_eq!(found(&twice), None);
        assert_eq!(found(&[]), None);
        // Not recognised: the segment is gs and not fs, or the register is rcx and not rax.
        assert_eq!(found(&with_thread_pointer(&[], [0x65, 0x48, 0x8b], &[0xc3])), None);
        assert_eq!(found(&[0x48, 0xc7, 0xc1, 1, 0, 0, 0, 0xc3]), None);
    }
}
