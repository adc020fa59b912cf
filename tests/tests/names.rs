//! Probe names that reach any instruction: offsets, all of a function, addresses. Also the names that are refused.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use nanoprobe_tests::command::Running;
use nanoprobe_tests::left_out::need_command;
use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::{Build, need_program, program};
use nanoprobe_tests::results::{matched, table, value};
use nanoprobe_tests::text::maps;
use nanoprobe_tests::tracer::{Form, Tracer, start_waiting};

const ROUNDS: i64 = 12;
const ARGUMENTS: &str = "12";

/// `@[probefunc, probename] = count()` on a description, by `function name`.
fn counts(form: Form, path: &Path, description: &str) -> BTreeMap<String, i64> {
    let clause = format!("{description} {{ @[probefunc, probename] = count(); }}");
    let traced = Tracer::new(form)
        .clause(&clause)
        .command(path, ARGUMENTS)
        .run()
        .complete();
    table(&traced.results)
}

/// The rows that a test expects.
fn rows<'a>(expected: impl IntoIterator<Item = (&'a str, i64)>) -> BTreeMap<String, i64> {
    expected
        .into_iter()
        .map(|(key, count)| (key.to_owned(), count))
        .collect()
}

/// Addresses and sizes in the image, by nm.
fn symbols(path: &Path) -> Option<BTreeMap<String, u64>> {
    let nm = need_command("addresses of symbols", "nm")?;
    let mut command = Command::new(nm);
    command.arg(path);
    let listed = Running::start(&mut command).finish().success().stdout;
    let symbol = |line: &str| {
        let mut words = line.split_whitespace();
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        Some((words.nth(1)?.to_owned(), address))
    };
    Some(listed.lines().filter_map(symbol).collect())
}

