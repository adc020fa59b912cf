//! Replacements: a function of ours in front of a system call of the program's.
//!
//! ```text
//!   mov eax, 14        (unchanged)          detour: lea rsi, [..]                  relocated
//!   lea rsi, [..]      jump detour                  mov r10, r8
//!   mov r10, r8        (dead)                       all registers pushed           struct np_registers
//!   syscall            (unchanged)                  call the function
//!   ...                                             0: registers popped, jmp to the syscall
//!                                                   1: registers popped, rax new, rcx and r11 as after a system call,
//!                                                      jmp behind the syscall
//! ```
//!
//! The jump takes the place of one instruction of five bytes or more, so it has no boundary: the last such one on the
//! straight way to the `syscall`. Where there is none, it takes the place of two or three, as a run does, whose boundaries
//! trap. Nothing but the way through these is changed: whoever comes to the `syscall` by another one makes it as before.
//!
//! Which call it is, is known where the straight way loads a constant; where it takes the number from elsewhere (as
//! syscall(3) does, or a function that keeps it in a register), it may be any, and the function looks at rax.

use std::collections::HashMap;

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, InstructionInfoFactory, OpAccess, OpKind, Register};

use crate::assemble::{Assembled, Assembler, Label};
use crate::detour::{jump, overwrite, redirect_boundaries};
use crate::function::{Instruction, Kind};
use crate::relocate::{Original, relocate};
use crate::{
    Built, FireCondition, FunctionMap, Move, PlanOptions, Point, Position, Refusal, RunPlan, Tactic, TargetAddress,
    plan,
};

const SYSCALL: [u8; 2] = [0x0f, 0x05];
const JUMP_BYTES: usize = 5;
/// Instructions in front of the `syscall` that are looked at, at most.
const BEFORE_MAX: usize = 12;
/// And for the number.
const WAY_MAX: usize = 40;
/// The red zone (System V ABI 3.2.2).
const RED_ZONE: u32 = 128;

/// A system call in front of which a function can be called.
#[derive(Clone, Debug)]
pub struct Replacement {
    run: RunPlan,
    /// From the one that is displaced up to the `syscall`, which is not among them.
    instructions: Vec<(TargetAddress, Vec<u8>)>,
    syscall: TargetAddress,
}

/// A detour, still movable.
struct Composed {
    code: Assembled,
    relocated: Vec<Label>,
    /// Where the registers are saved: the same as being in front of the `syscall`.
    entry: Label,
    leaving: [(Label, TargetAddress); 2],
}

impl Replacement {
    /// All places of a function that make one of these system calls, or one that cannot be told.
    pub fn find(map: &FunctionMap, numbers: &[u32]) -> Vec<Replacement> {
        let indices = 0..map.code().len();
        indices
            .filter_map(|index| Replacement::at(map, index, numbers))
            .collect()
    }

    /// In front of the instruction of this index, if it is a `syscall`.
    fn at(map: &FunctionMap, index: usize, numbers: &[u32]) -> Option<Replacement> {
        let code = map.code();
        let call = code.get(index).filter(|call| map.bytes_of(**call) == SYSCALL)?;
        let mut first = index;
        let mut behind = call;
        while let Some(before) = first.checked_sub(1).and_then(|before| code.get(before)) {
            let is_straight = matches!(before.kind, Kind::Plain | Kind::Nop) && before.end() == behind.offset;
            if !is_straight || index - first == BEFORE_MAX {
                break;
            }
            first -= 1;
            behind = before;
        }
        let straight = code.get(first..index)?;
        let number = number(
            known_way(map, index)?
                .iter()
                .map(|instruction| map.bytes_of(*instruction)),
        );
        let is_other = match number {
            Some(number) => !numbers.contains(&number),
            None => kept_numbers(map, straight).is_some_and(|kept| kept.iter().all(|number| !numbers.contains(number))),
        };
        if is_other {
            return None;
        }
        let room = |tactic: Tactic| {
            straight.iter().enumerate().rev().find_map(|(at, instruction)| {
                let run = single_run(map, map.address(instruction.offset), tactic)?;
                (run.end() <= map.address(call.offset)).then_some((at, run))
            })
        };
        let (at, run) = room(Tactic::Jump).or_else(|| room(Tactic::Run))?;
        let instructions = straight.get(at..)?.iter();
        Replacement {
            run,
            instructions: instructions
                .map(|instruction| (map.address(instruction.offset), map.bytes_of(*instruction).to_vec()))
                .collect(),
            syscall: map.address(call.offset),
        }
        .measured()
    }

