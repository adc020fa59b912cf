//! The estimate of `nanoprobe cost` for a hit, beside the cost measured here.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::compare::{Method, Subject, compare};
use crate::report::{Row, Section};
use crate::tracer;

const RING: &[&str] = &["-x", "bufpolicy=ring", "-o", "/dev/null"];

/// A description of the clause, and the program.
const PROGRAMS: [(&str, &str, &[&str]); 6] = [
    ("count()", "pid$target:a.out:FUNCTION:entry { @ = count(); }", &[]),
    (
        "quantize()",
        "pid$target:a.out:FUNCTION:entry { @ = quantize(arg1); }",
        &[],
    ),
    (
        "@[copyinstr(arg0)]",
        "pid$target:a.out:FUNCTION:entry { @[copyinstr(arg0)] = count(); }",
        &[],
    ),
    (
        "@[ustack()]",
        "pid$target:a.out:FUNCTION:entry { @[ustack()] = count(); }",
        &[],
    ),
    (
        "a record",
        "pid$target:a.out:FUNCTION:entry { trace(arg0); trace(arg1); }",
        RING,
    ),
    (
        "a latency",
        "pid$target:a.out:FUNCTION:entry { self->t = timestamp; }
         pid$target:a.out:FUNCTION:return /self->t/ { @ = quantize(timestamp - self->t); self->t = 0; }",
        &[],
    ),
];

/// The largest factor by which the model may be off, either way.
const FACTOR: f64 = 1.3;

pub fn measure(rounds: usize, say: &dyn Fn(&str), section: &mut Section) -> Result<()> {
    let mut subject = Subject::new("loop", 0, "bench_function")?;
    let methods = PROGRAMS.map(|(name, text, options)| Method::nanoprobe(name, text, options));
    let results = compare(&mut subject, &methods, rounds, say)?;
    for ((name, text, _), result) in PROGRAMS.into_iter().zip(results) {
        say(&format!("what nanoprobe cost says of {name}"));
        let row = format!("{name}: the model is off by a factor of");
        let factors = result.and_then(|measured| {
            let modelled = modelled(&subject, text)?;
            let factor = |ns: f64| (modelled / ns).max(ns / modelled);
            let factors: Vec<f64> = measured.iter().map(|once| factor(once.overhead)).collect();
            Ok((factors, modelled))
        });
        section.rows.push(match factors {
            Ok((factors, modelled)) => Row::of(&row, "x", Ok(factors))
                .reach(FACTOR)
                .note(format!("the model says {modelled:.1} ns")),
            Err(error) => Row::not_measurable(&row, &format!("{error:#}")),
        });
    }
    Ok(())
}

/// The estimate of `nanoprobe cost` for all of the program's probes.
fn modelled(subject: &Subject, text: &str) -> Result<f64> {
    let text = text.replace("FUNCTION", subject.function);
    let output = Command::new(tracer::path()?)
        .args(["cost", "-n", &text, "-p", &subject.pid().to_string()])
        .stdin(Stdio::null())
        .output()
        .context("running nanoprobe cost")?;
    ensure!(
        output.status.success(),
        "nanoprobe cost: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let text = String::from_utf8_lossy(&output.stdout);
    sum_of_ns(&text, subject.function).with_context(|| format!("cannot read what nanoprobe cost says: {text:?}"))
}

/// The second column of the lines of a function's probes.
fn sum_of_ns(text: &str, function: &str) -> Option<f64> {
    let lines = text.lines().filter(|line| line.contains(&format!(":{function}:")));
    let ns = lines.map(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
    let ns: Vec<f64> = ns.collect::<Option<_>>()?;
    (!ns.is_empty()).then(|| ns.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_probes_of_the_function_are_added_up() {
        let text = "          HITS/S         NS   OF A CPU  HOW                PROBE\n\
                    97,531,837        0.8    7.803 %  run                pid1:loop:bench_function:entry\n\
                    97,531,837       12.5   70.803 %  run                pid1:loop:bench_function:return\n\
                    195,063,674               78.6 %  all of 2 probes hit in 1.0 s: painful\n";
        assert_eq!(sum_of_ns(text, "bench_function"), Some(13.3));
        assert_eq!(sum_of_ns(text, "another"), None);
        assert_eq!(sum_of_ns("pid1:loop:another:entry\n", "another"), None);
    }
}
