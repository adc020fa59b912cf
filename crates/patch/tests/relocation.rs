//! Relocation checked by an independent decoder: the relocated sequence, decoded again, means the same.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod support;

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use nanoprobe_patch::*;
use proptest::prelude::*;

const RUNTIME: Runtime = Runtime {
    enter: TargetAddress(1),
    table: TargetAddress(2),
    thread_key: ThreadKey::TlsSelf,
    // This form is the longest. Its copy is the same as that of the boosted form.
    trap: Some(TrapForm::Step),
};

fn decode(bytes: &[u8], address: u64) -> Vec<Instruction> {
    Decoder::with_ip(64, bytes, address, DecoderOptions::NONE)
        .into_iter()
        .collect()
}

/// Relocates one instruction by planning a `trap` without fires: the detour is the relocated code.
fn relocate(bytes: &[u8], address: u64, distance: i64) -> Result<Built, Refusal> {
    let start = TargetAddress(address);
    let extent = FunctionExtent {
        start,
        size: bytes.len() as u64,
        fragments: Vec::new(),
    };
    let map = analyze(&CodeView { start, bytes }, &extent);
    let (condition, position) = (FireCondition::Always, Position::Inside);
    let point = Point {
        site: start,
        condition,
        position,
        full_frame: false,
        fires: Vec::new(),
    };
    let plan = plan(
        &map,
        &[point],
        &PlanOptions {
            force: Some(Tactic::Trap),
            ..PlanOptions::default()
        },
    );
    assert_eq!(plan.runs.len() + plan.refusals.len(), 1);
    if let Some((_, refusal)) = plan.refusals.into_iter().next() {
        return Err(refusal);
    }
    let built = build(&plan.runs[0], start.checked_offset(distance).unwrap(), &RUNTIME)?;
    assert_eq!(built.detour.len(), plan.runs[0].detour_length);
    Ok(built)
}

/// Whether two instructions have the same operation and operands. Only place, length and the encoding of a displacement
/// may differ.
fn same_but_for_place(old: &Instruction, new: &Instruction) -> bool {
    let operands = (0..old.op_count()).all(|index| {
        old.op_kind(index) == new.op_kind(index)
            && match old.op_kind(index) {
                OpKind::Register => old.op_register(index) == new.op_register(index),
                OpKind::Memory => {
                    old.memory_base() == new.memory_base()
                        && old.memory_index() == new.memory_index()
                        && old.memory_index_scale() == new.memory_index_scale()
                        && old.memory_displacement64() == new.memory_displacement64()
                        && old.memory_segment() == new.memory_segment()
                        && old.memory_size() == new.memory_size()
                }
                OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64 => true,
                _ => old.try_immediate(index).ok() == new.try_immediate(index).ok(),
            }
    });
    old.code() == new.code()
        && old.op_count() == new.op_count()
        && operands
        && old.op_mask() == new.op_mask()
        && old.zeroing_masking() == new.zeroing_masking()
        && old.rounding_control() == new.rounding_control()
        && old.has_lock_prefix() == new.has_lock_prefix()
        && old.has_rep_prefix() == new.has_rep_prefix()
        && old.has_repne_prefix() == new.has_repne_prefix()
}

