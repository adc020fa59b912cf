//! Control flow, followed: which of the decoded instructions are code for certain.
//!
//! Text holds more than instructions: padding, and jump tables and constants of hand-written assembly, inside the
//! sizes of their functions' symbols. To the linear decode all bytes are instructions. A patch on a table that was
//! decoded as code would change data that the program reads. So control flow is followed from the places that are
//! known to be entered: the function's start, landing pads, branches of its other parts. Only the instructions that
//! it reaches can be patched:
//!
//! ```text
//!   f:     lea rdx, [rip+table]       followed from the entry
//!          movsxd rax, [rdx+rcx*4]
//!          add rax, rdx
//!          jmp rax                    to where the table's entries lead, as many as the comparison before it allows
//!   table: 10 00 00 00 18 00 ...      not reached: no site, whatever it decodes to
//!   case0: mov eax, 1                 followed from the table; where the linear decode is out of step, decoded anew
//!          nop                        between blocks: padding, which a patch of the `ret` before it may use
//! ```
//!
//! Control flow goes on after a call, with two exceptions. A call after which the bytes soon are no instructions does
//! not return. Called code that pops its return address uses it as the address of data. An address that an
//! instruction reads from (`[rip+x]`) is data, whatever else seems to lead there.

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, Mnemonic, OpKind};

use super::instruction::{ELSEWHERE, Instruction, Reference};
use super::kind::Kind;
use super::map::FunctionMap;
use super::surroundings::Surroundings;
use super::{stack, tables};
use crate::TargetAddress;
use crate::order::sort_by_number;

/// How many instructions may be decoded anew, because control flow enters the linear decode in the middle of its
/// instructions. Beyond it, the rest stays unreached. Hand-written assembly has a handful of such places in a function.
const MOVED_MAX: usize = 64 << 20;

/// The number of instructions in a line for which memory is reserved from the beginning.
const STEPS_USUAL: usize = 32;

/// Follows the control flow through a function's parts (its main part first) and restricts each part to what is
/// reached.
pub fn follow(parts: &mut [FunctionMap], surroundings: &dyn Surroundings) {
    let mut flow = Flow {
        reached: parts
            .iter()
            .map(|part| vec![0; part.bytes.len().div_ceil(64)])
            .collect(),
        pending: Vec::new(),
        steps: Vec::with_capacity(STEPS_USUAL),
        targets: Vec::new(),
        jumps: Vec::new(),
        moved: 0,
        computed: false,
    };
    for part in parts.iter_mut() {
        // The range includes the padding after the function, which a patch may use.
        part.fixed.restartable = surroundings.restartable(part.start..part.address(part.bytes.len() as u32));
    }
    let aborts: Vec<TargetAddress> = parts
        .iter()
        .flat_map(|part| part.fixed.restartable.iter().map(|sequence| sequence.abort))
        .collect();
    for abort in aborts {
        flow.push_marked(parts, abort);
    }
    for (index, part) in parts.iter().enumerate() {
        flow.pending.push((index, 0));
        let range = part.start..part.address(part.size);
        for entry in surroundings.entries(range) {
            flow.push(parts, entry);
        }
    }
    flow.run(parts, surroundings);
    if flow.computed {
        for part in 0..parts.len() {
            let Some(range) = parts.get(part).map(|part| part.start..part.address(part.size)) else {
                continue;
            };
            // A word of data that looks like an address is no proof of code: in a program without relocations it may be
            // a number. So it never corrects the decode. Where the word and the decode disagree, the bytes stay
            // unreached.
            for label in surroundings.pointers(range) {
                if parts.iter().any(|part| part.starts_instruction(label)) {
                    flow.push_marked(parts, label);
                }
            }
        }
        flow.run(parts, surroundings);
    }
    for (part, reached) in parts.iter_mut().zip(&flow.reached) {
        restrict(part, reached);
        part.computed = flow.computed;
    }
    stack::follow(parts);
}

struct Flow {
    /// For each part one bit for each byte, which is set if a reached instruction starts there.
    reached: Vec<Vec<u64>>,
    /// The places from which to continue: part and offset.
    pending: Vec<(usize, u32)>,
    /// The instructions of the last walk.
    steps: Vec<Instruction>,
    /// The targets of these instructions.
    targets: Vec<TargetAddress>,
    /// The offsets of the indirect jumps among them.
    jumps: Vec<u32>,
    moved: usize,
    /// Whether a computed branch has unknown targets.
    computed: bool,
}