    /// Where bytes that end in front of a `syscall` load its number, for all to see, and the number: so that not every
    /// function that makes a system call need be decoded, and code of which nobody knows where it begins need not be. `None`
    /// where that takes a closer look.
    pub fn load_in_front(before: &[u8]) -> Option<(usize, u32)> {
        const REX: std::ops::Range<u8> = 0x40..0x50;
        let load = before.windows(6).rposition(|window| {
            match window {
                [0x48, 0xc7, 0xc0, _, _, 0] => true,                 // mov rax, imm32
                [prefix, 0xb8, _, _, 0, 0] => !REX.contains(prefix), // mov eax, imm32
                _ => false,
            }
        })?;
        let load = load + usize::from(before.get(load) != Some(&0x48));
        let line = before.get(load..)?;
        let mut decoder = Decoder::new(64, line, DecoderOptions::NONE);
        let mut pieces = Vec::new();
        while decoder.can_decode() {
            let start = decoder.position();
            let instruction = decoder.decode();
            if instruction.is_invalid() || instruction.flow_control() != FlowControl::Next {
                return None;
            }
            pieces.extend(line.get(start..decoder.position()));
        }
        Some((load, number(pieces.into_iter())?))
    }

    /// The run, for [`crate::NearSpace::place`].
    pub fn run(&self) -> &RunPlan {
        &self.run
    }

    /// The `syscall` instruction.
    pub fn syscall(&self) -> TargetAddress {
        self.syscall
    }

    /// Builds the patch and the detour. `function`: `u64 function(struct np_registers *)`, with the ordinary calling
    /// convention, that leaves SIMD and x87 state alone and needs no aligned stack.
    ///
    /// # Errors
    /// [`Refusal::OutOfReach`] where the address does not satisfy [`Replacement::run`].
    pub fn build(&self, function: TargetAddress, detour: TargetAddress) -> Result<Built, Refusal> {
        let composed = self.compose(function)?;
        let at = |label: Label| TargetAddress(detour.0.saturating_add(composed.code.position(label)));
        let start = self.run.start;
        let mut patched = self.run.original.clone();
        overwrite(&mut patched, 0, &jump(start, self.run.constraint, detour)?);
        let mut redirects = Vec::new();
        let entry = |index: usize| composed.relocated.get(index).map(|label| at(*label));
        redirect_boundaries(&self.run, JUMP_BYTES, &mut patched, entry, &mut redirects);
        let addresses = self
            .instructions
            .iter()
            .map(|(address, _)| *address)
            .chain([self.syscall]);
        let relocated = composed.relocated.iter().copied().chain([composed.entry]);
        let moves = addresses
            .zip(relocated)
            .map(|(original, label)| Move {
                original,
                relocated: at(label),
            })
            .collect();
        let mut departures = vec![Move {
            original: self.syscall,
            relocated: at(composed.entry),
        }];
        departures.extend(composed.leaving.iter().map(|(label, to)| Move {
            original: *to,
            relocated: at(*label),
        }));
        Ok(Built {
            address: start,
            original: self.run.original.clone(),
            patched,
            springboard: Vec::new(),
            successor: None,
            host: None,
            carries: None,
            detour: composed.code.link(detour)?,
            literals: composed.code.literals(),
            form: None,
            redirects,
            moves,
            departures,
            partial: Vec::new(),
        })
    }

