//! The provider `syscall`, the tool `strace` and the tool `offcpu`, beside strace, perf trace and bpftrace, in one run.

mod decoded;
mod tools;

use anyhow::Result;

use super::compare::{Attach, Method, Once, Subject, compare, overheads};
use crate::report::{Row, Section};
use crate::statistics;
use crate::tracer::Tracer;

const COUNT: &str = "syscall::getppid:entry { @ = count(); }";
const BY_NAME: &str =
    "syscall:::entry { @before[probefunc] = count(); } syscall:::return { @after[probefunc] = count(); }";

/// What the measured program does: see `programs/calls.c`.
const SHOWN: usize = 0;
const BY_REGISTER: usize = 1;
const SERVER: usize = 2;

/// The goals, ns a call: the count of one call, and of all calls before and after them.
const REACH_COUNT: f64 = 5.0;
const REACH_BY_NAME: f64 = 12.0;
/// The goal, in percent of a request.
const REACH_OFFCPU: f64 = 1.0;

pub fn measure(rounds: usize, say: &dyn Fn(&str), section: &mut Section) -> Result<()> {
    // perf and bpftrace find the kernel's tracepoints there, and do not mount it.
    let _mounted = crate::kernel::Mounted::new();
    calls(rounds, say, section)?;
    section.rows.extend(decoded::measure(rounds.max(crate::SAMPLES), say)?);
    section.rows.extend(server(rounds, say)?);
    Ok(())
}

/// Two methods on one subject are compared by their ratio in each round.
struct Compared {
    methods: Vec<Method>,
    results: Vec<Result<Vec<Once>>>,
}

impl Compared {
    fn of(subject: &mut Subject, methods: Vec<Method>, rounds: usize, say: &dyn Fn(&str)) -> Result<Compared> {
        let results = compare(subject, &methods, rounds, say)?;
        Ok(Compared { methods, results })
    }

    fn samples(&self, name: &str) -> Option<Vec<f64>> {
        let index = self.methods.iter().position(|method| method.name == name)?;
        let all = self.results.get(index)?.as_ref().ok()?;
        Some(all.iter().map(|once| once.overhead).collect())
    }

    /// How many times what the first method costs the others cost.
    fn ratios(&self) -> Vec<Row> {
        let Some(first) = self.methods.first() else {
            return Vec::new();
        };
        let Some(ours) = self.samples(&first.name).and_then(|ours| statistics::median(&ours)) else {
            return Vec::new();
        };
        let others = self.methods.iter().skip(1);
        let ratio = |method: &Method| {
            let theirs = self.samples(&method.name)?;
            let ratios = theirs.into_iter().map(|one| one / ours).collect();
            let name = format!("{}, over nanoprobe", method.name);
            (ours > 0.0).then(|| Row::of(&name, "ratio", Ok(ratios)))
        };
        others.filter_map(ratio).collect()
    }

    fn rows(self, reach: f64) -> Vec<Row> {
        let ratios = self.ratios();
        let mut rows: Vec<Row> = Vec::new();
        for (method, result) in self.methods.iter().zip(self.results) {
            let row = overheads(method, result);
            rows.push(if rows.is_empty() { row.reach(reach) } else { row });
        }
        rows.extend(ratios);
        rows
    }
}

/// What a call costs more.
fn calls(rounds: usize, say: &dyn Fn(&str), section: &mut Section) -> Result<()> {
    let mut subject = Subject::new("calls", SHOWN, "main")?;
    section
        .rows
        .push(Row::of("getppid, untraced", "ns/call", subject.cost()));
    let mut methods = vec![Method::nanoprobe("getppid: nanoprobe", COUNT, &[])];
    let mut missing = tools::add(&mut methods, tools::counting_one());
    section
        .rows
        .extend(Compared::of(&mut subject, methods, rounds, say)?.rows(REACH_COUNT));
    let mut methods = vec![Method::nanoprobe("by name: nanoprobe", BY_NAME, &[])];
    missing.extend(tools::add(&mut methods, tools::counting_all()));
    section
        .rows
        .extend(Compared::of(&mut subject, methods, rounds, say)?.rows(REACH_BY_NAME));
    let mut subject = Subject::new("calls", BY_REGISTER, "main")?;
    let methods = [
        Method::nanoprobe("getppid, made by syscall(): nanoprobe", COUNT, &[]),
        Method::nanoprobe("by name, the call made by syscall(): nanoprobe", BY_NAME, &[]),
    ];
    section
        .rows
        .extend(super::compare::rows(&mut subject, &methods, rounds, say)?);
    section.rows.extend(missing);
    Ok(())
}

/// A server that is never idle for long: what looking at its sleeps costs, in percent of a request.
fn server(rounds: usize, say: &dyn Fn(&str)) -> Result<Vec<Row>> {
    let mut subject = Subject::new("calls", SERVER, "main")?;
    let plain = statistics::median(&subject.cost()?).unwrap_or_default();
    let attach: Attach = Box::new(|subject| {
        let pid = subject.pid().to_string();
        Ok(Box::new(Tracer::start(
            &["tool", "offcpu", "-v", "-p", &pid],
            "nanoprobe: attach ",
        )?))
    });
    let mut methods = vec![Method {
        name: "offcpu on a server: nanoprobe".to_owned(),
        attach,
        fresh: false,
    }];
    let missing = tools::add(&mut methods, tools::sleeping());
    let results = compare(&mut subject, &methods, rounds, say)?;
    let mut rows = Vec::new();
    for (method, result) in methods.iter().zip(results) {
        let part = |once: &Once| 100.0 * once.overhead / plain;
        let row = Row::of(&method.name, "%", result.map(|all| all.iter().map(part).collect()));
        let row = row.note(format!("of {plain:.0} ns of the server's processor time for a request"));
        rows.push(if rows.is_empty() { row.reach(REACH_OFFCPU) } else { row });
    }
    rows.extend(missing);
    Ok(rows)
}
