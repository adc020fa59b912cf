//! `memleak` with the allocators that programs link: libc's, jemalloc, tcmalloc, mimalloc, as libraries and statically.

use std::path::{Path, PathBuf};
use std::process::Command;

use nanoprobe_tests::command::run;
use nanoprobe_tests::left_out::{left_out, need_command};
use nanoprobe_tests::program::{program, sources};
use nanoprobe_tests::tracer::{assert_nothing_lost, nanoprobe, start_waiting, wait_until_tracing};

/// The blocks and bytes of the stacks that begin in a function: a line for each.
fn of<'l>(lines: &'l [String], function: &str) -> Vec<(&'l str, &'l str)> {
    let begins = format!("`{function}+");
    let words = lines.iter().map(|line| line.split_whitespace().collect::<Vec<&str>>());
    let stacks = words.filter(|words| words.len() == 5 && words[4].contains(&begins));
    stacks.map(|words| (words[0], words[1])).collect()
}

/// The leaks of `tools memory`: 12 blocks of 100 bytes and 7 of 1000 from two places, and one of posix_memalign; 500
/// blocks were allocated, grown and freed.
#[track_caller]
pub fn assert_known_leaks(lines: &[String]) {
    assert_eq!(of(lines, "leak"), [("7", "7000"), ("12", "1200")], "{lines:?}");
    assert_eq!(of(lines, "leak_aligned"), [("1", "256")], "{lines:?}");
    assert_eq!(of(lines, "frees"), [("0", "0"), ("0", "0")], "{lines:?}");
    // The second frame of the stack of `leak` is its caller.
    let at = lines.iter().position(|line| line.contains("`leak+"));
    let caller = at.and_then(|at| lines.get(at + 1));
    assert!(caller.is_some_and(|caller| caller.contains("`main+")), "{lines:?}");
}

/// Compiles a program with an allocator; `None`, and reported, if this machine lacks it.
fn with_allocator(source: &str, flags: &[&str], folder: &Path) -> Option<PathBuf> {
    let what = format!("memleak with {}", flags.join(" "));
    let compiler = need_command(&what, "g++")?;
    let path = folder.join("tools");
    let mut command = Command::new(compiler);
    command.args(["-D_GNU_SOURCE", "-O2", "-g", "-pthread", "-fno-stack-protector"]);
    command.arg(sources().join(source)).arg("-o").arg(&path).args(flags);
    let finished = run(&mut command);
    if finished.code() == 0 {
        return Some(path);
    }
    assert!(
        ["cannot find -l", "No such file"]
            .iter()
            .any(|sign| finished.stderr.contains(sign)),
        "{command:?}\n{}",
        finished.stderr
    );
    left_out(&what, "the library is not installed");
    None
}

/// The lines of memleak on a command.
#[track_caller]
fn memleak(program: &Path, mode: &str) -> Vec<String> {
    let results = tempfile::NamedTempFile::new().expect("a temporary file");
    let mut traced = Command::new(nanoprobe());
    traced.args(["tool", "memleak", "-o"]).arg(results.path()).arg("-c");
    let finished = run(traced.arg(format!("{} {mode}", program.display()))).success();
    assert_nothing_lost(&finished.stderr);
    let text = std::fs::read_to_string(results.path()).expect("the results");
    text.lines().map(str::to_owned).collect()
}

/// The allocator is found without its name.
#[test]
fn memleak_finds_the_allocator_that_a_program_links() {
    const WHOLE: [&str; 2] = ["-Wl,--whole-archive", "-Wl,--no-whole-archive"];
    for flags in [
        &["-ljemalloc"][..],
        &["-ltcmalloc_minimal"],
        &["-lmimalloc"],
        &["-static", WHOLE[0], "-ljemalloc", WHOLE[1], "-ldl", "-lm"],
        &["-static", WHOLE[0], "-ltcmalloc_minimal", WHOLE[1], "-lm"],
        &[
            "-Wl,-Bstatic",
            WHOLE[0],
            "-ljemalloc",
            WHOLE[1],
            "-Wl,-Bdynamic",
            "-ldl",
            "-lm",
        ],
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let Some(path) = with_allocator("tools.cpp", flags, folder.path()) else {
            continue;
        };
        let lines = memleak(&path, "memory");
        assert_known_leaks(&lines);
    }
}

