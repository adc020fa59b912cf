//! Counts how often each probe is hit, by an additional clause on all of a program's probes in the
//! target. The clause is one increment in the detour, at a fixed address for each probe, so its
//! cost is negligible.

use std::collections::BTreeMap;
use std::rc::Rc;

use nanoprobe_export::AggregateTable;
use nanoprobe_lang::interpret::Value;
use nanoprobe_lang::program::{AggregationId, ProbeDescription};
use nanoprobe_lang::{Diagnostic, MacroValues, Program, Source, Target, glob};
use nanoprobe_session::{Place, Probe};

/// The clause's aggregation, which is never printed.
const NAME: &str = "@nanoprobe_hits";

/// The module of the system calls' probes.
pub const CALLS: &str = "vmlinux";

/// The key of a probe's hits: module, function, name.
pub type Name = (String, String, String);

/// The name of a probe.
pub fn name_of(probe: &Probe) -> Name {
    (
        probe.module.to_string(),
        probe.function.to_string(),
        probe.name().into_owned(),
    )
}

/// A clause that counts the hits at all target probes of a program; `None` if the program has no such probe.
pub fn source(program: &Program) -> Option<Source> {
    let mut descriptions: Vec<String> = Vec::new();
    for probe in program.clauses.iter().flat_map(|clause| &clause.probes) {
        let text = text_of(probe);
        if is_target(probe) && !descriptions.contains(&text) {
            descriptions.push(text);
        }
    }
    let text = descriptions.join(",\n");
    let body = format!("{{ {NAME}[probemod, probefunc, probename] = count(); }}");
    (!descriptions.is_empty()).then(|| Source::new("<hits>", format!("{text}\n{body}\n")))
}

fn is_target(probe: &ProbeDescription) -> bool {
    let digits = probe.provider.strip_prefix("pid");
    let is_of_process =
        digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()));
    is_of_process || is_call(probe)
}

/// Whether a description means system calls. The places of some derived probes have other names, and are rarely hit.
fn is_call(probe: &ProbeDescription) -> bool {
    let may_be = |word: &str| probe.name.is_empty() || glob::matches(&probe.name, word);
    let is_provider = !probe.provider.is_empty() && glob::matches(&probe.provider, "syscall");
    is_provider && (may_be("entry") || may_be("return"))
}

/// System calls have no places of their own: all of them share the `syscall` instructions. So they are turned off
/// together.
pub fn all_calls() -> Name {
    (CALLS.to_owned(), String::new(), String::new())
}

/// What is turned off if a probe is too expensive: the probe, or all system calls.
pub fn unit_of(probe: &Name) -> Name {
    match probe.0.as_str() {
        CALLS => all_calls(),
        _ => probe.clone(),
    }
}

fn text_of(probe: &ProbeDescription) -> String {
    format!("{}:{}:{}:{}", probe.provider, probe.module, probe.function, probe.name)
}

/// Compiles the program with the counting clause after its own clauses.
///
/// # Errors
/// The clause's diagnostics.
pub fn compile(
    program: &Program,
    sources: &[Source],
    macros: &MacroValues,
    target: &Rc<dyn Target>,
) -> Result<Program, Vec<Diagnostic>> {
    let Some(hits) = source(program) else {
        return Ok(program.clone());
    };
    let mut all = sources.to_vec();
    all.push(hits);
    nanoprobe_lang::compile_for(&all, macros, target)
}

/// The counting aggregation of a program that was compiled by [`compile`].
pub fn aggregation(program: &Program) -> Option<AggregationId> {
    let index = program
        .aggregations
        .iter()
        .position(|aggregation| aggregation.name == NAME)?;
    u32::try_from(index).ok().map(AggregationId)
}

/// The hits of each probe, from a table of aggregations. Probes without a hit are missing.
pub fn of(program: &Program, table: &AggregateTable) -> BTreeMap<Name, u64> {
    let mut hits = BTreeMap::new();
    let Some(id) = aggregation(program) else {
        return hits;
    };
    for row in table.rows(program, id) {
        let mut names = row.key.iter().map(|element| match element {
            Value::String(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            _ => String::new(),
        });
        let (module, function, name) = (names.next(), names.next(), names.next());
        let name = (
            module.unwrap_or_default(),
            function.unwrap_or_default(),
            name.unwrap_or_default(),
        );
        *hits.entry(name).or_default() += row.words.first().copied().unwrap_or(0);
    }
    hits
}

/// Whether a probe fires in the target.
pub fn is_in_target(probe: &Probe) -> bool {
    matches!(
        probe.place,
        Place::Function { .. } | Place::Address { .. } | Place::Static { .. } | Place::Call { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none() -> Rc<dyn Target> {
        Rc::new(nanoprobe_lang::NoTarget)
    }

    fn counted(text: &str) -> Program {
        let sources = [Source::new("test", text)];
        let program = nanoprobe_lang::compile_for(&sources, &macros(), &none()).expect("a program");
        compile(&program, &sources, &macros(), &none()).expect("a program that counts")
    }

    fn macros() -> MacroValues {
        MacroValues {
            target: Some(12),
            ..MacroValues::default()
        }
    }

    #[test]
    fn every_probe_of_the_target_is_counted_once() {
        let text = "pid$target:libc:mal*:entry, pid$target:::return { trace(1); } tick-1s { trace(2); }
                    pid$target:libc:mal*:entry { @a = count(); }";
        let program = counted(text);
        let last = program.clauses.last().expect("ours");
        let probes: Vec<String> = last.probes.iter().map(text_of).collect();
        assert_eq!(probes, ["pid12:libc:mal*:entry", "pid12:::return"]);
        assert_eq!(program.clauses.len(), 4);
        assert!(aggregation(&program).is_some());
    }

    #[test]
    fn system_calls_are_counted_too() {
        let program =
            counted("syscall::read*:entry, sysca*:::, proc:::start { @ = count(); } io:::start { @ = count(); }");
        let last = program.clauses.last().expect("ours");
        let probes: Vec<String> = last.probes.iter().map(text_of).collect();
        assert_eq!(probes.first().map(String::as_str), Some("syscall::read*:entry"));
        assert!(probes.contains(&"sysca*:::".to_owned()), "{probes:?}");
        assert!(!probes.iter().any(|probe| probe.ends_with(":start")), "{probes:?}");
        let name = |module: &str| (module.to_owned(), "read".to_owned(), "entry".to_owned());
        assert_eq!(unit_of(&name("vmlinux")), all_calls());
        assert_eq!(unit_of(&name("libc.so.6")), name("libc.so.6"));
    }

    #[test]
    fn a_program_without_a_target_stays_as_it_is() {
        let program = counted("BEGIN { trace(1); }");
        assert_eq!((program.clauses.len(), aggregation(&program)), (1, None));
    }
}