fn check(bytes: &[u8], address: u64, distance: i64) -> Result<(), String> {
    let old = decode(bytes, address)[0];
    let built = match relocate(bytes, address, distance) {
        Ok(built) => built,
        Err(refusal) => return refusal_is_right(&old, bytes, &refusal),
    };
    let code = &built.detour[..built.detour.len() - 8 * built.literals];
    let new = decode(code, address.wrapping_add_signed(distance));
    let context = || {
        format!(
            "{old} ({bytes:02x?}) became {:?}",
            new.iter().map(|i| i.to_string()).collect::<Vec<_>>()
        )
    };
    let target = old.near_branch_target();
    let is_jump_to = |instruction: &Instruction, to: u64| {
        instruction.code() == Code::Jmp_rel32_64 && instruction.near_branch_target() == to
    };
    let jumps_back = |rest: &[Instruction]| rest.len() == 1 && is_jump_to(&rest[0], old.next_ip());
    let ok = if old.is_jcc_short_or_near() {
        new[0].condition_code() == old.condition_code()
            && new[0].near_branch_target() == target
            && jumps_back(&new[1..])
    } else if old.is_loop() || old.is_loopcc() || old.is_jcx_short() {
        // [0] branches to [2]; if not taken, [1] jumps over [2] to [3]; [2] jumps to the target.
        new[0].code() == old.code()
            && new[0].near_branch_target() == new[2].ip()
            && new[1].near_branch_target() == new[3].ip()
            && is_jump_to(&new[2], target)
            && jumps_back(&new[3..])
    } else if old.is_jmp_short_or_near() {
        new.len() == 1 && is_jump_to(&new[0], target)
    } else if old.mnemonic() == Mnemonic::Xbegin {
        new[0].code() == Code::Xbegin_rel32 && new[0].near_branch_target() == target && jumps_back(&new[1..])
    } else if old.is_call_near() || old.is_call_near_indirect() {
        // A call through memory: push the word; pop [rsp - 16]; push the return address; jmp [rsp - 8]. Any other
        // call: push the return address; the same jump.
        let by_memory =
            old.is_call_near_indirect() && (old.op0_kind() == OpKind::Memory || old.op0_register() == Register::RSP);
        let (taken, rest) = new.split_at(if by_memory { 2 } else { 0 });
        let mut push = old;
        push.set_code(Code::Push_rm64);
        let at_stack = |instruction: &Instruction, code: Code, displacement: i64| {
            instruction.code() == code
                && instruction.memory_base() == Register::RSP
                && instruction.memory_index() == Register::None
                && instruction.memory_displacement64() as i64 == displacement
        };
        let taken_right =
            !by_memory || same_but_for_place(&push, &taken[0]) && at_stack(&taken[1], Code::Pop_rm64, -16);
        let pushed = match rest[0].code() {
            Code::Pushq_imm32 => rest[0].immediate(0),
            Code::Push_rm64 if rest[0].is_ip_rel_memory_operand() => {
                let at = rest[0]
                    .ip_rel_memory_address()
                    .wrapping_sub(address.wrapping_add_signed(distance)) as usize;
                u64::from_le_bytes(built.detour[at..at + 8].try_into().unwrap())
            }
            _ => 0,
        };
        let mut jump = old;
        jump.set_code(Code::Jmp_rm64);
        let jumps = if old.is_call_near() {
            is_jump_to(&rest[1], target)
        } else if by_memory {
            at_stack(&rest[1], Code::Jmp_rm64, -8)
        } else {
            same_but_for_place(&jump, &rest[1])
        };
        taken_right && rest.len() == 2 && pushed == old.next_ip() && jumps
    } else if old.mnemonic() == Mnemonic::Syscall {
        // rcx is the address after the original.
        code[..bytes.len()] == *bytes
            && new[1].code() == Code::Lea_r64_m
            && new[1].op0_register() == Register::RCX
            && new[1].ip_rel_memory_address() == old.next_ip()
            && jumps_back(&new[2..])
    } else {
        let never_goes_on = matches!(
            old.flow_control(),
            FlowControl::Return
                | FlowControl::IndirectBranch
                | FlowControl::UnconditionalBranch
                | FlowControl::Exception
        ) || old.code() == Code::Hlt;
        let rest_is_right = if never_goes_on {
            new.len() == 1
        } else {
            jumps_back(&new[1..])
        };
        let bytes_are_same = old.is_ip_rel_memory_operand() || code[..bytes.len()] == *bytes;
        same_but_for_place(&old, &new[0]) && new[0].len() == old.len() && bytes_are_same && rest_is_right
    };
    if ok { Ok(()) } else { Err(context()) }
}

