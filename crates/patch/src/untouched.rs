//! Code that provably leaves the vector, mask and x87 registers alone, and MXCSR: around a call of it they need not be saved.
//! Or that touches of all these the lower 128 bits of the first sixteen vector registers and MXCSR only, as code does that is
//! compiled for any x86-64: instructions in the legacy encoding leave the upper parts as they are.
//!
//! All that a call can execute is followed from its first instruction, through every direct branch and into every function
//! that is called directly. The proof fails at the first instruction that
//!
//! - is neither one of the general instruction sets nor of SSE up to 4.2, or has a register of another kind as an operand;
//! - leads somewhere that is not written in it: indirect calls and jumps (a call of another module is one, through its
//!   table), system calls, interrupts;
//! - returns from a depth of the stack other than the entry's, or may have been written over where the return address lies:
//!   `push rax; ret` and a retpoline's `mov [rsp], rax; ret` are indirect jumps in disguise.
//!
//! ```text
//!   state at an instruction     rsp, rbp: relative to the return address of the function that it is in
//!     entry                     rsp = 0, rbp unknown
//!     push rbp; mov rbp, rsp    rsp = -8, rbp = -8
//!     leave                     rsp = 0, rbp unknown
//!     ret                       only with rsp = 0
//! ```
//!
//! As compilers do, it takes for granted that functions keep rbp and that nothing is written outside of its object.

use std::collections::HashMap;

use iced_x86::{
    Code, CpuidFeature, Decoder, DecoderOptions, EncodingKind, FlowControl, Instruction, InstructionInfo,
    InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};

use crate::TargetAddress;

/// How many instructions are looked at, at most: a bound on the time that it takes.
pub const PROOF_INSTRUCTIONS_MAX: usize = 512;

/// What code may touch besides general registers, provably.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum VectorUse {
    /// Nothing.
    Nothing,
    /// xmm0-15 and MXCSR: the upper parts of these registers, the others, masks and x87 are left alone.
    Xmm,
    /// Anything: nothing is proven.
    Anything,
}

/// What a call of the function at `entry` touches of all vector, mask and x87 registers and MXCSR.
///
/// `text` yields the bytes at an address, at least 15 where there are so many; none where the code is not known to stay as it
/// is.
pub fn vector_use(entry: TargetAddress, text: &mut dyn FnMut(TargetAddress) -> Vec<u8>) -> VectorUse {
    let mut proof = Proof {
        states: HashMap::new(),
        pending: Vec::new(),
        info: InstructionInfoFactory::new(),
        found: VectorUse::Nothing,
    };
    match proof.reach(entry.0, State::ENTRY).and_then(|()| proof.run(text)) {
        Some(()) => proof.found,
        None => VectorUse::Anything,
    }
}

/// Where the stack and the frame are, in bytes behind the return address's place; what is unknown is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    stack: i64,
    frame: Option<i64>,
}

impl State {
    const ENTRY: State = State { stack: 0, frame: None };
}

struct Proof {
    states: HashMap<u64, State>,
    pending: Vec<u64>,
    info: InstructionInfoFactory,
    found: VectorUse,
}

impl Proof {
    /// An instruction is reached in a state. `None`: in another one than before.
    fn reach(&mut self, address: u64, state: State) -> Option<()> {
        let Some(known) = self.states.get_mut(&address) else {
            self.states.insert(address, state);
            self.pending.push(address);
            return Some(());
        };
        if known.stack != state.stack {
            return None;
        }
        if known.frame.is_some() && known.frame != state.frame {
            known.frame = None;
            self.pending.push(address);
        }
        Some(())
    }

