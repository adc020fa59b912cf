//! Probes that follow from other probes: the providers `io`, `proc`, `plockstat`, `sysinfo`, `tcp`, `udp`.
//!
//! A built-in text in D says for each such probe where it fires, under which condition, and with which arguments. A
//! clause on a derived probe becomes clauses on these places, before anything is checked:
//!
//! ```text
//! io.d       syscall::read:      { this->fd = uregs[R_RDI]; this->bytes = uregs[R_RDX]; this->flags = B_READ; }
//!            io:::done /__file_status(this->fd, 0)/
//!                                { probename = "return"; args[0]->b_bcount = this->bytes; }
//!
//! program    io:::done /pid == 7/ { @ = sum(args[0]->b_bcount); }
//!
//! becomes    syscall::read:return /__file_status(uregs[R_RDI], 0) && pid == 7/ { @ = sum(uregs[R_RDX]); }
//!                                 the names of the probe are io, vmlinux, "", done
//! ```
//!
//! | clause of a built-in text | means |
//! |---|---|
//! | on other probes, assigns only `this->` variables | a place, and what these variables mean below it |
//! | on derived probes | the probe at each place above it: `probename` is the name of the place's probe |
//! | on a place, below derived probes | the places above them no longer count |
//! | on all probes of the provider, `tcp:::` | arguments that each probe below it has, if it says nothing else |
//! | on derived probes, with `this->at = "..."` | the probe at these places only |
//! | any other | is added to the program, if a probe reads what it keeps: before its clauses; after them if it stands
//! after the probes |
//!
//! `this->executed` means: only in programs that a traced process has executed (`-x follow=exec`). The variables of a
//! built-in text have names that no program can write. A program that uses no derived probe
//! does not read these texts.

mod kept;
mod rewrite;
mod text;

use crate::diagnostic::Diagnostic;
use crate::glob;
use crate::program::{DerivedProbe, LogicalOperator, ProbeDescription};
use crate::source::Span;
use crate::syntax::{Clause, DerivedPlaces, Item, Node, NodeKind};
use std::rc::Rc;
pub(crate) use text::typed;
use text::{Place, Provider};

/// The source that the built-in texts count as.
pub(crate) const BUILT_IN: u32 = u32::MAX;

/// A provider of derived probes.
struct Built {
    name: &'static str,
    text: &'static str,
    /// Its probes, for hints.
    probes: &'static [&'static str],
    /// Whether the number of a process belongs to its name.
    is_of_process: bool,
}

const BUILT: &[Built] = &[
    Built {
        name: "io",
        text: include_str!("io.d"),
        probes: &["start", "done", "wait-start", "wait-done"],
        is_of_process: false,
    },
    Built {
        name: "proc",
        text: include_str!("proc.d"),
        probes: &[
            "create",
            "exec",
            "exec-failure",
            "exec-success",
            "start",
            "exit",
            "lwp-create",
            "lwp-start",
            "lwp-exit",
            "signal-send",
            "signal-handle",
            "signal-discard",
            "signal-clear",
            "fault",
        ],
        is_of_process: false,
    },
    Built {
        name: "plockstat",
        text: include_str!("plockstat.d"),
        probes: &[
            "mutex-acquire",
            "mutex-release",
            "mutex-error",
            "mutex-block",
            "mutex-spin",
            "mutex-spun",
            "rw-acquire",
            "rw-release",
            "rw-error",
            "rw-block",
            "futex-wait",
            "futex-waited",
            "futex-wake",
        ],
        is_of_process: true,
    },
    Built {
        name: "sysinfo",
        text: include_str!("sysinfo.d"),
        probes: &[
            "sysread", "readch", "syswrite", "writech", "sysexec", "sysfork", "sysvfork", "sema", "msg",
        ],
        is_of_process: false,
    },
    Built {
        name: "tcp",
        text: include_str!("tcp.d"),
        probes: &[
            "connect-request",
            "connect-established",
            "connect-refused",
            "accept-established",
            "send",
            "receive",
        ],
        is_of_process: false,
    },
    Built {
        name: "udp",
        text: include_str!("udp.d"),
        probes: &["send", "receive"],
        is_of_process: false,
    },
];

/// The names of the probes of the derived provider that a description names.
#[must_use]
pub fn names_of(provider: &str) -> Option<&'static [&'static str]> {
    let named = provider.trim_end_matches(|last: char| last.is_ascii_digit());
    let built = BUILT.iter().find(|built| {
        let name = if built.is_of_process { named } else { provider };
        built.name == name
    });
    built.map(|built| built.probes)
}

/// Replaces the clauses on derived probes. `is_library`: whether a source is a library, whose clauses stay as they
/// are.
pub(crate) fn expand(items: Vec<Item>, is_library: &dyn Fn(u32) -> bool) -> Result<Vec<Item>, Vec<Diagnostic>> {
    let mut used = Vec::new();
    for item in &items {
        let Item::Clause(clause) = item else { continue };
        if is_library(clause.span.source) {
            continue;
        }
        for description in &clause.probes {
            for (index, built) in BUILT.iter().enumerate() {
                if let Some(process) = process_of(built, description)
                    && !used.contains(&(index, process))
                {
                    used.push((index, process));
                }
            }
        }
    }
    if used.is_empty() {
        return Ok(items);
    }
    let mut expanded = Vec::new();
    let mut providers: Vec<(usize, u32, Provider)> = Vec::new();
    for (index, process) in used {
        let Some(built) = BUILT.get(index) else { continue };
        let (provider, declarations) = text::read(built.name, built.text, process)?;
        if !providers.iter().any(|(known, ..)| *known == index) {
            expanded.extend(declarations);
        }
        providers.push((index, process, provider));
    }
    let written = kept::written_in(&items);
    let mut program = Vec::new();
    let mut wanted = vec![kept::Names::new(); providers.len()];
    for item in items {
        match item {
            Item::Clause(clause) if !is_library(clause.span.source) => {
                program.extend(
                    clauses(clause, &providers, &written, &mut wanted)
                        .into_iter()
                        .map(Item::Clause),
                );
            }
            other => program.push(other),
        }
    }
    let needed = providers.iter().zip(wanted);
    let (before, after): (Vec<_>, Vec<_>) = needed.map(|((.., one), wanted)| kept::needed(one, wanted)).unzip();
    expanded.extend(before.into_iter().flatten().map(Item::Clause));
    expanded.extend(program);
    expanded.extend(after.into_iter().flatten().map(Item::Clause));
    Ok(expanded)
}

