//! The system calls of code that the program has made: a trap in place of the `syscall` alone, and its detour.
//!
//! ```text
//!   mov eax, 39    (unchanged)    detour:   the points before the call
//!   syscall   ->   cc 05                    all registers pushed, the function called, as in [`super`]
//!   ret            (unchanged)              0: registers popped
//!                                           syscall
//!                                 behind:   the points after the call
//!                                           mov rcx, behind the program's `syscall`; jmp rcx
//!                                           1: registers popped, rax new, r11 as after a system call; jmp behind
//! ```
//!
//! Only the first byte changes: whoever has made the code may copy it, and a copy still shows which instruction it was
//! (`agent/made.c`). The detour needs nothing that the call does not preserve: a `syscall` leaves the address after it
//! in rcx anyway. So a thread that begins here, on a stack of its own, arrives where it would.

use iced_x86::{Code, Decoder, DecoderOptions};

use super::{SAVED_WORDS, emit_call, emit_flags, emit_pushes, emit_registers, emit_rest, single_run};
use crate::assemble::{Assembled, Assembler, Label};
use crate::detour::emit_rare;
use crate::detour::fires::{Block, emit_block};
use crate::{
    Built, CodeView, FireCondition, FunctionExtent, Move, Origin, Point, Redirect, Refusal, RunPlan, Runtime, Tactic,
    TargetAddress, analyze,
};

/// A flag in [`Redirect::to`] (`NP_REDIRECT_CALL`): the trap is [`PATCHED`], and nothing else.
pub const REDIRECT_CALL: u64 = 1 << 62;

const ORIGINAL: [u8; 2] = super::number::SYSCALL;
/// A `syscall` whose first byte traps.
const PATCHED: [u8; 2] = [0xcc, 0x05];

/// How far from the call its detour may lie. It could lie anywhere, but near memory is what there is.
const NEAR: u64 = 1 << 30;
/// From how many places before a pair of bytes the code is decoded, to see whether an instruction begins there. From
/// nearly any place the decoder finds the program's own instructions after a few of them.
const FIRST_START: usize = 32;
const LAST_START: usize = 12;

/// Whether the instruction at an offset is likely to be a `syscall`, and no part of another instruction.
pub fn is_likely_call(code: &[u8], offset: usize) -> bool {
    let starts = offset.saturating_sub(FIRST_START)..=offset.saturating_sub(LAST_START);
    let arrives = |start: &usize| {
        let Some(bytes) = code.get(*start..offset + ORIGINAL.len()) else {
            return false;
        };
        let mut decoder = Decoder::new(64, bytes, DecoderOptions::NONE);
        let at = offset - start;
        while decoder.position() < at {
            if decoder.decode().is_invalid() {
                return false;
            }
        }
        decoder.position() == at && decoder.decode().code() == Code::Syscall
    };
    let (all, arriving) = (starts.clone().count(), starts.filter(arrives).count());
    2 * arriving >= all
}

/// A system call of code that the program has made.
#[derive(Clone, Debug)]
pub struct MadeCall {
    syscall: TargetAddress,
    behind: TargetAddress,
    before: Option<Block>,
    after: Option<Block>,
    runtime: Runtime,
}

struct Composed {
    code: Assembled,
    /// Before the points.
    start: Label,
    /// Where the registers are pushed.
    entry: Label,
    /// After the function's call, and where the registers are popped again.
    called: Label,
    relocated: Label,
    behind: Label,
    leaving: Label,
}

impl MadeCall {
    /// The patch's bytes.
    pub const PATCHED: [u8; 2] = PATCHED;

    /// The call of a `syscall`, with the points before and after it. `None`: there is nothing at this address.
    pub fn new(syscall: TargetAddress, before: &[Point], after: &[Point], runtime: &Runtime) -> Option<MadeCall> {
        Some(MadeCall {
            syscall,
            behind: syscall.checked_add(ORIGINAL.len() as u64)?,
            before: Block::of(before, FireCondition::Always),
            after: Block::of(after, FireCondition::Always),
            runtime: *runtime,
        })
    }

    /// The run, for [`crate::NearSpace::place`]. `None`: the code around is too close to the end of all addresses.
    ///
    /// # Errors
    /// Those of [`MadeCall::build`].
    pub fn run(&self) -> Result<Option<RunPlan>, Refusal> {
        let code = CodeView {
            start: self.syscall,
            bytes: &ORIGINAL,
        };
        let extent = FunctionExtent {
            start: self.syscall,
            size: ORIGINAL.len() as u64,
            fragments: Vec::new(),
        };
        let map = analyze(&code, &extent);
        let Some(mut run) = single_run(&map, self.syscall, Tactic::Trap) else {
            return Ok(None);
        };
        run.detour_length = self.compose(TargetAddress(0))?.code.len();
        let low = self.syscall.0.saturating_sub(NEAR);
        run.reach = TargetAddress(low)..TargetAddress(self.syscall.0.saturating_add(NEAR));
        Ok(Some(run))
    }

