//! Shims: the agent in front of the program's own signal calls, in whatever module makes them, of the calls that
//! make threads, and of those by which it puts itself under seccomp ([`nanoprobe_text::shims`] finds them).
//!
//! They are needed as soon as our signal actions are (see [`crate::signals`]), for the reasons in `agent/shims.c`.
//! Probes of a D program before such a call are a part of the shim.
//!
//! Each is a patch like a probe's, and is written, published and taken back with those.

use std::ops::Range;

use nanoprobe_agent::Function as AgentFunction;
use nanoprobe_patch::{Obstacle, Refusal, Replacement, Runtime, Tactic, TargetAddress};
use nanoprobe_symbols::Module;
pub use nanoprobe_text::shims::{Also, find};
use nanoprobe_text::{Patch, without};

use crate::placement::{Placement, Refused, RefusedBecause};

/// Where each of some modules is to have shims. It takes longer than placing them: another thread may do it.
pub fn find_all(modules: &[&Module], also: Also, is_cancelled: fn() -> bool) -> Vec<Vec<Replacement>> {
    let modules = modules.iter().take_while(|_| !is_cancelled());
    modules.map(|module| find(module, also)).collect()
}

/// Adds the shims of some modules to a placement. Where a probe wants the same instructions the shim has
/// precedence. A missing probe is reported, but a change of the signal mask that we do not see may kill the
/// program.
pub fn add<'a>(
    placement: &mut Placement,
    found: impl Iterator<Item = (&'a Module, Vec<Replacement>)>,
    runtime: &Runtime,
    agent: impl Fn(AgentFunction) -> TargetAddress,
) {
    let mut points = std::mem::take(&mut placement.shim_points);
    let (changes, near) = placement.parts();
    let known = near.regions();
    let mut shims = Vec::new();
    let mut ranges = Vec::new();
    for (module, found) in found {
        for mut shim in found {
            let fires = points.remove(&shim.syscall()).filter(|points| !points.is_empty());
            let fires_here = fires.is_some();
            if let Some(points) = fires {
                changes.refused.extend(bypass(module, &shim));
                // A shim that cannot fire is better than none: without it, signals may kill the program.
                match shim.clone().with_points(&points, runtime) {
                    Some(firing) => shim = firing,
                    None => changes.refused.push(Refused {
                        site: Some(shim.syscall()),
                        function: format!("{}`(system call)", module.name()),
                        reason: RefusedBecause::Shim,
                    }),
                }
            }
            let run = shim.run();
            let refuse = |reason| Refused {
                site: Some(run.start),
                function: format!("{}`(system call)", module.name()),
                reason: RefusedBecause::Patch(reason),
            };
            let Some(detour) = near.place(run, run.detour_length) else {
                let refusal = Refusal::TacticUnavailable {
                    site: run.start,
                    tactic: Tactic::Jump,
                    obstacle: Some(Obstacle::Address),
                };
                changes.refused.push(refuse(refusal));
                continue;
            };
            match shim.build(agent(AgentFunction::ShimSyscall), detour) {
                Ok(built) => {
                    let range = run.start..TargetAddress(shim.syscall().0.saturating_add(2));
                    give_way(&mut shims, &mut changes.refused, std::slice::from_ref(&range));
                    ranges.push(range);
                    let function = run.start;
                    shims.push(Patch {
                        obstacle: None,
                        tactic: Tactic::Jump,
                        detour,
                        room: run.detour_length,
                        built: built.into(),
                        sites: if fires_here { vec![shim.syscall()] } else { Vec::new() },
                        entered: Vec::new(),
                        function,
                        shim: true,
                        takes_return: false,
                        guards_returns: false,
                    });
                }
                Err(refusal) => changes.refused.push(refuse(refusal)),
            }
        }
    }
    // Done for all at once: there may be a hundred thousand patches.
    give_way(&mut changes.patches, &mut changes.refused, &ranges);
    changes.patches.append(&mut shims);
    changes
        .regions
        .extend(near.regions().into_iter().flat_map(|region| without(region, &known)));
}

/// The warning for users about probes in a shim.
fn bypass(module: &Module, shim: &Replacement) -> Option<Refused> {
    let reason = "a branch leads around the place where probes fire";
    shim.is_bypassed().then(|| Refused {
        site: Some(shim.syscall()),
        function: format!("{}`(system call)", module.name()),
        reason: RefusedBecause::SystemCall(shim.syscall(), reason),
    })
}

/// Takes back the patches that touch any of these ranges.
fn give_way(patches: &mut Vec<Patch>, refused: &mut Vec<Refused>, ranges: &[Range<TargetAddress>]) {
    let touches = |patch: &mut Patch| {
        let start = patch.built.address;
        let end = TargetAddress(start.0.saturating_add(patch.built.original.len() as u64));
        ranges.iter().any(|range| {
            let mut moves = patch.built.moves.iter();
            (start < range.end && range.start < end) || moves.any(|entry| range.contains(&entry.original))
        })
    };
    let gone = patches.extract_if(.., touches);
    let sites = gone.flat_map(|patch| patch.sites);
    refused.extend(sites.map(|site| Refused {
        site: Some(site),
        function: String::new(),
        reason: RefusedBecause::Shim,
    }));
}
