//! Copies of patched calls: a program may have copied, or moved, code that it has made while our byte was in it. A copy
//! that is executed when the agent is gone would end the program.
//!
//! So at the end, with all threads stopped, memory is searched: all executable memory that no file describes, and all
//! private memory that can be written, from which such code may be made. What is found there is the same three signs
//! that made the place a call in the first place.

use std::ops::Range;

use nanoprobe_arena::layout::{Region, Site, TACTIC_MADE};
use nanoprobe_patch::{MadeCall, TargetAddress};
use nanoprobe_target::{Map, Mapping, MappingKind, Memory};

use crate::error::SessionError;
use crate::made_calls::{Form, calls_in, for_pieces};
use crate::made_code::is_made;

/// How much memory is searched.
const SEARCH_MAX: u64 = 1 << 30;
const CALL: [u8; 2] = [0x0f, 0x05];

/// Makes all copies whole again, if there were any patches of which a copy can exist.
///
/// # Errors
/// A copy cannot be written.
pub(super) fn mend(memory: &Memory, map: &Map, sites: &[Site], regions: &[Region]) -> Result<(), SessionError> {
    if !sites.iter().any(|site| site.tactic == TACTIC_MADE) {
        return Ok(());
    }
    let own = |mapping: &Mapping| {
        regions
            .iter()
            .any(|region| mapping.start.0.wrapping_sub(region.address) < region.bytes)
    };
    let (code, data): (Vec<&Mapping>, Vec<&Mapping>) = map
        .mappings()
        .iter()
        .filter(|mapping| may_hold_copy(mapping) && !own(mapping))
        .partition(|mapping| mapping.permissions.execute);
    let mut left = SEARCH_MAX;
    let mut copies = Vec::new();
    for mapping in code.into_iter().chain(data) {
        let range: Range<u64> = mapping.start.0..mapping.end.0;
        for_pieces(memory, range, &mut left, &mut |start, bytes, counted| {
            let pairs = calls_in(bytes).filter(|pair| counted.contains(&pair.offset));
            let ours = pairs.filter(|pair| pair.form == Form::Certain { is_patched: true });
            copies.extend(ours.map(|pair| TargetAddress(start.saturating_add(pair.offset as u64))));
        });
    }
    let exchanges: Vec<_> = copies
        .iter()
        .map(|address| (*address, MadeCall::PATCHED.as_slice(), CALL.as_slice()))
        .collect();
    memory.exchange_text(&exchanges)?;
    Ok(())
}

fn may_hold_copy(mapping: &Mapping) -> bool {
    let permissions = &mapping.permissions;
    let is_data = permissions.write && !permissions.shared && !matches!(mapping.kind, MappingKind::File { .. });
    permissions.read && (is_data || is_made(mapping) && !permissions.shared)
}
