//! From D text to machine code: one-liners and scripts, of all kinds of clauses, without the
//! program's types and with them.
//!
//! It is measured in this process, in the thread's processor time, so that other work does not count. Files are already
//! in the kernel's memory. Each sample begins anew, with a compiler that is set up and a program whose debug
//! information was not read yet. The very first sample, which warms the caches up, is a row of its own.

use std::rc::Rc;

use anyhow::{Context, Result};
use nanoprobe_codegen::{ArenaLayout, Compiler, ProbeKind};
use nanoprobe_lang::layout::{Limits, Storage};
use nanoprobe_lang::{MacroValues, Source, Target};
use nanoprobe_session::{Acquired, TracedProgram};
use rustix::time::{ClockId, clock_gettime};

use crate::programs;
use crate::report::{Row, Section};

/// The limit, in milliseconds.
const ONE_LINER: f64 = 10.0;
const SCRIPT: f64 = 200.0;
/// The samples of each round.
const SAMPLES: usize = 5;

/// The declarations in the first line of a script.
const DECLARED: &str = "self uint64_t t; int64_t x[int64_t, int], y;";
/// A script that repeats one line.
const PLAIN: [&str; 6] = [
    "pid$target:a.out:main:entry { @ = count(); }",
    "pid$target:a.out:main:entry /arg0 > 4096/ { @[probefunc] = sum(arg0); }",
    "pid$target:a.out:main:entry { self->t = timestamp; }",
    "pid$target:a.out:main:return /self->t/ { @[ustack()] = quantize(timestamp - self->t); self->t = 0; }",
    "pid$target:a.out:main:entry { printf(\"%d %s\\n\", arg0, copyinstr(arg1)); }",
    "pid$target:a.out:main:entry { x[arg0, tid] += arg1 / (arg2 + 1); y = x[arg0, tid] > 10 ? arg3 : arg4; trace(y); ustack(); }",
];
/// Lines that use the types of `loop.c` and of the files that it includes.
const TYPED: [&str; 2] = [
    "pid$target:a.out:on_trap:entry /args[0] != 0/ { @[args[1]->si_signo] = count(); }",
    "pid$target:a.out:on_trap:entry { trace(sizeof (siginfo_t)); y = args[1]->si_code; }",
];
const LIBRARY: &str = "pid$target:libc:malloc:entry { @[ustack()] = quantize(arg0); }";

pub fn measure(rounds: usize, say: &dyn Fn(&str), section: &mut Section) -> Result<()> {
    section.beside = "asked for: a one-liner in 10 ms at most, 1,000 lines in 200 ms".to_owned();
    let subject = programs::compile("loop")?.into_os_string();
    let one_liner = format!("{DECLARED} {}", PLAIN[3]);
    let typed = format!("{DECLARED} {}", TYPED[0]);
    let mixed: Vec<&str> = PLAIN.into_iter().chain(TYPED).collect();
    let rows = [
        (
            "a one-liner, the first of the process",
            one_liner.clone(),
            ONE_LINER,
            true,
        ),
        ("a one-liner", one_liner, ONE_LINER, false),
        (
            "a one-liner on a library, none of its types",
            LIBRARY.to_owned(),
            ONE_LINER,
            false,
        ),
        ("a one-liner with the program's types", typed, ONE_LINER, false),
        ("a script of 100 lines", script(100, &PLAIN), SCRIPT, false),
        ("a script of 1,000 lines", script(1000, &PLAIN), SCRIPT, false),
        (
            "a script of 1,000 lines, some with the program's types",
            script(1000, &mixed),
            SCRIPT,
            false,
        ),
    ];
    for (name, text, reach, is_first) in rows {
        say(name);
        let count = if is_first { 1 } else { rounds.max(1) * SAMPLES };
        let acquired = Acquired::started(std::slice::from_ref(&subject))?;
        let samples: Result<Vec<f64>> = (0..count).map(|_| from_text(&text, &acquired)).collect();
        section.rows.push(Row::of(name, "ms", samples).reach(reach));
    }
    Ok(())
}

/// A script of this many lines, each a clause with an aggregation of its own.
fn script(lines: usize, clauses: &[&str]) -> String {
    let body = clauses.iter().cycle().take(lines - 1).enumerate();
    let body: Vec<String> = body
        .map(|(line, clause)| clause.replace('@', &format!("@a{line}")))
        .collect();
    format!("{DECLARED}\n{}", body.join("\n"))
}

/// The milliseconds of this thread from a text to the machine code of all its clauses.
fn from_text(text: &str, acquired: &Acquired) -> Result<f64> {
    let now = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as f64 * 1e3 + time.tv_nsec as f64 / 1e6
    };
    let start = now();
    let target: Rc<dyn Target> = Rc::new(TracedProgram::new(acquired));
    let macros = MacroValues {
        target: Some(0),
        ..MacroValues::default()
    };
    let program = nanoprobe_lang::compile_for(&[Source::new("text", text)], &macros, &target)
        .map_err(|diagnostics| anyhow::anyhow!("it does not compile: {diagnostics:?}"))?;
    let (limits, layout) = (Limits::default(), ArenaLayout::default());
    let storage = Storage::new(&program, limits);
    let mut compiler = Compiler::new()?;
    for (clause, parsed) in program.clauses.iter().enumerate() {
        let is_return = parsed.probes.iter().any(|probe| probe.name == "return");
        let kind = if is_return { ProbeKind::Return } else { ProbeKind::Entry };
        compiler
            .compile(&program, clause, kind, &storage, limits, &layout)
            .with_context(|| format!("clause {clause}"))?;
    }
    Ok(now() - start)
}
