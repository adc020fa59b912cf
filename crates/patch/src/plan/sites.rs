//! Points, grouped by instruction.

use crate::function::FunctionMap;
use crate::order::sort_by_number;
use crate::{Point, Refusal, TargetAddress};

/// An instruction with the points at it.
#[derive(Clone)]
pub(super) struct Site {
    /// Index of the instruction.
    pub index: usize,
    pub points: Vec<Point>,
}

/// Groups the points by instruction, ascending. Refuses points that name no instruction.
pub(super) fn sites(map: &FunctionMap, points: &[Point], refusals: &mut Vec<(TargetAddress, Refusal)>) -> Vec<Site> {
    let mut sorted: Vec<&Point> = points.iter().collect();
    sort_by_number(&mut sorted, |point| point.site.0);
    let mut sites: Vec<Site> = Vec::new();
    for point in sorted {
        match instruction_at(map, point.site) {
            Ok(index) => match sites.last_mut() {
                Some(site) if site.index == index => site.points.push(point.clone()),
                _ => sites.push(Site {
                    index,
                    points: vec![point.clone()],
                }),
            },
            Err(refusal) => refusals.push((point.site, refusal)),
        }
    }
    // For the jump of the previous function, a jump must begin at the first instruction, even if nothing fires there.
    if map.is_successor() && !sites.is_empty() && sites.iter().all(|site| site.index != 0) {
        let points = Vec::new();
        sites.insert(0, Site { index: 0, points });
    }
    sites
}

fn instruction_at(map: &FunctionMap, site: TargetAddress) -> Result<usize, Refusal> {
    if map
        .undecodable()
        .is_some_and(|at| site >= at && site < map.address(map.code_size()))
    {
        return Err(Refusal::Undecodable {
            site,
            at: map.undecodable().unwrap_or(site),
        });
    }
    let offset = map.offset(site).filter(|offset| *offset < map.code_size());
    let offset = offset.ok_or(Refusal::OutsideFunction { site })?;
    let code = map.code();
    match code.binary_search_by_key(&offset, |instruction| instruction.offset) {
        Ok(index) => {
            let found = code.get(index);
            match found.and_then(|instruction| map.refusal_at(*instruction)) {
                Some(refusal) => Err(refusal),
                None if found.is_some_and(|instruction| instruction.padding) => Err(Refusal::Padding { site }),
                None => Ok(index),
            }
        }
        Err(behind) => {
            let around = behind.checked_sub(1).and_then(|index| code.get(index));
            if map.is_followed() && around.is_none_or(|around| around.end() <= offset) {
                return Err(Refusal::Unreached { site });
            }
            let start = around.map_or(map.start(), |instruction| map.address(instruction.offset));
            Err(Refusal::NotAnInstruction { site, start })
        }
    }
}
