//! The linear decode.

use iced_x86::{Decoder, DecoderOptions, Mnemonic, OpKind};

use super::{CodeView, ELSEWHERE, FunctionExtent, FunctionMap, Instruction, Kind, Reference};
use crate::TargetAddress;

/// What functions are aligned to, in bytes: no more zeros are padding.
const ALIGNMENT: usize = 16;

/// Decodes a function from its first byte to its last, in a line; then the padding behind it.
///
/// Never fails: where the bytes are no instruction, decoding stops and [`FunctionMap::undecodable`] says where. Views
/// and functions larger than 4 GiB are cut there.
pub fn analyze(code: &CodeView<'_>, extent: &FunctionExtent) -> FunctionMap {
    let length = u32::try_from(code.bytes.len()).unwrap_or(u32::MAX);
    let bytes = code.bytes.get(..length as usize).unwrap_or_default();
    let size = u32::try_from(extent.size).unwrap_or(u32::MAX).min(length);
    let mut map = FunctionMap {
        start: code.start,
        bytes: bytes.to_vec(),
        size,
        fragments: extent.fragments.clone(),
        instructions: Vec::with_capacity(size as usize / 4),
        branch_targets: vec![0; bytes.len().div_ceil(64)],
        branches: Vec::new(),
        outgoing: Vec::new(),
        references: Vec::new(),
        stays_inside: Vec::new(),
        computed: false,
        followed: false,
        undecodable: None,
        usable: size,
        shown_padding: Vec::new(),
        shown_taken: Vec::new(),
        evicts: false,
        near: None,
        next: None,
        is_successor: false,
        keeps_calls: false,
    };
    decode_function(&mut map, bytes);
    if map.undecodable.is_none() {
        decode_padding(&mut map, bytes);
    }
    map.sort_branches();
    map.outgoing.sort_unstable();
    map.outgoing.dedup();
    map
}

fn decode_function(map: &mut FunctionMap, bytes: &[u8]) {
    let body = bytes.get(..map.size as usize).unwrap_or_default();
    let mut decoder = Decoder::with_ip(64, body, map.start.0, DecoderOptions::NONE);
    let mut instruction = iced_x86::Instruction::default();
    let mut offset = 0;
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            map.undecodable = Some(map.address(offset));
            map.usable = offset;
            return;
        }
        map.note(&instruction, offset);
        map.instructions.push(Instruction::of(&instruction, offset));
        offset += instruction.len() as u32;
    }
}

impl FunctionMap {
    /// Takes down where an instruction leads, and which bytes of this view it refers to.
    pub(super) fn note(&mut self, instruction: &iced_x86::Instruction, from: u32) {
        let [branch, taken] = constant_targets(instruction);
        let branch = branch.map(|branch| (branch, from));
        for (target, from) in branch.into_iter().chain(taken.map(|taken| (taken, ELSEWHERE))) {
            if !self.mark_branch_target(target, from) {
                self.outgoing.push(target);
            }
        }
        let refers = instruction.is_ip_rel_memory_operand() && instruction.mnemonic() != Mnemonic::Nop;
        if let Some(to) = self
            .offset(TargetAddress(instruction.memory_displacement64()))
            .filter(|_| refers)
        {
            self.references.push(Reference {
                from,
                to,
                bytes: instruction.memory_size().size().max(1) as u32,
                is_read: instruction.mnemonic() != Mnemonic::Lea,
            });
        }
    }
}

/// Where an instruction says that code is: its branch target; and an address of code that it takes (`lea rax, [rip+x]`),
/// since a computed branch may lead there.
fn constant_targets(instruction: &iced_x86::Instruction) -> [Option<TargetAddress>; 2] {
    let branch = match instruction.op0_kind() {
        OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64 => Some(instruction.near_branch_target()),
        _ => None,
    };
    let taken = (instruction.mnemonic() == Mnemonic::Lea && instruction.is_ip_rel_memory_operand())
        .then(|| instruction.ip_rel_memory_address());
    [branch.map(TargetAddress), taken.map(TargetAddress)]
}

/// Nops, int3 and zeros behind the function. Zeros only when nothing but a few zeros follows: others may be data.
fn decode_padding(map: &mut FunctionMap, bytes: &[u8]) {
    let mut offset = map.size;
    while let Some(rest) = bytes.get(offset as usize..).filter(|rest| !rest.is_empty()) {
        if rest.first() == Some(&0xcc) {
            offset += 1;
            continue;
        }
        if rest.len() < ALIGNMENT && rest.iter().all(|byte| *byte == 0) {
            offset = bytes.len() as u32;
            break;
        }
        let instruction = Decoder::with_ip(64, rest, map.address(offset).0, DecoderOptions::NONE).decode();
        if instruction.is_invalid() || Kind::of(&instruction) != Kind::Nop {
            break;
        }
        map.instructions.push(Instruction::of(&instruction, offset));
        offset += instruction.len() as u32;
    }
    map.usable = offset;
}
