//! The methods that the seeds compare, each against its own baseline, which is taken just before and just after.

use std::ffi::c_uint;
use std::io::Write;

use anyhow::{Result, ensure};

use super::calls::{
    Form, Function, Handler, JUMP_ONLY, Jumper, NO_SIMD, Registered, TRAP, begin, cost, events, measured_spin, set_hook,
};
use crate::statistics::paired;

/// How the function is probed.
#[derive(Clone, Copy, Debug)]
pub enum How {
    /// A plain probe.
    Probe(Handler, c_uint),
    /// A jumper probe.
    Jumper(Jumper, c_uint),
    /// Both of a function's probes: plain and jumper.
    Both(Handler, Jumper, c_uint),
    /// A return probe.
    Return(Form, c_uint),
    /// A jumper probe and a return probe.
    JumperReturn(Jumper, Form, c_uint),
    /// A hook that was compiled in: the baseline is the same code with its flag off.
    StaticHook,
}

/// A row.
#[derive(Clone, Copy, Debug)]
pub struct Method {
    name: &'static str,
    function: Function,
    how: How,
}

const fn method(name: &'static str, function: Function, how: How) -> Method {
    Method { name, function, how }
}

/// Seed 000, Lists 4 to 7.
pub fn gtod() -> Vec<Method> {
    use Function::GetTimeOfDay as Gtod;
    vec![
        method(
            "probe by trap, boosted",
            Gtod,
            How::Probe(Handler::NoOp, TRAP | NO_SIMD),
        ),
        method("jumper probe by trap", Gtod, How::Jumper(Jumper::NoOp, TRAP | NO_SIMD)),
        method(
            "jumper probe by jump",
            Gtod,
            How::Jumper(Jumper::NoOp, JUMP_ONLY | NO_SIMD),
        ),
        method("probe by jump", Gtod, How::Probe(Handler::NoOp, JUMP_ONLY | NO_SIMD)),
        method(
            "probe by jump, SIMD registers saved",
            Gtod,
            How::Probe(Handler::NoOp, JUMP_ONLY),
        ),
    ]
}

/// Seed 000, Lists 11 to 14.
pub fn record() -> Vec<Method> {
    use Function::GetTimeOfDay as Gtod;
    [
        method(
            "probe by trap, 64 bytes recorded",
            Gtod,
            How::Probe(Handler::Record, TRAP | NO_SIMD),
        ),
        method(
            "jumper probe by trap, 64 bytes recorded",
            Gtod,
            How::Jumper(Jumper::Record, TRAP | NO_SIMD),
        ),
        method(
            "jumper probe by jump, 64 bytes recorded",
            Gtod,
            How::Jumper(Jumper::Record, JUMP_ONLY | NO_SIMD),
        ),
    ]
    .into_iter()
    .chain(recorded(
        Gtod,
        [
            "probe by jump, 64 bytes recorded",
            "the same without the clock",
            "a compiled-in hook, 64 bytes recorded",
        ],
    ))
    // The same methods on a small function, whose own time does not hide the cost of a record.
    .chain(recorded(
        Function::Small,
        [
            "small function: probe by jump, 64 bytes recorded",
            "small function: the same without the clock",
            "small function: a compiled-in hook, 64 bytes recorded",
        ],
    ))
    .collect()
}

