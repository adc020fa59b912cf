//! The functions that are run. rdi points into the data, rsi to its middle, r10 to its end; everything else is
//! random. Each sets `end` after its own last instruction; other functions follow.

use iced_x86::IcedError;
use iced_x86::code_asm::*;

pub type Emit = fn(&mut CodeAssembler, &mut CodeLabel) -> Result<(), IcedError>;

/// Stands for the address one byte after `end`, which the driver puts in its place.
pub const ADDRESS_BEHIND_END: u64 = 0x0bad_f00d_feed_face;

pub const FUNCTIONS: [(&str, Emit); 13] = [
    ("prologue and epilogue", prologue),
    ("red zone", red_zone),
    ("counted loops", counted_loops),
    ("calls", calls),
    ("switch", switch),
    ("string instructions", strings),
    ("tail calls", tail_calls),
    ("all conditions", conditions),
    ("relative operands", relative),
    ("one-byte instructions", one_byte),
    ("puns", puns),
    ("short exits", short_exits),
    ("springboards", springboards),
];

fn prologue(a: &mut CodeAssembler, end: &mut CodeLabel) -> Result<(), IcedError> {
    a.endbr64()?;
    a.push(rbp)?;
    a.mov(rbp, rsp)?;
    a.push(r12)?;
    a.push(rbx)?;
    a.adc(rax, rcx)?;
    a.sbb(rdx, r8)?;
    a.mov(rbx, qword_ptr(rdi))?;
    a.adc(rbx, rdx)?;
    a.mov(qword_ptr(rdi + 8), rbx)?;
    a.movq(xmm0, rax)?;
    a.paddq(xmm0, xmm0)?;
    a.movq(r9, xmm0)?;
    a.pop(rbx)?;
    a.pop(r12)?;
    a.pop(rbp)?;
    a.ret()?;
    a.set_label(end)?;
    a.int3()
}

fn red_zone(a: &mut CodeAssembler, end: &mut CodeLabel) -> Result<(), IcedError> {
    a.mov(qword_ptr(rsp - 8), rdi)?;
    a.mov(qword_ptr(rsp - 128), rsi)?;
    a.mov(qword_ptr(rsp - 64), rax)?;
    a.xor(edi, edi)?;
    a.xor(esi, esi)?;
    a.not(rax)?;
    a.mov(rdi, qword_ptr(rsp - 8))?;
    a.mov(rsi, qword_ptr(rsp - 128))?;
    a.add(rax, qword_ptr(rsp - 64))?;
    a.mov(qword_ptr(rsi), rax)?;
    a.ret()?;
    a.set_label(end)?;
    a.nop_1::<AsmMemoryOperand>(dword_ptr(rax))
}

fn counted_loops(a: &mut CodeAssembler, end: &mut CodeLabel) -> Result<(), IcedError> {
    let (mut first, mut second, mut out) = (a.create_label(), a.create_label(), a.create_label());
    a.mov(ecx, 5)?;
    a.set_label(&mut first)?;
    a.lea(rax, qword_ptr(rax + rcx * 2))?;
    a.loop_(first)?;
    a.jrcxz(out)?;
    a.mov(rax, 1u64)?;
    a.set_label(&mut out)?;
    a.adc(rdx, 0)?;
    a.mov(ecx, 3)?;
    a.set_label(&mut second)?;
    a.cmp(ecx, 2)?;
    a.inc(r8)?;
    a.loopne(second)?;
    a.setg(al)?;
    a.mov(rcx, 0x1_0000_0000u64)?;
    a.db(&[0x67, 0xe3, 3])?; // jecxz over the next instruction
    a.inc(r9)?;
    a.sbb(r8, rax)?;
    a.ret()?;
    a.set_label(end)?;
    a.int3()
}

/// The callee adds its own return address to rax, and its caller's return address to rdx.
fn calls(a: &mut CodeAssembler, end: &mut CodeLabel) -> Result<(), IcedError> {
    let (mut callee, mut pointer) = (a.create_label(), a.create_label());
    a.push(rbx)?;
    a.call(callee)?;
    a.lea(r11, ptr(callee))?;
    a.adc(rdx, 1)?;
    a.call(r11)?;
    a.push(r11)?;
    a.push(r11)?;
    a.call(qword_ptr(rsp + 8))?;
    a.mov(r9, rsp)?;
    a.call(qword_ptr(r9))?;
    a.sub(r9, rsp)?;
    a.call(qword_ptr(pointer))?;
    a.xor(r11d, r11d)?;
    a.pop(r8)?;
    a.sub(r8, qword_ptr(rsp))?;
    a.pop(rbx)?;
    a.pop(rbx)?;
    a.ret()?;
    a.set_label(end)?;
    a.int3()?;
    a.set_label(&mut callee)?;
    a.adc(rax, qword_ptr(rsp))?;
    a.ret()?;
    a.set_label(&mut pointer)?;
    a.dq(&[ADDRESS_BEHIND_END])
}

