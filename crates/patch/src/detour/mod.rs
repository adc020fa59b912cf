//! Detours: what a patch jumps to.
//!
//! ```text
//!   detour:   for each instruction of the run:
//!                 [enter, fires, leave]         where points are in front of it        (frame, fires)
//!                 the relocated instruction                                            (crate::relocate)
//!             jmp start + length                unless the run ends in a transfer
//!             the rare paths: fires on taken edges, threads without a context, hits while handlers run
//!             literals
//! ```
//!
//! The composition does not depend on the address, see [`crate::assemble`].

mod compose;
mod fires;
mod frame;
mod function;
mod returned;

use std::collections::BTreeMap;

use iced_x86::{Decoder, DecoderOptions, Instruction};

pub(crate) use compose::{Content, Rare, compose};
pub(crate) use fires::{Block, emit_block};
pub use returned::{ReturnExits, build_return_stub};

use crate::trap::{REDIRECT_EMULATION, form_of};
use crate::{Guest, JumpConstraint, Refusal, RunPlan, Tactic, TargetAddress, TextRange, TrapForm, is_trapping_byte};

/// How a thread finds its key into the thread table (`enum np_thread_key` of the agent's contract).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ThreadKey {
    /// `mov rax, fs:[0]`: the thread control block begins with its own address (glibc, musl).
    TlsSelf,
    /// `rdfsbase rax`.
    FsBase,
    /// No look-up: `np_enter` is called at each hit, and asks the kernel.
    Asked,
}

/// What detours need to know of the agent in the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runtime {
    /// `np_enter`: called on a miss in the table, and where handlers run already; may change rax and flags only.
    pub enter: TargetAddress,
    /// `struct np_thread_table`.
    pub table: TargetAddress,
    /// How threads are told apart.
    pub thread_key: ThreadKey,
    /// Traps take this form wherever they can.
    pub trap: Option<TrapForm>,
}

impl Runtime {
    /// Stands in where only the length matters: no other runtime makes a detour longer.
    pub(crate) const LONGEST: Self = Self {
        enter: TargetAddress(0),
        table: TargetAddress(0),
        thread_key: ThreadKey::TlsSelf,
        trap: Some(TrapForm::Step),
    };
}

/// Where a trap sends a thread (`struct np_redirect`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Redirect {
    /// Address of the trapping byte.
    pub from: TargetAddress,
    /// Where the instruction that used to start there lives on (the fires in front of it included). With
    /// [`REDIRECT_EMULATION`] in it: the address of a `struct np_emulation`, and the agent does the rest.
    pub to: TargetAddress,
}

/// Two places at which a thread does the same from here on, all else being equal: a stopped thread may be moved between
/// them by its instruction pointer alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Move {
    /// In the original text.
    pub original: TargetAddress,
    /// In the detour.
    pub relocated: TargetAddress,
}

/// What a fault in a detour is to be reported as, from an address on: see [`Built::origins`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Origin {
    /// In the detour.
    pub relocated: TargetAddress,
    /// The original instruction; `None`: this is code of the detour's own.
    pub original: Option<TargetAddress>,
    /// Words that have been pushed, and that the original instruction, had it faulted, would not have pushed.
    pub pushed: u8,
}

