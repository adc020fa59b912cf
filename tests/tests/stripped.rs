//! Programs without symbols: functions that only the unwinding tables know.
//!
//! The same source is compiled with symbols and without. The code of both is the same. So a count at an address of one
//! must equal the count of the function that begins at this address in the other.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use nanoprobe_tests::command::{Running, run};
use nanoprobe_tests::left_out::{left_out, need_command};
use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::{Build, need_program, program};
use nanoprobe_tests::results::{function_of, stacks, table};
use nanoprobe_tests::tracer::{Form, Tracer, nanoprobe, start_waiting};

const ROUNDS: i64 = 100;
/// The functions of the program, and how often each is called in `ROUNDS` rounds.
const CALLS: [(&str, i64); 7] = [
    ("main", 1),
    ("twice", ROUNDS + 3),
    ("leaf", 2 * (ROUNDS + 3) + 2 * ROUNDS),
    ("tail", ROUNDS + ROUNDS / 2),
    ("recursive", 4),
    ("unlikely", ROUNDS),
    ("zone", ROUNDS),
];

fn stripped() -> Option<PathBuf> {
    need_program("stripped.c", Build::Stripped)
}

/// The function symbols of the build with symbols, by the names that the stripped build has for them.
fn by_address() -> Option<BTreeMap<String, BTreeSet<String>>> {
    let nm = need_command("addresses of symbols", "nm")?;
    let listed = Running::start(Command::new(nm).arg(program("stripped.c")))
        .finish()
        .success()
        .stdout;
    let mut names: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in listed.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [address, _, name] = words[..]
            && let Ok(address) = u64::from_str_radix(address, 16)
        {
            names
                .entry(format!("{address:#x}"))
                .or_default()
                .insert(name.to_owned());
        }
    }
    Some(names)
}

/// The name that a function has in the stripped build.
fn unnamed(name: &str) -> Option<String> {
    let names = by_address()?;
    names
        .into_iter()
        .find(|(_, names)| names.contains(name))
        .map(|(address, _)| address)
}

/// `@[probefunc] = count()` of a description.
fn counts(form: Form, path: &Path, description: &str) -> BTreeMap<String, i64> {
    let clause = format!("{description} {{ @[probefunc] = count(); }}");
    let tracer = Tracer::new(form).argument("-q").clause(&clause);
    table(&tracer.command(path, &ROUNDS.to_string()).run().complete().results)
}

