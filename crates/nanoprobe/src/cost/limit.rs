//! `-x maxcost`: watches what probes cost during tracing. When all together, in all processes, take more than the
//! limit, the most expensive ones are turned off.
//!
//! A probe that is turned off has its original instructions back. Its counts and records until
//! then stay, exactly. Probes that share its patch are turned off with it, and are named, too. No
//! probe is turned on again: under a changing load probes would come and go, and their counts
//! would mean nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use nanoprobe_export::{AggregateTable, Snapshot};
use nanoprobe_lang::Program;
use nanoprobe_session::{Attached, Known, Patch, Place, ProbeIndex, SessionError};

use super::budget::{self, Cost};
use super::hits::{self, Name};
use super::{model, pace};
use crate::numbers::{given_percent, percent, thousands};
use crate::output::message;

/// How often the costs are checked. By then a probe of 10 ns that is hit all the time has taken a
/// quarter of a second.
const PERIOD: Duration = Duration::from_millis(250);

/// The limit, and the hits from which the costs are computed.
pub struct Limit {
    /// The limit, in hundredths of a percent of a processor.
    hundredths: u32,
    /// The factor for each ns of the model.
    pace: f64,
    hits: AggregateTable,
    before: BTreeMap<Name, u64>,
    looked: Instant,
    /// What the probes of this process cost at the last look.
    costs: Vec<Cost<Name>>,
    off: BTreeSet<Name>,
}

impl Limit {
    /// A limit in hundredths of a percent.
    pub fn new(hundredths: u32) -> Limit {
        Limit {
            hundredths,
            pace: pace::pace(),
            hits: AggregateTable::new(),
            before: BTreeMap::new(),
            looked: Instant::now(),
            costs: Vec::new(),
            off: BTreeSet::new(),
        }
    }

    /// Adds new hits, from the counting clause.
    pub fn add(&mut self, program: &Program, hits: Snapshot) {
        self.hits.add(program, hits);
    }

    /// Whether it is time for a check. The hits must then be brought up to date first.
    pub fn is_due(&self) -> bool {
        self.looked.elapsed() >= PERIOD
    }

    /// Computes what the probes of this process cost. In less time than a period there are too few hits for that.
    fn look(&mut self, attached: &Attached) {
        let elapsed = self.looked.elapsed();
        if attached.is_finished() {
            self.costs.clear();
            self.looked = Instant::now();
            return;
        }
        if elapsed < PERIOD {
            return;
        }
        let now = hits::of(attached.known().program(), &self.hits);
        let rates = now.iter().map(|(probe, hits)| {
            let before = self.before.get(probe).copied().unwrap_or(0);
            (probe, hits.saturating_sub(before) as f64 / elapsed.as_secs_f64())
        });
        let busy: BTreeMap<Name, f64> = rates
            .filter(|(probe, rate)| *rate > 0.0 && !self.off.contains(&hits::unit_of(probe)))
            .map(|(probe, rate)| (probe.clone(), rate))
            .collect();
        self.before = now;
        self.looked = Instant::now();
        self.costs = costs(attached, &busy, self.pace);
    }

    fn turn_off(&mut self, attached: &mut Attached, over: &[Cost<Name>]) -> Result<(), SessionError> {
        let probes = probes_of(attached.known());
        let dear: BTreeSet<Name> = over.iter().map(|cost| cost.probe.clone()).collect();
        let patches = |wanted: &dyn Fn(&Name) -> bool| -> BTreeSet<u64> {
            let indices = probes.iter().filter(|(name, _)| wanted(name)).map(|(_, index)| *index);
            indices
                .flat_map(|index| attached.patches_of(index))
                .map(address_of)
                .collect()
        };
        let chosen = patches(&|name| dear.contains(name));
        // Other probes that fire in these patches are turned off with them.
        let others: Vec<Name> = probes
            .iter()
            .map(|(name, _)| name)
            .filter(|name| !dear.contains(*name) && !self.off.contains(*name))
            .filter(|name| {
                let own = patches(&|other| other == *name);
                own.intersection(&chosen).next().is_some()
            })
            .cloned()
            .collect();
        let stays: BTreeSet<u64> = attached
            .patches()
            .iter()
            .filter(|patch| patch.stays())
            .map(address_of)
            .collect();
        let is_kept = |name: &&Name| !patches(&|other| other == *name).is_disjoint(&stays);
        let kept: BTreeSet<Name> = dear.iter().filter(is_kept).cloned().collect();
        attached.set_armed(false, &mut |patch| chosen.contains(&address_of(patch)))?;
        for cost in over {
            if kept.contains(&cost.probe) {
                message(format_args!(
                    "maxcost: {} stays on: the jump of another probe lies inside of its patch",
                    named(attached.known(), &cost.probe)
                ));
                continue;
            }
            message(format_args!(
                "maxcost: {} is off: {} hits/s x {:.1} ns = {} % of a processor, all may take {} %",
                named(attached.known(), &cost.probe),
                thousands(cost.rate),
                cost.ns,
                percent(cost.share()),
                given_percent(self.hundredths)
            ));
        }
        for probe in &others {
            message(format_args!(
                "maxcost: {} is off: it shares a patch with one that is",
                named(attached.known(), probe)
            ));
        }
        self.off.extend(dear);
        self.off.extend(others);
        self.costs.retain(|cost| !self.off.contains(&cost.probe));
        Ok(())
    }
}

