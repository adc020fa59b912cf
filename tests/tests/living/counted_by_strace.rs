//! The counts of the provider `syscall` are those of `strace -f -c`, in programs that do the same in every run.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use nanoprobe_tests::command::run;
use nanoprobe_tests::left_out::{left_out, need_command};
use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::{Build, need_program};
use nanoprobe_tests::results::table;
use nanoprobe_tests::tracer::{Tracer, assert_nothing_lost};

/// Calls whose number depends on where the kernel has put things, and on which thread is first.
const VARYING: [&str; 7] = ["brk", "mmap", "munmap", "mremap", "mprotect", "madvise", "futex"];
/// strace counts a call when it returns. And it sees the command's own execve, and the calls that glibc makes before
/// the linker has announced the libraries.
const OTHERS: [&str; 4] = ["execve", "exit", "exit_group", "prlimit64"];

/// The counts of one run under strace; `None`: it cannot trace here.
fn strace(strace: &Path, program: &Path, arguments: &[&str]) -> Option<BTreeMap<String, i64>> {
    let counts = tempfile::NamedTempFile::new().expect("a temporary file");
    let mut command = Command::new(strace);
    command
        .args(["-f", "-c", "-o"])
        .arg(counts.path())
        .arg(program)
        .args(arguments);
    let finished = run(&mut command);
    let text = std::fs::read_to_string(counts.path()).expect("the counts");
    if finished.code() != 0 || !text.contains("syscall") {
        left_out(
            "counts of strace",
            finished.stderr.lines().next().unwrap_or("strace failed"),
        );
        return None;
    }
    // % time, seconds, usecs/call, calls, perhaps errors, syscall
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let name = words.last().filter(|name| **name != "total")?;
        Some(((*name).to_owned(), words.get(3)?.parse().ok()?))
    };
    Some(text.lines().filter_map(row).collect())
}

/// A folder of files for a program to look at.
fn tree() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for inner in 0..40 {
        let inner = folder.path().join(format!("folder{inner}"));
        std::fs::create_dir(&inner).expect("a folder");
        for file in 0..10 {
            std::fs::write(inner.join(format!("file{file}")), "text").expect("a file");
        }
    }
    folder
}

live_tests! {
    fn programs_that_do_the_same_in_every_run(form) {
        let Some(tracer) = need_command("counts of strace", "strace") else { return };
        let folder = tree();
        let path = folder.path().to_str().expect("a path");
        let script = folder.path().join("script.sh");
        std::fs::write(&script, "for i in {1..50}; do [ -e $0 ] && echo $i > /dev/null; done; read line < $0; true").expect("a script");
        let script = script.to_str().expect("a path");
        let database = "create table t(a, b); insert into t values(1, 2), (3, 4); select * from t order by b;";
        let python = "import os\nfor name in sorted(os.listdir('/')): os.path.exists('/' + name)";
        let is_static = need_program("staticprog.c", Build::Static);
        let mut programs: Vec<(std::path::PathBuf, Vec<&str>)> = Vec::new();
        for (name, arguments) in [
            ("ls", vec!["-lR", path]),
            ("bash", vec![script]),
            ("sqlite3", vec![":memory:", database]),
            ("/usr/bin/python3", vec!["-B", "-S", "-E", "-c", python]),
        ] {
            programs.extend(need_command("counts of strace", name).map(|program| (program, arguments)));
        }
        programs.extend(is_static.map(|program| (program, vec!["50"])));
        for (program, arguments) in programs {
            let runs = (0..2).map_while(|_| strace(&tracer, &program, &arguments));
            let [first, second] = &runs.collect::<Vec<_>>()[..] else { return };
            let mut traced = Tracer::new(form).clause("syscall:::entry { @[probefunc] = count(); }").argument("-c");
            let quoted: Vec<String> = arguments.iter().map(|argument| format!("'{}'", argument.replace('\'', "'\\''"))).collect();
            traced = traced.argument(format!("{} {}", program.display(), quoted.join(" ")));
            let traced = traced.run().success();
            assert_nothing_lost(&traced.finished.stderr);
            let rows = table(&traced.results);
            let is_same = |name: &&String| {
                let name = name.as_str();
                first.get(name) == second.get(name) && !VARYING.contains(&name) && !OTHERS.contains(&name)
            };
            let mut compared = 0;
            for name in first.keys().filter(is_same) {
                assert_eq!(rows.get(name), first.get(name), "{name} of {}: {rows:?}", program.display());
                compared += 1;
            }
            assert!(compared >= 6, "{}: {first:?} {second:?}", program.display());
            // Nor does nanoprobe see a call that strace does not see.
            for name in rows.keys().filter(|name| !OTHERS.contains(&name.as_str()) && !VARYING.contains(&name.as_str())) {
                assert!(first.contains_key(name) || second.contains_key(name), "{name} of {}", program.display());
            }
        }
    }
}