    fn run(&mut self, text: &mut dyn FnMut(TargetAddress) -> Vec<u8>) -> Option<()> {
        while let Some(address) = self.pending.pop() {
            if self.states.len() > PROOF_INSTRUCTIONS_MAX {
                return None;
            }
            let state = *self.states.get(&address)?;
            let bytes = text(TargetAddress(address));
            let instruction = Decoder::with_ip(64, &bytes, address, DecoderOptions::NONE).decode();
            if instruction.is_invalid() {
                return None;
            }
            let info = self.info.info(&instruction);
            if !is_general(&instruction) {
                if !is_legacy_sse(&instruction) {
                    return None;
                }
                self.found = VectorUse::Xmm;
            }
            let mut used = info.used_registers().iter().map(|used| used.register());
            if !used.all(|register| is_plain(register) || self.found == VectorUse::Xmm && is_xmm(register))
                || overwrites_return(info, state)
            {
                return None;
            }
            let after = behind(&instruction, info, state)?;
            let next = instruction.next_ip();
            match instruction.flow_control() {
                FlowControl::Next => self.reach(next, after)?,
                FlowControl::ConditionalBranch => {
                    self.reach(instruction.near_branch_target(), state)?;
                    self.reach(next, state)?;
                }
                FlowControl::UnconditionalBranch => self.reach(instruction.near_branch_target(), state)?,
                FlowControl::Call if instruction.code() == Code::Call_rel32_64 => {
                    self.reach(instruction.near_branch_target(), State::ENTRY)?;
                    self.reach(next, state)?;
                }
                FlowControl::Return if instruction.code() == Code::Retnq && state.stack == 0 => {}
                _ => return None,
            }
        }
        Some(())
    }
}

/// Of the instruction sets that know general registers only.
fn is_general(instruction: &Instruction) -> bool {
    use CpuidFeature::*;
    let is_known = |feature: &CpuidFeature| {
        matches!(
            feature,
            INTEL8086
                | INTEL186
                | INTEL286
                | INTEL386
                | INTEL486
                | X64
                | ADX
                | BMI1
                | BMI2
                | CET_IBT
                | CMOV
                | CMPXCHG16B
                | CPUID
                | CX8
                | LZCNT
                | MOVBE
                | MULTIBYTENOP
                | PAUSE
                | POPCNT
                | PREFETCHW
                | RDPID
                | RDRAND
                | RDSEED
                | RDTSCP
                | TSC
        )
    };
    match instruction.mnemonic() {
        Mnemonic::Lfence | Mnemonic::Mfence | Mnemonic::Sfence => true,
        Mnemonic::Prefetcht0 | Mnemonic::Prefetcht1 | Mnemonic::Prefetcht2 | Mnemonic::Prefetchnta => true,
        Mnemonic::Wait => false,
        // Its address is taken behind the change of the stack pointer.
        Mnemonic::Pop => instruction.op0_kind() == OpKind::Register,
        _ => instruction.cpuid_features().iter().all(is_known),
    }
}

/// Of SSE to SSE4.2, in the encoding that knows nothing wider, and leaving x87 as it is, which MMX shares. (Operands are looked
/// at besides.)
fn is_legacy_sse(instruction: &Instruction) -> bool {
    use CpuidFeature::*;
    let is_known = |feature: &CpuidFeature| matches!(feature, SSE | SSE2 | SSE3 | SSSE3 | SSE4_1 | SSE4_2);
    // With memory as the operand these may turn x87 into MMX, too.
    let turns_to_mmx = matches!(
        instruction.mnemonic(),
        Mnemonic::Cvtpi2ps
            | Mnemonic::Cvtpi2pd
            | Mnemonic::Cvtps2pi
            | Mnemonic::Cvttps2pi
            | Mnemonic::Cvtpd2pi
            | Mnemonic::Cvttpd2pi
            | Mnemonic::Fisttp
    );
    instruction.encoding() == EncodingKind::Legacy && !turns_to_mmx && instruction.cpuid_features().iter().all(is_known)
}

fn is_xmm(register: Register) -> bool {
    register.is_xmm() && register.number() < 16
}

fn is_plain(register: Register) -> bool {
    register.is_gpr() || register.is_segment_register() || register == Register::RIP
}

/// Whether it may write to where the return address lies.
fn overwrites_return(info: &InstructionInfo, state: State) -> bool {
    let mut memory = info.used_memory().iter();
    memory.any(|used| {
        let base = match used.base() {
            Register::RSP => Some(state.stack),
            Register::RBP => state.frame,
            _ => None,
        };
        let is_read = matches!(
            used.access(),
            OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess
        );
        base.is_some_and(|base| {
            let from = base.saturating_add(used.displacement() as i64);
            let bytes = used.memory_size().size() as i64;
            // An index leads forwards, and stays in its object.
            !is_read && from < 8 && from.saturating_add(bytes.max(1)) > 0
        })
    })
}