/// The number of the process, or 0, if a description may mean probes of a provider.
fn process_of(built: &Built, description: &ProbeDescription) -> Option<u32> {
    let pattern = &description.provider;
    if pattern.is_empty() || !built.probes.iter().any(|name| answers(&description.name, name)) {
        return None;
    }
    let process = if built.is_of_process {
        let named = pattern.trim_end_matches(|last: char| last.is_ascii_digit());
        pattern.get(named.len()..)?.parse().ok()?
    } else {
        0
    };
    glob::matches(pattern, &named(built, process)).then_some(process)
}

fn named(built: &Built, process: u32) -> String {
    match built.is_of_process {
        true => format!("{}{process}", built.name),
        false => built.name.to_owned(),
    }
}

fn answers(pattern: &str, name: &str) -> bool {
    pattern.is_empty() || glob::matches(pattern, name)
}

/// The clauses that a clause becomes. Its other descriptions stay together in the first one.
/// `written`: the names in the program. `wanted`: for each provider, the variables of its text that are read.
fn clauses(
    clause: Clause,
    providers: &[(usize, u32, Provider)],
    written: &kept::Names,
    wanted: &mut [kept::Names],
) -> Vec<Clause> {
    let mut derived = Vec::new();
    let mut others = Vec::new();
    for description in &clause.probes {
        let before = derived.len();
        let mut is_provider = false;
        for ((index, process, provider), wanted) in providers.iter().zip(wanted.iter_mut()) {
            let Some(built) = BUILT.get(*index) else { continue };
            if process_of(built, description) != Some(*process) {
                continue;
            }
            is_provider |= glob::is_literal(&description.provider);
            let found = provider.places.iter().filter(|place| means(description, place));
            let found = found.inspect(|place| wanted.extend(kept::read_at(place, written)));
            derived.extend(found.map(|place| at(&clause, description, place, named(built, *process))));
        }
        // A description that matches none of the provider's probes is refused as one of an unknown provider.
        if derived.len() == before || !is_provider {
            others.push(description.clone());
        }
    }
    if !others.is_empty() {
        let rest = Clause {
            probes: others,
            ..clause
        };
        derived.insert(0, rest);
    }
    derived
}

/// Whether a description means a derived probe. The module and the function of a probe that has none of its own are
/// those of its place, and are compared when it is matched.
fn means(description: &ProbeDescription, place: &Place) -> bool {
    let is_there = match place.module {
        Some(module) => {
            answers(&description.module, module) && (description.function.is_empty() || description.function == "*")
        }
        None => place.probes.iter().any(|probe| may_be(description, probe)),
    };
    is_there && answers(&description.name, &place.name)
}

/// Whether the module and the function of a description may be those of a place. A library answers to its name
/// without the numbers at its end, too.
fn may_be(written: &ProbeDescription, place: &ProbeDescription) -> bool {
    let module = place.module.as_str();
    let (stem, _) = module.split_once(".so").unwrap_or((module, ""));
    let names = [module.to_owned(), format!("{stem}.so"), stem.to_owned()];
    let in_module = module.is_empty() || names.iter().any(|name| answers(&written.module, name));
    in_module && answers(&written.function, &place.function)
}

/// A clause at the places of a derived probe.
fn at(clause: &Clause, written: &ProbeDescription, place: &Place, provider: String) -> Clause {
    let is_own = place.module.is_some();
    let moved = |description: &ProbeDescription| ProbeDescription {
        module: match description.module.is_empty() && !is_own {
            true => written.module.clone(),
            false => description.module.clone(),
        },
        span: written.span,
        ..description.clone()
    };
    let named = |description: &&ProbeDescription| is_own || may_be(written, description);
    let probe = DerivedProbe {
        provider,
        place: place.module.map(|module| (module.to_owned(), String::new())),
        name: place.name.clone(),
        written: written.clone(),
        is_hidden: false,
        only_executed: place.only_executed,
    };
    Clause {
        probes: place.probes.iter().filter(named).map(moved).collect(),
        predicate: both(place.predicate.clone(), clause.predicate.clone()),
        body: clause.body.clone(),
        span: clause.span,
        derived: Some(Rc::new(DerivedPlaces {
            probe,
            arguments: place.arguments.clone(),
        })),
    }
}

fn both(left: Option<Node>, right: Option<Node>) -> Option<Node> {
    let (Some(first), Some(second)) = (&left, &right) else {
        return left.or(right);
    };
    let span: Span = second.span;
    let kind = NodeKind::Logical {
        operator: LogicalOperator::And,
        left: Box::new(first.clone()),
        right: Box::new(second.clone()),
    };
    Some(Node::new(kind, span))
}

#[cfg(test)]
mod tests;