/// Jumps into the function and out of it, through a register that was loaded from a table of offsets.
fn switch(a: &mut CodeAssembler, end: &mut CodeLabel) -> Result<(), IcedError> {
    let (mut base, mut outside, mut one) = (a.create_label(), a.create_label(), a.create_label());
    let (mut two, mut three) = (a.create_label(), a.create_label());
    a.push(rbx)?;
    a.mov(rbx, rcx)?;
    a.and(ebx, 3)?;
    a.lea(rdx, ptr(base))?;
    a.imul_3(rbx, rbx, 8)?;
    a.add(rdx, rbx)?;
    a.pop(rbx)?;
    a.adc(rax, 0)?;
    a.jmp(rdx)?;
    // Four cases of eight bytes.
    a.set_label(&mut base)?;
    a.not(rax)?;
    a.jmp(one)?;
    a.nop()?;
    a.nop()?;
    a.nop()?;
    a.inc(rax)?;
    a.ret()?;
    a.int3()?;
    a.int3()?;
    a.int3()?;
    a.int3()?;
    a.dec(rax)?;
    a.jmp(two)?;
    a.nop()?;
    a.nop()?;
    a.nop()?;
    a.neg(rax)?;
    a.jmp(one)?;
    a.nop()?;
    a.nop()?;
    a.nop()?;
    a.set_label(&mut one)?;
    a.sbb(rcx, rax)?;
    a.ret()?;
    a.set_label(&mut two)?;
    a.lea(r11, ptr(three))?;
    a.mov(qword_ptr(rsp - 16), r11)?;
    a.jmp(qword_ptr(rsp - 16))?;
    a.nop()?;
    a.set_label(&mut three)?;
    a.lea(r11, ptr(outside))?;
    a.mov(qword_ptr(rsp - 16), r11)?;
    a.jmp(qword_ptr(rsp - 16))?;
    a.set_label(end)?;
    a.int3()?;
    a.set_label(&mut outside)?;
    a.rol(rax, 7)?;
    a.ret()
}

/// The direction flag is the caller's: both directions stay inside of the data.
fn strings(a: &mut CodeAssembler, end: &mut CodeLabel) -> Result<(), IcedError> {
    a.mov(ecx, 9)?;
    a.lea(rdi, qword_ptr(rdi + 64))?;
    a.rep().movsb()?;
    a.stosq()?;
    a.setb(al)?;
    a.lodsb()?;
    a.mov(ecx, 4)?;
    a.repe().cmpsb()?;
    a.sete(cl)?;
    a.ret()?;
    a.set_label(end)?;
    a.int3()
}

fn tail_calls(a: &mut CodeAssembler, end: &mut CodeLabel) -> Result<(), IcedError> {
    let (mut first, mut second, mut third) = (a.create_label(), a.create_label(), a.create_label());
    a.test(cl, 1)?;
    a.jne(first)?;
    a.test(cl, 2)?;
    a.je(second)?;
    a.test(dl, 4)?;
    a.lea(r11, ptr(third))?;
    a.jmp(r11)?;
    a.set_label(end)?;
    a.int3()?;
    a.set_label(&mut first)?;
    a.adc(rax, 1)?;
    a.ret()?;
    a.set_label(&mut second)?;
    a.sbb(rax, 1)?;
    a.ret()?;
    a.set_label(&mut third)?;
    a.rcl(rax, 1)?;
    a.ret()
}

fn conditions(a: &mut CodeAssembler, end: &mut CodeLabel) -> Result<(), IcedError> {
    a.setl(al)?;
    a.setp(ah)?;
    a.cmova(rbx, rcx)?;
    a.cmovo(rdx, r8)?;
    type Jump = fn(&mut CodeAssembler, CodeLabel) -> Result<(), IcedError>;
    let jumps: [Jump; 16] = [
        |a, l| a.jo(l),
        |a, l| a.jno(l),
        |a, l| a.jb(l),
        |a, l| a.jae(l),
        |a, l| a.je(l),
        |a, l| a.jne(l),
        |a, l| a.jbe(l),
        |a, l| a.ja(l),
        |a, l| a.js(l),
        |a, l| a.jns(l),
        |a, l| a.jp(l),
        |a, l| a.jnp(l),
        |a, l| a.jl(l),
        |a, l| a.jge(l),
        |a, l| a.jle(l),
        |a, l| a.jg(l),
    ];
    for (index, jump) in jumps.into_iter().enumerate() {
        let mut over = a.create_label();
        jump(a, over)?;
        a.lea(r9, qword_ptr(r9 + r9 + index as i32))?;
        a.set_label(&mut over)?;
        a.lea(r9, qword_ptr(r9 + r9))?;
    }
    a.lahf()?;
    a.mov(qword_ptr(rdi), rax)?;
    a.ret()?;
    a.set_label(end)?;
    a.int3()
}

