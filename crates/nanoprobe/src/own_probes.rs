//! `-l -p PID` without a program: lists the probes that the program has put on itself by
//! libnanoprobe, as /sys/kernel/debug/kprobes/list lists the kernel's.

use std::io::Write;

use anyhow::Context as _;
use nanoprobe_arena::registry::{Listed, NAME, read};
use nanoprobe_patch::TargetAddress;
use nanoprobe_symbols::readable;
use nanoprobe_target::{Map, MappingKind, Process};
use nanoprobe_text::modules::Modules;

use crate::output::message;

/// Prints the probes; yields the command's exit status.
pub fn print(pid: i32, out: &mut dyn Write) -> Result<u8, anyhow::Error> {
    let process = Process::open(pid)?;
    let map = process.map()?;
    let lists = lists(&process, &map)?;
    if lists.is_empty() {
        message(format_args!(
            "process {pid} does not use libnanoprobe; to list what can be traced in it: nanoprobe -l -n 'pid$target:::entry' -p {pid}"
        ));
        return Ok(1);
    }
    let executable = std::fs::read_link(format!("/proc/{pid}/exe"))
        .with_context(|| format!("the program of process {pid} is not known"))?;
    let mut modules = Modules::default();
    modules.update(pid, &map, process.memory(), &executable);
    writeln!(
        out,
        "{:>18} {:>4} {:>6} {:>14} {:>10}  WHERE",
        "ADDRESS", "KIND", "TACTIC", "HITS", "MISSED"
    )?;
    for one in lists.iter().flatten() {
        let counts = match one.counts {
            Some((hits, missed)) => (hits.to_string(), missed.to_string()),
            None => ("-".to_owned(), "-".to_owned()),
        };
        let row = &one.row;
        writeln!(
            out,
            "{:>#18x} {:>4} {:>6} {:>14} {:>10}  {}{}",
            row.address,
            kind(row.kind()),
            tactic(row.tactic()),
            counts.0,
            counts.1,
            modules.symbolize(TargetAddress(row.address), readable),
            if row.is_enabled() { "" } else { " [DISABLED]" }
        )?;
    }
    Ok(0)
}

/// The tables in the process's mappings of that name: one for each copy of the library.
fn lists(process: &Process, map: &Map) -> Result<Vec<Vec<Listed>>, anyhow::Error> {
    let is_list = |kind: &MappingKind| match kind {
        MappingKind::File { path, .. } => path.as_os_str().as_encoded_bytes().ends_with(NAME.as_bytes()),
        _ => false,
    };
    let found = map
        .mappings()
        .iter()
        .filter(|mapping| is_list(&mapping.kind) && mapping.offset == 0);
    found
        .map(|mapping| {
            let fetch = |address: u64, into: &mut [u8]| process.memory().read(TargetAddress(address), into).is_ok();
            Ok(read(mapping.start.0, mapping.bytes(), &fetch)?)
        })
        .collect()
}

/// A letter of `enum np_kind`; `?` for an unknown byte, which may be hostile.
fn kind(kind: u8) -> char {
    match kind {
        b'k' | b'j' | b'r' | b'h' | b'w' => char::from(kind),
        _ => '?',
    }
}

/// The name of a tactic, as `np_tactic_name` gives it.
fn tactic(number: u8) -> &'static str {
    match number {
        1 => "jump",
        2 => "run",
        3 => "pun",
        4 => "evict",
        5 => "trap",
        _ => "-",
    }
}
