//! The probes before and after system calls, and the tables by which a clause finds the enabling of a number.
//!
//! ```text
//!   clause with a handler    entry:    Call { np_call_entry, struct np_call_site -> table of enablings, handler }
//!                            return:   before the call  Call { np_call_begin }
//!                                      after it         Call { np_call_end }, Call { np_call_return, as above }
//!   clause that only counts  entry:    CountByNumber { table of counters }
//!                                      Count { counter }                        where the code shows the number
//!                            return:   before the call  Call { np_call_begin }
//!                                      after it         Call { np_call_end }, Call { np_call_count, the table }
//! ```
//!
//! Where the code shows a call's number (`mov $39, %eax` in libc's getppid), only clauses that mean this number have
//! something there.
//!
//! An `int 0x80` has tables of its own: its numbers are those of 32-bit programs. Derived probes read a call's
//! registers, which are others there, so they do not fire.
//!
//! Sites and tables lie in the code block, where nothing that the program writes by mistake can change them. Where the
//! agent itself stands before a call (a shim), the points become a part of the shim.

use std::collections::{BTreeSet, HashMap, HashSet};

use nanoprobe_agent::Function as AgentFunction;
use nanoprobe_arena::Structure as _;
use nanoprobe_arena::layout::{
    CALL_NUMBERS, CALL_PROCESS_BEGINS, CALL_ROWS, CALL_SITE_CODE, CALL_THREAD_BEGINS, CallSite as SiteLayout, Context,
    Enabling as EnablingLayout,
};
use nanoprobe_patch::{CallInstruction, Fire, FireCondition, FunctionMap, Point, Position, SystemCall, TargetAddress};

use super::groups::{Group, Located};
use super::points::{point, spread};
use super::{Planner, Refused, RefusedBecause};
use crate::calls::{CallSite, Calls, End, PROVIDER, rows_of};
use crate::enable::{Enabling, call_kind};
use crate::probes::{Place, Spot};
use crate::small_stack::SmallStack;

/// The tables of the clauses: by the clause, its description, whether for entries or returns, and the instruction. A
/// clause that counts in several places has several.
pub type CallTables = HashMap<(usize, usize, End, CallInstruction), Vec<TargetAddress>>;

/// The probes before system calls at which shims stand, by the address of the `syscall`.
pub type ShimPoints = HashMap<TargetAddress, Vec<Point>>;

/// The system calls of the modules.
#[derive(Clone, Copy)]
pub struct CallPlaces<'a> {
    /// All of them.
    pub known: &'a Calls,
    /// The system calls before which shims stand, sorted. Their probes were planned with the shims.
    pub shims: &'a [TargetAddress],
    /// The system calls before which shims will stand, sorted.
    pub coming: &'a [TargetAddress],
}

impl CallPlaces<'_> {
    fn has_shim(&self, site: &CallSite) -> bool {
        self.shims.binary_search(&site.call.syscall).is_ok() || self.gets_shim(site)
    }

    fn gets_shim(&self, site: &CallSite) -> bool {
        self.coming.binary_search(&site.call.syscall).is_ok()
    }
}

/// The part of a clause's work that is done at one address.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Its handler, or its count.
    Entry,
    /// The number must be remembered.
    Begin,
    /// The number must be found, then its handler.
    Return,
}