/// Checks that one of the few allowed reasons applies.
fn refusal_is_right(old: &Instruction, bytes: &[u8], refusal: &Refusal) -> Result<(), String> {
    let prefixed = bytes.contains(&0x66) && (old.is_call_near() || old.flow_control() != FlowControl::Next);
    let ok = match refusal {
        Refusal::Breakpoint { .. } => old.code() == Code::Int3,
        Refusal::OutOfReach { .. } => true,
        Refusal::Unmovable { .. } => {
            prefixed
                || old.is_call_far_indirect()
                || matches!(old.mnemonic(), Mnemonic::Sysenter)
                || (old.is_call_near_indirect() && old.code() != Code::Call_rm64)
        }
        _ => false,
    };
    if ok {
        Ok(())
    } else {
        Err(format!("{old} ({bytes:02x?}) was refused: {refusal}"))
    }
}

#[test]
fn i3_every_instruction_of_real_files_means_the_same() {
    let mut count = 0;
    for text in support::real_files()
        .iter()
        .filter_map(|file| support::Text::read(file))
    {
        for function in &text.functions {
            let map = text.analyze(function);
            for (site, length) in map.instructions() {
                let bytes = text.bytes_at(site.0..site.0 + length as u64);
                if let Err(message) = check(bytes, site.0, 0x0700_0000) {
                    panic!("{} at {site}: {message}", function.name);
                }
                count += 1;
            }
        }
    }
    assert!(count > 100_000, "{count} instructions");
}

/// Bytes that in most cases decode to an instruction: some prefixes, an opcode of one of the maps, random bytes.
fn code_bytes() -> impl Strategy<Value = Vec<u8>> {
    let prefix = prop::sample::select(vec![0x66, 0x67, 0x64, 0x65, 0x2e, 0x3e, 0xf2, 0xf3, 0xf0]);
    let rex = prop::option::of(0x40_u8..0x50);
    let branch = prop::sample::select(vec![
        0xe0, 0xe1, 0xe2, 0xe3, 0xe8, 0xe9, 0xeb, 0x70, 0x7f, 0xff, 0xc3, 0xc2,
    ]);
    let opcode = prop_oneof![
        any::<u8>().prop_map(|opcode| vec![opcode]),
        branch.prop_map(|opcode| vec![opcode]),
        any::<u8>().prop_map(|opcode| vec![0x0f, opcode]),
        any::<[u8; 3]>().prop_map(|payload| vec![0xc5, payload[0], payload[1]]),
        any::<[u8; 4]>().prop_map(|payload| vec![0x62, payload[0], payload[1], payload[2], payload[3]]),
    ];
    // RIP-relative and rsp-based operands more often than by chance.
    let modrm = prop_oneof![
        any::<u8>(),
        (0_u8..8).prop_map(|reg| reg << 3 | 5),
        Just(0x54),
        Just(0x14)
    ];
    (
        prop::collection::vec(prefix, 0..3),
        rex,
        opcode,
        modrm,
        any::<[u8; 9]>(),
    )
        .prop_map(|(mut bytes, rex, opcode, modrm, tail)| {
            bytes.extend(rex);
            bytes.extend(opcode);
            bytes.push(modrm);
            bytes.extend(tail);
            bytes
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, max_global_rejects: 100_000, ..ProptestConfig::default() })]

    #[test]
    fn i3_random_instructions_mean_the_same(
        bytes in code_bytes(),
        address in prop_oneof![0x4000_0000_u64..0x8000_0000, 0x5555_0000_0000_u64..0x5556_0000_0000],
        distance in prop_oneof![-0x2000_0000_i64..-0x1000, 0x1000..0x7000_0000_i64],
    ) {
        let first = decode(&bytes, address)[0];
        prop_assume!(!first.is_invalid());
        // An instruction that makes of processor read differently is refused: docs/design/processors.md.
        let amd = Decoder::with_ip(64, &bytes, address, DecoderOptions::AMD).decode();
        let is_read_alike = (amd.code(), amd.len()) == (first.code(), first.len());
        prop_assume!(first.flow_control() == FlowControl::Next || is_read_alike);
        let is_repeated = bytes[..first.len()].iter().any(|byte| matches!(byte, 0xf2 | 0xf3));
        prop_assume!(!(is_repeated && matches!(first.mnemonic(), Mnemonic::Loope | Mnemonic::Loopne)));
        if let Err(message) = check(&bytes[..first.len()], address, distance) {
            prop_assert!(false, "{}", message);
        }
    }
}
