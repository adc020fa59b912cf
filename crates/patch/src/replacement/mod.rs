//! Replacements: a function of ours before a system call of the program's.
//!
//! ```text
//!   mov eax, 14        (unchanged)          detour: lea rsi, [..]                  relocated
//!   lea rsi, [..]      jump detour                  mov r10, r8
//!   mov r10, r8        (dead)                       all registers pushed           struct np_registers
//!   syscall            (unchanged)                  call the function
//!   ...                                             0: registers popped, jmp to the syscall
//!                                                   1: registers popped, rax new, rcx and r11 as after a system call,
//!                                                      jmp after the syscall
//! ```
//!
//! The jump takes the place of one instruction of five bytes or more, so it has no boundary: the last such
//! instruction on the straight way to the `syscall`. Where there is none, the jump takes the place of two or three
//! instructions, as a run does, and the boundaries trap. A thread that comes to the `syscall` by another way makes
//! the call as before.
//!
//! Some calls wait under a signal mask of their own. The function gives the kernel another mask than the program's,
//! by changing the register that points to the mask. It may do so only if the program does not read the register
//! after the call, which [`waits`] finds out. A thread may already sleep in such a call, or wait for signals. After a
//! stop it makes the call again, and would bypass the function. So the detour has a place, `restart`, to which such a
//! thread can be moved. If the call is made again, the kernel moves the thread two bytes back, where a jump leads to
//! the function. If the wait is over, the thread continues at the place itself, which leads after the `syscall`:
//!
//! ```text
//!             ...                         relocated instructions
//!             eb 05                       jmp the registers' push
//!   restart:  jmp after the syscall
//!             all registers pushed        ...
//! ```
//!
//! Points may fire in this detour, too: before the registers are pushed, and before `restart`. So a call that is made
//! again fires once.
//!
//! An `int 0x80` has a function before it where the straight way shows that it changes the signal mask or a signal's
//! action, by the numbers of 32-bit programs. It changes no register but rax.
//!
//! The call's number is known if the straight way loads a constant. If the number comes from elsewhere (as in
//! syscall(3), or from a register), it may be any call, and the function checks rax.

mod call;
mod made;
mod number;
mod waits;

pub use call::{CallInstruction, SystemCall};
pub use made::{MadeCall, REDIRECT_CALL, is_likely_call};

use iced_x86::{Decoder, DecoderOptions, FlowControl};

use number::{kept_numbers, known_way, number};

use crate::assemble::{Assembled, Assembler, Label};
use crate::detour::fires::{Block, emit_block};
use crate::detour::{emit_rare, jump, overwrite, redirect_boundaries};
use crate::function::{Instruction, Kind};
use crate::relocate::{Original, relocate};
use crate::{
    Built, FireCondition, FunctionMap, Move, Origin, PlanOptions, Point, Position, Refusal, RunPlan, Runtime, Shift,
    Tactic, TargetAddress, plan,
};

const JUMP_BYTES: usize = 5;
/// A `jmp` over the next five bytes, which are a jump. A thread that must make its call again is moved to that jump.
pub const RESTART: [u8; 2] = [0xeb, 5];
/// The most instructions before the `syscall` that are examined.
const BEFORE_MAX: usize = 12;
/// rt_sigtimedwait, exit.
const SIGTIMEDWAIT: u32 = 128;
const EXIT: u32 = 60;
/// sigaction, sigprocmask, rt_sigaction and rt_sigprocmask of 32-bit programs.
const BY_INTERRUPT: [u32; 4] = [67, 126, 174, 175];
/// What the function is told of an `int 0x80`, besides whether it may lend.
const TOLD_INTERRUPT: u8 = 2;
/// The words on the stack during the call of the function: the red zone and `struct np_registers`. By this number, the
/// agent's handlers recognise a thread that is about to make the call (agent/waits.c).
const SAVED_WORDS: u8 = (RED_ZONE / 8 + 16) as u8;
/// The red zone (System V ABI 3.2.2).
const RED_ZONE: u32 = 128;

/// A system call before which a function can be called.
#[derive(Clone, Debug)]
pub struct Replacement {
    run: RunPlan,
    /// The instructions from the displaced one up to the `syscall`, which is not included.
    instructions: Vec<(TargetAddress, Vec<u8>)>,
    syscall: TargetAddress,
    instruction: CallInstruction,
    /// Whether the function may change the register that points to the mask.
    lends: bool,
    /// Whether a thread that sleeps in the call, while the patch is made, must not bypass the function when it
    /// continues.
    restarts: bool,
    /// Whether a known branch leads to a place after the displaced instructions, so that a thread may make the call
    /// without coming to the detour.
    is_bypassed: bool,
    /// The probes before the call, which fire before the function is called.
    fires: Option<(Block, Runtime)>,
}