live_tests! {
    fn an_offset_is_hexadecimal_and_counts_from_the_entry(form) {
        let path = program("instructions.c");
        let found = counts(form, &path, "pid$target:a.out:asm_known:4,pid$target:a.out:asm_known:0x9,pid$target:a.out:asm_strings:B");
        assert_eq!(found, rows([("asm_known 4", ROUNDS), ("asm_known 9", ROUNDS), ("asm_strings b", ROUNDS)]));
    }

    /// As in DTrace: a glob for the provider means the process if it ends with its number.
    fn a_glob_with_the_number_is_the_process(form) {
        let path = program("instructions.c");
        let found = counts(form, &path, "p*d$target:a.out:asm_known:entry,*$target:a.out:asm_single:entry");
        assert_eq!(found, rows([("asm_known entry", ROUNDS), ("asm_single entry", ROUNDS)]));
    }

    /// Entry, return and each instruction, every one once a call. This includes functions of one instruction, functions
    /// that share their ends, that lie in two parts, or that end where their section ends.
    fn no_name_means_every_instruction(form) {
        let path = program("instructions.c");
        let functions = ["asm_known", "asm_single", "asm_outer", "asm_inner", "asm_last"];
        let descriptions = functions.map(|function| format!("pid$target:a.out:{function}:"));
        let found = counts(form, &path, &descriptions.join(","));
        let known = ["entry", "return", "0", "1", "4", "8", "9"].map(|name| (format!("asm_known {name}"), ROUNDS));
        let single = ["entry", "return", "0"].map(|name| (format!("asm_single {name}"), ROUNDS));
        let outer = ["entry", "return", "0", "3", "7"].map(|name| (format!("asm_outer {name}"), ROUNDS));
        let inner = ["entry", "return", "0", "4"].map(|name| (format!("asm_inner {name}"), ROUNDS));
        let last = ["entry", "return", "0", "4"].map(|name| (format!("asm_last {name}"), ROUNDS));
        let mut expected: BTreeMap<String, i64> = known.into_iter().chain(single).chain(outer).chain(inner).chain(last).collect();
        // asm_inner is the second half of asm_outer, and is also called by itself; its return is also a return of
        // asm_outer.
        for (key, count) in &mut expected {
            let twice = key.starts_with("asm_inner") || key.starts_with("asm_outer") && !key.ends_with(" 0") && !key.ends_with("entry");
            *count *= 1 + i64::from(twice);
        }
        assert_eq!(found, expected);
    }

    /// A repeated string instruction is one hit; an instruction that jumps to itself is one hit each time.
    fn loops_count_as_often_as_they_go_round(form) {
        let path = program("instructions.c");
        let found = counts(form, &path, "pid$target:a.out:asm_strings:*,pid$target:a.out:asm_backwards:*");
        let rounds: i64 = (0..ROUNDS).map(|round| round % 5 + 1).sum();
        for (key, count) in &found {
            let often = ["asm_backwards 6", "asm_backwards 8", "asm_backwards d"].contains(&key.as_str());
            assert_eq!(*count, if often { rounds } else { ROUNDS }, "{key}");
        }
        assert_eq!(found.len(), 8 + 9 + 2 * 2, "{found:?}");
    }

    /// The cold part lies below the function: its offsets are modulo 2^64, in the listing and in descriptions.
    fn cold_parts_have_offsets_of_their_function(form) {
        let path = program("instructions.c");
        let Some(symbols) = symbols(&path) else { return };
        let cold = symbols["asm_split.cold"].wrapping_sub(symbols["asm_split"]);
        assert!(cold > 1 << 63, "the linker put the cold part behind its function: {cold:x}");
        let found = counts(form, &path, "pid$target:a.out:asm_split:");
        // The first two rounds are below zero.
        let [first, second, third] = [0, 3, 6].map(|more| format!("asm_split {:x}", cold.wrapping_add(more)));
        let mut expected = rows([
            ("asm_split entry", ROUNDS),
            ("asm_split return", ROUNDS),
            ("asm_split 0", ROUNDS),
            ("asm_split 3", ROUNDS),
            ("asm_split 9", ROUNDS - 2),
            ("asm_split c", ROUNDS - 2),
        ]);
        expected.extend([first, second.clone(), third].map(|key| (key, 2)));
        assert_eq!(found, expected);
        let offset = second.rsplit(' ').next().expect("an offset");
        let found = counts(form, &path, &format!("pid$target:a.out:asm_split:{offset}"));
        assert_eq!(found, rows([(second.as_str(), 2)]));
    }

    /// In a glob, functions that lack the offset are skipped.
    fn an_offset_in_some_functions_of_a_glob(form) {
        let found = counts(form, &program("instructions.c"), "pid$target:a.out:asm_*:9");
        assert_eq!(found, rows([("asm_known 9", ROUNDS), ("asm_split 9", ROUNDS - 2)]));
    }

    /// After the function `-` comes an address: of the image, as nm shows it, or of the process. Both name the same
    /// probe.
    fn an_address_of_the_image_or_of_the_process(form) {
        for build in [Build::Usual, Build::FixedAddress, Build::Static, Build::StaticPie] {
            let Some(path) = need_program("instructions.c", build) else { continue };
            let Some(symbols) = symbols(&path) else { return };
            let image = symbols["asm_known"] + 4;
            let row = format!("- {image:x}");
            assert_eq!(counts(form, &path, &format!("pid$target:a.out:-:{image:x}")), rows([(row.as_str(), ROUNDS)]), "{build:?}");

            let mut target = start_waiting(&path, ARGUMENTS);
            let first = maps(target.pid()).into_iter().find(|mapping| mapping.path == path.to_string_lossy());
            let first = first.expect("a mapping of the program").start;
            let base = if matches!(build, Build::Usual | Build::StaticPie) { first } else { 0 };
            let process = base + image;
            let clause = format!("pid$target::-:{process:x},pid$target:a.out:-:0x{image:X} {{ @[probefunc, probename] = count(); }}");
            let tracing = Tracer::new(form).clause(&clause).attach(target.pid());
            target.go();
            target.finish().success();
            let traced = tracing.finish().success();
            // There is only one probe, which fires once for each description.
            assert_eq!(table(&traced.results), rows([(row.as_str(), 2 * ROUNDS)]), "{build:?}");
        }
    }

    /// A clause fires once for all names of a function, times the number of its matching descriptions. Clauses are
    /// independent. DTrace has a probe for each name instead.
    fn a_function_of_several_names(form) {
        let path = program("aliased.c");
        let entry = |name: &str| format!("pid$target:a.out:{name}:entry");
        let [own, one, two] = ["aliased", "other_name", "third_name"];
        let glob = |name: &str| name.replacen(|_: char| true, "?", 1);
        let (own_glob, one_glob) = (glob(own), glob(one));
        // The descriptions of a clause, and the number of times that it fires at a hit.
        let cases: [(&[&str], i64); 14] = [
            (&[own], 1),
            (&[one], 1),
            (&[own, one], 1),
            (&[one, own], 1),
            (&[one, two], 1),
            (&[one, two, own], 1),
            (&[&one_glob, two], 1),
            (&[&own_glob, one], 1),
            (&["*_name", own], 1),
            (&[own, own], 2),
            (&[own, &own_glob], 2),
            (&[one, one], 2),
            (&[one, own, one], 2),
            (&[one, two, own, own], 2),
        ];
        let clause = |descriptions: &[&str]| descriptions.iter().map(|name| entry(name)).collect::<Vec<_>>().join(",");
        for (descriptions, times) in cases {
            // Another clause with the same descriptions changes nothing.
            let list = clause(descriptions);
            let text = format!("{list} {{ @[\"first\"] = count(); }} {list} {{ @[\"second\"] = count(); }}");
            let traced = Tracer::new(form).clause(&text).command(&path, "").run().complete();
            let expected = rows([("first", 100 * times), ("second", 100 * times)]);
            assert_eq!(table(&traced.results), expected, "{descriptions:?}");
        }
    }

    /// strlen is an IFUNC: its instructions are those of the chosen implementation.
    fn every_instruction_of_strlen(form) {
        let clause = "pid$target::strlen: { @[probename] = count(); @all[\"strlen\"] = count(); }";
        let mut target = start_waiting(&program("instructions.c"), ARGUMENTS);
        let tracing = Tracer::new(form).clause(clause).attach(target.pid());
        target.go();
        target.finish().success();
        let traced = tracing.finish().success();
        let mut found = table(&traced.results);
        let all = found.remove("strlen").expect("the sum");
        assert_eq!(all, found.values().sum::<i64>());
        let (entries, returns) = (found["entry"], found["return"]);
        assert!(entries >= 2 * ROUNDS, "{found:?}");
        assert_eq!((entries, entries), (returns, found["0"]), "{found:?}");
        assert!(found.len() > 6, "{found:?}");
    }

    /// All probes of a program at once: `@` has one slot, `@[probefunc]` one for each function.
    fn every_instruction_of_a_program(form) {
        let path = program("instructions.c");
        let sum = |clause: &str| {
            let traced = Tracer::new(form).clause(clause).command(&path, ARGUMENTS).run().complete();
            assert!(matched(&traced.finished.stderr) > 400, "{}", traced.finished.stderr);
            traced.results
        };
        let all = value(&sum("pid$target:a.out:: { @ = count(); }"));
        let by_function = table(&sum("pid$target:a.out:: { @[probefunc] = count(); }"));
        let by_name = table(&sum("pid$target:a.out:: { @[probefunc, probename] = count(); }"));
        let by_handler = table(&sum("pid$target:a.out:: /pid/ { @[probefunc, probename] = sum(1); }"));
        assert_eq!(all, by_function.values().sum::<i64>());
        assert_eq!(by_name, by_handler);
        for (function, count) in by_function {
            let prefix = format!("{function} ");
            let names = by_name.iter().filter(|(key, _)| key.starts_with(&prefix));
            assert_eq!(count, names.map(|(_, count)| count).sum::<i64>(), "{function}");
        }
    }
}

