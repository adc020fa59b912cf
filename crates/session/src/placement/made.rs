//! The probes at system calls of code that the program has made ([`crate::made_calls`]).
//!
//! Each call has a detour of its own, in which everything fires: before the call, and after it. Its number is taken for
//! unknown, whatever the code around it loads. So the detour stays right when the program makes other code there.

use std::collections::HashSet;

use nanoprobe_agent::Function as AgentFunction;
use nanoprobe_patch::{
    CallInstruction, Fire, FireCondition, MadeCall, Obstacle, Point, Position, Refusal, SystemCall, Tactic,
    TargetAddress,
};
use nanoprobe_text::{Patch, without};

use super::calls::Role;
use super::points::point;
use super::{Changes, Placement, Planner, Refused, RefusedBecause, ShimPoints};
use crate::calls::End;
use crate::probes::Place;

impl Planner<'_> {
    /// Plans the patches of calls at these addresses.
    pub fn place_made(mut self, calls: &[TargetAddress]) -> Placement {
        let mut changes = Changes::default();
        let known = self.room.near.regions();
        for address in calls {
            match self.made_patch(*address) {
                Ok(patch) => changes.patches.push(patch),
                Err(reason) => changes.refused.push(Refused {
                    site: Some(*address),
                    function: String::new(),
                    reason,
                }),
            }
        }
        let regions = self.room.near.regions().into_iter();
        changes.regions = regions.flat_map(|region| without(region, &known)).collect();
        Placement {
            changes,
            shim_points: ShimPoints::new(),
            room: self.room,
        }
    }

    fn made_patch(&mut self, address: TargetAddress) -> Result<Patch, RefusedBecause> {
        let out_of_reach = || Refusal::TacticUnavailable {
            site: address,
            tactic: Tactic::Trap,
            obstacle: Some(Obstacle::Address),
        };
        let call = SystemCall {
            syscall: address,
            instruction: CallInstruction::Syscall,
            number: None,
            before: Some((address, FireCondition::Always)),
            after: address.checked_add(2),
            begins: false,
        };
        let before = self.made_points(&call, address, &[(End::Entry, Role::Entry), (End::Return, Role::Begin)])?;
        let behind = call.after.ok_or_else(out_of_reach)?;
        let after = self.made_points(&call, behind, &[(End::Return, Role::Return)])?;
        let made = MadeCall::new(address, &before, &after, &self.runtime).ok_or_else(out_of_reach)?;
        let run = made.run()?.ok_or_else(out_of_reach)?;
        let detour = self.room.near.place(&run, run.detour_length).ok_or_else(out_of_reach)?;
        let function = TargetAddress((self.agent)(AgentFunction::ShimSyscall));
        Ok(Patch {
            tactic: Tactic::Trap,
            obstacle: None,
            detour,
            room: run.detour_length,
            built: made.build(function, detour)?.into(),
            sites: vec![address],
            entered: Vec::new(),
            function: address,
            shim: false,
            takes_return: false,
            guards_returns: false,
        })
    }

    /// What all clauses do on one side of a call.
    fn made_points(
        &mut self,
        call: &SystemCall,
        site: TargetAddress,
        roles: &[(End, Role)],
    ) -> Result<Vec<Point>, RefusedBecause> {
        let enablings = self.enablings;
        let mut points: Vec<Point> = Vec::new();
        let mut done = HashSet::new();
        for enabling in enablings.list() {
            let probe = self.probes.get(enabling.probe);
            let Some(&Place::CallSites { end, .. }) = probe.map(|probe| &probe.place) else {
                continue;
            };
            let Some((_, role)) = roles.iter().find(|(of, _)| *of == end) else {
                continue;
            };
            // Each module with calls has an enabling of its own.
            if !done.insert((enabling.clause, enabling.description, end)) {
                continue;
            }
            let known: Vec<Fire> = points.iter().flat_map(|point| point.fires.clone()).collect();
            let is_first = |handler: TargetAddress| {
                let is_it = |fire: &Fire| matches!(fire, Fire::Call { handler: known, .. } if *known == handler);
                !known.iter().any(is_it)
            };
            let (fires, full_frame) = self.call_fires(enabling, call, end, *role, is_first)?;
            if !fires.is_empty() {
                points.push(point(site, FireCondition::Always, Position::Inside, full_frame, fires));
            }
        }
        Ok(points)
    }
}
