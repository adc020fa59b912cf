//! Two tracers of one process at the same function: what each adds to a call.

use anyhow::{Context, Result};

use crate::interrupt;
use crate::looping::Looping;
use crate::report::Row;
use crate::tracer::Tracer;

const CLAUSE: &str = "pid$target:a.out:bench_function:entry { @ = count(); }";
const NAME: &str = "a tracer that counts each call";

pub fn measure(rounds: usize, say: &dyn Fn(&str), rows: &mut Vec<Row>) -> Result<()> {
    let looping = Looping::start(1, 0)?;
    let (mut firsts, mut seconds) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        interrupt::check()?;
        say(&format!("round {round} of {rounds}: two tracers at one function"));
        let plain = looping.median_from_now()?;
        let first = Tracer::attach(looping.pid(), CLAUSE, &[]).context("the first tracer")?;
        let one = looping.median_from_now()?;
        let second = Tracer::attach(looping.pid(), CLAUSE, &[]).context("the second tracer")?;
        let two = looping.median_from_now()?;
        second.detach()?;
        first.detach()?;
        firsts.push(one - plain);
        seconds.push(two - one);
    }
    rows.push(Row::of(&format!("{NAME}: the first"), "ns/call", Ok(firsts)));
    rows.push(Row::of(
        &format!("{NAME}: the second, at the same function"),
        "ns/call",
        Ok(seconds),
    ));
    Ok(())
}