/// A refusal names the existing probes, has a tag, and ends with dtrace's exit status; the command is not run.
#[test]
fn names_of_no_instruction_are_refused() {
    let path = program("instructions.c");
    let cases = [
        (
            "pid$target:a.out:asm_known:3",
            "[D_PROC_ALIGN]",
            "a.out:asm_known:3: not an instruction's start; the nearest are 1 and 4",
        ),
        (
            "pid$target:a.out:asm_strings:7",
            "[D_PROC_ALIGN]",
            "the nearest are 6 and 8",
        ),
        (
            "pid$target:a.out:asm_strings:d",
            "[D_PROC_ALIGN]",
            "the nearest are b and e",
        ),
        (
            "pid$target:a.out:asm_last:1",
            "[D_PROC_ALIGN]",
            "the nearest are 0 and 4",
        ),
        (
            "pid$target:a.out:asm_last:5",
            "[D_PROC_OFF]",
            "outside of the function, which has 0x5 bytes",
        ),
        (
            "pid$target:a.out:asm_single:ffffffff",
            "[D_PROC_OFF]",
            "which has 0x1 bytes",
        ),
        ("pid$target:a.out:asm_*:7654", "[D_PROC_OFF]", "outside of the function"),
        (
            "pid$target::asm_known:nonsense",
            "[D_PROC_NAME]",
            "asm_known:nonsense: the name is neither entry nor return nor an offset",
        ),
        (
            "pid$target:libc:strlen:1",
            "[D_PROC_ALIGN]",
            "libc:strlen:1: not an instruction's start; the nearest are",
        ),
        (
            "pid$target:libc:strlen:fffff",
            "[D_PROC_OFF]",
            "outside of the function",
        ),
        ("pid$target:a.out:-:1", "[D_PROC_OFF]", "no function is known there"),
        (
            "pid$target:a.out:-:entry",
            "[D_PROC_NAME]",
            "after the function -, the name must be an address",
        ),
        (
            "pid$target:a.out:-:",
            "[D_PROC_NAME]",
            "after the function -, the name must be an address",
        ),
        (
            "pid$target:a.out:-:7fffffffffffffff",
            "[D_PROC_OFF]",
            "no function is known there",
        ),
        (
            "pid$target:libc:-:1",
            "[D_PROC_LIB]",
            "in a library, the function - needs an address inside of a known function",
        ),
        ("pid$target::-:7fffffffffffffff", "", "does not match any probes"),
        ("p*d:a.out:main:entry", "[D_PDESC_ZERO]", "does not match any probes"),
    ];
    for (description, tag, text) in cases {
        let traced = Tracer::new(Form::Default).clause(&format!("{description} {{ @ = count(); }}"));
        let traced = traced.command(&path, ARGUMENTS).run();
        let finished = traced.finished;
        assert_eq!(finished.code(), 1, "{description}: {}", finished.stderr);
        assert!(
            finished.stderr.contains(tag) && finished.stderr.contains(text),
            "{description}: {}",
            finished.stderr
        );
        assert!(!finished.stdout.contains("OK"), "{description}: the command ran");
    }
}