/// A detour whose address is not chosen yet.
struct Composed {
    code: Assembled,
    relocated: Vec<Label>,
    /// The place at which the registers are saved. It corresponds to the address before the `syscall`.
    entry: Label,
    /// The place after the call of the function.
    called: Label,
    leaving: [(Label, TargetAddress); 2],
    /// The place to which a thread is moved that makes the call again.
    restart: Option<Label>,
}

impl Replacement {
    /// All places of a function that make one of these system calls, a call that waits under a signal mask of its own,
    /// or a call with an unknown number.
    pub fn find(map: &FunctionMap, numbers: &[u32]) -> Vec<Replacement> {
        let indices = 0..map.code().len();
        indices
            .filter_map(|index| Replacement::at(map, index, numbers))
            .collect()
    }

    /// The replacement before the instruction of this index, if it is a `syscall` or an `int 0x80`.
    fn at(map: &FunctionMap, index: usize, numbers: &[u32]) -> Option<Replacement> {
        let code = map.code();
        let call = code.get(index)?;
        let mut kinds = [CallInstruction::Syscall, CallInstruction::Interrupt].into_iter();
        let instruction = kinds.find(|kind| map.bytes_of(*call) == kind.bytes())?;
        let by_interrupt = instruction == CallInstruction::Interrupt;
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
            _ if by_interrupt => !number.is_some_and(Replacement::is_met_by_interrupt),
            Some(number) => !numbers.contains(&number),
            None => kept_numbers(map, straight).is_some_and(|kept| kept.iter().all(|number| !numbers.contains(number))),
        };
        let lends = !by_interrupt && waits::can_lend(map, index, number);
        if is_other && !(lends && number.is_some_and(waits::is_wait)) {
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
            instructions: instructions
                .map(|instruction| (map.address(instruction.offset), map.bytes_of(*instruction).to_vec()))
                .collect(),
            syscall: map.address(call.offset),
            instruction,
            lends,
            restarts: lends || (!by_interrupt && number.is_none_or(|number| number == SIGTIMEDWAIT)),
            is_bypassed: is_bypassed(map, straight, &run, call),
            fires: None,
            run,
        }
        .measured()
    }

    /// The replacement in the same code at another address. Only before points are added: these have addresses of
    /// their own.
    pub fn moved(&self, shift: Shift) -> Replacement {
        let instructions = self.instructions.iter();
        Replacement {
            run: self.run.moved(shift),
            instructions: instructions
                .map(|(address, bytes)| (shift.address(*address), bytes.clone()))
                .collect(),
            syscall: shift.address(self.syscall),
            instruction: self.instruction,
            lends: self.lends,
            restarts: self.restarts,
            is_bypassed: self.is_bypassed,
            fires: self.fires.clone(),
        }
    }

    /// This replacement, with points that fire before the call: once a call, also if the kernel restarts it.
    /// `None`: then no detour reaches all that it must reach.
    pub fn with_points(self, points: &[Point], runtime: &Runtime) -> Option<Replacement> {
        let fires = Block::of(points, FireCondition::Always).map(|block| (block, *runtime));
        Replacement { fires, ..self }.measured()
    }

    /// Finds a plain load of the number in the bytes before a `syscall`: the load's offset, and the number. This saves
    /// decoding every function that makes a system call, and works even if the start of the code is not known. `None`
    /// if a closer look is needed.
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

    /// Whether a system call waits under a signal mask of its own.
    pub fn is_wait(number: u32) -> bool {
        waits::is_wait(number)
    }

    /// Whether an `int 0x80` of this number changes the signal mask, or a signal's action.
    pub fn is_met_by_interrupt(number: u32) -> bool {
        BY_INTERRUPT.contains(&number)
    }

    /// The run, for [`crate::NearSpace::place`].
    pub fn run(&self) -> &RunPlan {
        &self.run
    }

    /// Whether a thread may make the call without coming to the detour: a branch leads to a place after the displaced
    /// instructions.
    pub fn is_bypassed(&self) -> bool {
        self.is_bypassed
    }

    /// The `syscall`, or the `int 0x80`.
    pub fn syscall(&self) -> TargetAddress {
        self.syscall
    }

    /// Builds the patch and the detour. `function` is `u64 function(struct np_registers *, u64 lends, u64 syscall)`,
    /// with the ordinary calling convention. It leaves SIMD and x87 state alone, and needs no aligned stack.
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
        let behind = composed.leaving.last().map(|(_, behind)| *behind);
        departures.extend(composed.restart.zip(behind).map(|(label, original)| Move {
            original,
            relocated: at(label),
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
            // The part from the function's return up to the jump to the `syscall`.
            partial: [composed.called, composed.leaving[0].0]
                .map(|label| Origin {
                    relocated: at(label),
                    original: Some(self.syscall),
                    pushed: SAVED_WORDS,
                })
                .to_vec(),
        })
    }

    /// Composes the detour once, to find its length and the addresses from which it reaches all its references.
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
        let mut rare = Vec::new();
        if let Some((block, runtime)) = &self.fires {
            emit_block(&mut code, &mut rare, runtime, block, None)?;
        }
        let restart = self.restarts.then(|| {
            code.bytes(&RESTART);
            let restart = code.here();
            code.external(&[0xe9], behind);
            restart
        });
        let entry = code.here();
        let done = code.label();
        emit_pushes(&mut code);
        let by_interrupt = self.instruction == CallInstruction::Interrupt;
        let told = u8::from(self.lends) + TOLD_INTERRUPT * u8::from(by_interrupt);
        code.bytes(&[0xbe, told, 0, 0, 0]); // mov esi, told
        code.external(&[0x48, 0x8d, 0x15], self.syscall); // lea rdx, [syscall]
        let called = emit_call(&mut code, function, done);
        let to_syscall = code.here();
        code.external(&[0xe9], self.syscall);
        code.bind(done);
        match by_interrupt {
            true => emit_pops(&mut code),
            false => emit_pops_of_done(&mut code, behind),
        }
        let to_behind = code.here();
        code.external(&[0xe9], behind);
        if let Some((_, runtime)) = &self.fires {
            for path in rare {
                emit_rare(&mut code, runtime, path);
            }
        }
        let leaving = [(to_syscall, self.syscall), (to_behind, behind)];
        Ok(Composed {
            code: code.finish()?,
            relocated,
            entry,
            called,
            leaving,
            restart,
        })
    }
}

