//! The answer of a seccomp filter to a system call. The filter's program (classic BPF, as ptrace's
//! PTRACE_SECCOMP_GET_FILTER gives it) is interpreted here, on the `struct seccomp_data` that the kernel would pass to
//! it.
//!
//! The kernel checked the program when it was installed (kernel/seccomp.c, `seccomp_check_filter`): jumps lead forward
//! only, so it ends. Here it is hostile input all the same: anything unexpected counts as "not allowed".

/// `struct sock_filter`: one instruction.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Instruction {
    pub code: u16,
    pub jump_true: u8,
    pub jump_false: u8,
    pub k: u32,
}

const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;
const SECCOMP_RET_ACTION_FULL: u32 = 0xffff_0000;
const SECCOMP_RET_ALLOW: u32 = 0x7fff_0000;
const SECCOMP_RET_LOG: u32 = 0x7ffc_0000;
const SECCOMP_RET_ERRNO: u32 = 0x0005_0000;
const DATA_BYTES: u32 = 64;
const SCRATCH_WORDS: usize = 16;

/// Whether one filter lets a system call of x86-64 pass, with arguments that are all zero.
pub(crate) fn allows(filter: &[Instruction], number: u32) -> bool {
    run(filter, number, &[0; 6])
        .is_some_and(|verdict| matches!(verdict & SECCOMP_RET_ACTION_FULL, SECCOMP_RET_ALLOW | SECCOMP_RET_LOG))
}

/// Whether one filter may do more than let a call pass or fail: kill, send a signal, or ask a supervisor.
pub(crate) fn may_kill(filter: &[Instruction], number: u32, arguments: &[u64; 6]) -> bool {
    !run(filter, number, arguments).is_some_and(|verdict| {
        matches!(
            verdict & SECCOMP_RET_ACTION_FULL,
            SECCOMP_RET_ALLOW | SECCOMP_RET_LOG | SECCOMP_RET_ERRNO
        )
    })
}

/// The filter's return value; `None` for a program that the kernel would not run.
fn run(filter: &[Instruction], number: u32, arguments: &[u64; 6]) -> Option<u32> {
    let (mut a, mut x, mut scratch) = (0_u32, 0_u32, [0_u32; SCRATCH_WORDS]);
    let mut next = 0_usize;
    loop {
        let Instruction {
            code,
            jump_true,
            jump_false,
            k,
        } = *filter.get(next)?;
        next += 1;
        let operand = if code & 8 == 0 { k } else { x };
        let mut jump = |holds: bool| next += usize::from(if holds { jump_true } else { jump_false });
        match code {
            // ld [k], ld #len, ld #k, ld M[k]; ldx likewise
            0x20 => a = data(k, number, arguments)?,
            0x80 => a = DATA_BYTES,
            0x00 => a = k,
            0x60 => a = *scratch.get(k as usize)?,
            0x81 => x = DATA_BYTES,
            0x01 => x = k,
            0x61 => x = *scratch.get(k as usize)?,
            // st, stx, tax, txa
            0x02 => *scratch.get_mut(k as usize)? = a,
            0x03 => *scratch.get_mut(k as usize)? = x,
            0x07 => x = a,
            0x87 => a = x,
            // add, sub, mul, div, or, and, lsh, rsh, xor by #k and by x; neg
            0x04 | 0x0c => a = a.wrapping_add(operand),
            0x14 | 0x1c => a = a.wrapping_sub(operand),
            0x24 | 0x2c => a = a.wrapping_mul(operand),
            // On a division by zero, the kernel ends the program with 0, which kills.
            0x34 | 0x3c => a = a.checked_div(operand)?,
            0x44 | 0x4c => a |= operand,
            0x54 | 0x5c => a &= operand,
            0x64 | 0x6c => a = a.wrapping_shl(operand),
            0x74 | 0x7c => a = a.wrapping_shr(operand),
            0xa4 | 0xac => a ^= operand,
            0x84 => a = a.wrapping_neg(),
            // ja, jeq, jgt, jge, jset
            0x05 => next = next.checked_add(k as usize)?,
            0x15 | 0x1d => jump(a == operand),
            0x25 | 0x2d => jump(a > operand),
            0x35 | 0x3d => jump(a >= operand),
            0x45 | 0x4d => jump(a & operand != 0),
            // ret #k, ret a
            0x06 => return Some(k),
            0x16 => return Some(a),
            _ => return None,
        }
    }
}