    /// Composes once: how long the detour is, and from where it reaches all that it refers to.
    fn measured(mut self) -> Option<Replacement> {
        let composed = self.compose(TargetAddress(0)).ok()?;
        let length = composed.code.len();
        let distance = (1_u64 << 31) - 64 - length as u64;
        let mut reach = self.run.reach.start.0..self.run.reach.end.0;
        for target in composed.code.targets() {
            reach.start = reach.start.max(target.0.saturating_sub(distance));
            reach.end = reach.end.min(target.0.saturating_add(distance));
        }
        self.run.detour_length = length;
        self.run.reach = TargetAddress(reach.start)..TargetAddress(reach.end);
        (!reach.is_empty()).then_some(self)
    }

    fn compose(&self, function: TargetAddress) -> Result<Composed, Refusal> {
        let too_far = Refusal::TooLarge {
            what: "address of a system call",
        };
        let behind = self.syscall.checked_add(2).ok_or(too_far)?;
        let mut code = Assembler::default();
        let mut relocated = Vec::new();
        for (address, bytes) in &self.instructions {
            relocated.push(code.here());
            let instruction = Decoder::with_ip(64, bytes, address.0, DecoderOptions::NONE).decode();
            relocate(
                &mut code,
                Original {
                    instruction: &instruction,
                    bytes,
                },
                None,
            )?;
        }
        let entry = code.here();
        let done = code.label();
        code.bytes(&[0x48, 0x8d, 0x64, 0x24, 0x80]); // lea rsp, [rsp - 128]
        code.bytes(&[0x50, 0x53, 0x51, 0x52, 0x56, 0x57, 0x55]); // push rax, rbx, rcx, rdx, rsi, rdi, rbp
        for register in 0..8 {
            code.bytes(&[0x41, 0x50 + register]); // push r8 .. r15
        }
        code.bytes(&[0x9f, 0x0f, 0x90, 0xc0, 0x50]); // lahf; seto al; push rax
        code.bytes(&[0x48, 0x89, 0xe7]); // mov rdi, rsp
        code.bytes_u64(&[0x48, 0xb8], function.0); // mov rax, function
        code.bytes(&[0xff, 0xd0]); // call rax
        code.bytes(&[0x85, 0xc0]); // test eax, eax
        code.jump_if(5, done); // jne done
        emit_pops(&mut code);
        let to_syscall = code.here();
        code.external(&[0xe9], self.syscall);
        code.bind(done);
        emit_pops_of_done(&mut code, behind);
        let to_behind = code.here();
        code.external(&[0xe9], behind);
        let leaving = [(to_syscall, self.syscall), (to_behind, behind)];
        Ok(Composed {
            code: code.finish()?,
            relocated,
            entry,
            leaving,
        })
    }
}

/// What rax holds behind these instructions, if they say it. Constants are followed from register to register.
fn number<'a>(instructions: impl Iterator<Item = &'a [u8]>) -> Option<u32> {
    let mut known: HashMap<Register, u32> = HashMap::new();
    let mut factory = InstructionInfoFactory::new();
    for bytes in instructions {
        let instruction = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
        let (to, from) = (instruction.op0_register(), instruction.op1_register());
        let of_registers = instruction.op0_kind() == OpKind::Register && instruction.op1_kind() == OpKind::Register;
        let value = match instruction.code() {
            Code::Mov_r32_imm32 => Some(instruction.immediate32()),
            Code::Mov_rm64_imm32 | Code::Mov_r64_imm64 if instruction.op0_kind() == OpKind::Register => {
                Some(instruction.immediate(1) as u32)
            }
            Code::Mov_r32_rm32 | Code::Mov_rm32_r32 | Code::Mov_r64_rm64 | Code::Mov_rm64_r64 if of_registers => {
                known.get(&from.full_register()).copied()
            }
            Code::Xor_r32_rm32 | Code::Xor_rm32_r32 | Code::Sub_r32_rm32 | Code::Sub_rm32_r32
                if of_registers && to == from =>
            {
                Some(0)
            }
            _ => None,
        };
        if bytes == SYSCALL {
            known.remove(&Register::RAX);
        }
        for used in factory.info(&instruction).used_registers() {
            if !matches!(
                used.access(),
                OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess
            ) {
                known.remove(&used.register().full_register());
            }
        }
        if let Some(value) = value {
            known.insert(to.full_register(), value);
        }
    }
    known.get(&Register::RAX).copied()
}

