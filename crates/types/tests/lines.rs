//! Compares lines and inlined copies with the output of readelf for the same program.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use nanoprobe_tests::in_time::InTime;

use common::{compile, compile_text, info};
use nanoprobe_types::{Held, NoLine};

const TWICE: &str = "static volatile int out;\n\
    static inline __attribute__((always_inline)) int twice(int number) {\n\
    \tout = number;\n\
    \treturn 2 * number;\n\
    }\n\
    __attribute__((noinline)) int one(int number) { return twice(number); }\n\
    int main(int argc, char **argv) { (void)argv; return twice(argc) + one(3) + twice(7); }\n";

/// The statements of each line of a file, as binutils print them, without rows that continue the previous statement.
fn statements(program: &Path, file: &str) -> BTreeMap<u64, BTreeSet<u64>> {
    let output = Command::new("objdump")
        .arg("--dwarf=decodedline")
        .arg(program)
        .output_in_time()
        .unwrap();
    let mut lines: BTreeMap<u64, BTreeSet<u64>> = BTreeMap::new();
    for row in String::from_utf8_lossy(&output.stdout).lines() {
        let words: Vec<&str> = row.split_whitespace().collect();
        let &[name, line, address, ref rest @ ..] = words.as_slice() else {
            continue;
        };
        let (Ok(line), Some(address)) = (line.parse(), address.strip_prefix("0x")) else {
            continue;
        };
        if name == file && rest.contains(&"x") {
            lines
                .entry(line)
                .or_default()
                .insert(u64::from_str_radix(address, 16).unwrap());
        }
    }
    lines
}

#[test]
fn lines_begin_at_their_statements() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs/inlined.c");
    for flags in [&["-O2", "-gdwarf-5"], &["-O2", "-gdwarf-4"], &["-O0", "-gdwarf-5"]] {
        let program = compile("cc", &source, &[&["-D_GNU_SOURCE", "-pthread"], &flags[..]].concat());
        let info = info(&program.path).unwrap();
        let expected = statements(&program.path, "inlined.c");
        assert!(expected.len() > 20, "{expected:?}");
        let (mut same, mut sites) = (0, 0);
        for (line, addresses) in &expected {
            let found: BTreeSet<u64> = info.line("inlined.c", *line).unwrap().into_iter().collect();
            // These are the rows that begin a statement, except those that continue at the same column.
            assert!(
                !found.is_empty() && found.is_subset(addresses),
                "line {line}: {found:x?} {addresses:x?}"
            );
            assert!(found.contains(addresses.first().unwrap()), "line {line}");
            same += usize::from(found == *addresses);
            sites += found.len();
        }
        assert!(
            same * 10 > expected.len() * 7 && sites > expected.len(),
            "{same} of {}",
            expected.len()
        );
        // A line without rows is refused, with the nearest lines that have some.
        let last = *expected.keys().last().unwrap();
        for line in (1..last).filter(|line| !expected.contains_key(line)) {
            let before = expected.range(..line).next_back().map(|(line, _)| *line);
            let after = expected.range(line..).next().map(|(line, _)| *line);
            assert_eq!(info.line("inlined.c", line), Err(NoLine::NoCode { before, after }));
        }
        assert_eq!(info.line("nobody.c", 1), Err(NoLine::NoFile));
    }
}

#[test]
fn copies_are_where_they_are_entered_with_their_parameters() {
    let program = compile_text("cc", "c", TWICE, &["-O2", "-g"]);
    let info = info(&program.path).unwrap();
    let found = info
        .inlined("twice", |name| (name == "twice").then(|| "shown".to_owned()))
        .unwrap();
    let [function] = found.as_slice() else {
        panic!("{found:?}")
    };
    assert_eq!(function.name, "shown");
    assert_eq!(function.signature.parameters[0].name, "number");
    let mut places: Vec<_> = function.copies.iter().map(|copy| copy.parameters[0]).collect();
    places.sort_by_key(|place| matches!(place, Ok(Held::Register(_))));
    // One argument is the constant 7. The other came in edi, or was kept elsewhere.
    assert!(places.contains(&Ok(Held::Constant(7))), "{places:?}");
    assert!(places.contains(&Ok(Held::Register(5))), "{places:?}");
    assert_eq!(places.len(), 3);
    let addresses: BTreeSet<u64> = function.copies.iter().map(|copy| copy.address).collect();
    assert_eq!(addresses.len(), 3);
    // The line within the function begins in each copy.
    let line = info.line("source.c", 3).unwrap();
    assert_eq!(line.len(), 3, "{line:x?}");
    assert!(info.inlined("twice", |_| None).unwrap().is_empty());
}

/// The search for the copies of one function reads only some units, but finds all copies.
#[test]
fn copies_of_a_name_are_those_that_reading_everything_finds() {
    let program = std::env::current_exe().unwrap();
    let info = info(&program).unwrap();
    let everything = info.inlined("", |name| Some(name.to_owned())).unwrap();
    assert!(everything.len() > 1000, "{}", everything.len());
    let is_plain = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let names: BTreeSet<&str> = everything.iter().map(|function| function.name.as_str()).collect();
    let names: Vec<&str> = names.into_iter().filter(|name| is_plain(name)).collect();
    for name in names.iter().step_by((names.len() / 8).max(1)) {
        let answers = |other: &str| (other == *name).then(|| other.to_owned());
        let found = info.inlined(name, answers).unwrap();
        assert!(!found.is_empty(), "{name}");
        assert_eq!(found, info.inlined("", answers).unwrap(), "{name}");
    }
}

/// Link-time optimisation puts copies into units that do not have the function's name.
#[test]
fn copies_in_other_units_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other.c");
    std::fs::write(&other, "int helper(int x) { return x * 3 + 1; }").unwrap();
    let text = "int helper(int); int main(int count, char **words) { return helper(count) + helper(words[0][0]); }";
    let program = compile_text("cc", "c", text, &["-O2", "-g", "-flto", other.to_str().unwrap()]);
    let info = info(&program.path).unwrap();
    let found = info
        .inlined("helper", |name| (name == "helper").then(|| name.to_owned()))
        .unwrap();
    assert_eq!(
        found.iter().map(|function| function.copies.len()).sum::<usize>(),
        2,
        "{found:?}"
    );
    assert_eq!(found[0].signature.parameters[0].name, "x");
    assert!(
        info.inlined("help", |name| (name == "help").then(|| name.to_owned()))
            .unwrap()
            .is_empty()
    );
}