/// A word of `struct seccomp_data`: number, architecture, instruction pointer, six arguments.
fn data(offset: u32, number: u32, arguments: &[u64; 6]) -> Option<u32> {
    const ARGUMENTS: u32 = 16;
    match offset {
        0 => Some(number),
        4 => Some(AUDIT_ARCH_X86_64),
        8..ARGUMENTS if offset.is_multiple_of(4) => Some(0),
        ARGUMENTS..DATA_BYTES if offset.is_multiple_of(4) => {
            let argument = arguments.get((offset - ARGUMENTS) as usize / 8)?;
            let shift = if offset.is_multiple_of(8) { 0 } else { 32 };
            Some((argument >> shift) as u32)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn op(code: u16, jump_true: u8, jump_false: u8, k: u32) -> Instruction {
        Instruction {
            code,
            jump_true,
            jump_false,
            k,
        }
    }
    const KILL: Instruction = op(0x06, 0, 0, 0);
    const ALLOW: Instruction = op(0x06, 0, 0, SECCOMP_RET_ALLOW);

    #[test]
    fn a_list_of_allowed_calls() {
        // The filter allows on this architecture: read, the numbers from 10 to 20, and number 35 with a first
        // argument below 2.
        let filter = [
            op(0x20, 0, 0, 4),
            op(0x15, 1, 0, AUDIT_ARCH_X86_64),
            KILL,
            op(0x20, 0, 0, 0),
            op(0x15, 6, 0, 0),
            op(0x35, 0, 1, 10),
            op(0x25, 0, 4, 20),
            op(0x15, 0, 2, 35),
            op(0x20, 0, 0, 16),
            op(0x35, 0, 1, 2),
            KILL,
            ALLOW,
        ];
        let allowed: Vec<u32> = (0..40).filter(|number| allows(&filter, *number)).collect();
        let expected: Vec<u32> = [0].into_iter().chain(10..=20).chain([35]).collect();
        assert_eq!(allowed, expected);
    }

    #[test]
    fn arithmetic_and_scratch_memory() {
        // Computes number * 3 - 1 by way of M[5] and X, shifts it left by 4, and xors its low byte with 0x10. For
        // number 5: 14 << 4 = 0xe0, & 0x7f = 0x60, ^ 0x10 = 0x70.
        let filter = [
            op(0x20, 0, 0, 0),
            op(0x24, 0, 0, 3),
            op(0x02, 0, 0, 5),
            op(0x61, 0, 0, 5),
            op(0x87, 0, 0, 0),
            op(0x14, 0, 0, 1),
            op(0x64, 0, 0, 4),
            op(0x54, 0, 0, 0x7f),
            op(0x44, 0, 0, 0x10),
            op(0x01, 0, 0, 0x10),
            op(0xac, 0, 0, 0),
            op(0x16, 0, 0, 0),
        ];
        assert_eq!(run(&filter, 5, &[0; 6]), Some(0x60));
        assert_eq!(
            run(&[op(0x20, 0, 0, 0), op(0x84, 0, 0, 0), op(0x16, 0, 0, 0)], 1, &[0; 6]),
            Some(u32::MAX)
        );
        assert_eq!(run(&[op(0x80, 0, 0, 0), op(0x16, 0, 0, 0)], 1, &[0; 6]), Some(64));
    }

    #[test]
    fn what_the_verdicts_mean() {
        let verdict = |k| allows(&[op(0x06, 0, 0, k)], 1);
        assert!(verdict(SECCOMP_RET_ALLOW) && verdict(SECCOMP_RET_LOG | 7));
        // These verdicts kill, send a signal, return an errno, or ask a supervisor or a tracer.
        for k in [0, 0x8000_0000, 0x0003_0000, 0x0005_0001, 0x7fc0_0000, 0x7ff0_0000] {
            assert!(!verdict(k), "{k:#x}");
        }
    }

    #[test]
    fn a_filter_of_arguments_kills_only_for_these() {
        // The filter kills if the third argument has bit 2 (PROT_EXEC), and fails the call if the first argument
        // has a high half. It allows all other calls.
        let filter = [
            op(0x20, 0, 0, 32),
            op(0x45, 0, 1, 4),
            KILL,
            op(0x20, 0, 0, 20),
            op(0x15, 1, 0, 0),
            op(0x06, 0, 0, 0x0005_0001),
            ALLOW,
        ];
        assert!(allows(&filter, 9));
        assert!(may_kill(&filter, 9, &[0, 0, 5, 0, 0, 0]));
        assert!(!may_kill(&filter, 9, &[1 << 32, 0, 3, 0, 0, 0]));
        assert!(may_kill(&[], 9, &[0; 6]), "no program at all");
    }

    #[test]
    fn nonsense_allows_nothing() {
        assert!(!allows(&[], 0));
        // Invalid filters: they run off their end, jump outside, read beyond the data or at an odd offset, use
        // memory beyond their own, or divide by 0.
        for instruction in [
            op(0x00, 0, 0, 1),
            op(0x05, 0, 0, u32::MAX),
            op(0x15, 200, 200, 0),
            op(0x20, 0, 0, 64),
            op(0x20, 0, 0, 2),
            op(0x60, 0, 0, 16),
            op(0x34, 0, 0, 0),
            op(0xffff, 0, 0, 0),
        ] {
            assert!(
                !allows(&[instruction, ALLOW], 0) || instruction.code == 0,
                "{instruction:?}"
            );
            assert_eq!(run(&[instruction], 0, &[0; 6]), None, "{instruction:?}");
        }
    }
}
