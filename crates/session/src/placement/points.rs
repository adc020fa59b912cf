//! The places in a function at which a probe fires, and the handlers that are called there.

use nanoprobe_arena::Structure as _;
use nanoprobe_arena::layout::Enabling as EnablingLayout;
use nanoprobe_codegen::ProbeKind;
use nanoprobe_patch::{Fire, FireCondition, FunctionMap, Point, Position, TargetAddress, build_return_stub};

use super::groups::Group;
use super::{Planner, RefusedBecause};
use crate::enable::{Enabling, probe_kind};
use crate::probes::{Place, Probe, Spot};
use crate::small_stack::SmallStack;

impl Planner<'_> {
    pub(super) fn add_points(
        &mut self,
        group: &Group,
        enabling: &Enabling,
        spot: Spot,
        parts: &[FunctionMap],
        points: &mut [Vec<Point>],
    ) -> Result<(), RefusedBecause> {
        if let Some(&Place::CallSites { module, end }) = self.probes.get(enabling.probe).map(|probe| &probe.place) {
            return self.add_call_points(group, enabling, (module, end), spot, parts, points);
        }
        let entry = TargetAddress(group.extent.start);
        // A Go function comes to its first instruction again after its stack has grown.
        let check = match self.modules.get(group.module).filter(|_| spot == Spot::Entry) {
            Some(module) => module.stack_check_bytes(module.bias().to_image(entry)),
            None => 0,
        };
        let place = if check == 0 { spot } else { Spot::Offset(check) };
        spread(place, entry, parts, points, |site, offset, condition, position| {
            // Anywhere but at an entry, memory below the stack pointer may be live.
            let position = match group.is_function {
                true if spot == Spot::Entry => Position::Entry,
                true => position,
                false => Position::Inside,
            };
            let offset = if spot == Spot::Entry { 0 } else { offset };
            let small = self.small_stacks.get(group.module).copied().unwrap_or(SmallStack::No);
            let position = small.position(position);
            self.point_of(enabling, site, offset, condition, position)
        })
    }

    /// The point that replaces the return address, with the stub in which
    /// the points of the return fire. It fires where and when these would.
    pub(super) fn take_return(
        &mut self,
        site: TargetAddress,
        take: TargetAddress,
        returns: Vec<Point>,
    ) -> Result<Point, RefusedBecause> {
        let (condition, position) = returns
            .first()
            .map_or((FireCondition::Always, Position::Entry), |first| {
                (first.condition, first.position)
            });
        let full_frame = returns.iter().any(|point| point.full_frame);
        let fires: Vec<Fire> = returns.into_iter().flat_map(|point| point.fires).collect();
        let stub = build_return_stub(&fires, full_frame, &self.runtime, self.returns.exits)?;
        let stub = self.room.code.put(stub, 16)?;
        let fires = vec![Fire::TakeReturn { take, stub }];
        Ok(point(site, condition, position, false, fires))
    }

    pub(super) fn point_of(
        &mut self,
        enabling: &Enabling,
        site: TargetAddress,
        offset: u64,
        condition: FireCondition,
        position: Position,
    ) -> Result<Point, RefusedBecause> {
        if let Some(counters) = &enabling.counters {
            let fires = counters
                .iter()
                .map(|offset| Fire::Count {
                    context_offset: *offset,
                })
                .collect();
            return Ok(point(site, condition, position, false, fires));
        }
        let probe = self.probes.get(enabling.probe).ok_or(RefusedBecause::NoCode)?;
        let kind = self.kind_at(probe, site).ok_or(RefusedBecause::NoCode)?;
        if let Some(reason) = self.enablings.unreadable(enabling.clause, kind) {
            return Err(RefusedBecause::Argument(format!("{probe}: {reason}")));
        }
        let handler = self.handler_of(enabling.clause, kind)?;
        let compiled = self.enablings.handler(enabling.clause, kind);
        let full_frame = compiled.is_some_and(|compiled| compiled.full_frame);
        let mut string = |text: &str| self.room.growth.string(text, self.strsize).map(|address| address.0);
        let layout = EnablingLayout {
            epid: enabling.epid,
            probe_id: probe.id,
            site: site.0,
            offset,
            provider: string(&probe.provider)?,
            module: string(&probe.module)?,
            function: string(&probe.function)?,
            name: string(&probe.name())?,
            slot_base: enabling.slot_base,
            ..EnablingLayout::default()
        };
        let enabling = self.room.growth.put(layout.to_bytes(), 8)?;
        Ok(point(
            site,
            condition,
            position,
            full_frame,
            vec![Fire::Call { handler, enabling }],
        ))
    }

    /// The address of a clause's handler, which is placed if it is not there yet.
    pub(super) fn handler_of(&mut self, clause: usize, kind: ProbeKind) -> Result<TargetAddress, RefusedBecause> {
        if let Some(address) = self.room.handlers.get(&(clause, kind)) {
            return Ok(*address);
        }
        let compiled = self.enablings.handler(clause, kind).ok_or(RefusedBecause::NoCode)?;
        let address = self.room.code.reserve(compiled.placed_bytes() as u64, 16)?;
        self.room.code.place(address, compiled.place(address.0, self.agent));
        self.room.handlers.insert((clause, kind), address);
        Ok(address)
    }

    /// The meaning of a probe's arguments at one of its sites.
    fn kind_at(&self, probe: &Probe, site: TargetAddress) -> Option<ProbeKind> {
        let Place::Static { module, number } = probe.place else {
            return probe_kind(probe, self.modules);
        };
        let address = self.modules.get(module)?.bias().to_image(site);
        let sites = &self.statics.get(number)?.sites;
        sites
            .iter()
            .find(|known| known.address == address)
            .map(|known| known.kind)
    }
}

