//! The seeds' experiments by name, with the seeds' own figures beside them.

pub mod compare;
mod compile;
mod cost;
mod library;
mod looper;
mod scaling;
mod syscalls;
mod trees;

use anyhow::{Result, bail};

use crate::kernel::Kind;
use crate::own;
use crate::report::{Section, Words};
use compare::{Method, Subject};

const COUNT: &str = "pid$target:a.out:FUNCTION:entry { @ = count(); }";
const RETURN: &str = "pid$target:a.out:FUNCTION:return { @ = count(); }";
const BOTH: &str =
    "pid$target:a.out:FUNCTION:entry { @e = count(); } pid$target:a.out:FUNCTION:return { @r = count(); }";
const RECORD: &str =
    "pid$target:a.out:FUNCTION:entry { trace(timestamp); trace(pid); trace(arg0); trace(arg1); trace(arg2); }";

const STEP: &[&str] = &["-x", "tactic=trap", "-x", "trap=step"];
const BOOST: &[&str] = &["-x", "tactic=trap", "-x", "trap=boost"];
const EMULATE: &[&str] = &["-x", "tactic=trap", "-x", "trap=emulate"];

/// Measures one experiment into its section.
pub fn measure(name: &str, rounds: usize, say: &dyn Fn(&str), section: &mut Section) -> Result<()> {
    match name {
        "gtod" => gtod(rounds, say, section),
        "record" => record(rounds, say, section),
        "functions" => {
            say("trying");
            section.beside =
                "seed 000: a kprobe goes almost anywhere, jprobe and djprobe at a function's entry; handlers \
                              before and behind (kprobe), before (the others)"
                    .to_owned();
            section.words = Some(Words::of(&own::facts("functions")?));
            Ok(())
        }
        "push" => push(rounds, say, section),
        "looper" => looper::measure(rounds, say, section),
        "booster" => booster(rounds, say, section),
        "cost" => cost::measure(rounds, say, section),
        "compile" => compile::measure(rounds, say, section),
        "library" => library::measure(rounds, say, section),
        "trees" => trees::measure(rounds, say, section),
        "scaling" => scaling::measure(rounds, say, section),
        "syscalls" => syscalls::measure(rounds, say, section),
        _ => bail!("no experiment {name}"),
    }
}

fn gtod(rounds: usize, say: &dyn Fn(&str), section: &mut Section) -> Result<()> {
    section.beside =
        "seed 000, overheads in ns on a Pentium 4 (HT): kprobe 1065, jprobe 1614, djprobe 28, of a call of 262\n\
                      Athlon64: 1771, 633, 24 of 2230; Pentium M: 2192, 782, -115 of 2514"
            .to_owned();
    let mut subject = Subject::new("seeds", 0, "bench_gettimeofday")?;
    let methods = [
        Method::nanoprobe("trap, stepped (a kprobe of 2005): @ = count()", COUNT, STEP),
        Method::nanoprobe("trap, emulated: @ = count()", COUNT, EMULATE),
        Method::nanoprobe("jump: @ = count()", COUNT, &[]),
        Method::kernel("kernel uprobe, counted", Kind::Counted),
    ];
    section.rows = compare::rows(&mut subject, &methods, rounds, say)?;
    say("the library's probes");
    section.rows.extend(own::measure("gtod", rounds, "ns/call")?);
    Ok(())
}

fn record(rounds: usize, say: &dyn Fn(&str), section: &mut Section) -> Result<()> {
    section.beside =
        "seed 000, overheads in ns on a Pentium 4 (HT): kprobe 1169, jprobe 1710, djprobe 114, LKST's hook 69, of a \
                      call of 261\nAthlon64: 461, 650, 72, 61; Pentium M: 720, 941, 59, 102"
            .to_owned();
    let mut subject = Subject::new("seeds", 0, "bench_gettimeofday")?;
    let ring: &[&str] = &["-x", "bufpolicy=ring", "-o", "/dev/null"];
    let step_ring: &[&str] = &[
        "-x",
        "tactic=trap",
        "-x",
        "trap=step",
        "-x",
        "bufpolicy=ring",
        "-o",
        "/dev/null",
    ];
    let methods = [
        Method::nanoprobe(
            "trap, stepped: D records clock, pid, three arguments",
            RECORD,
            step_ring,
        ),
        Method::nanoprobe("jump: D records clock, pid, three arguments", RECORD, ring),
        Method::kernel("kernel uprobe, recorded (tracefs)", Kind::Recorded),
    ];
    section.rows = compare::rows(&mut subject, &methods, rounds, say)?;
    say("the library's probes");
    section.rows.extend(own::measure("record", rounds, "ns/call")?);
    Ok(())
}

fn push(rounds: usize, say: &dyn Fn(&str), section: &mut Section) -> Result<()> {
    section.beside = "seed 001, us a loop: uprobe 3.1 stepped and 1.55 emulated, uretprobe 3.6 and 2.0".to_owned();
    let mut subject = Subject::new("loop", 0, "bench_function")?;
    let methods = [
        Method::nanoprobe("entry: trap, stepped", COUNT, STEP),
        Method::nanoprobe("entry: trap, emulated", COUNT, EMULATE),
        Method::nanoprobe("entry: jump", COUNT, &[]),
        Method::nanoprobe("return: trap, stepped", RETURN, STEP),
        Method::nanoprobe("return: trap, emulated", RETURN, EMULATE),
        Method::nanoprobe("return: jump", RETURN, &[]),
        Method::nanoprobe(
            "return: jump, the return address replaced",
            RETURN,
            &["-x", "return=address"],
        ),
        Method::kernel("kernel uprobe on push, which it emulates", Kind::Counted),
        Method::kernel("kernel uretprobe, the same", Kind::ReturnCounted),
    ];
    section.rows = compare::rows(&mut subject, &methods, rounds, say)?;
    // The kernel behaves so without the seed's patch: this instruction must still be stepped.
    let mut stepped = Subject::new("loop", 5, "bench_sub")?;
    let methods = [
        Method::kernel("kernel uprobe on sub, which it steps", Kind::Counted),
        Method::kernel("kernel uretprobe, the same on sub", Kind::ReturnCounted),
    ];
    section.rows.extend(compare::rows(&mut stepped, &methods, rounds, say)?);
    Ok(())
}

fn booster(rounds: usize, say: &dyn Fn(&str), section: &mut Section) -> Result<()> {
    section.beside =
        "seed 003, us on a Pentium M, without and with booster: kp 0.57, 0.26; jp 1.00, 1.05; rp 0.92, 0.45; \
                      kp+rp 0.99, 0.86; jp+rp 1.40, 1.30"
            .to_owned();
    let mut subject = Subject::new("loop", 0, "bench_function")?;
    let mut methods = Vec::new();
    for (what, text) in [("kp", COUNT), ("rp", RETURN), ("kp + rp", BOTH)] {
        methods.push(Method::nanoprobe(
            &format!("{what}, stepped trap (no booster)"),
            text,
            STEP,
        ));
        methods.push(Method::nanoprobe(&format!("{what}, boosted trap"), text, BOOST));
        methods.push(Method::nanoprobe(&format!("{what}, jump"), text, &[]));
    }
    section.rows = compare::rows(&mut subject, &methods, rounds, say)?;
    say("the library's probes");
    section.rows.extend(own::measure("booster", rounds, "ns/call")?);
    Ok(())
}
