//! libnanoprobe's probes on one thread and on as many as there are processors: what a hit costs each of them.

use std::ffi::c_uint;
use std::io::Write;

use anyhow::{Result, ensure};

use super::calls::{Form, Function, Handler, JUMP_ONLY, Jumper, NO_SIMD, Registered, together};
use crate::statistics::paired;

/// How the small function is probed.
#[derive(Clone, Copy, Debug)]
enum How {
    Probe(Handler, c_uint),
    Return(Form, c_uint),
    Jumper(c_uint),
}

const QUICK: c_uint = JUMP_ONLY | NO_SIMD;

const METHODS: [(&str, How); 8] = [
    (super::EMPTY, How::Probe(Handler::NoOp, QUICK)),
    (super::EMPTY_PROVEN, How::Probe(Handler::NoOp, JUMP_ONLY)),
    (super::EMPTY_SIMD, How::Probe(Handler::Vectors, JUMP_ONLY)),
    (super::EXITS, How::Return(Form::Exits, QUICK)),
    (
        "return probe by the exits, SIMD safe by proof",
        How::Return(Form::Exits, JUMP_ONLY),
    ),
    (super::ADDRESS, How::Return(Form::Address, QUICK)),
    (
        "return probe by the return address, SIMD safe by proof",
        How::Return(Form::Address, JUMP_ONLY),
    ),
    ("jumper probe", How::Jumper(QUICK)),
];

/// The additional ns of a call, one sample for each thread.
pub fn run(rounds: usize, out: &mut dyn Write) -> Result<()> {
    for _ in 0..rounds {
        for threads in super::one_and_all() {
            for (name, how) in METHODS {
                let name = super::on_threads(name, threads);
                match once(how, threads) {
                    Ok(overheads) => {
                        for overhead in overheads {
                            writeln!(out, "sample\t{name}\t{overhead}")?;
                        }
                    }
                    Err(error) => writeln!(out, "failed\t{name}\t{}", super::one_line(&error))?,
                }
            }
        }
    }
    Ok(())
}

/// One measurement on all threads at once: without the probe, with the probe, and again without.
fn once(how: How, threads: usize) -> Result<Vec<f64>> {
    let before = together(threads)?;
    let probe = match how {
        How::Probe(handler, flags) => Registered::probe(Function::Small, handler, flags),
        How::Return(form, flags) => Registered::returning(Function::Small, form, flags),
        How::Jumper(flags) => Registered::jumper(Function::Small, Jumper::NoOp, flags),
    }?;
    let with = together(threads)?;
    ensure!(probe.hits() > 0, "the probe did not fire");
    ensure!(
        probe.is_trap() != Some(true),
        "another tactic than the one that was asked for"
    );
    drop(probe);
    let after = together(threads)?;
    let all = before.iter().zip(&with).zip(&after);
    Ok(all
        .map(|((before, with), after)| paired(*before, *with, *after))
        .collect())
}