/// The functions of `leaks.cpp`, with blocks and bytes.
const LEAKS: [(&str, i64, i64); 9] = [
    ("leak_new", 9, 360),
    ("leak_array", 8, 800),
    ("leak_nothrow", 7, 231),
    ("leak_aligned_new", 6, 768),
    ("leak_calloc", 5, 300),
    ("leak_posix", 3, 768),
    ("leak_aligned", 2, 384),
    ("grow_early", 1, 4000),
    ("leak_realloc", 4, 360),
];

/// The sum over the stacks that begin in a function: the compiler may have unrolled the loop that calls it.
fn sum(lines: &[String], function: &str) -> (i64, i64) {
    let number = |word: &str| word.parse::<i64>().expect("a number");
    let rows = of(lines, function).into_iter();
    rows.fold((0, 0), |(blocks, bytes), row| {
        (blocks + number(row.0), bytes + number(row.1))
    })
}

/// Attached: memory that was allocated before is no leak, and neither is memory that was freed in any way.
#[track_caller]
fn assert_all_leaks(path: &Path) {
    let mut running = start_waiting(path, "");
    let results = tempfile::NamedTempFile::new().expect("a temporary file");
    let mut command = Command::new(nanoprobe());
    command.args(["tool", "memleak", "-v", "-p", &running.pid().to_string(), "-o"]);
    let mut tool = nanoprobe_tests::command::Running::start(command.arg(results.path()));
    wait_until_tracing(&mut tool);
    running.go();
    running.finish().success();
    let finished = tool.finish().success();
    assert_nothing_lost(&finished.stderr);
    let text = std::fs::read_to_string(results.path()).expect("the results");
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for (function, blocks, bytes) in LEAKS {
        assert_eq!(sum(&lines, function), (blocks, bytes), "{function}\n{text}");
    }
    let freed = of(&lines, "frees_everything");
    assert!(
        !freed.is_empty() && freed.iter().all(|row| *row == ("0", "0")),
        "{text}"
    );
    let bytes: i64 = LEAKS.iter().map(|leak| leak.2).sum();
    let of_program = lines.iter().map(|line| line.split_whitespace().collect::<Vec<&str>>());
    let of_program = of_program.filter(|words| words.len() == 5 && words[4].contains("`leak"));
    let all: i64 = of_program.filter_map(|words| words[1].parse::<i64>().ok()).sum();
    assert_eq!(all + 4000, bytes, "{text}");
}

#[test]
fn memleak_finds_each_form_of_allocation_with_its_caller() {
    assert_all_leaks(&program("leaks.cpp"));
    for flags in [&["-ljemalloc"][..], &["-ltcmalloc_minimal"], &["-lmimalloc"]] {
        let folder = tempfile::tempdir().expect("a folder");
        if let Some(path) = with_allocator("leaks.cpp", flags, folder.path()) {
            assert_all_leaks(&path);
        }
    }
}

/// A report of an interval shows all blocks that were allocated since the beginning and still exist.
#[test]
fn memleak_reports_at_each_interval() {
    let mut running = start_waiting(&program("leaks.cpp"), "");
    let mut command = Command::new(nanoprobe());
    command.args(["tool", "memleak", "-v", "-p", &running.pid().to_string(), "100ms"]);
    let mut tool = nanoprobe_tests::command::Running::start(&mut command);
    wait_until_tracing(&mut tool);
    tool.wait_until("an empty report", |tool| tool.stdout().contains("ALLOCATED BY"));
    running.go();
    running.finish().success();
    let text = tool.finish().success().stdout;
    let reports = text.split("ALLOCATED BY").count();
    let first = text.split("ALLOCATED BY").nth(1).unwrap_or_default();
    assert!(reports > 2 && !first.contains("`leak_new+"), "{text}");
    let last = text.rsplit("ALLOCATED BY").next().unwrap_or_default();
    let lines: Vec<String> = last.lines().map(str::to_owned).collect();
    assert_eq!(sum(&lines, "leak_new"), (9, 360), "{text}");
}