/// Where stack and frame are behind an instruction; `None`: unknown, or above the return address.
fn behind(instruction: &Instruction, info: &InstructionInfo, state: State) -> Option<State> {
    let writes = |register: Register| {
        let mut used = info.used_registers().iter();
        used.any(|used| {
            used.register().full_register() == register
                && !matches!(used.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::None)
        })
    };
    if instruction.flow_control() != FlowControl::Next {
        return Some(state);
    }
    let operands = (instruction.op0_register(), instruction.op1_register());
    let mnemonic = instruction.mnemonic();
    let displacement = instruction.memory_displacement64() as i64;
    let is_plain_address = instruction.memory_index() == Register::None;
    let stack = if !writes(Register::RSP) {
        state.stack
    } else if mnemonic == Mnemonic::Leave {
        state.frame?.checked_add(8)?
    } else if instruction.is_stack_instruction() && !matches!(operands.0, Register::RSP | Register::SP) {
        state
            .stack
            .checked_sub(-i64::from(instruction.stack_pointer_increment()))?
    } else {
        match (mnemonic, operands) {
            (Mnemonic::Mov, (Register::RSP, Register::RBP)) => state.frame?,
            (Mnemonic::Lea, (Register::RSP, _)) if is_plain_address => match instruction.memory_base() {
                Register::RSP => state.stack.checked_add(displacement)?,
                Register::RBP => state.frame?.checked_add(displacement)?,
                _ => return None,
            },
            (Mnemonic::Add, (Register::RSP, Register::None)) if is_immediate(instruction) => {
                state.stack.checked_add(instruction.immediate(1) as i64)?
            }
            (Mnemonic::Sub, (Register::RSP, Register::None)) if is_immediate(instruction) => {
                state.stack.checked_sub(instruction.immediate(1) as i64)?
            }
            _ => return None,
        }
    };
    if stack > 0 {
        return None;
    }
    let frame = match (mnemonic, operands) {
        (Mnemonic::Mov, (Register::RBP, Register::RSP)) => Some(state.stack),
        _ if writes(Register::RBP) => None,
        _ => state.frame,
    };
    Some(State { stack, frame })
}