/// The bytes to write for one run, and which original address corresponds to which new one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Built {
    /// Where the patch is written.
    pub address: TargetAddress,
    /// The text it replaces.
    pub original: Vec<u8>,
    /// The patch, as long as `original`.
    pub patched: Vec<u8>,
    /// Of an `evict`: the padding that becomes the springboard. It is written before the patch, or with it, and taken back
    /// after it, when nobody stands on its jump. What lies in front of the first nop is no head, since only a jump leads
    /// there; from the first nop on every start traps.
    pub springboard: Vec<TextRange>,
    /// Of an `evict` without springboard: the start of the patch directly behind it, with whose bytes its jump ends. This
    /// one must not be in the text when that one is not there, or another is.
    pub successor: Option<TargetAddress>,
    /// Of an `evict` whose springboard lies in a displaced instruction: the start of that one's patch. This one must not be
    /// in the text when that one is not there.
    pub host: Option<TargetAddress>,
    /// The other side: where among the patched bytes, at their end, the springboard of another patch lies. While somebody
    /// may stand on its jump, or come back to it, the patch must stay as it is.
    pub carries: Option<TargetAddress>,
    /// The code at the detour's address, then its literals.
    pub detour: Vec<u8>,
    /// How many 8-byte literals end it: bytes that are not code.
    pub literals: usize,
    /// The form of a `trap`.
    pub form: Option<TrapForm>,
    /// One for every boundary, for every site behind a jump, and for every byte of a `trap`; ascending.
    pub redirects: Vec<Redirect>,
    /// One for every displaced instruction, behind the fires in front of it; ascending. Serves in both directions: into
    /// the detour when a thread stands in the run at attach, out of it at detach.
    pub moves: Vec<Move>,
    /// Further places from which a thread can be moved out of the detour: in front of the fires, and at the jumps that
    /// leave. Not for moving in. Ascending by `relocated`.
    pub departures: Vec<Move>,
    /// Places within relocated instructions at which words are pushed already. Not for moving.
    pub partial: Vec<Origin>,
}

impl Built {
    /// Which original address the code at `detour` stands for, as an instruction that faults there has to be reported:
    /// ascending, each entry up to the next. A relocated instruction holds to its end; a place in front of fires, or where
    /// the detour is left, stands for the original one only until its first instruction has run.
    pub fn origins(&self, detour: TargetAddress) -> Vec<Origin> {
        let mut origins = BTreeMap::new();
        for departure in &self.departures {
            origins.insert(TargetAddress(departure.relocated.0.saturating_add(1)), (None, 0));
        }
        let code_bytes = self.detour.len().saturating_sub(8 * self.literals) as u64;
        origins.insert(TargetAddress(detour.0.saturating_add(code_bytes)), (None, 0));
        for entry in self.moves.iter().chain(&self.departures) {
            origins.insert(entry.relocated, (Some(entry.original), 0));
        }
        for partial in &self.partial {
            origins.insert(partial.relocated, (partial.original, partial.pushed));
        }
        let origin = |(relocated, (original, pushed))| Origin {
            relocated,
            original,
            pushed,
        };
        origins.into_iter().map(origin).collect()
    }
}

impl Built {
    /// The text that it changes, its head first; without the springboard, which stays longer.
    pub fn ranges(&self) -> Vec<TextRange> {
        vec![TextRange {
            address: self.address,
            original: self.original.clone(),
            patched: self.patched.clone(),
            is_head: true,
        }]
    }
}