live_tests! {
    /// The results have every function that was called, with the same count, and no other function.
    fn counts_are_those_of_the_build_with_symbols(form) {
        let (Some(path), Some(names)) = (stripped(), by_address()) else { return };
        for (name, calls) in [("entry", &CALLS[..]), ("return", &CALLS[..])] {
            let with_names = counts(form, &program("stripped.c"), &format!("pid$target:a.out::{name}"));
            for (function, calls) in calls {
                assert_eq!(with_names.get(*function), Some(calls), "{name} {function}");
            }
            let without = counts(form, &path, &format!("pid$target:a.out::{name}"));
            let mut found = BTreeSet::new();
            for (address, count) in &without {
                let known = names.get(address).unwrap_or_else(|| panic!("{address} is no function: {without:?}"));
                // This piece cannot be distinguished from a function: docs/d/providers.md.
                if known.contains("zone_part") {
                    assert_eq!(*count, ROUNDS);
                    continue;
                }
                let right = known.iter().find_map(|name| with_names.get(name));
                assert_eq!(Some(count), right, "{name} {address} {known:?}");
                found.extend(known.iter().cloned());
            }
            for (function, _) in calls {
                assert!(found.contains(*function), "{name} {function}: {without:?}");
            }
        }
    }

    /// Where it is not sure that a function is entered by a call, flags and the red zone stay as they are: `zone` needs
    /// both in a piece of code that looks like a function. The program checks itself.
    fn a_piece_that_looks_like_a_function_keeps_flags_and_red_zone(form) {
        let Some(path) = stripped() else { return };
        let (Some(zone), Some(part)) = (unnamed("zone"), unnamed("zone_part")) else { return };
        for clause in [
            "@ = count();",
            "@[ustack()] = count(); @times[probefunc, arg0] = quantize(timestamp);",
            "printf(\"%s %d\\n\", probefunc, arg0); trace(uregs[R_RSP]);",
        ] {
            let clause = format!("pid$target:a.out:{zone}:entry,pid$target:a.out:{part}: {{ {clause} }}");
            let traced = Tracer::new(form).clause(&clause).command(&path, &ROUNDS.to_string()).run().complete();
            assert!(traced.finished.stdout.lines().any(|line| line == "OK"), "{clause}: {}", traced.finished.stdout);
        }
    }

    /// probefunc, the frames of ustack(), ufunc() and globs have one name for a function.
    fn a_function_has_one_name(form) {
        let Some(path) = stripped() else { return };
        let (Some(leaf), Some(twice), Some(main)) = (unnamed("leaf"), unnamed("twice"), unnamed("main")) else { return };
        let clause = format!(
            "pid$target:stripped:{leaf}:entry {{ @[probefunc] = count(); @from[ufunc(ucaller)] = count(); @all[ustack()] = count(); }}"
        );
        let tracer = Tracer::new(form).argument("-q").clause(&clause);
        let traced = tracer.command(&path, &ROUNDS.to_string()).run().complete();
        let counted = table(&traced.results);
        assert_eq!(counted.get(&leaf), Some(&CALLS[2].1), "{}", traced.results);
        // `tail` ends in `leaf`, so main's are the calls by `tail` and through the table.
        let of = |name: &str| format!("stripped`{name}");
        assert_eq!(counted.get(&of(&twice)), Some(&(2 * (ROUNDS + 3))), "{}", traced.results);
        assert_eq!(counted.get(&of(&main)), Some(&(2 * ROUNDS)), "{}", traced.results);
        let mut seen = BTreeMap::new();
        for (frames, count) in stacks(&traced.results) {
            assert_eq!(frames[0], of(&leaf), "{}", traced.results);
            for frame in frames.iter().take_while(|frame| frame.starts_with("stripped`")) {
                *seen.entry(function_of(frame).to_owned()).or_insert(0) += count;
            }
        }
        let names = by_address().unwrap_or_default();
        for name in seen.keys() {
            assert!(names.contains_key(name), "{name}: {}", traced.results);
        }
        assert_eq!(seen.get(&main), Some(&CALLS[2].1), "{}", traced.results);
    }

    /// One box for each function, as wide as its calls, however many places it is called from.
    fn a_function_is_one_box(form) {
        let (Some(path), Some(main), Some(twice)) = (stripped(), unnamed("main"), unnamed("twice")) else { return };
        let folder = tempfile::tempdir().expect("a folder");
        let picture = folder.path().join("out.svg");
        let tracer = Tracer::new(form).argument("-q").argument("--flamegraph").argument(&picture);
        let clause = format!("pid$target:a.out:{twice}:entry {{ @[ustack()] = count(); }}");
        tracer.clause(&clause).command(&path, &ROUNDS.to_string()).run().complete();
        let picture = std::fs::read_to_string(&picture).expect("the picture");
        let boxes = |name: &str| picture.matches(&format!("<title>stripped`{name} (")).count();
        assert_eq!(boxes(&main), 1, "{picture}");
        assert!(picture.contains(&format!("<title>stripped`{main} ({} hits,", ROUNDS + 3)), "{picture}");
        // Below main, and below the recursion of four.
        assert_eq!(boxes(&twice), 4, "{picture}");
    }

    /// A part that was moved away belongs to its function, in stacks and in probes on all instructions.
    fn a_moved_part_is_its_function_s(form) {
        let (Some(path), Some(unlikely), Some(names)) = (stripped(), unnamed("unlikely"), by_address()) else { return };
        let part = names.iter().find(|(_, names)| names.contains("unlikely.cold")).map(|(address, _)| address.clone());
        let Some(part) = part else { return left_out("a moved part", "the compiler moves none") };
        let found = counts(form, &path, "pid$target:a.out:0x*:entry");
        assert!(found.contains_key(&unlikely) && !found.contains_key(&part), "{part}: {found:?}");
        // `seldom` is called from the part.
        let Some(seldom) = unnamed("seldom") else { return };
        let clause = format!("pid$target:a.out:{seldom}:entry {{ @[usym(ucaller)] = count(); }}");
        let tracer = Tracer::new(form).argument("-q").clause(&clause);
        let traced = tracer.command(&path, &ROUNDS.to_string()).run().complete();
        assert_eq!(table(&traced.results).get(&format!("stripped`{unlikely}.cold")), Some(&(ROUNDS / 10)), "{}", traced.results);
    }
}

