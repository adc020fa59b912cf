//! One function: its parts, the points at which probes fire, and the runs that [`nanoprobe_patch::plan`] makes of it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use nanoprobe_arena::layout::OFFSET_RETURNED;
use nanoprobe_lang::options::ReturnForm;
use nanoprobe_patch::{FireCondition, FunctionMap, Point, Position, TargetAddress};
use nanoprobe_text::returns::{ReturnRefusal, frameless_jumps};

use super::groups::Group;
use super::points::point;
use super::stacked::{self, Sorted};
use super::{Function, Part, Planned, Planner, Refused, RefusedBecause};
use crate::probes::Spot;
use crate::returns;

impl Planner<'_> {
    pub(super) fn plan_group(
        &mut self,
        group: &Group,
        free: &Arc<[Range<u64>]>,
        planned: &mut Planned,
        refused: &mut Vec<Refused>,
    ) {
        let (probes, modules) = (self.probes, self.modules);
        let refuse = |site, reason| Refused {
            site,
            function: group.named.name(probes, modules),
            reason,
        };
        let module = self.modules.get(group.module);
        let Some(mut parts) = module.and_then(|module| self.neighbours.parts(module, &group.extent)) else {
            refused.push(refuse(None, RefusedBecause::NoCode));
            return;
        };
        if let Some(module) = module {
            self.neighbours.show(module, &mut parts);
            parts = parts.into_iter().map(|part| self.shown(part, free)).collect();
        }
        let mut points: Vec<Vec<Point>> = parts.iter().map(|_| Vec::new()).collect();
        let entry = TargetAddress(group.extent.start);
        for fire in &group.hooks {
            let hook = point(entry, FireCondition::Always, Position::Entry, false, vec![*fire]);
            if let Some(points) = points.first_mut() {
                points.push(hook);
            }
        }
        let enablings = self.enablings;
        let member = |(number, spot): &(usize, Spot)| Some((enablings.list().get(*number)?, *spot));
        let has_exits = group.members.iter().any(|(_, spot)| *spot == Spot::Exits);
        let by_address = match self.returns_by_address(group, &parts) {
            Ok(by_address) => by_address,
            Err(reason) => {
                if has_exits {
                    refused.push(refuse(Some(entry), reason));
                }
                let others = group.members.iter().filter(|(_, spot)| *spot != Spot::Exits);
                for (enabling, spot) in others.filter_map(member) {
                    if let Err(reason) = self.add_points(group, enabling, spot, &parts, &mut points) {
                        refused.push(refuse(Some(entry), reason));
                    }
                }
                return self.plan_parts(group, &parts, &points, planned, refused);
            }
        };
        let mut returns = Vec::new();
        // The points after these are exits.
        let mut others: Option<Vec<usize>> = None;
        for (enabling, spot) in group.members.iter().filter_map(member) {
            if spot == Spot::Exits && !by_address {
                others.get_or_insert_with(|| points.iter().map(Vec::len).collect());
            }
            let added = if spot == Spot::Exits && by_address {
                self.point_of(enabling, entry, OFFSET_RETURNED, FireCondition::Always, Position::Entry)
                    .map(|point| returns.push(point))
            } else {
                self.add_points(group, enabling, spot, &parts, &mut points)
            };
            if let Err(reason) = added {
                refused.push(refuse(Some(entry), reason));
            }
        }
        if let Some(others) = others
            && let Err(reason) = self.follow_tail_calls(group, &parts, &others, &mut points)
        {
            refused.push(refuse(Some(entry), reason));
        }
        if !returns.is_empty() {
            // The return address is taken after everything else that fires at the entry.
            match self.take_return(entry, self.returns.take, returns) {
                Ok(taken) => points.iter_mut().take(1).for_each(|points| points.push(taken.clone())),
                Err(reason) => refused.push(refuse(Some(entry), reason)),
            }
        }
        self.plan_parts(group, &parts, &points, planned, refused);
    }

    /// This part of a function, with the facts that apply to the whole target.
    pub(super) fn shown(&self, mut part: FunctionMap, free: &Arc<[Range<u64>]>) -> FunctionMap {
        part.show_near_memory(free.clone());
        if self.shadow_stack {
            part.show_shadow_stack();
        }
        part
    }

    /// Which form the return probes of a function take.
    fn returns_by_address(&self, group: &Group, parts: &[FunctionMap]) -> Result<bool, RefusedBecause> {
        if !group.is_function {
            return Ok(false);
        }
        let undecodable = parts.iter().find_map(FunctionMap::undecodable);
        let by_choice = match self.returns.form {
            ReturnForm::Exits => return Ok(false),
            ReturnForm::Auto => false,
            ReturnForm::Address => true,
            ReturnForm::Value => !self.sees_all_returns(group, parts),
        };
        if undecodable.is_none() && (!by_choice || parts.iter().all(|part| part.exits().is_empty())) {
            return Ok(false);
        }
        let may_be_exits = self.returns.form == ReturnForm::Value && undecodable.is_none();
        let check = returns::check_function(&self.returns, self.names_of(group), parts);
        match (check, undecodable) {
            (Ok(()), _) => Ok(true),
            (Err(_), _) if may_be_exits => Ok(false),
            (Err(refusal), Some(at)) if !by_choice => Err(RefusedBecause::NoReturnForm(refusal, at)),
            (Err(refusal), _) => Err(RefusedBecause::ReturnAddress(refusal)),
        }
    }

    /// The names of a function's code.
    fn names_of(&self, group: &Group) -> impl Iterator<Item = &str> {
        self.modules.get(group.module).into_iter().flat_map(|module| {
            let at = module.bias().to_image(TargetAddress(group.extent.start));
            // The functions are sorted by the address where they begin.
            let functions = module.functions();
            let first = functions.partition_point(|function| function.extent().start < at);
            let here = functions.iter().skip(first);
            here.take_while(move |function| function.extent().start == at)
                .flat_map(|function| function.names())
        })
    }

    /// Whether each exit is a return, or a jump at which the return address can be replaced.
    fn sees_all_returns(&self, group: &Group, parts: &[FunctionMap]) -> bool {
        let jumps: Vec<TargetAddress> = parts.iter().flat_map(FunctionMap::tail_jumps).collect();
        let are_known = parts.iter().all(FunctionMap::has_all_exits);
        let module = self.modules.get(group.module);
        are_known
            && (jumps.is_empty() || module.is_some_and(|module| frameless_jumps(module, parts).len() == jumps.len()))
    }

    /// If a function jumps to another function, this makes the return probes fire when the other function has returned:
    /// the return address is replaced at the jump. `others` has the number of points of each part that are no exits.
    fn follow_tail_calls(
        &mut self,
        group: &Group,
        parts: &[FunctionMap],
        others: &[usize],
        points: &mut [Vec<Point>],
    ) -> Result<(), RefusedBecause> {
        let jumps: Vec<TargetAddress> = parts.iter().flat_map(FunctionMap::tail_jumps).collect();
        let Some(module) = self.modules.get(group.module).filter(|_| !jumps.is_empty()) else {
            return Ok(());
        };
        if self.returns.form == ReturnForm::Exits {
            return Ok(());
        }
        if !group.is_function {
            return Err(RefusedBecause::TailCall(ReturnRefusal::Nameless));
        }
        returns::check_names(&self.returns, self.names_of(group)).map_err(RefusedBecause::TailCall)?;
        let frameless = frameless_jumps(module, parts);
        for (points, others) in points.iter_mut().zip(others) {
            let mut at_jumps: BTreeMap<TargetAddress, Vec<Point>> = BTreeMap::new();
            for exit in points.split_off(*others) {
                if frameless.contains(&exit.site) {
                    at_jumps.entry(exit.site).or_default().push(exit);
                } else {
                    points.push(exit);
                }
            }
            for (site, returns) in at_jumps {
                let taken = self.take_return(site, self.returns.take_at_jump, returns)?;
                points.push(taken);
            }
        }
        match jumps.into_iter().find(|jump| !frameless.contains(jump)) {
            Some(site) => Err(RefusedBecause::TailCall(ReturnRefusal::Frame { site })),
            None => Ok(()),
        }
    }

    fn plan_parts(
        &mut self,
        group: &Group,
        parts: &[FunctionMap],
        points: &[Vec<Point>],
        planned: &mut Planned,
        refused: &mut Vec<Refused>,
    ) {
        let entry = TargetAddress(group.extent.start);
        // The linker's hook uses any tactic that fits, even if a tactic is forced for the probes.
        let force = self.force.filter(|_| group.hooks.is_empty());
        for (part, points) in parts.iter().zip(points) {
            if points.is_empty() {
                continue;
            }
            let function = Function {
                start: entry,
                named: Some(group.named),
            };
            let whole = Part {
                module: group.module,
                extent: group.extent.clone(),
                function,
            };
            planned.parts.insert(part.start(), whole);
            let Sorted {
                own,
                stacked,
                refused: covered,
            } = stacked::sorted(points, self.there.occupied, force);
            planned.runs.extend(stacked.iter().map(|run| (run.start, function)));
            planned.stacked.extend(stacked);
            refused.extend(covered.into_iter().map(|site| Refused {
                site: Some(site),
                function: self.name_of(group),
                reason: RefusedBecause::OtherTracer,
            }));
            let runs = planned.planning.add(part, &own, force);
            self.neighbours.take(runs);
            planned.runs.extend(runs.iter().map(|run| (run.start, function)));
            let reasons = planned.planning.take_refusals().into_iter();
            refused.extend(reasons.map(|(site, reason)| Refused {
                site: Some(site),
                function: self.name_of(group),
                reason: RefusedBecause::Patch(reason),
            }));
        }
    }
}