/// Compares the costs in all processes together with the limit, and turns off probes when they exceed it. An error in
/// one process is reported, and the others stay bounded.
pub fn look_at_all(all: &mut [(&mut Limit, &mut Attached)]) {
    for (limit, attached) in &mut *all {
        limit.look(attached);
    }
    let Some(hundredths) = all.first().map(|(limit, _)| limit.hundredths) else {
        return;
    };
    let costs = all.iter().enumerate().flat_map(|(process, (limit, _))| {
        let of = move |cost: &Cost<Name>| Cost {
            probe: (process, cost.probe.clone()),
            rate: cost.rate,
            ns: cost.ns,
        };
        limit.costs.iter().map(of)
    });
    let over = budget::over(&costs.collect::<Vec<_>>(), budget::share_of(hundredths));
    for (process, (limit, attached)) in all.iter_mut().enumerate() {
        let own: Vec<Cost<Name>> = over
            .iter()
            .filter(|cost| cost.probe.0 == process)
            .map(|cost| Cost {
                probe: cost.probe.1.clone(),
                rate: cost.rate,
                ns: cost.ns,
            })
            .collect();
        if !own.is_empty()
            && let Err(error) = limit.turn_off(attached, &own)
            && !attached.is_finished()
        {
            message(format_args!("maxcost: {error}"));
        }
    }
}

/// A probe, with its process where there are several.
fn named(known: &Known, probe: &Name) -> String {
    let text = text_of(known, probe);
    match known.process().filter(|_| known.is_member()) {
        Some(process) => format!("{text} in process {}", process.pid()),
        None => text,
    }
}

fn address_of(patch: &Patch) -> u64 {
    patch.built.address.0
}

fn text_of(known: &Known, probe: &Name) -> String {
    if *probe == hits::all_calls() {
        return "syscall:::".to_owned();
    }
    let (module, function, name) = probe;
    format!("{module}:{}:{name}", known.readable(function))
}

fn probes_of(known: &Known) -> Vec<(Name, ProbeIndex)> {
    let mut probes: Vec<(Name, ProbeIndex)> = known
        .enablings()
        .filter_map(|enabling| {
            let probe = known.probe(enabling.probe)?;
            match probe.place {
                Place::CallSites { .. } => Some((hits::all_calls(), enabling.probe)),
                Place::Call { .. } | Place::Handlers => None,
                _ => hits::is_in_target(probe).then(|| (hits::name_of(probe), enabling.probe)),
            }
        })
        .collect();
    probes.sort();
    probes.dedup();
    probes
}

/// The cost of each busy probe: its site, and the clauses that fire there. The counting clause
/// is not included. System calls are one probe.
fn costs(attached: &Attached, busy: &BTreeMap<Name, f64>, pace: f64) -> Vec<Cost<Name>> {
    let mut costs: BTreeMap<Name, Cost<Name>> = BTreeMap::new();
    let known = attached.known();
    let of_calls = probes_of(known)
        .into_iter()
        .filter(|(name, _)| *name == hits::all_calls());
    let of_calls: Vec<&Patch> = of_calls.flat_map(|(_, index)| attached.patches_of(index)).collect();
    for enabling in known.enablings() {
        let Some(probe) = known.probe(enabling.probe) else {
            continue;
        };
        let name = hits::name_of(probe);
        let (Some(rate), Some(clause)) = (busy.get(&name), known.program().clauses.get(enabling.clause)) else {
            continue;
        };
        let cost = costs.entry(name.clone()).or_insert_with(|| {
            let sites = match probe.place {
                Place::Call { .. } => of_calls.clone(),
                _ => attached.patches_of(enabling.probe),
            };
            let dearest = sites
                .into_iter()
                .map(|patch| model::site_ns(Some(patch)))
                .reduce(f64::max);
            Cost {
                probe: name,
                rate: *rate,
                ns: pace * dearest.unwrap_or_else(|| model::site_ns(None)),
            }
        });
        cost.ns += pace * model::clause_ns(clause);
    }
    together(costs.into_values())
}

/// What is turned off together has one cost, at the rate of all of its hits.
fn together(costs: impl Iterator<Item = Cost<Name>>) -> Vec<Cost<Name>> {
    let mut units: BTreeMap<Name, Cost<Name>> = BTreeMap::new();
    for cost in costs {
        let unit = hits::unit_of(&cost.probe);
        let sum = units.entry(unit.clone()).or_insert(Cost {
            probe: unit,
            rate: 0.0,
            ns: 0.0,
        });
        let ns_a_second = sum.rate * sum.ns + cost.rate * cost.ns;
        sum.rate += cost.rate;
        sum.ns = ns_a_second / sum.rate.max(f64::MIN_POSITIVE);
    }
    units.into_values().collect()
}