fn relative(a: &mut CodeAssembler, end: &mut CodeLabel) -> Result<(), IcedError> {
    let mut constant = a.create_label();
    a.cmp(dword_ptr(constant), 7)?;
    a.adc(rax, qword_ptr(constant))?;
    a.movups(xmm1, xmmword_ptr(constant))?;
    a.movups(xmmword_ptr(rdi + 16), xmm1)?;
    a.imul_3(rcx, qword_ptr(constant), 0x1234_5678)?;
    a.test(byte_ptr(constant), 0x40)?;
    a.cmove(rdx, qword_ptr(constant))?;
    a.lea(rbx, qword_ptr(constant))?;
    a.ret()?;
    a.set_label(end)?;
    a.int3()?;
    a.set_label(&mut constant)?;
    a.dq(&[0x1122_3344_5566_7788, 0x99aa_bbcc_ddee_ff00])
}

fn one_byte(a: &mut CodeAssembler, end: &mut CodeLabel) -> Result<(), IcedError> {
    a.push(rax)?;
    a.push(rbx)?;
    a.push(rcx)?;
    a.push(rdx)?;
    a.push(rbp)?;
    a.cmc()?;
    a.cdq()?;
    a.cwde()?;
    a.pop(rax)?;
    a.pop(rbp)?;
    a.pop(rdx)?;
    a.pop(rcx)?;
    a.pop(rbx)?;
    a.cld()?;
    a.std()?;
    a.stc()?;
    a.ret()?;
    a.set_label(end)?;
    a.int3()?;
    a.int3()?;
    a.int3()?;
    a.int3()
}

/// Instructions before a call, and short pieces of code before a branch's target: the last bytes of their jumps are
/// the bytes of the following instructions.
fn puns(a: &mut CodeAssembler, end: &mut CodeLabel) -> Result<(), IcedError> {
    let (mut callee, mut again, mut out) = (a.create_label(), a.create_label(), a.create_label());
    a.sub(rsp, 8)?;
    a.call(callee)?;
    a.adc(rax, rcx)?;
    a.push(rbx)?;
    a.movzx(ebx, byte_ptr(rdi))?;
    a.set_label(&mut again)?;
    a.add(rax, 3)?;
    a.dec(bl)?;
    a.jne(again)?;
    a.pop(rbx)?;
    a.inc(edx)?;
    a.call(callee)?;
    a.test(al, 1)?;
    a.je(out)?;
    a.add(rsp, 8)?;
    a.ret()?;
    a.set_label(&mut out)?;
    a.not(rax)?;
    a.cmc()?;
    a.call(callee)?;
    a.add(rsp, 8)?;
    a.ret()?;
    a.set_label(end)?;
    a.int3()?;
    a.set_label(&mut callee)?;
    // The callee copies its return address, so that it is compared, too.
    a.mov(r9, qword_ptr(rsp))?;
    a.adc(rax, r9)?;
    a.ret()
}

/// Exits of one byte, without padding after them. A branch in the run before leads to each of them.
fn short_exits(a: &mut CodeAssembler, end: &mut CodeLabel) -> Result<(), IcedError> {
    let mut out = a.create_label();
    a.test(al, 1)?;
    a.je(out)?;
    a.adc(ecx, 1)?;
    a.set_label(&mut out)?;
    a.ret()?;
    a.set_label(end)?;
    a.push(rbp)?;
    a.mov(rbp, rsp)
}

/// Padding between the blocks, for short jumps to springboards.
fn springboards(a: &mut CodeAssembler, end: &mut CodeLabel) -> Result<(), IcedError> {
    let (mut callee, mut again, mut out) = (a.create_label(), a.create_label(), a.create_label());
    a.sub(rsp, 8)?;
    a.call(callee)?;
    a.test(al, 1)?;
    a.je(out)?;
    a.stc()?;
    a.adc(rdx, rax)?;
    a.add(rsp, 8)?;
    a.ret()?;
    a.nops_with_size(9)?;
    a.nops_with_size(6)?;
    a.set_label(&mut again)?;
    a.rol(r8, 1)?;
    a.cmc()?;
    a.set_label(&mut out)?;
    a.inc(al)?;
    a.jne(again)?;
    a.add(rsp, 8)?;
    a.ret()?;
    for _ in 0..7 {
        a.nops_with_size(2)?;
    }
    a.set_label(end)?;
    for _ in 0..15 {
        a.int3()?;
    }
    a.set_label(&mut callee)?;
    a.add(rax, rcx)?;
    a.ret()
}
