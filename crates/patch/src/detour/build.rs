//! Builds a run at the address that was chosen for its detour: the patch, the detour, and the tables.

use super::built::{Built, Move, Origin, Redirect};
use super::compose::{Composed, Content, compose};
use super::runtime::Runtime;
use crate::order::{sort_by_number, sort_by_numbers};
use crate::trap::{REDIRECT_EMULATION, form_of};
use crate::{Guest, JumpConstraint, Refusal, RunPlan, Tactic, TargetAddress, TextRange, TrapForm, is_trapping_byte};

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
    let Written {
        original,
        patched,
        springboard,
        mut redirects,
    } = write(run, &composed, detour)?;
    sort_by_numbers(&mut redirects, |redirect| (redirect.from.0, redirect.to.0));
    // The redirects are kept as long as the patch, and there may be a hundred thousand patches.
    redirects.shrink_to_fit();
    Ok(Built {
        partial: partial(&composed, detour),
        address: run.start,
        original,
        patched,
        springboard,
        successor: run.successor,
        host: run.host(),
        carries: placed_guest(run).map(|(guest, _)| guest.jump),
        detour: code,
        literals: composed.code.literals() + composed.descriptor_words,
        form,
        redirects,
        moves: moves(run, &composed, detour),
        departures: departures(run, &composed, detour),
    })
}

/// The bytes that a patch writes into the text.
struct Written {
    original: Vec<u8>,
    patched: Vec<u8>,
    springboard: Vec<TextRange>,
    redirects: Vec<Redirect>,
}

/// The run whose springboard this run carries, and the address of that run's detour.
fn placed_guest(run: &RunPlan) -> Option<(Guest, TargetAddress)> {
    run.guest.and_then(|guest| Some((guest, guest.detour?)))
}

fn write(run: &RunPlan, composed: &Composed, detour: TargetAddress) -> Result<Written, Refusal> {
    let entry = |index: usize| composed.entries.get(index).map(|entry| at(detour, *entry));
    let mut redirects = Vec::new();
    let mut springboard = Vec::new();
    let guest = placed_guest(run);
    let original = match guest {
        Some((guest, _)) => run.bytes_up_to(guest.springboard_end()),
        None => run.original.clone(),
    };
    let mut patched = original.clone();
    match run.tactic {
        Tactic::Trap => {
            // The program may swallow a trap. The thread then continues after the first `int3`, and meets the next
            // `int3`.
            let to = match composed.descriptor {
                Some(position) => Some(TargetAddress(at(detour, position).0 | REDIRECT_EMULATION)),
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
        // The rest of the jump belongs to the successor.
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
    Ok(Written {
        original,
        patched,
        springboard,
        redirects,
    })
}

/// A position in a detour, as an address.
fn at(detour: TargetAddress, position: u64) -> TargetAddress {
    TargetAddress(detour.0.saturating_add(position))
}

/// See [`Built::moves`].
fn moves(run: &RunPlan, composed: &Composed, detour: TargetAddress) -> Vec<Move> {
    run.instructions
        .iter()
        .zip(&composed.relocated)
        .map(|(instruction, position)| Move {
            original: instruction.address,
            relocated: at(detour, *position),
        })
        .collect()
}

/// See [`Built::departures`].
fn departures(run: &RunPlan, composed: &Composed, detour: TargetAddress) -> Vec<Move> {
    let mut departures: Vec<Move> = run
        .instructions
        .iter()
        .zip(composed.entries.iter().zip(&composed.relocated))
        .filter(|(_, (entry, relocated))| entry != relocated)
        .map(|(instruction, (entry, _))| Move {
            original: instruction.address,
            relocated: at(detour, *entry),
        })
        .collect();
    departures.extend(composed.leaving.iter().map(|(position, to)| Move {
        original: *to,
        relocated: at(detour, *position),
    }));
    // A thread on the springboard comes from the site and has executed nothing since.
    departures.extend(run.springboard().map(|springboard| Move {
        original: run.start,
        relocated: springboard.jump,
    }));
    sort_by_number(&mut departures, |departure| departure.relocated.0);
    departures.shrink_to_fit();
    departures
}

/// See [`Built::partial`].
fn partial(composed: &Composed, detour: TargetAddress) -> Vec<Origin> {
    let origin = |(position, original, pushed): &(u64, TargetAddress, u8)| Origin {
        relocated: at(detour, *position),
        original: Some(*original),
        pushed: *pushed,
    };
    composed.pushed.iter().map(origin).collect()
}

/// Replaces the bytes from `at` on, up to their end at most.
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
        // The springboard's bytes are part of the host's patch.
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

/// Writes the springboard of another run into the rear of the last displaced instruction. If the springboard overlaps
/// this run's own jump, the shared bytes must be equal.
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

/// Redirects the instructions that begin in the jump's bytes, and the sites after them, which get an `int3`.
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