/// Adds the points at which a probe of a function fires to the points of the function's parts. Adds the known points
/// even if an error reports that others may be missing. `make` receives the site, its offset from the entry, and when
/// and where it fires.
pub fn spread(
    spot: Spot,
    entry: TargetAddress,
    parts: &[FunctionMap],
    points: &mut [Vec<Point>],
    mut make: impl FnMut(TargetAddress, u64, FireCondition, Position) -> Result<Point, RefusedBecause>,
) -> Result<(), RefusedBecause> {
    match spot {
        Spot::Entry | Spot::Offset(_) => {
            let offset = if let Spot::Offset(offset) = spot { offset } else { 0 };
            let site = TargetAddress(entry.0.wrapping_add(offset));
            let position = if offset == 0 { Position::Entry } else { Position::Inside };
            let made = make(site, offset, FireCondition::Always, position)?;
            // A point that lies in no part goes to the first part, which refuses it.
            let holds = |part: &FunctionMap| {
                site.offset_from(part.start())
                    .is_some_and(|inside| inside < part.size())
            };
            let part = parts.iter().position(holds).unwrap_or(0);
            points.get_mut(part).ok_or(RefusedBecause::NoCode)?.push(made);
        }
        Spot::Exits => {
            let mut any = false;
            for (part, points) in parts.iter().zip(points) {
                for exit in part.exits() {
                    let offset = exit.site.0.wrapping_sub(entry.0);
                    points.push(make(exit.site, offset, exit.condition, Position::Inside)?);
                    any = true;
                }
            }
            if !any {
                let breakpoint = parts.iter().find_map(FunctionMap::breakpoint);
                return Err(breakpoint.map_or(RefusedBecause::NoExit, RefusedBecause::BehindBreakpoint));
            }
            if !parts.iter().all(FunctionMap::has_all_exits) {
                return Err(RefusedBecause::ExitsUnknown);
            }
        }
    }
    Ok(())
}

pub(super) fn point(
    site: TargetAddress,
    condition: FireCondition,
    position: Position,
    full_frame: bool,
    fires: Vec<Fire>,
) -> Point {
    Point {
        site,
        condition,
        position,
        full_frame,
        fires,
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use nanoprobe_patch::{CodeView, FunctionExtent, Surroundings, analyze, follow};

    use super::*;

    struct Nothing;

    impl Surroundings for Nothing {
        fn constant(&self, _: TargetAddress, _: usize) -> Option<&[u8]> {
            None
        }

        fn entries(&self, _: Range<TargetAddress>) -> Vec<TargetAddress> {
            Vec::new()
        }

        fn is_fragment(&self, _: TargetAddress) -> bool {
            false
        }

        fn pointers(&self, _: Range<TargetAddress>) -> Vec<TargetAddress> {
            Vec::new()
        }
    }

    /// The exits of a function, or the reason why it has none.
    fn exits(bytes: &[u8]) -> Result<Vec<TargetAddress>, String> {
        let start = TargetAddress(0x40_0000);
        let extent = FunctionExtent {
            start,
            size: bytes.len() as u64,
            fragments: Vec::new(),
        };
        let mut parts = [analyze(&CodeView { start, bytes }, &extent)];
        follow(&mut parts, &Nothing);
        let mut points = [Vec::new()];
        let make = |site, _, condition, position| Ok(point(site, condition, position, false, Vec::new()));
        spread(Spot::Exits, start, &parts, &mut points, make).map_err(|reason| reason.to_string())?;
        Ok(points.into_iter().flatten().map(|point| point.site).collect())
    }

    #[test]
    fn a_function_without_a_known_way_out_is_told_why() {
        // int3; ret: it is not known whether the program goes on after the breakpoint.
        let reason = exits(&[0xcc, 0xc3]).unwrap_err();
        assert!(
            reason.contains("breakpoint (int3) at 0x400000") && !reason.contains("never returns"),
            "{reason}"
        );
        // call +0; ud2: the call does not return.
        let reason = exits(&[0xe8, 0, 0x10, 0, 0, 0x0f, 0x0b]).unwrap_err();
        assert!(reason.contains("never returns"), "{reason}");
        // nop; int3; ret: after a nop the program goes on.
        assert_eq!(exits(&[0x90, 0xcc, 0xc3]), Ok(vec![TargetAddress(0x40_0002)]));
    }
}