/// Builds the patch and the detour of a run at the address that was chosen for it.
///
/// # Errors
///
/// [`Refusal::OutOfReach`] and [`Refusal::BoundaryUnprotected`] when `detour` does not satisfy the run's reach or
/// constraint; addresses from [`crate::NearSpace::place`] do.
pub fn build(run: &RunPlan, detour: TargetAddress, runtime: &Runtime) -> Result<Built, Refusal> {
    let form = trap_form(run, runtime);
    let content = Content {
        trap: form,
        ..run.content()
    };
    let composed = compose(content, runtime)?;
    let code = composed.code.link(detour)?;
    let at = |position: u64| TargetAddress(detour.0.saturating_add(position));
    let entry = |index: usize| composed.entries.get(index).map(|entry| at(*entry));

    let mut redirects = Vec::new();
    let mut springboard = Vec::new();
    let guest = run.guest.and_then(|guest| Some((guest, guest.detour?)));
    let original = match guest {
        Some((guest, _)) => run.bytes_up_to(guest.springboard_end()),
        None => run.original.clone(),
    };
    let mut patched = original.clone();
    match run.tactic {
        Tactic::Trap => {
            // A thread whose trap somebody has swallowed goes on behind the first int3, and meets the next one.
            let to = match composed.descriptor {
                Some(position) => Some(TargetAddress(at(position).0 | REDIRECT_EMULATION)),
                None => entry(0),
            };
            let bytes = (run.start.0..).map(TargetAddress).take(patched.len());
            redirects.extend(
                to.iter()
                    .flat_map(|to| bytes.clone().map(|from| Redirect { from, to: *to })),
            );
            patched.fill(0xcc);
        }
        Tactic::Jump | Tactic::Run | Tactic::Pun => {
            overwrite(&mut patched, 0, &jump(run.start, run.constraint, detour)?);
            redirect_boundaries(run, 5, &mut patched, entry, &mut redirects);
        }
        // The rest of the jump is the successor's.
        Tactic::Evict if run.successor.is_some() => {
            overwrite(&mut patched, 0, &jump(run.start, run.constraint, detour)?);
            redirect_boundaries(run, 5, &mut patched, entry, &mut redirects);
        }
        Tactic::Evict => {
            let (short, written) = evict(run, detour, &mut redirects)?;
            springboard = written;
            overwrite(&mut patched, 0, &short);
            redirect_boundaries(run, 2, &mut patched, entry, &mut redirects);
        }
    }
    if let Some((guest, to)) = guest {
        carry(run, guest, to, &mut patched)?;
    }
    redirects.sort_unstable();
    let moves = run
        .instructions
        .iter()
        .zip(&composed.relocated)
        .map(|(instruction, position)| Move {
            original: instruction.address,
            relocated: at(*position),
        })
        .collect();
    let mut departures: Vec<Move> = run
        .instructions
        .iter()
        .zip(composed.entries.iter().zip(&composed.relocated))
        .filter(|(_, (entry, relocated))| entry != relocated)
        .map(|(instruction, (entry, _))| Move {
            original: instruction.address,
            relocated: at(*entry),
        })
        .collect();
    departures.extend(composed.leaving.iter().map(|(position, to)| Move {
        original: *to,
        relocated: at(*position),
    }));
    // Who stands on the springboard has come from the site and done nothing yet.
    departures.extend(run.springboard().map(|springboard| Move {
        original: run.start,
        relocated: springboard.jump,
    }));
    departures.sort_unstable_by_key(|departure| departure.relocated);
    let partial = composed.pushed.iter().map(|(position, original, pushed)| Origin {
        relocated: at(*position),
        original: Some(*original),
        pushed: *pushed,
    });
    Ok(Built {
        partial: partial.collect(),
        address: run.start,
        original,
        patched,
        springboard,
        successor: run.successor,
        host: run.host(),
        carries: guest.map(|(guest, _)| guest.jump),
        detour: code,
        literals: composed.code.literals() + composed.descriptor_words,
        form,
        redirects,
        moves,
        departures,
    })
}

/// Replaces bytes from `at` on, as far as there are any.
pub(crate) fn overwrite(bytes: &mut [u8], at: usize, new: &[u8]) {
    for (to, from) in bytes.iter_mut().skip(at).zip(new) {
        *to = *from;
    }
}

/// `jmp rel32` at `from`.
pub(crate) fn jump(from: TargetAddress, constraint: JumpConstraint, detour: TargetAddress) -> Result<[u8; 5], Refusal> {
    let displacement = from
        .checked_add(5)
        .and_then(|end| detour.displacement_from(end))
        .ok_or(Refusal::OutOfReach { from, target: detour })?;
    if !constraint.allows(displacement) {
        return Err(Refusal::BoundaryUnprotected { start: from, detour });
    }
    let [first, second, third, fourth] = displacement.to_le_bytes();
    Ok([0xe9, first, second, third, fourth])
}

