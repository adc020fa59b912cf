//! Counts, address for address, against a program that was single-stepped.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;
use std::sync::OnceLock;

use nanoprobe_tests::command::{Running, run};
use nanoprobe_tests::left_out::need_command;
use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::{Build, need_program};
use nanoprobe_tests::results::table;
use nanoprobe_tests::stepper::{Steps, step, without_randomisation};
use nanoprobe_tests::tracer::{Form, Tracer};

/// The number of rounds that the program makes.
const ARGUMENT: &str = "3";
/// The clause that counts every instruction, without the entries and returns that fire at the same places. If functions
/// share instructions, each function has a probe for them.
const BY_ADDRESS: &str = r#"/probename != "entry" && probename != "return"/ { @[probefunc, uregs[R_RIP]] = count(); }"#;
const BY_NAME: &str = "{ @[probefunc, probename] = count(); }";

/// A symbol of code, as nm lists it.
#[derive(Debug)]
struct Symbol {
    name: String,
    address: u64,
    bytes: u64,
}

fn symbols(path: &Path, options: &[&str]) -> Option<Vec<Symbol>> {
    let nm = need_command("the oracle's symbols", "nm")?;
    let mut command = std::process::Command::new(nm);
    command.args(options).arg(path);
    let listed = Running::start(&mut command).finish().success().stdout;
    let symbol = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [address, bytes, kind, name] = words[..] else {
            return None;
        };
        let number = |text| u64::from_str_radix(text, 16).ok();
        let is_code = matches!(kind, "t" | "T" | "w" | "W" | "i");
        let symbol = Symbol {
            // The name without the version.
            name: name.split('@').next().unwrap_or(name).to_owned(),
            address: number(address)?,
            bytes: number(bytes)?,
        };
        is_code.then_some(symbol)
    };
    Some(listed.lines().filter_map(symbol).collect())
}

/// The static program is stepped once for all tests, because that takes most of their time.
fn stepped_static(path: &Path) -> &'static Steps {
    static STEPPED: OnceLock<Steps> = OnceLock::new();
    STEPPED.get_or_init(|| step(path, ARGUMENT))
}

/// Runs nanoprobe in the same way as the stepper runs the program: same addresses, same output.
fn traced(form: Form, path: &Path, clause: &str, steps: &Steps) -> BTreeMap<String, i64> {
    let tracer = Tracer::new(form).argument("-x").argument("aggsize=16m").clause(clause);
    let traced = tracer.command(path, ARGUMENT).run().complete();
    assert_eq!(traced.finished.stdout, steps.output);
    table(&traced.results)
}

/// The counts of all functions' probes at each address.
fn by_address(rows: BTreeMap<String, i64>) -> HashMap<u64, Vec<i64>> {
    let mut counts: HashMap<u64, Vec<i64>> = HashMap::new();
    for (key, count) in rows {
        let (_, address) = key.rsplit_once(' ').expect("two keys");
        let address = address.parse::<i64>().expect("an address") as u64;
        counts.entry(address).or_default().push(count);
    }
    counts
}

/// All differences, for the message.
fn differences(
    stepped: &HashMap<u64, i64>,
    probed: &HashMap<u64, Vec<i64>>,
    wanted: impl Fn(u64) -> bool,
) -> Vec<String> {
    let mut all: Vec<u64> = stepped
        .keys()
        .chain(probed.keys())
        .copied()
        .filter(|address| wanted(*address))
        .collect();
    all.sort_unstable();
    all.dedup();
    let mut differing = Vec::new();
    for address in all {
        let (count, counts) = (stepped.get(&address).copied().unwrap_or(0), probed.get(&address));
        if counts.is_none_or(|counts| counts.iter().any(|other| *other != count)) {
            differing.push(format!("{address:#x}: stepped {count}, probed {counts:?}"));
        }
    }
    differing
}

/// The last digits of the offsets at which some of the instructions have probes: enough for neighbours to share
/// detours, and few enough for short instructions to be alone.
const SOME: &str = "0369cf";
/// The words of `-v` for a patch, after its place. A trap is the last resort, and not expected.
const TACTICS: [&str; 4] = [": jump", ": run", ": pun", ": evict"];

/// Probed instructions among unprobed ones, by every tactic that jumps.
#[test]
fn some_instructions_are_counted_by_all_jumps_at_once() {
    without_randomisation();
    let Some(path) = need_program("instructions.c", Build::Static) else {
        return;
    };
    let Some(symbols) = symbols(&path, &["-S"]) else { return };
    let stepped = stepped_static(&path);
    let tracer = Tracer::new(Form::Default)
        .argument("-v")
        .argument("-x")
        .argument("aggsize=16m");
    let tracer = tracer.clause(&format!("pid$target:a.out::*[{SOME}] {BY_ADDRESS}"));
    let traced = tracer.command(&path, ARGUMENT).run().complete();
    assert_eq!(traced.finished.stdout, stepped.output);
    for tactic in TACTICS {
        let is_there = traced.finished.stderr.lines().any(|line| line.contains(tactic));
        assert!(is_there, "no patch is a {tactic}");
    }
    let probed = by_address(table(&traced.results));
    // Offsets in a cold part count from its function.
    let entry = |symbol: &Symbol| {
        let whole = symbol.name.strip_suffix(".cold");
        let whole = symbols.iter().find(|other| whole == Some(other.name.as_str()));
        whole.unwrap_or(symbol).address
    };
    let has_probe = |address: u64| {
        let around = symbols
            .iter()
            .filter(|symbol| address.wrapping_sub(symbol.address) < symbol.bytes);
        let mut offsets = around.map(|symbol| format!("{:x}", address.wrapping_sub(entry(symbol))));
        offsets.any(|offset| offset.ends_with(|digit| SOME.contains(digit)))
    };
    let differing = differences(&stepped.counts, &probed, has_probe);
    assert!(
        differing.is_empty(),
        "{} differ:\n{}",
        differing.len(),
        differing.join("\n")
    );
    assert!(probed.len() > 1500, "{} addresses", probed.len());
}