impl Flow {
    fn push(&mut self, parts: &[FunctionMap], target: TargetAddress) {
        let inside = |part: &FunctionMap| part.offset(target).filter(|offset| *offset < part.size);
        let found = parts
            .iter()
            .enumerate()
            .find_map(|(index, part)| Some((index, inside(part)?)));
        if let Some((part, offset)) = found
            && !self.is_reached(part, offset)
        {
            self.pending.push((part, offset));
        }
    }

    fn push_marked(&mut self, parts: &mut [FunctionMap], target: TargetAddress) {
        for part in parts.iter_mut() {
            part.mark_branch_target(target, ELSEWHERE);
        }
        self.push(parts, target);
    }

    /// Whether a reached instruction starts at an offset.
    fn is_reached(&self, part: usize, offset: u32) -> bool {
        self.reached.get(part).is_some_and(|bits| bit(bits, offset))
    }

    fn run(&mut self, parts: &mut [FunctionMap], surroundings: &dyn Surroundings) {
        while let Some((part, offset)) = self.pending.pop() {
            let Some(map) = parts.get_mut(part) else { continue };
            self.walk(map, part, offset);
            while let Some(jump) = self.jumps.pop() {
                self.computed_jump(parts, part, jump, surroundings);
            }
            while let Some(target) = self.targets.pop() {
                self.push(parts, target);
            }
        }
    }

    /// Continues in a line from an offset, until control flow ends, or comes to an instruction that was reached
    /// before.
    fn walk(&mut self, map: &mut FunctionMap, part: usize, from: u32) {
        if self.is_reached(part, from) {
            return;
        }
        let Some(mut index) = self.index_at(map, part, from) else {
            return;
        };
        let mut steps = std::mem::take(&mut self.steps);
        steps.clear();
        let mut last_call = None;
        let mut expected = from;
        while expected < map.size && !self.is_reached(part, expected) {
            let here = map.instructions.get(index).copied();
            let Some(instruction) = here.filter(|instruction| instruction.offset == expected) else {
                // The following bytes could not be decoded in line.
                if let Some(again) = self.index_at(map, part, expected) {
                    index = again;
                    continue;
                }
                if let Some(call) = last_call {
                    steps.truncate(call);
                }
                break;
            };
            steps.push(instruction);
            expected = instruction.end();
            index += 1;
            match instruction.kind {
                Kind::Call => {
                    last_call = Some(steps.len());
                    if pops_its_return_address(map, instruction) {
                        break;
                    }
                }
                Kind::Breakpoint => {
                    let before = steps.len().checked_sub(2).and_then(|before| steps.get(before));
                    if before.is_none_or(|before| matches!(before.kind, Kind::Call | Kind::Breakpoint)) {
                        break;
                    }
                }
                kind if kind.is_transfer() => break,
                _ => {}
            }
        }
        for step in &steps {
            if let Some(bits) = self.reached.get_mut(part) {
                set(bits, step.offset);
            }
            match step.kind {
                Kind::Jump | Kind::Conditional | Kind::Call | Kind::System => {
                    self.targets.extend(map.target_of(*step));
                }
                Kind::IndirectJump => self.jumps.push(step.offset),
                _ => {}
            }
        }
        self.steps = steps;
    }

    /// The index of the instruction at an offset. If the linear decode is out of step there, it is corrected, and its
    /// instructions are dropped. But if those are reached, too, the code overlaps: they stay, and the target is a
    /// mark inside of one of them.
    fn index_at(&mut self, map: &mut FunctionMap, part: usize, offset: u32) -> Option<usize> {
        let search = map
            .instructions
            .binary_search_by_key(&offset, |instruction| instruction.offset);
        let behind = match search {
            Ok(index) => return Some(index),
            Err(behind) => behind,
        };
        if offset >= map.size || self.moved > MOVED_MAX {
            return None;
        }
        let around = behind.checked_sub(1).and_then(|index| map.instructions.get(index));
        let mut from = behind;
        if let Some(around) = around.filter(|around| around.end() > offset) {
            if self.is_reached(part, around.offset) {
                return None;
            }
            from = behind - 1;
        }
        let (fresh, until) = self.decode_until_in_step(map, part, offset, from);
        if fresh.is_empty() {
            return None;
        }
        self.moved += map.instructions.len() - from;
        map.instructions.splice(from..until, fresh);
        Some(from)
    }