    /// Builds the patch and the detour, which may lie anywhere. `function`: as for [`super::Replacement::build`].
    ///
    /// # Errors
    /// A counter's offset is too large.
    pub fn build(&self, function: TargetAddress, detour: TargetAddress) -> Result<Built, Refusal> {
        let composed = self.compose(function)?;
        let at = |label: Label| TargetAddress(detour.0.saturating_add(composed.code.position(label)));
        let relocated = at(composed.relocated);
        let to = |original, label| Move {
            original,
            relocated: at(label),
        };
        let mut departures = vec![
            to(self.syscall, composed.start),
            to(self.syscall, composed.entry),
            to(self.behind, composed.behind),
            to(self.behind, composed.leaving),
        ];
        departures.sort_by_key(|departure| departure.relocated);
        departures.dedup_by_key(|departure| departure.relocated);
        Ok(Built {
            address: self.syscall,
            original: ORIGINAL.to_vec(),
            patched: PATCHED.to_vec(),
            springboard: Vec::new(),
            successor: None,
            host: None,
            carries: None,
            detour: composed.code.link(detour)?,
            literals: composed.code.literals(),
            form: None,
            redirects: vec![Redirect {
                from: self.syscall,
                to: TargetAddress(detour.0 | REDIRECT_CALL),
            }],
            moves: vec![Move {
                original: self.syscall,
                relocated,
            }],
            departures,
            // From the function's return up to the `syscall`, which the agent knows by its own address.
            partial: vec![
                Origin {
                    relocated: at(composed.called),
                    original: Some(relocated),
                    pushed: SAVED_WORDS,
                },
                Origin {
                    relocated,
                    original: Some(self.syscall),
                    pushed: 0,
                },
            ],
        })
    }

    fn compose(&self, function: TargetAddress) -> Result<Composed, Refusal> {
        let mut code = Assembler::default();
        let mut rare = Vec::new();
        let start = code.here();
        if let Some(block) = &self.before {
            emit_block(&mut code, &mut rare, &self.runtime, block, None)?;
        }
        let entry = code.here();
        let (done, relocated, behind) = (code.label(), code.label(), code.label());
        emit_pushes(&mut code);
        code.bytes(&[0xbe, 0, 0, 0, 0]); // mov esi, 0: no register may change
        code.local(&[0x48, 0x8d, 0x15], relocated); // lea rdx, [relocated]
        let called = emit_call(&mut code, function, done);
        code.bind(relocated);
        code.bytes(&ORIGINAL);
        code.bind(behind);
        if let Some(block) = &self.after {
            emit_block(&mut code, &mut rare, &self.runtime, block, None)?;
        }
        let leaving = code.here();
        code.bytes_u64(&[0x48, 0xb9], self.behind.0); // mov rcx, behind
        code.bytes(&[0xff, 0xe1]); // jmp rcx
        code.bind(done);
        emit_flags(&mut code);
        emit_registers(&mut code);
        code.bytes(&[0x9c, 0x41, 0x5b]); // pushfq; pop r11
        emit_rest(&mut code);
        code.jump(behind);
        for path in rare {
            emit_rare(&mut code, &self.runtime, path);
        }
        Ok(Composed {
            code: code.finish()?,
            start,
            entry,
            called,
            relocated,
            behind,
            leaving,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fire, Position, ThreadKey};

    const CALL: TargetAddress = TargetAddress(0x7000_0000);
    const DETOUR: TargetAddress = TargetAddress(0x7100_0000);

    fn built(counts: usize) -> Built {
        let runtime = Runtime {
            enter: TargetAddress(0x1000),
            table: TargetAddress(0x2000),
            thread_key: ThreadKey::TlsSelf,
            trap: None,
        };
        let points = |site| {
            let count = |index: usize| Point {
                site,
                condition: FireCondition::Always,
                position: Position::Inside,
                full_frame: false,
                fires: vec![Fire::Count {
                    context_offset: 512 + 8 * index as u32,
                }],
            };
            (0..counts).map(count).collect::<Vec<Point>>()
        };
        let (before, after) = (points(CALL), points(TargetAddress(CALL.0 + 2)));
        let made = MadeCall::new(CALL, &before, &after, &runtime).unwrap();
        let built = made.build(TargetAddress(0x3000), DETOUR).unwrap();
        assert_eq!(built.detour.len(), made.run().unwrap().unwrap().detour_length);
        built
    }

    #[test]
    fn only_the_first_byte_changes() {
        let built = built(1);
        assert_eq!((built.original, built.patched), (vec![0x0f, 0x05], vec![0xcc, 0x05]));
        let to = TargetAddress(DETOUR.0 | REDIRECT_CALL);
        assert_eq!(built.redirects, [Redirect { from: CALL, to }]);
    }

    /// A thread that sleeps in the detour's `syscall` is moved out of it, and one that sleeps in the program's into it,
    /// so that the kernel finds a `syscall` two bytes before, to make it again.
    #[test]
    fn a_thread_that_sleeps_in_the_call_can_be_moved() {
        for counts in 0..3 {
            let built = built(counts);
            let behind = TargetAddress(CALL.0 + 2);
            let is_asleep = |departure: &&Move| {
                let end = (departure.relocated.0 - DETOUR.0) as usize;
                departure.original == behind && built.detour.get(end.wrapping_sub(2)..end) == Some(&ORIGINAL)
            };
            assert_eq!(built.departures.iter().filter(is_asleep).count(), 1);
            let [moved] = built.moves.as_slice() else {
                panic!("one instruction is moved")
            };
            let at = (moved.relocated.0 - DETOUR.0) as usize;
            assert_eq!(built.detour.get(at..at + 2), Some(ORIGINAL.as_slice()));
        }
    }

    /// mov $behind, %rcx; jmp *%rcx
    #[test]
    fn the_detour_ends_as_a_call_does() {
        let built = built(0);
        let mut end = vec![0x48, 0xb9];
        end.extend((CALL.0 + 2).to_le_bytes());
        end.extend([0xff, 0xe1]);
        assert_eq!(
            built.detour.windows(end.len()).filter(|window| *window == end).count(),
            1
        );
    }
}
