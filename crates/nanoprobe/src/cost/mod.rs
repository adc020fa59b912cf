//! The cost of probes for the traced program: hits a second, times ns a hit, is a share of a processor.
//!
//! | file | |
//! |---|---|
//! | this one | `nanoprobe cost`: counts for a while and reports; no clause of the program runs |
//! | `hits` | the clause of our own that counts at every probe |
//! | `model` | ns a hit, on the machine of docs/benchmarks.md |
//! | `pace` | how much slower this machine is now |
//! | `budget` | which probes are over a budget: pure |
//! | `limit` | `-x maxcost`: takes such probes out of a session that runs |

pub mod budget;
pub mod hits;
pub mod limit;
pub mod model;
mod pace;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::{Duration, Instant};

use nanoprobe_export::AggregateTable;
use nanoprobe_lang::{Source, Target};
use nanoprobe_session::{Acquired, Attached, Compiled, Known, Place, Prepared, Probe, SessionError, TracedProgram};

use crate::arguments::Arguments;
use crate::cost::budget::{Cost, word};
use crate::cost::hits::Name;
use crate::numbers::{given_percent, thousands};
use crate::output::{Stream, is_closed_pipe, message};
use crate::{compile, interrupt, macros, retry};

/// For how long hits are counted.
const SAMPLE: Duration = Duration::from_secs(1);
/// How many probes are listed.
const LISTED: usize = 20;
/// The share of a processor, in hundredths of a percent, above which a warning is printed. `-x maxcost` sets another
/// share.
const DEFAULT_MAX: u32 = 500;

/// Runs `nanoprobe cost`.
pub fn run(arguments: &Arguments) -> ExitCode {
    match try_run(arguments) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            if matches!(error.downcast_ref(), Some(SessionError::Interrupted)) || is_closed_pipe(&error) {
                return ExitCode::SUCCESS;
            }
            message(format_args!("{error}"));
            ExitCode::FAILURE
        }
    }
}

fn try_run(arguments: &Arguments) -> Result<u8, anyhow::Error> {
    let sources = compile::sources(arguments).map_err(anyhow::Error::msg)?;
    if arguments.processes.is_set() {
        message(
            arguments
                .processes
                .refusal("cost estimates what probes cost one process"),
        );
        return Ok(2);
    }
    let (Some(pid), false) = (arguments.processes.pid(), sources.is_empty()) else {
        message("cost needs a program and a running process: nanoprobe cost -n '...' -p PID");
        return Ok(2);
    };
    interrupt::install();
    retry::persistently(|_| attempt(arguments, &sources, pid))
}

fn attempt(arguments: &Arguments, sources: &[Source], pid: i32) -> Result<u8, anyhow::Error> {
    let macros = macros::macro_values(arguments);
    let acquired = Acquired::running(pid)?;
    if let Some(listed) = arguments.processes.one() {
        listed.check().map_err(anyhow::Error::msg)?;
    }
    let traced = Rc::new(TracedProgram::new(&acquired));
    let target: Rc<dyn Target> = traced.clone();
    let compiled = interrupt::at_once(None, || nanoprobe_lang::compile_for(sources, &macros, &target));
    traced.check_program()?;
    let Some(program) = compile::shown(sources, compiled) else {
        return Ok(1);
    };
    let options = compile::options(arguments, &program).map_err(anyhow::Error::msg)?;
    let Some(counting) = hits::source(&program) else {
        message("this program has no probe in the process: it costs nothing");
        return Ok(0);
    };
    // Finds the probes that the program would have, without a change to the process.
    let prepared = Prepared::new(Compiled::new(program, options.clone())?, acquired)?;
    let work = work(prepared.known());
    drop(prepared);
    // Then counts how often the probes are hit: only the counting clause is placed.
    let counting = nanoprobe_lang::compile(&[counting], &macros)
        .map_err(|_| anyhow::Error::msg("the hits of these probes cannot be counted"))?;
    let counting = Compiled::new(counting, options.clone())?;
    let (mut attached, _) = Prepared::new(counting, Acquired::running(pid)?)?.begin()?;
    let start = Instant::now();
    let sampled = sample(&mut attached, start);
    let seconds = start.elapsed().as_secs_f64();
    let patched = sampled.as_ref().map(|_| sites(&attached)).unwrap_or_default();
    attached.end()?;
    let hits = sampled?;
    let pace = pace::pace();
    let costs: Vec<Cost<Name>> = hits
        .into_iter()
        .map(|(probe, hits)| Cost {
            rate: hits as f64 / seconds,
            ns: pace
                * (work.get(&probe).copied().unwrap_or(0.0)
                    + patched.get(&hits::unit_of(&probe)).map_or(0.0, |site| site.ns)),
            probe,
        })
        .collect();
    report(
        arguments,
        pid,
        seconds,
        costs,
        &patched,
        options.tracing.max_cost.unwrap_or(DEFAULT_MAX),
    )
}

