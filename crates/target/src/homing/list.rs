//! The part of the block that makes many system calls in one go.
//!
//! Each stop of a borrowed thread is a wait for a processor, during which all stopped threads wait. So a list of calls
//! is made without a stop in between: the calls lie in memory that the tracer has in the process, and the thread makes
//! one call after the other.
//!
//! ```text
//!     next:    mov rax, [place]; mov rax, [rax]     the cursor: the address of the next entry
//!              number + 1, or 0 at the end          to `done`
//!              six arguments; syscall
//!              the result into the entry; the cursor to the next one
//!              jmp next
//!     done:    pause, SPINS times                   the tracer sees the cursor at the end, and interrupts
//!              rt_sigtimedwait of nothing, 10 ms, SLEEPS times
//!              jmp home
//!     place:   8 bytes                              where the cursor is
//!     ten ms:  16 bytes
//!     nothing: 8 bytes                              a signal set
//! ```
//!
//! No instruction changes a flag or a register that `home` does not put back. If the tracer dies in the middle, the
//! thread makes the rest of the calls and goes home, unless the next tracer sends it home earlier. After the last
//! call, the thread first spins for a moment, because a running thread stops at once when it is asked to. Then it
//! sleeps by `rt_sigtimedwait`, which leaves the data of the thread's own interrupted sleep alone (`restart_block`).

use nanoprobe_patch::TargetAddress;

/// The size of the block's part for lists of calls, in bytes.
pub(super) const LIST_BYTES: usize = 192;
/// The offset of the cursor's address within this part.
pub(super) const PLACE: usize = 152;
const TEN_MILLISECONDS: usize = 160;
const NOTHING: usize = 176;
/// The pauses on the processor: a fraction of a millisecond together.
const SPINS: u32 = 20_000;
/// The sleeps of 10 ms each: a third of a second together.
const SLEEPS: u32 = 30;

/// Bytes of an entry.
pub(crate) const ENTRY_BYTES: u64 = 64;
/// The offset of the result within an entry.
pub(crate) const RESULT: u64 = 56;