impl Planner<'_> {
    /// Where the system calls of a module are to be patched for a clause.
    pub(super) fn located_calls(
        &self,
        enabling: &Enabling,
        module: usize,
        end: End,
    ) -> Vec<Result<Located, RefusedBecause>> {
        let Some(bias) = self.modules.get(module).map(|module| module.bias()) else {
            return Vec::new();
        };
        let numbers = self.numbers_of(enabling, end);
        let reads_registers = self.reads_registers(enabling, end);
        let mut addresses = BTreeSet::new();
        let mut refusals = Vec::new();
        for site in self
            .calls
            .known
            .of(module)
            .iter()
            .filter(|site| may_make(&site.call, &numbers))
        {
            match site.refusal {
                Some(_) if end == End::Return && site.call.after.is_none() && is_syscall(&site.call) => {}
                None if reads_registers && !is_syscall(&site.call) => {
                    let reason = "`int 0x80` has its arguments in other registers";
                    refusals.push(Err(RefusedBecause::SystemCall(site.call.syscall, reason)));
                }
                Some(reason) => refusals.push(Err(RefusedBecause::SystemCall(site.call.syscall, reason))),
                None => addresses.extend(self.roles(site, end).into_iter().map(|(address, ..)| address)),
            }
        }
        let located = addresses
            .into_iter()
            .map(|address| self.locate_address(module, bias.to_image(address)));
        located.chain(refusals).collect()
    }

    /// The addresses at which a clause needs something, for one system call.
    fn roles(&self, site: &CallSite, end: End) -> Vec<(TargetAddress, FireCondition, Role)> {
        let before = site.call.before.filter(|_| !self.calls.has_shim(site));
        let begins = if end == End::Entry { Role::Entry } else { Role::Begin };
        let before = before.map(|(address, condition)| (address, condition, begins));
        let after = site
            .call
            .after
            .map(|address| (address, FireCondition::Always, Role::Return));
        match end {
            End::Entry => before.into_iter().collect(),
            End::Return if site.call.after.is_none() => Vec::new(),
            End::Return => before.into_iter().chain(after).collect(),
        }
    }

    /// Adds the handlers and counters at one address for all system calls next to it.
    pub(super) fn add_call_points(
        &mut self,
        group: &Group,
        enabling: &Enabling,
        (module, end): (usize, End),
        spot: Spot,
        parts: &[FunctionMap],
        points: &mut [Vec<Point>],
    ) -> Result<(), RefusedBecause> {
        let entry = TargetAddress(group.extent.start);
        let Spot::Offset(offset) = spot else { return Ok(()) };
        let here = TargetAddress(entry.0.wrapping_add(offset));
        let calls = self.calls.known;
        let numbers = self.numbers_of(enabling, end);
        let reads_registers = self.reads_registers(enabling, end);
        let sites = calls.of(module).iter().filter(|site| site.refusal.is_none());
        let sites = sites.filter(|site| is_syscall(&site.call) || !reads_registers);
        for site in sites.filter(|site| may_make(&site.call, &numbers)) {
            for (address, condition, role) in self.roles(site, end) {
                if address != here {
                    continue;
                }
                let mut known = points.iter().flatten().filter(|point| point.site == here);
                let is_first = |handler: TargetAddress| {
                    let is_it = |fire: &Fire| matches!(fire, Fire::Call { handler: known, .. } if *known == handler);
                    !known.any(|point| point.condition == condition && point.fires.iter().any(is_it))
                };
                let (fires, full_frame) = self.call_fires(enabling, &site.call, end, role, is_first)?;
                if fires.is_empty() {
                    continue;
                }
                let position = self.position_in(module);
                spread(spot, entry, parts, points, |site, _, _, _| {
                    Ok(point(site, condition, position, full_frame, fires.clone()))
                })?;
            }
        }
        Ok(())
    }

    /// The probes of all clauses before the system calls at which shims will stand: nothing is added to a shim later.
    pub(super) fn shim_points(&mut self, refused: &mut Vec<Refused>) -> ShimPoints {
        let mut all = ShimPoints::new();
        let (enablings, places) = (self.enablings, self.calls);
        if places.coming.is_empty() {
            return all;
        }
        for enabling in enablings.list() {
            let probe = self.probes.get(enabling.probe);
            let Some(&Place::CallSites { module, end }) = probe.map(|probe| &probe.place) else {
                continue;
            };
            let numbers = self.numbers_of(enabling, end);
            let sites = places.known.of(module).iter().filter(|site| site.refusal.is_none());
            for site in sites.filter(|site| places.gets_shim(site) && may_make(&site.call, &numbers)) {
                let role = match end {
                    End::Entry => Role::Entry,
                    End::Return if site.call.after.is_none() => continue,
                    End::Return => Role::Begin,
                };
                let points = all.entry(site.call.syscall).or_default();
                let known: Vec<Fire> = points.iter().flat_map(|point| point.fires.clone()).collect();
                let is_first = |handler: TargetAddress| {
                    let is_it = |fire: &Fire| matches!(fire, Fire::Call { handler: known, .. } if *known == handler);
                    !known.iter().any(is_it)
                };
                match self.call_fires(enabling, &site.call, end, role, is_first) {
                    Ok((fires, _)) if fires.is_empty() => {}
                    Ok((fires, full_frame)) => {
                        let position = self.position_in(module);
                        let condition = FireCondition::Always;
                        points.push(point(site.call.syscall, condition, position, full_frame, fires));
                    }
                    Err(reason) => refused.push(Refused {
                        site: Some(site.call.syscall),
                        function: probe
                            .map_or_else(String::new, |probe| format!("{}`{}", probe.module, probe.function)),
                        reason,
                    }),
                }
            }
        }
        all
    }

    fn position_in(&self, module: usize) -> Position {
        let small = self.small_stacks.get(module).copied().unwrap_or(SmallStack::No);
        small.position(Position::Inside)
    }

    /// The handler or counter of an enabling before or after a system call, and whether it needs a full frame.
    /// `is_first`: no other enabling has brought a call of this function yet.
    pub(super) fn call_fires(
        &mut self,
        enabling: &Enabling,
        call: &SystemCall,
        end: End,
        role: Role,
        mut is_first: impl FnMut(TargetAddress) -> bool,
    ) -> Result<(Vec<Fire>, bool), RefusedBecause> {
        if end == End::Entry
            && let Some(counts) = self.counts_of_known(enabling, call)
        {
            return Ok((counts, false));
        }
        let tables = self.call_tables(enabling, end, call.instruction)?;
        let counts = self.only_counts(enabling, end);
        if end == End::Entry && counts {
            let counts = tables.into_iter().map(|table| Fire::CountByNumber { table });
            return Ok((counts.collect(), false));
        }
        let agent = |function: AgentFunction| TargetAddress((self.agent)(function));
        let (begin, finish) = (agent(AgentFunction::CallBegin), agent(AgentFunction::CallEnd));
        let serves = agent(match end {
            End::Entry => AgentFunction::CallEntry,
            End::Return if counts => AgentFunction::CallCount,
            End::Return => AgentFunction::CallReturn,
        });
        let first = match role {
            Role::Entry => None,
            Role::Begin => Some(begin),
            Role::Return => Some(finish),
        };
        let first = first.filter(|handler| is_first(*handler));
        if first.is_none() && role == Role::Begin {
            return Ok((Vec::new(), false));
        }
        let kind = call_kind(end);
        let compiled = self.enablings.handler(enabling.clause, kind);
        let full_frame = compiled.is_some_and(|compiled| compiled.full_frame) && !counts;
        let handler = match counts {
            true => TargetAddress::default(),
            false => self.handler_of(enabling.clause, kind)?,
        };
        let mut fires = Vec::new();
        // What comes first needs only the address of the instruction, which each of the clause's sites has.
        for (index, table) in tables.into_iter().enumerate() {
            let enabling = self.site_of(call, end, table, handler, serves)?;
            let code = enabling.0.wrapping_add(std::mem::offset_of!(SiteLayout, code) as u64);
            if index == 0 {
                fires.extend(first.map(|handler| Fire::Call { handler, enabling }));
            }
            if role != Role::Begin {
                fires.push(Fire::Call {
                    handler: TargetAddress(code),
                    enabling,
                });
            }
        }
        Ok((fires, full_frame && role != Role::Begin))
    }

    /// Writes what the agent needs to know of a clause at a system call.
    fn site_of(
        &mut self,
        call: &SystemCall,
        end: End,
        table: TargetAddress,
        handler: TargetAddress,
        agent: TargetAddress,
    ) -> Result<TargetAddress, RefusedBecause> {
        let site = match end {
            End::Entry => call.syscall.0,
            End::Return => call.after.unwrap_or(call.syscall).0,
        };
        let mut shown = [0; 9];
        if let Some(word) = shown.get_mut(1) {
            *word = site; // np_enabling.site
        }
        let layout = SiteLayout {
            enabling: shown,
            table: table.0,
            handler: handler.0,
            syscall: call.syscall.0,
            agent: agent.0,
            code: CALL_SITE_CODE,
            begins: call.begins.into(),
            interrupt: (!is_syscall(call)).into(),
        };
        Ok(self.room.code.put(layout.to_bytes(), 8)?)
    }

    /// The counters to increment before a call whose number the code shows, if the clause needs no handler there.
    fn counts_of_known(&self, enabling: &Enabling, call: &SystemCall) -> Option<Vec<Fire>> {
        let number = call.number?.min(CALL_NUMBERS);
        let (_, of_number) = self
            .by_number(enabling, End::Entry)
            .find(|(known, _)| *known == number)?;
        let count = |offset: &u32| Fire::Count {
            context_offset: *offset,
        };
        Some(of_number.counters.as_ref()?.iter().map(count).collect())
    }

    /// Whether the clause of an enabling needs no handler there.
    fn only_counts(&self, enabling: &Enabling, end: End) -> bool {
        let mut numbers = self.by_number(enabling, end);
        numbers
            .next()
            .is_some_and(|(_, of_number)| of_number.counters.is_some())
    }

    /// The enablings of the clause's description at the numbers.
    fn by_number(&self, enabling: &Enabling, end: End) -> impl Iterator<Item = (u32, &Enabling)> {
        let (clause, description) = (enabling.clause, enabling.description);
        let list = self.enablings.list().iter();
        list.filter(move |other| (other.clause, other.description) == (clause, description))
            .filter_map(move |other| match self.probes.get(other.probe)?.place {
                Place::Call { number, end: of } if of == end => Some((number, other)),
                _ => None,
            })
    }

    /// The numbers that the clause's description means.
    fn numbers_of(&self, enabling: &Enabling, end: End) -> HashSet<u32> {
        self.by_number(enabling, end).map(|(number, _)| number).collect()
    }

    /// Whether the probes of an enabling are derived ones.
    fn reads_registers(&self, enabling: &Enabling, end: End) -> bool {
        let mut probes = self.by_number(enabling, end);
        probes.any(|(_, other)| {
            self.probes
                .get(other.probe)
                .is_some_and(|probe| &*probe.provider != PROVIDER)
        })
    }

    fn call_tables(
        &mut self,
        enabling: &Enabling,
        end: End,
        instruction: CallInstruction,
    ) -> Result<Vec<TargetAddress>, RefusedBecause> {
        let key = (enabling.clause, enabling.description, end, instruction);
        if let Some(known) = self.room.call_tables.get(&key) {
            return Ok(known.clone());
        }
        let tables = match self.only_counts(enabling, end) {
            true => self.counter_tables(enabling, end, instruction),
            false => vec![self.enabling_table(enabling, end, instruction)?],
        };
        let mut addresses = Vec::new();
        for table in tables {
            addresses.push(self.room.code.put(table, 8)?);
        }
        self.room.call_tables.insert(key, addresses.clone());
        Ok(addresses)
    }

    /// For each counter of the clause, the offsets for all numbers.
    fn counter_tables(&self, enabling: &Enabling, end: End, instruction: CallInstruction) -> Vec<Vec<u8>> {
        let scrap = std::mem::offset_of!(Context, call_scrap) as u32;
        let mut tables: Vec<Vec<u32>> = Vec::new();
        for (number, of_number) in self.by_number(enabling, end) {
            for (index, offset) in of_number
                .counters
                .iter()
                .flat_map(|counters| counters.iter())
                .enumerate()
            {
                if tables.len() <= index {
                    tables.push(vec![scrap; CALL_ROWS as usize]);
                }
                for row in rows_of(number, instruction) {
                    if let Some(entry) = tables.get_mut(index).and_then(|table| table.get_mut(row)) {
                        *entry = *offset;
                    }
                }
            }
        }
        let bytes = |table: Vec<u32>| table.into_iter().flat_map(u32::to_le_bytes).collect();
        tables.into_iter().map(bytes).collect()
    }

    /// The addresses of the enablings of all numbers.
    fn enabling_table(
        &mut self,
        enabling: &Enabling,
        end: End,
        instruction: CallInstruction,
    ) -> Result<Vec<u8>, RefusedBecause> {
        let mut table = vec![0_u64; CALL_ROWS as usize];
        let numbers: Vec<(u32, Enabling)> = self
            .by_number(enabling, end)
            .map(|(number, of_number)| (number, of_number.clone()))
            .collect();
        for (number, of_number) in numbers {
            let probe = self.probes.get(of_number.probe).ok_or(RefusedBecause::NoCode)?;
            let mut string = |text: &str| self.room.growth.string(text, self.strsize).map(|address| address.0);
            let layout = EnablingLayout {
                epid: of_number.epid,
                probe_id: probe.id,
                provider: string(&probe.provider)?,
                module: string(&probe.module)?,
                function: string(&probe.function)?,
                name: string(&probe.name())?,
                slot_base: of_number.slot_base,
                ..EnablingLayout::default()
            };
            let rows = rows_of(number, instruction);
            if rows.is_empty() {
                continue;
            }
            let address = self.room.growth.put(layout.to_bytes(), 8)?.0;
            for row in rows {
                if let Some(entry) = table.get_mut(row) {
                    *entry = address;
                }
            }
        }
        Ok(table.into_iter().flat_map(u64::to_le_bytes).collect())
    }
}

fn is_syscall(call: &SystemCall) -> bool {
    call.instruction == CallInstruction::Syscall
}

/// Whether a system call may have one of these numbers, or something begins after it that they mean.
fn may_make(call: &SystemCall, numbers: &HashSet<u32>) -> bool {
    let beginnings = [CALL_PROCESS_BEGINS, CALL_THREAD_BEGINS];
    call.begins && beginnings.iter().any(|row| numbers.contains(row))
        || match call.number {
            Some(number) => numbers.contains(&number.min(CALL_NUMBERS)),
            None => numbers.iter().any(|number| !beginnings.contains(number)),
        }
}