/// The instructions in front of this one that are executed before it whatever happens: back to where a branch leads, or a
/// call returns. What a branch between them leaves is not on the way.
fn known_way(map: &FunctionMap, index: usize) -> Option<&[Instruction]> {
    let code = map.code();
    let mut first = index;
    let mut behind = code.get(index)?;
    while let Some(before) = first.checked_sub(1).and_then(|before| code.get(before)) {
        let decoded = Decoder::new(64, map.bytes_of(*before), DecoderOptions::NONE).decode();
        let goes_on = matches!(
            decoded.flow_control(),
            FlowControl::Next | FlowControl::ConditionalBranch
        ) || map.bytes_of(*before) == SYSCALL;
        let is_joined = map.is_branch_target(map.address(behind.offset));
        if !goes_on || is_joined || before.end() != behind.offset || index - first == WAY_MAX {
            break;
        }
        first -= 1;
        behind = before;
    }
    code.get(first..index)
}

/// What a register may hold that the straight way loads rax from, where the function loads nothing but constants into it: a
/// loop of `exit_group` keeps its number in one.
fn kept_numbers(map: &FunctionMap, straight: &[Instruction]) -> Option<Vec<u32>> {
    let decoded = |bytes: &[u8]| Decoder::new(64, bytes, DecoderOptions::NONE).decode();
    let mut factory = InstructionInfoFactory::new();
    let mut writes = |instruction: &iced_x86::Instruction, register: Register| {
        let info = factory.info(instruction);
        let is_write = |access| !matches!(access, OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess);
        let mut used = info.used_registers().iter();
        used.any(|used| used.register().full_register() == register && is_write(used.access()))
    };
    let load = straight
        .iter()
        .rev()
        .map(|instruction| decoded(map.bytes_of(*instruction)));
    let load = load
        .into_iter()
        .find(|instruction| writes(instruction, Register::RAX))?;
    let is_move = matches!(
        load.code(),
        Code::Mov_r32_rm32 | Code::Mov_rm32_r32 | Code::Mov_r64_rm64 | Code::Mov_rm64_r64
    );
    if !is_move || load.op1_kind() != OpKind::Register || load.op0_kind() != OpKind::Register {
        return None;
    }
    let kept = load.op1_register().full_register();
    let mut numbers = Vec::new();
    for instruction in map.code() {
        let instruction = decoded(map.bytes_of(*instruction));
        if writes(&instruction, kept) {
            let is_constant = instruction.code() == Code::Mov_r32_imm32;
            numbers.push(is_constant.then(|| instruction.immediate32())?);
        }
    }
    (!numbers.is_empty()).then_some(numbers)
}

/// The run that starts at an instruction and displaces whole ones, by this tactic.
fn single_run(map: &FunctionMap, site: TargetAddress, tactic: Tactic) -> Option<RunPlan> {
    let point = Point {
        site,
        condition: FireCondition::Always,
        position: Position::Inside,
        full_frame: false,
        fires: Vec::new(),
    };
    let planned = plan(map, &[point], &PlanOptions { force: Some(tactic) });
    let mut runs = planned.runs.into_iter();
    runs.find(|run| run.start == site && run.tactic == tactic && run.kept == 0 && run.padding_boundaries.is_empty())
}

fn emit_flags(code: &mut Assembler) {
    code.bytes(&[0x58, 0x04, 0x7f, 0x9e]); // pop rax; add al, 0x7f; sahf
}