/// For an address in the middle of an instruction, the nearest instructions are named as addresses.
#[test]
fn the_nearest_of_an_address_are_addresses() {
    let path = program("instructions.c");
    let Some(symbols) = symbols(&path) else { return };
    let entry = symbols["asm_known"];
    let description = format!("pid$target:a.out:-:{:x} {{ @ = count(); }}", entry + 2);
    let finished = Tracer::new(Form::Default)
        .clause(&description)
        .command(&path, ARGUMENTS)
        .run()
        .finished;
    let expected = format!(
        "not an instruction's start; the nearest are {:x} and {:x}",
        entry + 1,
        entry + 4
    );
    assert!(finished.stderr.contains(&expected), "{}", finished.stderr);
}

/// A listing, too, names offsets, in a running program.
#[test]
fn offsets_are_listed() {
    let mut target = start_waiting(&program("instructions.c"), ARGUMENTS);
    let tracer = Tracer::new(Form::Default)
        .argument("-l")
        .clause("pid$target:a.out:asm_known:");
    let traced = tracer.process(target.pid()).run().success();
    let names: Vec<&str> = traced
        .results
        .lines()
        .skip(1)
        .filter_map(|line| line.split_whitespace().last())
        .collect();
    assert_eq!(
        names,
        ["entry", "return", "0", "1", "4", "8", "9"],
        "{}",
        traced.results
    );
    target.go();
    target.finish().success();
}
