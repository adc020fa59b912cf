//! Reads what the arenas of other tracers say, with memory and a map in place of a process. The fuzzer runs this
//! (`fuzz/targets`).

use nanoprobe_patch::TargetAddress;
use nanoprobe_target::{Map, Memory};

use crate::error::SessionError;
use crate::others::Others;
use crate::signals::guests;

/// At so many addresses it is asked where their instructions are.
const ASKED_MAX: usize = 64;

/// What was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToldOfOthers {
    /// The arenas.
    pub arenas: usize,
    /// The sites that all of them list.
    pub sites: usize,
    /// The guests of the host.
    pub guests: usize,
    /// The displaced instructions that were found again.
    pub homes: usize,
    /// The arenas that another one needs.
    pub needed: usize,
    /// The sites that stay when their tracer ends.
    pub covered: usize,
}

/// Asks all that a tracer asks which comes to a process, or leaves it. All tracers count as running.
///
/// # Errors
/// A table cannot be read, or there are too many sites.
pub fn rehearse_others(memory: &Memory, map: &Map) -> Result<ToldOfOthers, SessionError> {
    const NOBODY: i32 = 0;
    let others = Others::read(memory, map, (NOBODY, None), &|_| false, &|_| Ok(true))?;
    // Whether another one may come does not matter here.
    let _ = others.check(NOBODY);
    let _occupied = others.occupied(memory);
    let mut told = ToldOfOthers {
        arenas: others.list().len(),
        sites: others.list().iter().map(|other| other.sites.len()).sum(),
        ..ToldOfOthers::default()
    };
    if let Some(host) = others.host(memory) {
        let listed = guests::guests_of(memory, &host);
        told.guests = listed.len();
        let sites = others.list().iter().flat_map(|other| &other.sites);
        let inside = sites.flat_map(|site| (0..8).map(|offset| TargetAddress(site.address.wrapping_add(offset))));
        let wanted: Vec<TargetAddress> = inside.take(ASKED_MAX).collect();
        // Asked before all guests, between them, and after them.
        for function in listed.into_iter().chain([0]) {
            let asked = guests::asked(memory, &host, TargetAddress(function));
            let homes = others.homes(memory, wanted.iter().copied(), &asked);
            told.homes = told.homes.max(homes.len());
        }
    }
    for other in others.list() {
        let own = other.own();
        told.needed += usize::from(others.need(&own));
        let _its_number = others.living_need(&own);
        let mut staying = other.sites.clone();
        others.keep_covered(&own, &mut staying);
        told.covered += other.sites.len().saturating_sub(staying.len());
    }
    Ok(told)
}
