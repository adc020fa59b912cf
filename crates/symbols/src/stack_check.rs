//! The start of Go's functions: a check of how much stack is left.
//!
//! ```text
//!   entry:   [lea r12, [rsp - frame]]         of larger frames
//!            cmp rsp, [r14 + 16]              assembly: mov rcx, fs:slot; cmp rsp, [rcx + 16]
//!            jbe grow
//!   behind:  push rbp ...
//!   grow:    call runtime.morestack; jmp entry
//! ```
//!
//! If too little stack is left, or the goroutine has to yield to another, the function is entered a second time
//! afterwards. So one call may reach the first instruction twice. It reaches the instruction after the check only
//! once, with the same stack pointer and arguments.

/// If the code begins with bytes of this form, yields the code after them. `None` in the form stands for any byte.
fn take<'c>(code: &'c [u8], form: &[Option<u8>]) -> Option<&'c [u8]> {
    let (front, rest) = code.split_at_checked(form.len())?;
    let fits = front
        .iter()
        .zip(form)
        .all(|(byte, form)| form.is_none_or(|form| form == *byte));
    fits.then_some(rest)
}

/// As [`take`], with one of several forms.
fn take_one<'c>(code: &'c [u8], forms: &[&[Option<u8>]]) -> Option<&'c [u8]> {
    forms.iter().find_map(|form| take(code, form))
}

/// `bytes![0x76, _]`.
macro_rules! bytes {
    (@ _) => { None };
    (@ $byte:literal) => { Some($byte) };
    ($($byte:tt),*) => { &[$(bytes!(@ $byte)),*] };
}

/// The number of bytes of a Go function's check for enough stack; 0: it has no check.
pub(crate) fn bytes_of(code: &[u8]) -> usize {
    behind(code).map_or(0, |rest| code.len() - rest.len())
}

fn behind(code: &[u8]) -> Option<&[u8]> {
    // The loads of g in assembly: mov rcx, fs:d; mov rcx, d and mov rcx, fs:[rcx].
    let slots: [&[Option<u8>]; 2] = [
        bytes![0x64, 0x48, 0x8b, 0x0c, 0x25, _, _, _, _],
        bytes![0x48, 0xc7, 0xc1, _, _, _, _, 0x64, 0x48, 0x8b, 0x09],
    ];
    let code = take_one(code, &slots).unwrap_or(code);
    // lea r12, [rsp - d].
    let frames: [&[Option<u8>]; 2] = [
        bytes![0x4c, 0x8d, 0x64, 0x24, _],
        bytes![0x4c, 0x8d, 0xa4, 0x24, _, _, _, _],
    ];
    let code = take_one(code, &frames).or_else(|| huge(code)).unwrap_or(code);
    // cmp rsp or r12, [r14 or rcx + 16].
    let limits: [&[Option<u8>]; 4] = [
        bytes![0x49, 0x3b, 0x66, 0x10],
        bytes![0x4d, 0x3b, 0x66, 0x10],
        bytes![0x48, 0x3b, 0x61, 0x10],
        bytes![0x4c, 0x3b, 0x61, 0x10],
    ];
    let code = take_one(code, &limits)?;
    // jbe.
    let jumps: [&[Option<u8>]; 2] = [bytes![0x76, _], bytes![0x0f, 0x86, _, _, _, _]];
    take_one(code, &jumps)
}

/// The check of a huge frame: mov r12, rsp; sub r12, frame; jb grow.
fn huge(code: &[u8]) -> Option<&[u8]> {
    let code = take(code, bytes![0x49, 0x89, 0xe4])?;
    let code = take(code, bytes![0x49, 0x81, 0xec, _, _, _, _])?;
    let jumps: [&[Option<u8>]; 2] = [bytes![0x72, _], bytes![0x0f, 0x82, _, _, _, _]];
    take_one(code, &jumps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_of_the_check_is_known() {
        let forms: [(&[u8], usize); 6] = [
            // cmp rsp, [r14+16]; jbe; push rbp
            (&[0x49, 0x3b, 0x66, 0x10, 0x76, 0x20, 0x55], 6),
            (&[0x49, 0x3b, 0x66, 0x10, 0x0f, 0x86, 1, 2, 0, 0, 0x55], 10),
            // lea r12, [rsp-0x28]; cmp r12, [r14+16]; jbe
            (
                &[0x4c, 0x8d, 0x64, 0x24, 0xd8, 0x4d, 0x3b, 0x66, 0x10, 0x76, 3, 0x55],
                11,
            ),
            // mov rcx, fs:-8; cmp rsp, [rcx+16]; jbe
            (
                &[
                    0x64, 0x48, 0x8b, 0x0c, 0x25, 0xf8, 255, 255, 255, 0x48, 0x3b, 0x61, 0x10, 0x76, 3,
                ],
                15,
            ),
            // Code without a check: push rbp; another comparison.
            (&[0x55, 0x48, 0x89, 0xe5], 0),
            (&[0x49, 0x3b, 0x66, 0x18, 0x76, 0x20, 0x55], 0),
        ];
        for (code, expected) in forms {
            assert_eq!(bytes_of(code), expected, "{code:x?}");
            for cut in 0..expected {
                assert_eq!(bytes_of(&code[..cut]), 0, "cut");
            }
        }
    }
}