/// An entry of the list: a system call and its arguments.
pub(crate) fn entry(number: i64, arguments: [u64; 6]) -> [u8; ENTRY_BYTES as usize] {
    let [rdi, rsi, rdx, r10, r8, r9] = arguments;
    let words = [(number as u64).wrapping_add(1), rdi, rsi, rdx, r10, r8, r9, 0];
    let mut bytes = [0; ENTRY_BYTES as usize];
    for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// The bytes of the block that hold the cursor's address.
pub(crate) fn place(cursor: TargetAddress) -> [u8; 8] {
    cursor.0.to_le_bytes()
}

/// The code that makes the calls of a list. `home` is the distance from this code's start back to the code that
/// leads home.
pub(super) fn code(home: i32) -> [u8; LIST_BYTES] {
    let mut code: Vec<u8> = Vec::with_capacity(LIST_BYTES);
    let relative = |code: &[u8], to: usize| (to as i32).wrapping_sub(code.len() as i32 + 4).to_le_bytes();
    // mov rax, [rip + place]; mov rax, [rax]; mov rcx, [rax]
    code.extend([0x48, 0x8b, 0x05]);
    code.extend(relative(&code, PLACE));
    code.extend([0x48, 0x8b, 0x00, 0x48, 0x8b, 0x08]);
    // jrcxz done
    code.extend([0xe3, 0]);
    let to_done = code.len();
    // mov rdi, [rax + 8]; rsi, rdx, r10, r8, r9
    for (prefix, register, offset) in [
        (0x48, 0x78, 8),
        (0x48, 0x70, 16),
        (0x48, 0x50, 24),
        (0x4c, 0x50, 32),
        (0x4c, 0x40, 40),
        (0x4c, 0x48, 48),
    ] {
        code.extend([prefix, 0x8b, register, offset]);
    }
    // lea rax, [rcx - 1]; syscall; mov rcx, rax
    code.extend([0x48, 0x8d, 0x41, 0xff, 0x0f, 0x05, 0x48, 0x89, 0xc1]);
    // mov rdx, [rip + place]; mov rax, [rdx]
    code.extend([0x48, 0x8b, 0x15]);
    code.extend(relative(&code, PLACE));
    code.extend([0x48, 0x8b, 0x02]);
    // mov [rax + 56], rcx; lea rax, [rax + 64]; mov [rdx], rax; jmp next
    code.extend([0x48, 0x89, 0x48, RESULT as u8]);
    code.extend([0x48, 0x8d, 0x40, ENTRY_BYTES as u8, 0x48, 0x89, 0x02]);
    code.extend([0xeb, 0]);
    patch_short(&mut code, 0);
    let done = code.len();
    if let Some(byte) = code.get_mut(to_done - 1) {
        *byte = (done - to_done) as u8;
    }
    // mov ecx, SPINS; pause; lea rcx, [rcx - 1]; jrcxz +2; jmp pause
    code.push(0xb9);
    code.extend(SPINS.to_le_bytes());
    code.extend([0xf3, 0x90, 0x48, 0x8d, 0x49, 0xff, 0xe3, 0x02, 0xeb, 0xf6]);
    // mov r8d, SLEEPS
    code.extend([0x41, 0xb8]);
    code.extend(SLEEPS.to_le_bytes());
    let sleep = code.len();
    // lea rdi, [rip + nothing]; mov esi, 0; lea rdx, [rip + ten milliseconds]; mov r10d, 8; mov eax, rt_sigtimedwait
    code.extend([0x48, 0x8d, 0x3d]);
    code.extend(relative(&code, NOTHING));
    code.extend([0xbe, 0, 0, 0, 0]);
    code.extend([0x48, 0x8d, 0x15]);
    code.extend(relative(&code, TEN_MILLISECONDS));
    code.extend([0x41, 0xba, 8, 0, 0, 0]);
    code.extend([0xb8, libc::SYS_rt_sigtimedwait as u8, 0, 0, 0]);
    // syscall; lea r8, [r8 - 1]; mov rcx, r8; jrcxz +2; jmp sleep
    code.extend([0x0f, 0x05, 0x4d, 0x8d, 0x40, 0xff, 0x4c, 0x89, 0xc1, 0xe3, 0x02]);
    code.extend([0xeb, 0]);
    patch_short(&mut code, sleep);
    // jmp home
    code.push(0xe9);
    let home = home.wrapping_neg().wrapping_sub(code.len() as i32 + 4);
    code.extend(home.to_le_bytes());

    let mut bytes = [0; LIST_BYTES];
    for (to, from) in bytes.iter_mut().zip(code) {
        *to = from;
    }
    for (to, from) in bytes
        .iter_mut()
        .skip(TEN_MILLISECONDS + 8)
        .zip(10_000_000_u64.to_le_bytes())
    {
        *to = from;
    }
    bytes
}

/// Sets the displacement of the short jump that ends the code, so that it leads to `to`.
fn patch_short(code: &mut [u8], to: usize) {
    let distance = (to as isize - code.len() as isize) as i8;
    if let Some(last) = code.last_mut() {
        *last = distance as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An independent decoder reads the code and confirms the description.
    #[test]
    fn the_code_is_what_it_is_said_to_be() {
        use iced_x86::{Decoder, DecoderOptions, Formatter, IntelFormatter};
        let bytes = code(190);
        let mut decoder = Decoder::with_ip(64, &bytes[..PLACE], 0x1000, DecoderOptions::NONE);
        let mut formatter = IntelFormatter::new();
        formatter.options_mut().set_branch_leading_zeros(false);
        let mut text = String::new();
        let mut lines = Vec::new();
        while decoder.can_decode() && bytes[decoder.position()..PLACE].iter().any(|byte| *byte != 0) {
            text.clear();
            let instruction = decoder.decode();
            formatter.format(&instruction, &mut text);
            lines.push(format!("{:x} {text}", instruction.ip()));
        }
        let expected = [
            "1000 mov rax,[1098h]",
            "1007 mov rax,[rax]",
            "100a mov rcx,[rax]",
            "100d jrcxz 1047h",
            "100f mov rdi,[rax+8]",
            "1013 mov rsi,[rax+10h]",
            "1017 mov rdx,[rax+18h]",
            "101b mov r10,[rax+20h]",
            "101f mov r8,[rax+28h]",
            "1023 mov r9,[rax+30h]",
            "1027 lea rax,[rcx-1]",
            "102b syscall",
            "102d mov rcx,rax",
            "1030 mov rdx,[1098h]",
            "1037 mov rax,[rdx]",
            "103a mov [rax+38h],rcx",
            "103e lea rax,[rax+40h]",
            "1042 mov [rdx],rax",
            "1045 jmp short 1000h",
            "1047 mov ecx,4E20h",
            "104c pause",
            "104e lea rcx,[rcx-1]",
            "1052 jrcxz 1056h",
            "1054 jmp short 104Ch",
            "1056 mov r8d,1Eh",
            "105c lea rdi,[10B0h]",
            "1063 mov esi,0",
            "1068 lea rdx,[10A0h]",
            "106f mov r10d,8",
            "1075 mov eax,80h",
            "107a syscall",
            "107c lea r8,[r8-1]",
            "1080 mov rcx,r8",
            "1083 jrcxz 1087h",
            "1085 jmp short 105Ch",
            "1087 jmp 0F42h",
        ];
        assert_eq!(lines, expected);
    }
}