live_tests! {
    /// A static program has only one module: its own code and that of libc, from the first
    /// instruction to the last.
    fn every_instruction_of_a_static_program_is_counted(form) {
        without_randomisation();
        let Some(path) = need_program("instructions.c", Build::Static) else { return };
        let Some(symbols) = symbols(&path, &["-S"]) else { return };
        let stepped = stepped_static(&path);
        let probed = by_address(traced(form, &path, &format!("pid$target:a.out:: {BY_ADDRESS}"), stepped));
        // Code without a symbol (the stubs of the procedure linkage table) belongs to no function, so it has no probes.
        let known = |address: u64| symbols.iter().any(|symbol| address.wrapping_sub(symbol.address) < symbol.bytes);
        let differing = differences(&stepped.counts, &probed, known);
        assert!(differing.is_empty(), "{} differ:\n{}", differing.len(), differing.join("\n"));
        assert!(probed.len() > 4000, "{} addresses", probed.len());

        // The same counts by names, which are incremented in the detours.
        let rows = traced(form, &path, &format!("pid$target:a.out:: {BY_NAME}"), stepped);
        let mut places: HashMap<&str, Vec<u64>> = HashMap::new();
        for symbol in &symbols {
            places.entry(&symbol.name).or_default().push(symbol.address);
        }
        let mut compared = 0;
        for (key, count) in &rows {
            let (function, name) = key.split_once(' ').expect("two keys");
            let (Ok(offset), Some([entry])) = (u64::from_str_radix(name, 16), places.get(function).map(Vec::as_slice)) else {
                continue;
            };
            let address = entry.wrapping_add(offset);
            assert_eq!(stepped.counts.get(&address), Some(count), "{key}");
            compared += 1;
        }
        assert!(compared > 3000, "{compared} of {}", rows.len());
    }

    /// A dynamic program, and the functions of libc that it calls, chosen implementations among them.
    fn functions_of_libc_are_counted(form) {
        without_randomisation();
        let Some(path) = need_program("instructions.c", Build::Usual) else { return };
        let stepped = step(&path, ARGUMENT);
        let functions = ["strlen", "qsort", "snprintf", "malloc", "free", "memcpy", "strcmp"];
        let mut descriptions = functions.map(|function| format!("pid$target:libc.so.6:{function}:")).to_vec();
        descriptions.push("pid$target:a.out::".to_owned());
        let probed = by_address(traced(form, &path, &format!("{} {BY_ADDRESS}", descriptions.join(",")), &stepped));
        let differing = differences(&stepped.counts, &probed, |address| probed.contains_key(&address));
        assert!(differing.is_empty(), "{} differ:\n{}", differing.len(), differing.join("\n"));
        let of_libc = probed.keys().filter(|address| **address > 0x7000_0000_0000).count();
        assert!(of_libc > 80 && probed.len() - of_libc > 300, "{of_libc} of {}", probed.len());
    }

    /// Every function of libc has a probe, by one of its names, and all calls are counted.
    fn every_entry_of_libc_is_counted(form) {
        without_randomisation();
        let Some(path) = need_program("instructions.c", Build::Usual) else { return };
        let stepped = step(&path, ARGUMENT);
        let clause = "pid$target:libc.so.6::entry { @[probefunc, uregs[R_RIP]] = count(); }";
        let rows = traced(form, &path, clause, &stepped);
        let address_of = |name: &str| {
            let key = rows.keys().find_map(|key| key.strip_prefix(name)?.strip_prefix(' '));
            key.and_then(|address| address.parse::<i64>().ok()).expect("a hit") as u64
        };
        let probed = by_address(rows.clone());
        assert!(probed.len() > 60, "{} functions", probed.len());
        // There is one name for each place, so nothing is counted twice.
        assert!(probed.values().all(|counts| counts.len() == 1), "{probed:?}");

        // The functions that libc exports and the program has called, by the file's own table.
        let Some(exported) = exported_by_libc(&path) else { return };
        let malloc = exported.iter().find(|symbol| symbol.name == "malloc").expect("malloc");
        let base = address_of("malloc") - malloc.address;
        // Functions that the linker calls before the probes are placed (`evaltime`), such as resolvers, may be missed.
        let unseen = |address: u64| stepped.at_start.get(&address).copied().unwrap_or(0);
        let called = exported.iter().map(|symbol| base + symbol.address);
        let all: HashSet<u64> = called.chain(probed.keys().copied()).collect();
        let mut differing = Vec::new();
        for address in all {
            let steps = stepped.counts.get(&address).copied().unwrap_or(0);
            let counted = probed.get(&address).map_or(0, |counts| counts[0]);
            if !(steps - unseen(address)..=steps).contains(&counted) {
                differing.push(format!("{address:#x}: stepped {steps}, probed {counted}"));
            }
        }
        assert!(differing.is_empty(), "{} differ:\n{}", differing.len(), differing.join("\n"));
    }
}

/// The functions that the libc of a program exports.
fn exported_by_libc(program: &Path) -> Option<Vec<Symbol>> {
    let ldd = need_command("the oracle's libc", "ldd")?;
    let libraries = run(std::process::Command::new(ldd).arg(program)).success().stdout;
    let line = libraries.lines().find(|line| line.contains("libc.so.6"))?;
    let libc = line.split_whitespace().find(|word| word.starts_with('/'))?;
    symbols(Path::new(libc), &["-D", "-S"])
}
