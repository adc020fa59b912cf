//! Code for which the proof succeeds, and code for which it fails.

use super::*;

const BASE: u64 = 0x10_0000;

fn is_proven(code: &[u8]) -> bool {
    found(code) <= VectorUse::Nothing
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

/// A pointer may lead to errno, which is found by the thread pointer.
#[test]
fn a_write_through_a_pointer_is_not_local() {
    let local: [(&str, &[u8]); 8] = [
        ("xor eax, eax; ret", &[0x31, 0xc0, 0xc3]),
        ("inc qword [rip]; ret", &[0x48, 0xff, 0x05, 0, 0, 0, 0, 0xc3]),
        (
            "inc qword [0x404040]; ret",
            &[0x48, 0xff, 0x04, 0x25, 0x40, 0x40, 0x40, 0, 0xc3],
        ),
        ("mov [rsp - 8], rdi; ret", &[0x48, 0x89, 0x7c, 0x24, 0xf8, 0xc3]),
        (
            "mov rax, fs:[rdi]; mov rax, [rax]; ret",
            &[0x64, 0x48, 0x8b, 0x07, 0x48, 0x8b, 0x00, 0xc3],
        ),
        ("push rbx; pop rbx; ret", &[0x53, 0x5b, 0xc3]),
        (
            "push rbp; mov rbp, rsp; mov [rbp - 8], rdi; pop rbp; ret",
            &[0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0x7d, 0xf8, 0x5d, 0xc3],
        ),
        ("call 1f; ret; 1: ret", &[0xe8, 1, 0, 0, 0, 0xc3, 0xc3]),
    ];
    let not: [(&str, &[u8]); 8] = [
        ("mov [rdi], eax; ret", &[0x89, 0x07, 0xc3]),
        ("lock inc qword [rsi]; ret", &[0xf0, 0x48, 0xff, 0x06, 0xc3]),
        ("xchg [rdi], eax; ret", &[0x87, 0x07, 0xc3]),
        ("mov fs:[0], eax; ret", &[0x64, 0x89, 0x04, 0x25, 0, 0, 0, 0, 0xc3]),
        ("mov fs:[rip], eax; ret", &[0x64, 0x89, 0x05, 0, 0, 0, 0, 0xc3]),
        (
            "mov [rax * 4 + 0x404040], edi; ret",
            &[0x89, 0x3c, 0x85, 0x40, 0x40, 0x40, 0, 0xc3],
        ),
        ("stosb; ret", &[0xaa, 0xc3]),
        ("mov [rbp - 8], rdi; ret", &[0x48, 0x89, 0x7d, 0xf8, 0xc3]),
    ];
    for (name, code) in local {
        assert_eq!(found(code), VectorUse::Local, "{name}");
        let vectors = [&[0x66, 0x0f, 0xef, 0xc0][..], code].concat();
        assert_eq!(found(&vectors), VectorUse::Xmm, "pxor xmm0, xmm0; {name}");
    }
    for (name, code) in not {
        assert_eq!(found(code), VectorUse::Nothing, "{name}");
        // The same code in a called function.
        let call = [&[0xe8, 1, 0, 0, 0, 0xc3][..], code].concat();
        assert_eq!(found(&call), VectorUse::Nothing, "call {name}");
        let vectors = [&[0x66, 0x0f, 0xef, 0xc0][..], code].concat();
        assert_eq!(found(&vectors), VectorUse::Xmm, "pxor xmm0, xmm0; {name}");
    }
}

#[test]
fn code_that_uses_other_registers_is_not_proven() {
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
        // The same code after a branch, in a called function, and in the target of a tail call.
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
        // The same code after a branch and in a called function. Code that leads to an unknown place proves nothing.
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
    // movups [rsp], xmm0; ret: this overwrites the return address.
    assert_eq!(found(&[0x0f, 0x11, 0x04, 0x24, 0xc3]), VectorUse::Anything);
    // movups [rsp - 8], xmm0; ret: it overwrites half of the return address.
    assert_eq!(found(&[0x0f, 0x11, 0x44, 0x24, 0xf8, 0xc3]), VectorUse::Anything);
    assert_eq!(found(&[0x0f, 0x11, 0x44, 0x24, 0xf0, 0xc3]), VectorUse::Xmm);
}

#[test]
fn code_that_leads_elsewhere_is_not_proven() {
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
    // Two ways with different depths of the stack join: je over a push.
    assert!(!is_proven(&[0x85, 0xff, 0x74, 0x01, 0x53, 0xc3]));
}
