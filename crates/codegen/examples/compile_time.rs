//! How long a clause takes to compile: run with `--release`; the first one pays for warming up.
//!
//! ```text
//! cargo run --release -p nanoprobe-codegen --example compile_time
//! ```
#![allow(clippy::unwrap_used)] // an example

use std::time::Instant;

use nanoprobe_codegen::{ArenaLayout, Compiler, ProbeKind};
use nanoprobe_lang::layout::{Limits, Storage};
use nanoprobe_lang::{MacroValues, Source};

const CLAUSES: [&str; 6] = [
    "pid1::f:entry { @ = count(); }",
    "pid1::f:entry /arg0 > 4096/ { @[probefunc] = sum(arg0); }",
    "pid1::f:entry { self->start = timestamp; }",
    "self uint64_t t; pid1::f:return /self->t/ { @[ustack()] = quantize(timestamp - self->t); self->t = 0; }",
    "pid1::f:entry { printf(\"%d %s\\n\", arg0, copyinstr(arg1)); }",
    "int64_t x[int64_t, int], y; \
     pid1::f:entry { x[arg0, tid] += arg1 / (arg2 + 1); y = x[arg0, tid] > 10 ? arg3 : arg4; trace(y); ustack(); }",
];

fn main() {
    let started = Instant::now();
    let mut compiler = Compiler::new().unwrap();
    println!("{:>9.1} us  set up", started.elapsed().as_secs_f64() * 1e6);
    let limits = Limits::default();
    for text in CLAUSES {
        let program = match nanoprobe_lang::compile(&[Source::new("clause", text)], &MacroValues::default()) {
            Ok(program) if !program.clauses.is_empty() => program,
            other => {
                println!("not compiled: {text}: {other:?}");
                continue;
            }
        };
        let storage = Storage::new(&program, limits);
        let mut compile = || {
            let started = Instant::now();
            let handler = compiler
                .compile(&program, 0, ProbeKind::Entry, &storage, limits, &ArenaLayout::default())
                .unwrap();
            (started.elapsed().as_secs_f64() * 1e6, handler.code.len())
        };
        let (first, bytes) = compile();
        let mut times: Vec<f64> = (0..101).map(|_| compile().0).collect();
        times.sort_by(f64::total_cmp);
        println!(
            "{first:>9.1} us  first, {:>7.1} us  median, {bytes:>4} bytes: {text}",
            times[50]
        );
    }
    for (what, text) in [
        ("a one-liner", CLAUSES[3].to_owned()),
        ("a script of 1,000 lines", script(1000)),
    ] {
        let mut times: Vec<f64> = (0..11).map(|_| from_text(&mut compiler, &text)).collect();
        times.sort_by(f64::total_cmp);
        println!("{:>9.1} us  median, from text to machine code: {what}", times[5]);
    }
}

/// So many lines, a clause each, of all the kinds.
fn script(lines: usize) -> String {
    let clauses = CLAUSES.iter().map(|clause| clause.replace("self uint64_t t; ", ""));
    let clauses: Vec<String> = clauses
        .map(|clause| clause.replace("int64_t x[int64_t, int], y; ", ""))
        .collect();
    let body = clauses.iter().cycle().take(lines - 1).enumerate();
    let body: Vec<String> = body
        .map(|(line, clause)| clause.replace('@', &format!("@a{line}")))
        .collect();
    format!("self uint64_t t; int64_t x[int64_t, int], y;\n{}", body.join("\n"))
}

/// Microseconds from a text to the machine code of all its clauses.
fn from_text(compiler: &mut Compiler, text: &str) -> f64 {
    let (limits, started) = (Limits::default(), Instant::now());
    let program = nanoprobe_lang::compile(&[Source::new("text", text)], &MacroValues::default()).unwrap();
    let storage = Storage::new(&program, limits);
    for clause in 0..program.clauses.len() {
        let layout = ArenaLayout::default();
        compiler
            .compile(&program, clause, ProbeKind::Entry, &storage, limits, &layout)
            .unwrap();
    }
    started.elapsed().as_secs_f64() * 1e6
}