fn is_immediate(instruction: &Instruction) -> bool {
    matches!(instruction.op1_kind(), OpKind::Immediate8to64 | OpKind::Immediate32to64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 0x10_0000;

    fn is_proven(code: &[u8]) -> bool {
        found(code) == VectorUse::Nothing
    }

    fn found(code: &[u8]) -> VectorUse {
        let mut text = |address: TargetAddress| {
            let from = address.0.wrapping_sub(BASE) as usize;
            code.get(from..)
                .map_or(Vec::new(), |rest| rest[..rest.len().min(15)].to_vec())
        };
        vector_use(TargetAddress(BASE), &mut text)
    }

    #[test]
    fn general_code_is_proven() {
        let proven: [(&str, &[u8]); 9] = [
            ("xor eax, eax; ret", &[0x31, 0xc0, 0xc3]),
            (
                "endbr64; mov rax, [rsp]; ret",
                &[0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x8b, 0x04, 0x24, 0xc3],
            ),
            ("lock inc qword [rdi]; ret", &[0xf0, 0x48, 0xff, 0x07, 0xc3]),
            ("rep stosq; ret", &[0xf3, 0x48, 0xab, 0xc3]),
            (
                "sub rsp, 24; mov [rsp + 16], rdi; add rsp, 24; ret",
                &[
                    0x48, 0x83, 0xec, 0x18, 0x48, 0x89, 0x7c, 0x24, 0x10, 0x48, 0x83, 0xc4, 0x18, 0xc3,
                ],
            ),
            (
                "push rbp; mov rbp, rsp; sub rsp, 16; mov [rbp - 8], rdi; leave; ret",
                &[
                    0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x10, 0x48, 0x89, 0x7d, 0xf8, 0xc9, 0xc3,
                ],
            ),
            (
                "test edi, edi; je +2; push rbx; pop rbx; ret",
                &[0x85, 0xff, 0x74, 0x02, 0x53, 0x5b, 0xc3],
            ),
            ("1: dec edi; jne 1b; ret", &[0xff, 0xcf, 0x75, 0xfc, 0xc3]),
            (
                "call 1f; ret; 1: rdtsc; lfence; ret",
                &[0xe8, 1, 0, 0, 0, 0xc3, 0x0f, 0x31, 0x0f, 0xae, 0xe8, 0xc3],
            ),
        ];
        for (name, code) in proven {
            assert!(is_proven(code), "{name}");
        }
    }

    #[test]
    fn whatever_touches_the_other_registers_is_not() {
        let touching: [(&str, &[u8]); 16] = [
            ("pxor xmm0, xmm0", &[0x66, 0x0f, 0xef, 0xc0]),
            ("movups [rdi], xmm15", &[0x44, 0x0f, 0x11, 0x3f]),
            ("movq rax, xmm0", &[0x66, 0x48, 0x0f, 0x7e, 0xc0]),
            ("vzeroupper", &[0xc5, 0xf8, 0x77]),
            (
                "vpternlogd zmm31, zmm31, zmm31, 255",
                &[0x62, 0x03, 0x05, 0x40, 0x25, 0xff, 0xff],
            ),
            ("kmovq k1, rax", &[0xc4, 0xe1, 0xfb, 0x92, 0xc8]),
            ("kxorw k0, k0, k0", &[0xc5, 0xfc, 0x47, 0xc0]),
            ("fld1", &[0xd9, 0xe8]),
            ("fninit", &[0xdb, 0xe3]),
            ("fldcw [rdi]", &[0xd9, 0x2f]),
            ("wait", &[0x9b]),
            ("emms", &[0x0f, 0x77]),
            ("movd mm0, eax", &[0x0f, 0x6e, 0xc0]),
            ("ldmxcsr [rdi]", &[0x0f, 0xae, 0x17]),
            ("fxrstor [rdi]", &[0x0f, 0xae, 0x0f]),
            ("xrstor [rdi]", &[0x0f, 0xae, 0x2f]),
        ];
        for (name, code) in touching {
            let mut code = code.to_vec();
            code.extend([0x31, 0xc0, 0xc3]);
            assert!(!is_proven(&code), "{name}");
            // Behind a branch, in a function that is called, and in one that is gone to at the end.
            assert!(
                !is_proven(&[&[0x85, 0xff, 0x74, 0x01, 0xc3][..], &code].concat()),
                "je {name}"
            );
            assert!(
                !is_proven(&[&[0xe8, 1, 0, 0, 0, 0xc3][..], &code].concat()),
                "call {name}"
            );
            assert!(!is_proven(&[&[0xe9, 0, 0, 0, 0][..], &code].concat()), "jmp {name}");
        }
    }

    #[test]
    fn only_legacy_sse_touches_xmm_alone() {
        let alone: [(&str, &[u8]); 8] = [
            ("pxor xmm0, xmm0", &[0x66, 0x0f, 0xef, 0xc0]),
            ("movups [rdi], xmm15", &[0x44, 0x0f, 0x11, 0x3f]),
            ("movq rax, xmm0", &[0x66, 0x48, 0x0f, 0x7e, 0xc0]),
            ("mulsd xmm1, [rdi]", &[0xf2, 0x0f, 0x59, 0x0f]),
            ("cvtsi2sd xmm0, rdi", &[0xf2, 0x48, 0x0f, 0x2a, 0xc7]),
            ("pshufb xmm0, xmm1", &[0x66, 0x0f, 0x38, 0x00, 0xc1]),
            ("ldmxcsr [rdi]", &[0x0f, 0xae, 0x17]),
            ("crc32 eax, edi", &[0xf2, 0x0f, 0x38, 0xf1, 0xc7]),
        ];
        let not: [(&str, &[u8]); 14] = [
            ("vpxor xmm0, xmm0, xmm0", &[0xc5, 0xf9, 0xef, 0xc0]),
            ("vzeroupper", &[0xc5, 0xf8, 0x77]),
            ("vmovaps zmm16, zmm1", &[0x62, 0xe1, 0x7c, 0x48, 0x28, 0xc1]),
            ("kmovq k1, rax", &[0xc4, 0xe1, 0xfb, 0x92, 0xc8]),
            ("pxor mm0, mm0", &[0x0f, 0xef, 0xc0]),
            ("pshufb mm0, mm1", &[0x0f, 0x38, 0x00, 0xc1]),
            ("movd mm0, eax", &[0x0f, 0x6e, 0xc0]),
            ("movq2dq xmm0, mm0", &[0xf3, 0x0f, 0xd6, 0xc0]),
            ("movdq2q mm0, xmm0", &[0xf2, 0x0f, 0xd6, 0xc0]),
            ("cvtpi2ps xmm0, [rdi]", &[0x0f, 0x2a, 0x07]),
            ("cvtpi2pd xmm0, [rdi]", &[0x66, 0x0f, 0x2a, 0x07]),
            ("fisttp dword [rdi]", &[0xdb, 0x0f]),
            ("fxrstor [rdi]", &[0x0f, 0xae, 0x0f]),
            ("emms", &[0x0f, 0x77]),
        ];
        let ending = |code: &[u8]| [code, &[0x31, 0xc0, 0xc3]].concat();
        for (name, code) in alone {
            let code = ending(code);
            assert_eq!(found(&code), VectorUse::Xmm, "{name}");
            // Behind a branch, in a function that is called; and what leads elsewhere is not proven for that.
            let branch = [&[0x85, 0xff, 0x74, 0x01, 0xc3][..], &code].concat();
            assert_eq!(found(&branch), VectorUse::Xmm, "je {name}");
            let call = [&[0xe8, 1, 0, 0, 0, 0xc3][..], &code].concat();
            assert_eq!(found(&call), VectorUse::Xmm, "call {name}");
            let elsewhere = [&code[..code.len() - 1], &[0xff, 0xe0]].concat();
            assert_eq!(found(&elsewhere), VectorUse::Anything, "{name}; jmp rax");
        }
        for (name, code) in not {
            assert_eq!(found(&ending(code)), VectorUse::Anything, "{name}");
            let mixed = [&[0x66, 0x0f, 0xef, 0xc0][..], &ending(code)].concat();
            assert_eq!(found(&mixed), VectorUse::Anything, "pxor xmm0, xmm0; {name}");
        }
        // movups [rsp], xmm0; ret: where the return address lies.
        assert_eq!(found(&[0x0f, 0x11, 0x04, 0x24, 0xc3]), VectorUse::Anything);
        // movups [rsp - 8], xmm0; ret: half of it.
        assert_eq!(found(&[0x0f, 0x11, 0x44, 0x24, 0xf8, 0xc3]), VectorUse::Anything);
        assert_eq!(found(&[0x0f, 0x11, 0x44, 0x24, 0xf0, 0xc3]), VectorUse::Xmm);
    }

    #[test]
    fn what_leads_elsewhere_is_not() {
        let elsewhere: [(&str, &[u8]); 17] = [
            ("call rax", &[0xff, 0xd0, 0xc3]),
            ("jmp rax", &[0xff, 0xe0]),
            ("call [rip]", &[0xff, 0x15, 0, 0, 0, 0, 0xc3]),
            ("jmp [rip]", &[0xff, 0x25, 0, 0, 0, 0]),
            ("syscall", &[0x0f, 0x05, 0xc3]),
            ("int3", &[0xcc]),
            ("int 0x80", &[0xcd, 0x80, 0xc3]),
            ("ud2", &[0x0f, 0x0b]),
            ("ret 8", &[0xc2, 8, 0]),
            ("push rax; ret", &[0x50, 0xc3]),
            ("mov [rsp], rax; ret", &[0x48, 0x89, 0x04, 0x24, 0xc3]),
            (
                "retpoline: call 1f; 1: mov [rsp], rax; ret",
                &[0xe8, 0, 0, 0, 0, 0x48, 0x89, 0x04, 0x24, 0xc3],
            ),
            (
                "push rbp; mov rbp, rsp; mov [rbp + 8], rdi; pop rbp; ret",
                &[0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0x7d, 0x08, 0x5d, 0xc3],
            ),
            ("pop rax; push rdi; ret", &[0x58, 0x57, 0xc3]),
            ("mov rsp, rdi; ret", &[0x48, 0x89, 0xfc, 0xc3]),
            ("leave; ret", &[0xc9, 0xc3]),
            ("push rdi; pop [rsp]; ret", &[0x57, 0x8f, 0x04, 0x24, 0xc3]),
        ];
        for (name, code) in elsewhere {
            assert!(!is_proven(code), "{name}");
        }
    }

    #[test]
    fn neither_unknown_nor_endless_code_is_proven() {
        assert!(!is_proven(&[]));
        assert!(!is_proven(&[0x90]));
        let mut long = vec![0x90; PROOF_INSTRUCTIONS_MAX - 1];
        long.push(0xc3);
        assert!(is_proven(&long));
        long.insert(0, 0x90);
        assert!(!is_proven(&long));
        // Half of the code at another depth: je over a push.
        assert!(!is_proven(&[0x85, 0xff, 0x74, 0x01, 0x53, 0xc3]));
    }
}