fn sample(attached: &mut Attached, start: Instant) -> Result<BTreeMap<Name, u64>, anyhow::Error> {
    while start.elapsed() < SAMPLE && !interrupt::requested() && !attached.is_finished() {
        attached.step()?;
    }
    let mut table = AggregateTable::new();
    let new = attached.tracing_mut().take_aggregations()?;
    let program = attached.known().program();
    table.add(program, new);
    Ok(hits::of(program, &table))
}

/// The cost of the clauses at each probe, in ns.
fn work(known: &Known) -> BTreeMap<Name, f64> {
    let mut work = BTreeMap::new();
    for enabling in known.enablings() {
        let probe = known.probe(enabling.probe).filter(|probe| hits::is_in_target(probe));
        if let (Some(probe), Some(clause)) = (probe, known.program().clauses.get(enabling.clause)) {
            *work.entry(hits::name_of(probe)).or_insert(0.0) += model::clause_ns(clause);
        }
    }
    work
}

/// The name of a probe that has places. For system calls these are the places of all of them.
fn name_at(probe: &Probe) -> Name {
    match probe.place {
        Place::CallSites { .. } => hits::all_calls(),
        _ => hits::name_of(probe),
    }
}

/// How a probe is patched, and in which function.
struct SiteCost {
    /// The function's name, demangled.
    function: String,
    how: String,
    ns: f64,
}

/// How each probe is patched; for a probe with several sites, the most expensive one.
fn sites(attached: &Attached) -> BTreeMap<Name, SiteCost> {
    let mut sites: BTreeMap<Name, SiteCost> = BTreeMap::new();
    for enabling in attached.known().enablings() {
        let Some(probe) = attached.known().probe(enabling.probe) else {
            continue;
        };
        for patch in attached.patches_of(enabling.probe) {
            let ns = model::site_ns(Some(patch));
            let name = name_at(probe);
            if sites.get(&name).is_none_or(|site| ns > site.ns) {
                let function = attached.known().readable(&probe.function).into_owned();
                let how = patch.how();
                sites.insert(name, SiteCost { function, how, ns });
            }
        }
    }
    sites
}

fn report(
    arguments: &Arguments,
    pid: i32,
    seconds: f64,
    mut costs: Vec<Cost<Name>>,
    patched: &BTreeMap<Name, SiteCost>,
    max: u32,
) -> Result<u8, anyhow::Error> {
    let mut out = Stream::open(arguments.output.as_deref(), None, false)?;
    costs.sort_by(|left, right| right.share().total_cmp(&left.share()));
    writeln!(
        out,
        "{:>16} {:>10} {:>10}  {:18} PROBE",
        "HITS/S", "NS", "OF A CPU", "HOW"
    )?;
    for cost in costs.iter().take(LISTED) {
        let (module, function, name) = &cost.probe;
        let is_call = module == hits::CALLS;
        let site = patched.get(&hits::unit_of(&cost.probe));
        let how = site.map_or("", |site| site.how.as_str());
        let function = site.filter(|_| !is_call).map_or(function, |site| &site.function);
        let provider = if is_call {
            "syscall".to_owned()
        } else {
            format!("pid{pid}")
        };
        writeln!(
            out,
            "{:>16} {:>10.1} {:>8.3} %  {how:18} {provider}:{module}:{function}:{name}",
            thousands(cost.rate),
            cost.ns,
            cost.share() * 100.0
        )?;
    }
    if costs.len() > LISTED {
        let rest: f64 = costs.iter().skip(LISTED).map(Cost::share).sum();
        writeln!(
            out,
            "{:>16} {:>10} {:>8.3} %  {} probes more",
            "",
            "",
            rest * 100.0,
            costs.len() - LISTED
        )?;
    }
    let (rate, share): (f64, f64) = (
        costs.iter().map(|cost| cost.rate).sum(),
        costs.iter().map(Cost::share).sum(),
    );
    writeln!(
        out,
        "{:>16} {:>10} {:>8.3} %  all of {} probes hit in {seconds:.1} s: {}",
        thousands(rate),
        "",
        share * 100.0,
        costs.len(),
        word(share)
    )?;
    out.flush()?;
    if share > budget::share_of(max) {
        let max = given_percent(max);
        message(format_args!(
            "this would take more than {max} % of a processor: enable fewer probes, or let -x maxcost={max}% turn \
             off the most expensive ones"
        ));
    }
    Ok(0)
}
