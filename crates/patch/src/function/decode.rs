//! Decodes a function's bytes in a line, from the first to the last.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Mnemonic, OpKind};

use super::instruction::{ELSEWHERE, Instruction, Reference};
use super::kind::Kind;
use super::map::{CodeView, FunctionExtent, FunctionMap};
use crate::TargetAddress;
use crate::order::sort_by_number;

/// The alignment of functions, in bytes. A longer row of zeros is not padding.
const ALIGNMENT: usize = 16;

/// Decodes a function from its first byte to its last, in a line; then the padding after it. This never fails: at bytes
/// that are no instruction decoding stops, and [`FunctionMap::undecodable`] yields their address. Views and functions
/// are cut at 4 GiB.
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
        shown: Default::default(),
        fixed: Default::default(),
    };
    decode_function(&mut map, bytes);
    if map.undecodable.is_none() {
        decode_padding(&mut map, bytes);
    }
    map.sort_branches();
    sort_by_number(&mut map.outgoing, |target| target.0);
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
        let rest = body.get(offset as usize..).unwrap_or_default();
        if instruction.is_invalid() || is_ambiguous(&instruction, rest) {
            map.undecodable = Some(map.address(offset));
            map.usable = offset;
            return;
        }
        map.note(&instruction, offset);
        map.instructions.push(Instruction::of(&instruction, offset));
        offset += instruction.len() as u32;
    }
}

/// Whether Intel's and AMD's processors disagree about an instruction that leaves the straight line. A near branch with
/// the prefix 66 has an offset of four bytes on Intel's processors. On AMD's it has two, and the target is cut to 16
/// bits. A far branch through memory differs in the size of its pointer. No compiler makes such branches, and no copy
/// can be right on both.
fn is_ambiguous(instruction: &iced_x86::Instruction, rest: &[u8]) -> bool {
    let is_prefix = |byte: &u8| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf2 | 0xf3);
    // This includes ud0 (0f ff), which has no operands on AMD's processors.
    if instruction.flow_control() == FlowControl::Next
        || !rest.first().is_some_and(|byte| is_prefix(byte) || *byte == 0x0f)
    {
        return false;
    }
    // With the prefix f3, AMD's processors read loopne as loope; with f2, they read loope as loopne.
    let is_repeated = rest
        .iter()
        .take_while(|byte| is_prefix(byte))
        .any(|byte| matches!(byte, 0xf2 | 0xf3));
    if is_repeated && matches!(instruction.mnemonic(), Mnemonic::Loope | Mnemonic::Loopne) {
        return true;
    }
    let otherwise = Decoder::with_ip(64, rest, instruction.ip(), DecoderOptions::AMD).decode();
    (otherwise.code(), otherwise.len()) != (instruction.code(), instruction.len())
}

impl FunctionMap {
    /// Records the targets of an instruction, and the bytes of this view to which it refers.
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

/// The addresses at which an instruction suggests code: its branch target, and an address that it takes (`lea rax,
/// [rip+x]`), since a computed branch may lead there.
fn constant_targets(instruction: &iced_x86::Instruction) -> [Option<TargetAddress>; 2] {
    let branch = match instruction.op0_kind() {
        OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64 => Some(instruction.near_branch_target()),
        _ => None,
    };
    let taken = (instruction.mnemonic() == Mnemonic::Lea && instruction.is_ip_rel_memory_operand())
        .then(|| instruction.ip_rel_memory_address());
    [branch.map(TargetAddress), taken.map(TargetAddress)]
}

/// Decodes the nops, int3 and zeros after the function. Zeros count only if few zeros follow: more may be data.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn undecodable(bytes: &[u8]) -> Option<u64> {
        let start = TargetAddress(0x40_0000);
        let extent = FunctionExtent {
            start,
            size: bytes.len() as u64,
            fragments: Vec::new(),
        };
        let map = analyze(&CodeView { start, bytes }, &extent);
        map.undecodable.map(|at| at.0 - start.0)
    }

    #[test]
    fn branches_that_the_makes_of_processor_read_differently_are_not_decoded() {
        for branch in [
            &[0x66, 0xe8, 1, 0, 0, 0][..],
            &[0x66, 0xe9, 1, 0, 0, 0],
            &[0x66, 0x0f, 0x84, 1, 0, 0, 0],
            &[0x66, 0x75, 1],
            &[0x66, 0xc3],
            &[0x66, 0xff, 0xe0],
            &[0xf2, 0xe1, 1],
            &[0xf3, 0xe0, 1],
        ] {
            let bytes = [&[0x90, 0x90], branch, &[0x90; 8]].concat();
            assert_eq!(undecodable(&bytes), Some(2), "{branch:02x?}");
        }
    }

    #[test]
    fn prefixes_that_compilers_write_before_branches_are_decoded() {
        for branch in [
            // data16 data16 rex.W call __tls_get_addr
            &[0x66, 0x66, 0x48, 0xe8, 1, 0, 0, 0][..],
            &[0x2e, 0xe9, 1, 0, 0, 0],
            &[0x3e, 0xff, 0xe0],
            &[0xf2, 0xe8, 1, 0, 0, 0],
            &[0xf3, 0xc3],
            &[0x67, 0xe8, 1, 0, 0, 0],
            &[0x0f, 0x84, 1, 0, 0, 0],
            &[0x0f, 0x05],
            &[0x0f, 0x0b],
        ] {
            let bytes = [&[0x90, 0x90], branch, &[0x90; 8]].concat();
            assert_eq!(undecodable(&bytes), None, "{branch:02x?}");
        }
    }
}
