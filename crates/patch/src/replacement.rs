//! Replacements: a function of ours in front of a system call of the program's.
//!
//! ```text
//!   mov eax, 14        jump detour          detour: mov eax, 14; lea rsi, [..]     relocated
//!   lea rsi, [..]      (dead)                       all registers pushed           struct np_registers
//!   syscall            (unchanged)                  call the function
//!   ...                                             0: registers popped, jmp to the syscall
//!                                                   1: registers popped, rax new, rcx and r11 as after a system call,
//!                                                      jmp behind the syscall
//! ```
//!
//! The number is loaded by an instruction of five bytes, so the jump has no boundary. Nothing but the way through that
//! instruction is changed: whoever comes to the `syscall` by another one makes it as before.

use iced_x86::{Decoder, DecoderOptions};

use crate::assemble::{Assembled, Assembler, Label};
use crate::function::Kind;
use crate::relocate::{Original, relocate};
use crate::{
    Built, FireCondition, FunctionMap, Move, PlanOptions, Point, Position, Refusal, RunPlan, Tactic, TargetAddress,
    plan,
};

const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// Instructions between the load of the number and the `syscall`, at most.
const BETWEEN_MAX: usize = 8;
/// The red zone (System V ABI 3.2.2).
const RED_ZONE: u32 = 128;

/// A system call in front of which a function can be called.
#[derive(Clone, Debug)]
pub struct Replacement {
    run: RunPlan,
    /// From the load of the number up to the `syscall`, which is not among them.
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
    /// All places of a function that load this number and then, straight on, make a system call.
    pub fn find(map: &FunctionMap, number: u32) -> Vec<Replacement> {
        let mut load = vec![0xb8]; // mov eax, imm32
        load.extend_from_slice(&number.to_le_bytes());
        let code = map.code();
        let starts = (0..code.len()).filter(|index| code.get(*index).is_some_and(|first| map.bytes_of(*first) == load));
        starts.filter_map(|index| Replacement::at(map, index)).collect()
    }

    fn at(map: &FunctionMap, index: usize) -> Option<Replacement> {
        let mut instructions = Vec::new();
        for instruction in map.code().get(index..)?.iter().take(BETWEEN_MAX + 2) {
            let address = map.address(instruction.offset);
            let bytes = map.bytes_of(*instruction);
            if instruction.end() > map.code_size() {
                return None;
            }
            if bytes == SYSCALL {
                let run = single_jump(map, instructions.first().map(|(start, _)| *start)?)?;
                return Replacement {
                    run,
                    instructions,
                    syscall: address,
                }
                .measured();
            }
            if !matches!(instruction.kind, Kind::Plain | Kind::Nop) {
                return None;
            }
            instructions.push((address, bytes.to_vec()));
        }
        None
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
        let out_of_reach = Refusal::OutOfReach {
            from: start,
            target: detour,
        };
        let displacement = start
            .checked_add(5)
            .and_then(|end| detour.displacement_from(end))
            .ok_or(out_of_reach)?;
        let patched = std::iter::once(0xe9).chain(displacement.to_le_bytes()).collect();
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
            redirects: Vec::new(),
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

/// The displacement of one instruction of five bytes or more.
fn single_jump(map: &FunctionMap, site: TargetAddress) -> Option<RunPlan> {
    let point = Point {
        site,
        condition: FireCondition::Always,
        position: Position::Inside,
        full_frame: false,
        fires: Vec::new(),
    };
    let planned = plan(
        map,
        &[point],
        &PlanOptions {
            force: Some(Tactic::Jump),
        },
    );
    planned
        .runs
        .into_iter()
        .find(|run| run.start == site && run.instructions.len() == 1)
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

    #[test]
    fn both_are_found_with_what_lies_between() {
        let map = map(&BOTH);
        let places = |number| -> Vec<(u64, u64)> {
            let found = Replacement::find(&map, number);
            found
                .iter()
                .map(|found| (found.run().start.0 - START.0, found.syscall().0 - START.0))
                .collect()
        };
        assert_eq!(places(14), [(2, 14)]);
        assert_eq!(places(13), [(16, 21)]);
        assert_eq!(places(12), []);
    }

    #[test]
    fn what_is_not_straight_is_left_alone() {
        // A branch, a call, another system call, the function's end, and the number in another register between.
        for between in [&[0x74, 0][..], &[0xe8, 0, 0, 0, 0], &[0xcd, 0x80], &[0xc3]] {
            let bytes = [&[0xb8, 14, 0, 0, 0][..], between, &[0x0f, 5, 0xc3]].concat();
            assert!(Replacement::find(&map(&bytes), 14).is_empty(), "{bytes:x?}");
        }
        assert!(Replacement::find(&map(&[0xb8, 14, 0, 0, 0, 0x90, 0x90]), 14).is_empty());
        assert!(Replacement::find(&map(&[0x41, 0xb8, 14, 0, 0, 0, 0x0f, 5, 0xc3]), 14).is_empty());
        let far = [&[0xb8, 14, 0, 0, 0][..], &[0x90; 9], &[0x0f, 5, 0xc3]].concat();
        assert!(Replacement::find(&map(&far), 14).is_empty());
    }

    #[test]
    fn the_tables_name_every_place() {
        let found = Replacement::find(&map(&BOTH), 14).pop().unwrap();
        let detour = TargetAddress(0x20_0000);
        let built = found.build(TargetAddress(0x7000_0000_1000), detour).unwrap();
        assert_eq!(built.original, [0xb8, 14, 0, 0, 0]);
        assert_eq!(built.detour.len(), found.run().detour_length);
        assert_eq!(built.patched, [0xe9, 0xf9, 0xff, 0x0f, 0]); // 0x200000 - 0x100007
        // The load and the lea, whose operand is where it was.
        assert_eq!(built.detour[..5], [0xb8, 14, 0, 0, 0]);
        assert_eq!(built.detour[5..8], [0x48, 0x8d, 0x35]);
        let displacement = i32::from_le_bytes(built.detour[8..12].try_into().unwrap());
        assert_eq!(
            detour.0 as i64 + 12 + i64::from(displacement),
            START.0 as i64 + 14 + 0x100
        );
        let pairs = |moves: &[Move]| -> Vec<(u64, u64)> {
            moves
                .iter()
                .map(|entry| (entry.original.0 - START.0, entry.relocated.0 - detour.0))
                .collect()
        };
        assert_eq!(pairs(&built.moves), [(2, 0), (7, 5), (14, 12)]);
        let departures = pairs(&built.departures);
        assert_eq!(departures[0], (14, 12));
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