fn recorded(function: Function, [clock, without, hook]: [&'static str; 3]) -> [Method; 3] {
    let flags = JUMP_ONLY | NO_SIMD;
    [
        method(clock, function, How::Probe(Handler::Record, flags)),
        method(without, function, How::Probe(Handler::RecordWithoutClock, flags)),
        method(hook, function, How::StaticHook),
    ]
}

/// Seed 003, Table 1: the methods that only the library has.
pub fn booster() -> Vec<Method> {
    const TRAPS: c_uint = TRAP | NO_SIMD;
    const JUMPS: c_uint = JUMP_ONLY | NO_SIMD;
    let rows = [
        ("jp, boosted trap", How::Jumper(Jumper::NoOp, TRAPS)),
        ("jp, jump", How::Jumper(Jumper::NoOp, JUMPS)),
        ("kp by the library, boosted trap", How::Probe(Handler::NoOp, TRAPS)),
        ("kp by the library, jump", How::Probe(Handler::NoOp, JUMPS)),
        (
            "kp by the library, jump, SIMD registers saved",
            How::Probe(Handler::NoOp, JUMP_ONLY),
        ),
        ("kp + jp, boosted trap", How::Both(Handler::NoOp, Jumper::NoOp, TRAPS)),
        ("kp + jp, jump", How::Both(Handler::NoOp, Jumper::NoOp, JUMPS)),
        ("rp by the library, boosted traps", How::Return(Form::Address, TRAPS)),
        ("rp by the library, jumps at the exits", How::Return(Form::Exits, JUMPS)),
        (
            "rp by the library, a jump and the return address",
            How::Return(Form::Address, JUMPS),
        ),
        (
            "jp + rp, boosted traps",
            How::JumperReturn(Jumper::NoOp, Form::Address, TRAPS),
        ),
        (
            "jp + rp, jumps at the exits",
            How::JumperReturn(Jumper::NoOp, Form::Exits, JUMPS),
        ),
        (
            "jp + rp, jumps and the return address",
            How::JumperReturn(Jumper::NoOp, Form::Address, JUMPS),
        ),
    ];
    rows.map(|(name, how)| method(name, Function::Small, how)).to_vec()
}

/// Checks the harness: a probe by jump with an empty handler, and with one whose time is known.
pub fn spin() -> Vec<Method> {
    vec![
        method("no-op", Function::Small, How::Probe(Handler::NoOp, JUMP_ONLY | NO_SIMD)),
        method("spin", Function::Small, How::Probe(Handler::Spin, JUMP_ONLY | NO_SIMD)),
    ]
}

/// The time of [`spin`]'s handler, in ticks of the time stamp counter.
const SPIN_TICKS: u64 = 3000;

/// All methods in turn, `rounds` times.
pub fn run(methods: &[Method], rounds: usize, out: &mut dyn Write) -> Result<()> {
    begin(0);
    let mut failed = vec![false; methods.len()];
    for _ in 0..rounds {
        if methods
            .iter()
            .any(|method| matches!(method.how, How::Probe(Handler::Spin, _)))
        {
            writeln!(out, "sample\talone\t{}", measured_spin(SPIN_TICKS))?;
        }
        for function in [Function::GetTimeOfDay, Function::Small] {
            if methods.iter().any(|method| method.function == function) {
                let name = if function == Function::Small {
                    "a call of the small function"
                } else {
                    "none"
                };
                writeln!(out, "sample\t{name}\t{}", cost(function, false)?)?;
            }
        }
        for (method, failed) in methods.iter().zip(&mut failed).filter(|(_, failed)| !**failed) {
            match once(method) {
                Ok(overhead) => writeln!(out, "sample\t{}\t{overhead}", method.name)?,
                Err(error) => {
                    *failed = true;
                    writeln!(out, "failed\t{}\t{}", method.name, super::one_line(&error))?;
                }
            }
        }
    }
    Ok(())
}

/// One paired measurement, whose hits are checked.
fn once(method: &Method) -> Result<f64> {
    let hooked = matches!(method.how, How::StaticHook);
    let function = method.function;
    set_hook(false);
    let before = cost(function, hooked)?;
    let events_before = events();
    let with = match method.how {
        How::Return(form, flags) => probed(function, flags, &[Registered::returning(function, form, flags)?])?,
        How::JumperReturn(jumper, form, flags) => {
            let both = [
                Registered::jumper(function, jumper, flags)?,
                Registered::returning(function, form, flags)?,
            ];
            probed(function, flags, &both)?
        }
        How::StaticHook => {
            set_hook(true);
            let with = cost(function, true)?;
            set_hook(false);
            with
        }
        How::Probe(handler, flags) => probed(function, flags, &[Registered::probe(function, handler, flags)?])?,
        How::Jumper(jumper, flags) => probed(function, flags, &[Registered::jumper(function, jumper, flags)?])?,
        How::Both(handler, jumper, flags) => {
            let both = [
                Registered::probe(function, handler, flags)?,
                Registered::jumper(function, jumper, flags)?,
            ];
            probed(function, flags, &both)?
        }
    };
    let records = matches!(
        method.how,
        How::StaticHook | How::Probe(Handler::Record | Handler::RecordWithoutClock, _) | How::Jumper(Jumper::Record, _)
    );
    ensure!(!records || events() > events_before, "nothing was recorded");
    let after = cost(function, hooked)?;
    Ok(paired(before, with, after))
}

fn probed(function: Function, flags: c_uint, probes: &[Registered]) -> Result<f64> {
    let with = cost(function, false)?;
    for probe in probes {
        ensure!(probe.hits() > 0, "the probe did not fire");
        ensure!(
            probe.is_trap().is_none_or(|is_trap| is_trap == (flags & TRAP != 0)),
            "another tactic than the one that was asked for"
        );
    }
    Ok(with)
}