/// See [`Replacement::is_bypassed`]. An `exit` in a loop is not: it never comes back to the branch.
fn is_bypassed(map: &FunctionMap, straight: &[Instruction], run: &RunPlan, call: &Instruction) -> bool {
    let exits = number(straight.iter().map(|instruction| map.bytes_of(*instruction))) == Some(EXIT);
    let addresses = straight
        .iter()
        .chain([call])
        .map(|instruction| map.address(instruction.offset));
    let mut behind = addresses.filter(|address| *address >= run.end());
    !exits && behind.any(|address| map.is_branch_target(address))
}

/// A run by this tactic that starts at an instruction and displaces whole instructions.
fn single_run(map: &FunctionMap, site: TargetAddress, tactic: Tactic) -> Option<RunPlan> {
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
            force: Some(tactic),
            ..PlanOptions::default()
        },
    );
    let mut runs = planned.runs.into_iter();
    runs.find(|run| run.start == site && run.tactic == tactic && run.kept == 0 && run.padding_boundaries.is_empty())
}

/// Saves the registers as a `struct np_registers`, to which rdi points.
fn emit_pushes(code: &mut Assembler) {
    code.bytes(&[0x48, 0x8d, 0x64, 0x24, 0x80]); // lea rsp, [rsp - 128]
    code.bytes(&[0x50, 0x53, 0x51, 0x52, 0x56, 0x57, 0x55]); // push rax, rbx, rcx, rdx, rsi, rdi, rbp
    for register in 0..8 {
        code.bytes(&[0x41, 0x50 + register]); // push r8 .. r15
    }
    code.bytes(&[0x9f, 0x0f, 0x90, 0xc0, 0x50]); // lahf; seto al; push rax
    code.bytes(&[0x48, 0x89, 0xe7]); // mov rdi, rsp
}

/// Calls the function. Where it has made the call, it goes on at `done`, else with the registers as they were. Yields
/// the place to which the function returns.
fn emit_call(code: &mut Assembler, function: TargetAddress, done: Label) -> Label {
    code.bytes_u64(&[0x48, 0xb8], function.0); // mov rax, function
    code.bytes(&[0xff, 0xd0]); // call rax
    let called = code.here();
    code.bytes(&[0x85, 0xc0]); // test eax, eax
    code.jump_if(5, done); // jne done
    emit_pops(code);
    called
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

/// Restores the registers as `syscall` leaves them: rcx is the address after it, r11 the flags.
fn emit_pops_of_done(code: &mut Assembler, behind: TargetAddress) {
    emit_flags(code);
    emit_registers(code);
    code.bytes(&[0x9c, 0x41, 0x5b]); // pushfq; pop r11
    code.external(&[0x48, 0x8d, 0x0d], behind); // lea rcx, [behind]
    emit_rest(code);
}

#[cfg(test)]
mod tests;
