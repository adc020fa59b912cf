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

pub(crate) use compose::{Content, compose};
pub use returned::{ReturnExits, build_return_stub};

use crate::{Refusal, RunPlan, Tactic, TargetAddress, TextRange};

/// How a thread finds its key into the thread table (`enum np_thread_key` of the agent's contract).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ThreadKey {
    /// `mov rax, fs:[0]`: the thread control block begins with its own address (glibc, musl).
    TlsSelf,
    /// `rdfsbase rax`.
    FsBase,
}

/// What detours need to know of the agent in the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runtime {
    /// `np_enter`: called on a miss in the table; may change rax and flags only.
    pub enter: TargetAddress,
    /// `struct np_thread_table`.
    pub table: TargetAddress,
    /// How threads are told apart.
    pub thread_key: ThreadKey,
}

impl Runtime {
    /// Stands in where only the length matters: no other runtime makes a detour longer.
    pub(crate) const LONGEST: Self = Self {
        enter: TargetAddress(0),
        table: TargetAddress(0),
        thread_key: ThreadKey::TlsSelf,
    };
}

/// Where a trap sends a thread (`struct np_redirect`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Redirect {
    /// Address of the trapping byte.
    pub from: TargetAddress,
    /// Where the instruction that used to start there lives on (the fires in front of it included).
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
    /// The code at the detour's address, then its literals.
    pub detour: Vec<u8>,
    /// How many 8-byte literals end it: bytes that are not code.
    pub literals: usize,
    /// One for every boundary, for every site behind a jump, and for the site of a `trap`; ascending.
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
    /// The text that it changes, its head first.
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
    let composed = compose(run.content(), runtime)?;
    let code = composed.code.link(detour)?;
    let at = |position: u64| TargetAddress(detour.0.saturating_add(position));
    let entry = |index: usize| composed.entries.get(index).map(|entry| at(*entry));

    let mut redirects = Vec::new();
    let patched = match run.tactic {
        Tactic::Trap => {
            redirects.extend(entry(0).map(|to| Redirect { from: run.start, to }));
            vec![0xcc]
        }
        Tactic::Jump | Tactic::Run | Tactic::Pun => {
            let patch_end = run.start.checked_add(5);
            let out_of_reach = Refusal::OutOfReach {
                from: run.start,
                target: detour,
            };
            let displacement = patch_end
                .and_then(|end| detour.displacement_from(end))
                .ok_or(out_of_reach)?;
            if !run.constraint.allows(displacement) {
                return Err(Refusal::BoundaryUnprotected {
                    start: run.start,
                    detour,
                });
            }
            let mut patched = run.original.clone();
            patched.splice(
                ..patched.len().min(5),
                std::iter::once(0xe9).chain(displacement.to_le_bytes()),
            );
            for (index, instruction) in run.instructions.iter().enumerate().skip(1) {
                let offset = instruction
                    .address
                    .offset_from(run.start)
                    .map_or(usize::MAX, |offset| offset as usize);
                if offset >= 5 {
                    if instruction.points.is_empty() {
                        continue;
                    }
                    if let Some(byte) = patched.get_mut(offset) {
                        *byte = 0xcc;
                    }
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
            patched
        }
    };
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
    departures.sort_unstable_by_key(|departure| departure.relocated);
    let partial = composed.pushed.iter().map(|(position, original, pushed)| Origin {
        relocated: at(*position),
        original: Some(*original),
        pushed: *pushed,
    });
    Ok(Built {
        partial: partial.collect(),
        address: run.start,
        original: run.original.clone(),
        patched,
        detour: code,
        literals: composed.code.literals(),
        redirects,
        moves,
        departures,
    })
}