/// The short jump to the springboard, and the springboard.
fn evict(
    run: &RunPlan,
    detour: TargetAddress,
    redirects: &mut Vec<Redirect>,
) -> Result<([u8; 2], Vec<TextRange>), Refusal> {
    let unreachable = Refusal::OutOfReach {
        from: run.start,
        target: run.jump(),
    };
    let springboard = run.springboard().ok_or(unreachable.clone())?;
    let distance = springboard.short_displacement(run.start).ok_or(unreachable)? as u8;
    if run.constraint.has_boundary_at(1) && !is_trapping_byte(distance) {
        return Err(Refusal::BoundaryUnprotected {
            start: run.start,
            detour: springboard.jump,
        });
    }
    if springboard.host.is_some() {
        // Its bytes are among the host's.
        return Ok(([0xeb, distance], Vec::new()));
    }
    let mut patched = springboard.original.clone();
    let in_front = springboard.jump.offset_from(springboard.start).unwrap_or(0) as usize;
    if in_front > 0 {
        overwrite(&mut patched, 0, &[0xcc]);
    }
    overwrite(
        &mut patched,
        in_front,
        &jump(springboard.jump, springboard.constraint, detour)?,
    );
    redirects.extend(springboard.nops.iter().map(|from| Redirect {
        from: *from,
        to: springboard.behind,
    }));
    let first_nop = springboard
        .nops
        .first()
        .and_then(|nop| nop.offset_from(springboard.start));
    let end = patched.len();
    let first_nop = first_nop.map_or(end, |offset| (offset as usize).min(end));
    let part = |from: usize, to: usize, is_head: bool| TextRange {
        address: TargetAddress(springboard.start.0.saturating_add(from as u64)),
        original: springboard.original.get(from..to).unwrap_or_default().to_vec(),
        patched: patched.get(from..to).unwrap_or_default().to_vec(),
        is_head,
    };
    let parts = [part(0, first_nop, false), part(first_nop, end, true)];
    let written = parts.into_iter().filter(|part| !part.original.is_empty()).collect();
    Ok(([0xeb, distance], written))
}

/// Writes the springboard of another run into the rear of the last displaced instruction. Where it lies among the bytes of
/// this run's own jump, the two must have been placed so that they agree.
fn carry(run: &RunPlan, guest: Guest, detour: TargetAddress, patched: &mut [u8]) -> Result<(), Refusal> {
    let unprotected = Refusal::BoundaryUnprotected {
        start: guest.jump,
        detour,
    };
    let offset = guest.jump.offset_from(run.start).ok_or(unprotected.clone())? as usize;
    let springboard = jump(guest.jump, JumpConstraint::FREE, detour)?;
    let shared = patched.get(offset..5).unwrap_or_default();
    if !springboard.starts_with(shared) || patched.len() != offset + springboard.len() {
        return Err(unprotected);
    }
    overwrite(patched, offset, &springboard);
    Ok(())
}

/// Redirects the instructions that begin in the jump's bytes, and the sites behind them, which get an `int3`.
pub(crate) fn redirect_boundaries(
    run: &RunPlan,
    jump: usize,
    patched: &mut [u8],
    entry: impl Fn(usize) -> Option<TargetAddress>,
    redirects: &mut Vec<Redirect>,
) {
    let displaced = run.instructions.len().saturating_sub(run.kept);
    for (index, instruction) in run.instructions.iter().enumerate().take(displaced).skip(1) {
        let offset = instruction
            .address
            .offset_from(run.start)
            .map_or(usize::MAX, |offset| offset as usize);
        if offset >= jump {
            if instruction.points.is_empty() {
                continue;
            }
            overwrite(patched, offset, &[0xcc]);
        }
        redirects.extend(entry(index).map(|to| Redirect {
            from: instruction.address,
            to,
        }));
    }
    let behind = run.end();
    redirects.extend(run.padding_boundaries.iter().map(|from| Redirect {
        from: *from,
        to: behind,
    }));
}

/// The form of a run that is a trap.
pub(crate) fn trap_form(run: &RunPlan, runtime: &Runtime) -> Option<TrapForm> {
    let displaced = run.instructions.first().filter(|_| run.tactic == Tactic::Trap)?;
    Some(form_of(displaced, runtime.trap))
}

/// An instruction at its original address.
pub(crate) fn decode(displaced: &crate::Displaced) -> Instruction {
    Decoder::with_ip(64, &displaced.bytes, displaced.address.0, DecoderOptions::NONE).decode()
}