/// A program of the distribution, all of whose functions have probes, behaves as it did without probes. Jumps and
/// traps yield the same counts.
#[test]
fn bash_runs_as_before() {
    let Some(bash) = need_command("a stripped program", "bash") else {
        return;
    };
    let script = "for i in 1 2 3 4 5 6 7 8; do x=$((x * 3 + i)); [[ $x == *7 ]] && y+=$x; done; echo $x ${y:-none}";
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), script).expect("the script");
    let plain = run(Command::new(&bash).arg(file.path())).success().stdout;
    let counted = |form| {
        let tracer = Tracer::new(form)
            .argument("-q")
            .clause("pid$target:bash::entry { @[probefunc] = count(); }");
        let traced = tracer
            .command(&bash, &file.path().display().to_string())
            .run()
            .success();
        assert!(traced.finished.stdout.contains(&plain), "{}", traced.finished.stdout);
        table(&traced.results)
    };
    let by_jumps = counted(Form::Default);
    let unnamed = by_jumps.keys().filter(|name| name.starts_with("0x")).count();
    if unnamed == 0 {
        return left_out("functions without names of bash", "bash has its symbols here");
    }
    assert!(unnamed > 30, "{by_jumps:?}");
    assert_eq!(by_jumps, counted(Form::Trap));
}

/// The functions of a list of probes.
fn listed(path: &Path, description: &str) -> BTreeSet<String> {
    let finished = run(Command::new(nanoprobe())
        .args(["-l", "-n", description, "-c"])
        .arg(path));
    let lines = finished.stdout.lines().filter(|line| line.contains(" pid"));
    lines
        .filter_map(|line| line.split_whitespace().nth(3))
        .map(str::to_owned)
        .collect()
}

#[test]
fn functions_without_names_are_listed_and_can_be_written_again() {
    let (Some(path), Some(names)) = (stripped(), by_address()) else {
        return;
    };
    let all = listed(&path, "pid$target:a.out::entry");
    let by_glob = listed(&path, "pid$target:a.out:0x*:entry");
    for (function, _) in CALLS {
        let address = unnamed(function).expect("its address");
        assert!(
            all.contains(&address) && by_glob.contains(&address),
            "{function}: {all:?}"
        );
        assert_eq!(
            listed(&path, &format!("pid$target:a.out:{address}:entry")),
            BTreeSet::from([address])
        );
    }
    assert!(by_glob.iter().all(|address| names.contains_key(address)), "{by_glob:?}");
    // In the build with symbols, no function has such a name.
    let with_symbols = listed(&program("stripped.c"), "pid$target:a.out::entry");
    assert!(
        with_symbols.iter().all(|name| !name.starts_with("0x")),
        "{with_symbols:?}"
    );
}

/// The program chooses the code of a function when it starts (an IFUNC). A call is counted once, under the function's
/// name, and not also under the address of the chosen code.
#[test]
fn a_chosen_function_is_counted_once() {
    const SOURCE: &str = r#"
#include <stdio.h>
__attribute__((noipa)) static int first(int n) { return n + 1; }
__attribute__((noipa)) static int second(int n) { return n + 2; }
static int (*choose(void))(int) { return first; }
int chosen(int n) __attribute__((ifunc("choose")));
int (*volatile other)(int) = second;
int main(void)
{
	int sum = 0;
	puts("ready");
	fflush(stdout);
	getchar();
	for (int n = 0; n < 20; n++)
		sum += chosen(n) + other(n);
	puts(sum == 440 ? "OK" : "FAILED");
	return 0;
}
"#;
    let folder = tempfile::tempdir().expect("a folder");
    let (source, path) = (folder.path().join("chosen.c"), folder.path().join("chosen"));
    std::fs::write(&source, SOURCE).expect("the source");
    let Some(compiler) = need_command("a program with an IFUNC", "gcc") else {
        return;
    };
    let mut command = Command::new(compiler);
    command.args(["-O2", "-s", "-rdynamic", "-o"]).arg(&path).arg(&source);
    Running::start(&mut command).finish().success();
    for form in [Form::Default, Form::Trap] {
        let mut target = start_waiting(&path, "");
        let tracing = Tracer::new(form)
            .argument("-q")
            .clause("pid$target:a.out::entry { @[probefunc] = count(); }")
            .trace(target.pid());
        target.go();
        target.finish().success();
        let found = table(&tracing.finish().success().results);
        assert_eq!(found.get("chosen"), Some(&20), "{found:?}");
        // `second` has no name. `first` has the name of the IFUNC for which it was chosen.
        let twenty: Vec<&String> = found
            .iter()
            .filter(|(_, count)| **count == 20)
            .map(|(name, _)| name)
            .collect();
        assert!(twenty.len() == 2 && twenty[0].starts_with("0x"), "{found:?}");
    }
}