fn emit_registers(code: &mut Assembler) {
    for register in (0..8).rev() {
        code.bytes(&[0x41, 0x58 + register]); // pop r15 .. r8
    }
    code.bytes(&[0x5d, 0x5f, 0x5e, 0x5a, 0x59, 0x5b]); // pop rbp, rdi, rsi, rdx, rcx, rbx
}

fn emit_rest(code: &mut Assembler) {
    code.bytes(&[0x58]); // pop rax
    code.bytes_u32(&[0x48, 0x8d, 0xa4, 0x24], RED_ZONE); // lea rsp, [rsp + 128]
}

fn emit_pops(code: &mut Assembler) {
    emit_flags(code);
    emit_registers(code);
    emit_rest(code);
}

/// As `syscall` leaves them: rcx is the address behind it, r11 the flags.
fn emit_pops_of_done(code: &mut Assembler, behind: TargetAddress) {
    emit_flags(code);
    emit_registers(code);
    code.bytes(&[0x9c, 0x41, 0x5b]); // pushfq; pop r11
    code.external(&[0x48, 0x8d, 0x0d], behind); // lea rcx, [behind]
    emit_rest(code);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CodeView, FunctionExtent, analyze};

    const START: TargetAddress = TargetAddress(0x10_0000);

    fn map(bytes: &[u8]) -> FunctionMap {
        let size = bytes.len() as u64;
        analyze(
            &CodeView { start: START, bytes },
            &FunctionExtent {
                start: START,
                size,
                fragments: Vec::new(),
            },
        )
    }

    /// xor edi, edi; mov eax, 14; lea rsi, [rip + 0x100]; syscall; mov eax, 13; syscall; ret
    const BOTH: [u8; 25] = [
        0x31, 0xff, 0xb8, 14, 0, 0, 0, 0x48, 0x8d, 0x35, 0, 1, 0, 0, 0x0f, 5, 0xb8, 13, 0, 0, 0, 0x0f, 5, 0x90, 0xc3,
    ];

    /// Where the jumps and the system calls are.
    fn places(bytes: &[u8], numbers: &[u32]) -> Vec<(u64, u64)> {
        let found = Replacement::find(&map(bytes), numbers);
        found
            .iter()
            .map(|found| (found.run().start.0 - START.0, found.syscall().0 - START.0))
            .collect()
    }

    #[test]
    fn the_last_instruction_with_room_is_displaced() {
        assert_eq!(places(&BOTH, &[14]), [(7, 14)]);
        assert_eq!(places(&BOTH, &[13]), [(16, 21)]);
        assert_eq!(places(&BOTH, &[13, 14]), [(7, 14), (16, 21)]);
        assert_eq!(places(&BOTH, &[12]), []);
    }

    #[test]
    fn the_number_is_followed_through_registers() {
        // mov r8d, 14; mov rax, r8; mov edi, 2 (of three): syscall; ret
        let kept = [
            0x41, 0xb8, 14, 0, 0, 0, 0x4c, 0x89, 0xc0, 0xbf, 2, 0, 0, 0, 0x0f, 5, 0xc3,
        ];
        assert_eq!(places(&kept, &[14]), [(9, 14)]);
        assert_eq!(places(&kept, &[13]), []);
        // The same with the register changed in between: by lea r8, [r8 + 1], which is no constant any more.
        let changed = [&kept[..6], &[0x4d, 0x8d, 0x40, 1], &kept[6..]].concat();
        assert_eq!(places(&changed, &[13]), [(13, 18)]);
        // mov rax, rbx; mov r9, [rsp + 8]; syscall: any number.
        let any = [0x48, 0x89, 0xd8, 0x4c, 0x8b, 0x4c, 0x24, 8, 0x0f, 5, 0xc3];
        assert_eq!(places(&any, &[13]), [(3, 8)]);
        // xor eax, eax; mov edi, 2; syscall: read.
        assert_eq!(places(&[0x31, 0xc0, 0xbf, 2, 0, 0, 0, 0x0f, 5, 0xc3], &[13]), []);
        // The same kept in a register, as in a loop: mov edx, 60; L: mov eax, edx; mov edi, 2; syscall; jmp L
        let mut looped = [0xba, 60, 0, 0, 0, 0x89, 0xd0, 0xbf, 2, 0, 0, 0, 0x0f, 5, 0xeb, 0xf5];
        assert_eq!(places(&looped, &[13]), []);
        looped[1] = 13;
        assert_eq!(places(&looped, &[13]), [(7, 12)]);
        // Twice, as brk is: mov esi, 12; mov eax, esi; syscall; mov edi, 2; mov eax, esi; syscall; mov esi, eax; ret
        let mut twice = [
            0xbe, 12, 0, 0, 0, 0x89, 0xf0, 0x0f, 5, 0xbf, 2, 0, 0, 0, 0x89, 0xf0, 0x0f, 5, 0x89, 0xc6, 0xc3,
        ];
        assert_eq!(places(&twice, &[13]), []);
        twice[1] = 13;
        assert_eq!(places(&twice, &[13]), [(0, 7), (9, 16)]);
        // What the call yields is no number that is known: syscall; mov edi, 2; syscall.
        let yielded = [0xb8, 12, 0, 0, 0, 0x0f, 5, 0xbf, 2, 0, 0, 0, 0x0f, 5, 0xc3];
        assert_eq!(places(&yielded, &[13]), [(7, 12)]);
        // A branch to behind the load: je +5; mov eax, 12; mov edi, 2; syscall.
        let joined = [0x74, 5, 0xb8, 12, 0, 0, 0, 0xbf, 2, 0, 0, 0, 0x0f, 5, 0xc3];
        assert_eq!(places(&joined, &[13]), [(7, 12)]);
    }

    /// As compilers write a function that takes the number and its arguments.
    #[test]
    fn two_short_instructions_make_room() {
        // mov rax, rdi; mov rdi, rsi; mov rsi, rdx; mov rdx, rcx; mov r10, r8; syscall; ret
        let moves = [
            0x48, 0x89, 0xf8, 0x48, 0x89, 0xf7, 0x48, 0x89, 0xd6, 0x48, 0x89, 0xca, 0x4d, 0x89, 0xc2, 0x0f, 5, 0xc3,
        ];
        assert_eq!(places(&moves, &[13]), [(9, 15)]);
        let found = Replacement::find(&map(&moves), &[13]).pop().unwrap();
        // The boundary at +12 falls into the displacement, whose third byte must trap.
        let detour = TargetAddress(START.0 + 14 + 0xcc_1000);
        let built = found.build(TargetAddress(0x7000_0000_1000), detour).unwrap();
        assert_eq!(built.original, moves[9..14]);
        assert_eq!(built.patched, [0xe9, 0, 0x10, 0xcc, 0]);
        let redirect = &built.redirects[..];
        assert_eq!(redirect.len(), 1);
        assert_eq!((redirect[0].from.0 - START.0, redirect[0].to.0 - detour.0), (12, 3));
        let wrong = TargetAddress(START.0 + 14 + 0x48_1000);
        let refused = found.build(TargetAddress(0x7000_0000_1000), wrong);
        assert!(matches!(refused, Err(Refusal::BoundaryUnprotected { .. })));
    }

    #[test]
    fn the_quick_look_is_right_or_unsure() {
        let numbers = [13, 14];
        let is_other =
            |before: &[u8]| Replacement::load_in_front(before).is_some_and(|(_, number)| !numbers.contains(&number));
        assert_eq!(
            Replacement::load_in_front(&[0x90, 0x90, 0xb8, 14, 0, 0, 0, 0x90]),
            Some((2, 14))
        );
        assert!(is_other(&[0x90, 0xb8, 12, 0, 0, 0, 0xbf, 2, 0, 0, 0]));
        assert!(!is_other(&[0x90, 0xb8, 14, 0, 0, 0, 0xbf, 2, 0, 0, 0]));
        // mov rax, 15: rt_sigreturn.
        assert!(is_other(&[0x48, 0xc7, 0xc0, 15, 0, 0, 0]));
        // mov r8d, 8 is no load of eax; nothing is; a call lies between; eax is changed; the decoding is out of step.
        assert!(!is_other(&[0x90, 0xb8, 14, 0, 0, 0, 0x41, 0xb8, 8, 0, 0, 0]));
        assert!(!is_other(&[0x90, 0x48, 0x89, 0xd8]));
        assert!(!is_other(&[0x90, 0xb8, 12, 0, 0, 0, 0xe8, 0, 0, 0, 0]));
        assert!(!is_other(&[0x90, 0xb8, 12, 0, 0, 0, 0x89, 0xd8]));
        assert!(!is_other(&[0x90, 0xb8, 12, 0, 0, 0, 0x48, 0x8b]));
    }

    #[test]
    fn what_is_not_straight_is_left_alone() {
        // A branch, a call, another system call, and the function's end between.
        for between in [&[0x74, 0][..], &[0xe8, 0, 0, 0, 0], &[0xcd, 0x80], &[0xc3]] {
            let bytes = [&[0xb8, 14, 0, 0, 0][..], between, &[0x0f, 5, 0xc3]].concat();
            assert!(Replacement::find(&map(&bytes), &[14]).is_empty(), "{bytes:x?}");
        }
        assert!(Replacement::find(&map(&[0xb8, 14, 0, 0, 0, 0x90, 0x90]), &[14]).is_empty());
        let far = [&[0xb8, 14, 0, 0, 0][..], &[0x90; 12], &[0x0f, 5, 0xc3]].concat();
        // Too far to be displaced together: the nops are.
        assert_eq!(places(&far, &[14]).len(), 1);
        assert_eq!(places(&far, &[13]), []);
    }

    #[test]
    fn the_tables_name_every_place() {
        let found = Replacement::find(&map(&BOTH), &[14]).pop().unwrap();
        let detour = TargetAddress(0x20_0000);
        let built = found.build(TargetAddress(0x7000_0000_1000), detour).unwrap();
        assert_eq!(built.original[..5], [0x48, 0x8d, 0x35, 0, 1]);
        assert_eq!(built.detour.len(), found.run().detour_length);
        assert_eq!(built.patched[..5], [0xe9, 0xf4, 0xff, 0x0f, 0]); // 0x200000 - 0x10000c
        // The lea, whose operand is where it was.
        assert_eq!(built.detour[..3], [0x48, 0x8d, 0x35]);
        let displacement = i32::from_le_bytes(built.detour[3..7].try_into().unwrap());
        assert_eq!(
            detour.0 as i64 + 7 + i64::from(displacement),
            START.0 as i64 + 14 + 0x100
        );
        let pairs = |moves: &[Move]| -> Vec<(u64, u64)> {
            moves
                .iter()
                .map(|entry| (entry.original.0 - START.0, entry.relocated.0 - detour.0))
                .collect()
        };
        assert_eq!(pairs(&built.moves), [(7, 0), (14, 7)]);
        let departures = pairs(&built.departures);
        assert_eq!(departures[0], (14, 7));
        // Each of the other two is a jump that leads there.
        for (original, relocated) in &departures[1..] {
            let jump = &built.detour[*relocated as usize..*relocated as usize + 5];
            assert_eq!(jump[0], 0xe9);
            let displacement = i32::from_le_bytes(jump[1..].try_into().unwrap());
            assert_eq!(
                detour.0 as i64 + *relocated as i64 + 5 + i64::from(displacement),
                (START.0 + original) as i64
            );
        }
        assert_eq!([departures[1].0, departures[2].0], [14, 16]);
        let far = TargetAddress(0x1_2000_0000);
        assert!(matches!(found.build(far, far), Err(Refusal::OutOfReach { .. })));
    }
}