    /// The instructions from an offset on. They end where an instruction of the list starts; the second result is its
    /// index. They also end at bytes that are no instruction, or that belong to a reached instruction.
    fn decode_until_in_step(
        &self,
        map: &mut FunctionMap,
        part: usize,
        offset: u32,
        first: usize,
    ) -> (Vec<Instruction>, usize) {
        let (mut fresh, mut decoded, mut index, mut at) = (Vec::new(), Vec::new(), first, offset);
        let body = map.bytes.get(offset as usize..map.size as usize).unwrap_or_default();
        let mut decoder = Decoder::with_ip(64, body, map.address(offset).0, DecoderOptions::NONE);
        loop {
            while map.instructions.get(index).is_some_and(|old| old.offset < at) {
                index += 1;
            }
            let next = map.instructions.get(index);
            if next.is_some_and(|next| next.offset == at) || !decoder.can_decode() {
                break;
            }
            let instruction = decoder.decode();
            let end = at + instruction.len() as u32;
            let taken = next.is_some_and(|next| next.offset < end && self.is_reached(part, next.offset));
            if instruction.is_invalid() || taken {
                break;
            }
            fresh.push(Instruction::of(&instruction, at));
            decoded.push(instruction);
            at = end;
        }
        for (instruction, fresh) in decoded.iter().zip(&fresh) {
            map.note(instruction, fresh.offset);
        }
        (fresh, index)
    }

    fn computed_jump(&mut self, parts: &mut [FunctionMap], part: usize, offset: u32, surroundings: &dyn Surroundings) {
        let Some(map) = parts.get(part) else { return };
        let Some(table) = tables::resolve(map, offset, surroundings) else {
            self.computed |= !map.leaves_through_memory(offset);
            return;
        };
        let all_inside = table.targets.iter().all(|target| map.is_inside(*target));
        let (bounded, targets) = (table.bounded, table.targets);
        if let Some(map) = parts.get_mut(part) {
            if bounded && all_inside {
                map.stays_inside.push(offset);
            }
            let outside: Vec<TargetAddress> = targets
                .iter()
                .copied()
                .filter(|target| map.offset(*target).is_none())
                .collect();
            map.outgoing.extend(outside);
        }
        for target in targets {
            self.push_marked(parts, target);
        }
    }
}

/// Whether the code that is called here pops its return address: `call 1f; .string "..."; 1: pop rsi`.
fn pops_its_return_address(map: &FunctionMap, call: Instruction) -> bool {
    let Some(target) = map.target_of(call).and_then(|target| map.offset(target)) else {
        return false;
    };
    let rest = map.bytes.get(target as usize..).unwrap_or_default();
    target >= call.end()
        && target < map.size
        && Decoder::new(64, rest, DecoderOptions::NONE).decode().mnemonic() == Mnemonic::Pop
}

/// Keeps the reached instructions and the padding between them.
fn restrict(map: &mut FunctionMap, reached: &[u64]) {
    map.undecodable = None;
    map.followed = true;
    map.sort_branches();
    sort_by_number(&mut map.stays_inside, |offset| u64::from(*offset));
    sort_by_number(&mut map.outgoing, |target| target.0);
    map.outgoing.dedup();
    let mut code = map.instructions.iter().take_while(|one| one.offset < map.size);
    let last = code.clone().last().map_or(0, |last| last.end());
    if map.references.is_empty() && last == map.size && code.all(|one| bit(reached, one.offset)) {
        return;
    }
    let noted: Vec<Reference> = map
        .references
        .iter()
        .filter(|noted| bit(reached, noted.from))
        .copied()
        .collect();
    let read = |range: Range<u32>| noted.iter().any(|noted| noted.is_read && noted.overlaps(&range));
    let referred = |range: Range<u32>| noted.iter().any(|noted| noted.overlaps(&range));
    let size = map.size;
    let mut kept: Vec<Instruction> = Vec::with_capacity(map.instructions.len());
    let mut gap: Vec<Instruction> = Vec::new();
    let flush = |gap: &mut Vec<Instruction>, kept: &mut Vec<Instruction>, until: u32| {
        // Padding consists only of nops or int3, up to where code begins.
        let filler = |one: &Instruction| matches!(one.kind, Kind::Nop | Kind::Breakpoint);
        let start = gap.first().map_or(until, |first| first.offset);
        let whole = gap.last().is_some_and(|last| last.end() == until);
        if whole && gap.iter().all(filler) && !referred(start..until) {
            kept.extend(gap.iter().map(|one| Instruction { padding: true, ..*one }));
        }
        gap.clear();
    };
    for instruction in map
        .instructions
        .iter()
        .take_while(|instruction| instruction.offset < size)
    {
        if bit(reached, instruction.offset) && !read(instruction.offset..instruction.end()) {
            flush(&mut gap, &mut kept, instruction.offset);
            kept.push(*instruction);
            continue;
        }
        if gap.last().is_some_and(|last| last.end() != instruction.offset) {
            gap.clear();
        }
        gap.push(*instruction);
    }
    flush(&mut gap, &mut kept, size);
    // Constants after the function do not belong to its padding.
    let first = noted.iter().map(|noted| noted.to).filter(|to| *to >= size).min();
    map.usable = map.usable.min(first.unwrap_or(u32::MAX));
    let usable = map.usable;
    let behind = map.instructions.iter().filter(|instruction| instruction.offset >= size);
    kept.extend(behind.filter(|instruction| instruction.end() <= usable));
    map.instructions = kept;
}

