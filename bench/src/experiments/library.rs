//! libnanoprobe beside tools that could be embedded instead, and beside the floor, in one run: on
//! one thread, and on every processor at once.

use anyhow::Result;

use super::compare::{self, Subject};
use crate::own::{self, ADDRESS, EMPTY, EMPTY_PROVEN, EMPTY_SIMD, EXITS, on_threads, one_and_all};
use crate::peers::attaching::frida_in_c;
use crate::report::{Row, Section};
use crate::{SAMPLES, floor};

/// The goals, ns a call: 5 and 12 for a handler that does nothing; for a return probe 8 and 20 more
/// than the 5.
const REACH: [(&str, f64); 5] = [
    (EMPTY, 5.0),
    (EMPTY_PROVEN, 12.0),
    (EMPTY_SIMD, 12.0),
    (EXITS, 13.0),
    (ADDRESS, 25.0),
];

pub fn measure(rounds: usize, say: &dyn Fn(&str), section: &mut Section) -> Result<()> {
    for threads in one_and_all() {
        say("the hand-made floor");
        let name = on_threads("hand-made floor", threads);
        section.rows.push(match floor::measure(rounds.max(SAMPLES), threads) {
            Ok((floor, _)) => Row { name, ..floor },
            Err(error) => Row::not_measurable(&name, &format!("{error:#}")),
        });
    }
    say("the library's probes");
    let reached = |row: Row| {
        let names = |what: &str| one_and_all().map(|threads| on_threads(what, threads));
        match REACH.iter().find(|(what, _)| names(what).contains(&row.name)) {
            Some((_, reach)) => row.reach(*reach),
            None => row,
        }
    };
    let rows = own::measure("library", rounds, "ns/call")?;
    section.rows.extend(rows.into_iter().map(reached));
    let mut methods = match frida_in_c() {
        Ok(methods) => methods,
        Err(missing) => {
            section.rows.push(missing);
            return Ok(());
        }
    };
    let names: Vec<String> = methods.iter().map(|method| method.name.clone()).collect();
    for threads in one_and_all() {
        for (method, name) in methods.iter_mut().zip(&names) {
            method.name = on_threads(name, threads);
        }
        let mut subject = Subject::on_threads("loop", threads, 0, "bench_function")?;
        section.rows.extend(compare::rows(&mut subject, &methods, rounds, say)?);
    }
    Ok(())
}