fn bit(bits: &[u64], offset: u32) -> bool {
    bits.get(offset as usize / 64)
        .is_some_and(|word| word & 1 << (offset % 64) != 0)
}

fn set(bits: &mut [u64], offset: u32) {
    if let Some(word) = bits.get_mut(offset as usize / 64) {
        *word |= 1 << (offset % 64);
    }
}

impl FunctionMap {
    /// The target of a direct branch or call.
    pub(super) fn target_of(&self, instruction: Instruction) -> Option<TargetAddress> {
        let next = self.address(instruction.end());
        let relative = match *self.bytes_of(instruction) {
            [0xe8 | 0xe9, a, b, c, d] | [0x0f, 0x80..=0x8f, a, b, c, d] | [0xf2, 0xe8 | 0xe9, a, b, c, d] => {
                i64::from(i32::from_le_bytes([a, b, c, d]))
            }
            [0xeb | 0x70..=0x7f | 0xe0..=0xe3, distance] => i64::from(distance.cast_signed()),
            [0xff, ..] => return None,
            _ => return self.decoded_target_of(instruction),
        };
        Some(TargetAddress(next.0.wrapping_add_signed(relative)))
    }

    fn decoded_target_of(&self, instruction: Instruction) -> Option<TargetAddress> {
        let address = self.address(instruction.offset).0;
        let decoded = Decoder::with_ip(64, self.bytes_of(instruction), address, DecoderOptions::NONE).decode();
        match decoded.op0_kind() {
            OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64 => {
                Some(TargetAddress(decoded.near_branch_target()))
            }
            _ => None,
        }
    }

    /// Whether an indirect jump goes through a fixed slot, as in linkage stubs: it leads to another function.
    fn leaves_through_memory(&self, offset: u32) -> bool {
        let rest = self.bytes.get(offset as usize..).unwrap_or_default();
        let decoded = Decoder::with_ip(64, rest, self.address(offset).0, DecoderOptions::NONE).decode();
        decoded.is_ip_rel_memory_operand()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CodeView, FunctionExtent, analyze};

    const START: TargetAddress = TargetAddress(0x52_fff0);

    /// Constant data that contains these words, which look like addresses.
    struct Words(Vec<TargetAddress>);

    impl Surroundings for Words {
        fn constant(&self, _: TargetAddress, _: usize) -> Option<&[u8]> {
            None
        }
        fn entries(&self, _: Range<TargetAddress>) -> Vec<TargetAddress> {
            Vec::new()
        }
        fn is_fragment(&self, _: TargetAddress) -> bool {
            false
        }
        fn pointers(&self, _: Range<TargetAddress>) -> Vec<TargetAddress> {
            self.0.clone()
        }
    }

    /// An interpreter's opcodes, reached by computed jumps, and the number 0x530000 among its data.
    #[test]
    fn a_number_that_looks_like_an_address_does_not_move_instructions() {
        let code = [
            0xff, 0xe0, // 0: jmp rax
            0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, // 2: nops that no control flow reaches
            0x40, 0x0a, 0xb4, 0x24, 0xb0, 0x00, 0x00, 0x00, // 9: or sil, [rsp+0xb0], with 0x530000 inside
            0x89, 0xc8, // 11: mov eax, ecx
            0xff, 0xe0, // 13: jmp rax
        ];
        let view = CodeView {
            start: START,
            bytes: &code,
        };
        let extent = FunctionExtent {
            start: START,
            size: code.len() as u64,
            fragments: Vec::new(),
        };
        let mut parts = [analyze(&view, &extent)];
        let label = TargetAddress(START.0 + 9);
        follow(&mut parts, &Words(vec![label, TargetAddress(0x53_0000)]));
        let starts: Vec<u64> = parts[0]
            .instructions()
            .map(|(address, _)| address.0 - START.0)
            .collect();
        assert_eq!(starts, [0, 9, 0x11, 0x13]);
        assert!(!parts[0].is_branch_target(TargetAddress(0x53_0000)));
    }
}
